//! An established connection: commands and their replies, one at a time.

use std::time::Duration;

use bson::rawdoc;
use cmap_core::connection::{Command, CommandError, ProtocolError};
use cmap_core::wire::{CommandReply, EncodeError, Flags, Limits, MessageIds, MessageWriter};

use super::{ScriptedServer, establish, message, options, with_more_to_come};

#[test]
fn a_reply_with_document_sequences_breaks_the_connection() {
    let mut connection = establish(&mut ScriptedServer::default(), options(None)).unwrap();
    connection.send(&mut Vec::new(), &Command::new("db", &rawdoc! { "find": "c" })).unwrap();
    let (ok, mut reply) = (rawdoc! { "ok": 1 }, Vec::new());
    let ids = MessageIds::reply(1000, 2);
    let mut writer = MessageWriter::begin(&mut reply, ids, Flags::NONE, &ok, &[], &Limits::DEFAULT).unwrap();
    writer.sequence("documents", [&*ok]).unwrap();
    writer.finish();

    assert_eq!(connection.read(&mut &reply[..]).unwrap_err(), ProtocolError::Sequences);

    assert!(!connection.is_idle());
}

#[test]
fn what_follows_a_reply_unasked_breaks_the_connection() {
    let mut connection = establish(&mut ScriptedServer::default(), options(None)).unwrap();
    connection.send(&mut Vec::new(), &Command::new("admin", &rawdoc! { "ping": 1 })).unwrap();
    let (ok, ahead) = (rawdoc! { "ok": 1 }, rawdoc! { "ok": 1, "ahead": true });
    let sent = [message(2, &ok), message(3, &ahead)].concat();
    let mut unread = sent.as_slice();
    assert_eq!(connection.read(&mut unread).unwrap().unwrap().body, &*ok, "what was asked for is good");

    assert_eq!(connection.read(&mut unread).unwrap_err(), ProtocolError::Unasked);

    let refused = connection.send(&mut Vec::new(), &Command::new("admin", &rawdoc! { "ping": 1 }));
    assert_eq!(refused, Err(CommandError::Errored));
}

#[test]
fn a_database_with_a_nul_is_refused_before_anything_is_sent() {
    let mut connection = establish(&mut ScriptedServer::default(), options(None)).unwrap();
    let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());

    let refused = connection.send(&mut out, &Command::new("admin\0x", &ping));

    let name = "admin\0x".into();
    assert_eq!(refused, Err(CommandError::Encode(EncodeError::NulInName { name })));
    assert!(out.is_empty() && connection.is_idle(), "the connection is as good as before");
}

#[test]
fn a_ping_allocates_nothing_once_warm() {
    for piece in [7, usize::MAX] {
        let mut server = ScriptedServer::default();
        let mut connection = establish(&mut server, options(None)).unwrap();
        let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());
        let pings = (0..1000).map(|number| message(2 + number, &rawdoc! { "ok": 1.0 }));
        let mut replies = pings.collect::<Vec<_>>().into_iter();
        let mut round_trip = |reply: &[u8]| {
            out.clear();
            connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
            let mut ok = false;
            for mut bytes in reply.chunks(piece) {
                let reply = connection.read(&mut bytes).unwrap();
                ok = reply.is_some_and(|reply| CommandReply::read(reply.body).ok);
            }
            assert!(ok);
        };
        round_trip(&replies.next().unwrap());

        let allocations = allocation_counter::measure(|| replies.as_slice().iter().for_each(|reply| round_trip(reply)));

        assert_eq!(allocations.count_total, 0, "in pieces of {piece}");
    }
}

#[test]
fn an_answer_to_another_request_breaks_the_connection() {
    let mut server = ScriptedServer::default();
    let mut connection = establish(&mut server, options(None)).unwrap();
    let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());
    connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
    let mut reply = server.answer(&out);
    reply[8] ^= 1;

    assert!(connection.read(&mut &reply[..]).is_err());

    assert!(!connection.is_idle());
    assert!(connection.send(&mut Vec::new(), &Command::new("admin", &ping)).is_err());
}

#[test]
fn more_replies_than_the_command_allowed_break_the_connection_msg_9() {
    let mut server = ScriptedServer::default();
    let mut connection = establish(&mut server, options(None)).unwrap();
    let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());
    connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
    let reply = with_more_to_come(server.answer(&out));

    assert_eq!(connection.read(&mut &reply[..]).unwrap_err(), ProtocolError::MoreToCome);

    assert_eq!(connection.send(&mut Vec::new(), &Command::new("admin", &ping)), Err(CommandError::Errored));
}

#[test]
fn a_command_that_allows_it_has_replies_until_the_last_says_so_msg_8() {
    let mut server = ScriptedServer::default();
    let mut connection = establish(&mut server, options(None)).unwrap();
    let body = rawdoc! { "getMore": 1_i64, "collection": "c" };
    let mut command = Command::new("db", &body);
    command.exhaust_allowed = true;
    let mut out = Vec::new();
    connection.send(&mut out, &command).unwrap();
    let first = with_more_to_come(server.answer(&out));
    // The server's replies have this number.
    let last = message(1000, &rawdoc! { "ok": 1 });

    assert!(connection.read(&mut &first[..]).unwrap().unwrap().more_to_come);
    assert_eq!(connection.send(&mut Vec::new(), &command), Err(CommandError::Busy));
    assert!(!connection.read(&mut &last[..]).unwrap().unwrap().more_to_come);
    assert!(connection.is_idle());
}

#[test]
fn a_connection_takes_one_command_at_a_time_cmap_8() {
    let mut server = ScriptedServer::default();
    let mut connection = establish(&mut server, options(None)).unwrap();
    let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());
    connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
    let length = out.len();

    assert!(connection.send(&mut out, &Command::new("admin", &ping)).is_err());

    assert_eq!(out.len(), length, "nothing is appended");
}

#[test]
fn an_unacknowledged_command_waits_for_nothing_msg_7_x_174() {
    let mut server = ScriptedServer::default();
    let mut connection = establish(&mut server, options(None)).unwrap();
    let body = rawdoc! { "insert": "c", "writeConcern": { "w": 0 } };
    let mut command = Command::new("db", &body);
    command.acknowledged = false;

    connection.send(&mut Vec::new(), &command).unwrap();

    assert!(connection.is_idle());
}

#[test]
fn the_server_is_told_how_long_it_may_work_csot_9() {
    let body = rawdoc! { "find": "c" };
    for (limit, told) in [
        (Duration::from_millis(1500), 1500),
        (Duration::from_micros(10), 1),
        (Duration::from_micros(2_900), 2),
        (Duration::MAX, i64::from(i32::MAX)),
    ] {
        let mut server = ScriptedServer::default();
        let mut connection = establish(&mut server, options(None)).unwrap();
        let mut command = Command::new("db", &body);
        command.max_time = Some(limit);
        let mut out = Vec::new();

        connection.send(&mut out, &command).unwrap();
        server.answer(&out);

        let (_, received, _) = server.asked.last().unwrap();
        assert_eq!(*received, rawdoc! { "find": "c", "$db": "db", "maxTimeMS": told });
    }
}

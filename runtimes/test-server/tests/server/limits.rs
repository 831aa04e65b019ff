//! The ends of cursors: of their session, of their connection, of the time they may be idle; and turns of clients.

use core::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf, rawdoc};

use super::network::{Client, Network, config};

const MINUTE: Duration = Duration::from_secs(60);

fn lsid(id: u8) -> RawDocumentBuf {
    rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![id; 16] } }
}

/// A network whose server has three pets.
fn network() -> (Network, Client) {
    let mut network = Network::new(config());
    let mut client = network.connect();
    network.run(&mut client, "test", &rawdoc! { "insert": "pets", "documents": [{}, {}, {}] });
    (network, client)
}

impl Network {
    fn open(&mut self, client: &mut Client, find: &RawDocumentBuf) -> i64 {
        let reply = self.run(client, "test", find);
        reply.get_document("cursor").unwrap().get_i64("id").unwrap()
    }

    /// Whether a cursor is open. It goes on, but does not end.
    fn is_open(&mut self, client: &mut Client, id: i64) -> bool {
        self.is_open_to(client, &rawdoc! { "getMore": id, "collection": "pets", "batchSize": 1 })
    }

    /// The same for a cursor of a session.
    fn is_open_in(&mut self, client: &mut Client, id: i64, session: RawDocumentBuf) -> bool {
        let more = rawdoc! { "getMore": id, "collection": "pets", "batchSize": 1, "lsid": session };
        self.is_open_to(client, &more)
    }

    fn is_open_to(&mut self, client: &mut Client, get_more: &RawDocumentBuf) -> bool {
        let reply = self.run(client, "test", get_more);
        match reply.get_i32("code") {
            Ok(code) => {
                assert_eq!(code, 43);
                false
            }
            Err(_) => true,
        }
    }

    fn open_cursors(&mut self, client: &mut Client) -> i32 {
        self.run(client, "test", &rawdoc! { "dbStats": 1 }).get_i32("openCursors").unwrap()
    }
}

fn find() -> RawDocumentBuf {
    rawdoc! { "find": "pets", "batchSize": 0 }
}

fn find_in_session(id: u8) -> RawDocumentBuf {
    rawdoc! { "find": "pets", "batchSize": 0, "lsid": lsid(id) }
}

#[test]
fn a_cursor_ends_with_its_connection() {
    let (mut network, mut client) = network();
    let mut other = network.connect();
    let id = network.open(&mut other, &find());
    assert_eq!(network.open_cursors(&mut client), 1);

    network.server.handle_hang_up(network.now, other.id);

    assert_eq!(network.open_cursors(&mut client), 0);
    assert!(!network.is_open(&mut client, id));
}

#[test]
fn a_cursor_of_a_session_outlives_its_connection_and_ends_with_its_session() {
    for command in ["endSessions", "killSessions"] {
        let (mut network, mut client) = network();
        let mut other = network.connect();
        let (mine, others) =
            (network.open(&mut other, &find_in_session(1)), network.open(&mut client, &find_in_session(2)));

        network.server.handle_hang_up(network.now, other.id);
        assert!(network.is_open_in(&mut client, mine, lsid(1)));
        let mut end = RawDocumentBuf::new();
        end.append(bson::raw::CString::try_from(command).unwrap(), bson::rawbson!([lsid(1)]));
        network.admin(&mut client, &end);

        assert!(!network.is_open_in(&mut client, mine, lsid(1)));
        assert!(network.is_open_in(&mut client, others, lsid(2)), "that of another session");
    }
}

#[test]
fn all_sessions_end_at_once() {
    let (mut network, mut client) = network();
    network.open(&mut client, &find_in_session(1));
    network.open(&mut client, &find_in_session(2));
    let own = network.open(&mut client, &find());

    network.admin(&mut client, &rawdoc! { "killAllSessions": [] });

    assert_eq!(network.open_cursors(&mut client), 1);
    assert!(network.is_open(&mut client, own));
}

#[test]
fn a_cursor_that_is_idle_for_ten_minutes_is_closed() {
    let (mut network, mut client) = network();
    let (idle, used) = (network.open(&mut client, &find()), network.open(&mut client, &find_in_session(1)));

    network.pass(9 * MINUTE);
    assert!(network.is_open_in(&mut client, used, lsid(1)));
    network.pass(2 * MINUTE);

    assert_eq!(network.open_cursors(&mut client), 1);
    assert!(!network.is_open(&mut client, idle));
    assert!(network.is_open_in(&mut client, used, lsid(1)));
    network.pass(11 * MINUTE);
    assert_eq!(network.open_cursors(&mut client), 0);
    assert_eq!(network.server.poll_timeout(), None);
}

#[test]
fn a_cursor_without_a_timeout_lives_as_long_as_its_connection() {
    let (mut network, mut client) = network();
    let id = network.open(&mut client, &rawdoc! { "find": "pets", "batchSize": 0, "noCursorTimeout": true });

    network.pass(24 * 60 * MINUTE);

    assert!(network.is_open(&mut client, id));
}

#[test]
fn a_cursor_without_a_timeout_ends_with_its_session_that_nobody_uses() {
    let (mut network, mut client) = network();
    let find = rawdoc! { "find": "pets", "batchSize": 0, "noCursorTimeout": true, "lsid": lsid(1) };
    network.open(&mut client, &find);

    network.pass(29 * MINUTE);
    network.admin(&mut client, &rawdoc! { "refreshSessions": [lsid(1)] });
    network.pass(29 * MINUTE);
    assert_eq!(network.open_cursors(&mut client), 1);
    network.pass(2 * MINUTE);

    assert_eq!(network.open_cursors(&mut client), 0);
}

#[test]
fn a_client_whose_command_took_long_rests_and_others_have_their_turn() {
    let (mut network, mut client) = network();
    let mut other = network.connect();
    let pets: Vec<_> = (0..20_000).map(|_| rawdoc! { "x": 1 }).collect();
    let mut insert = rawdoc! { "insert": "pets" };
    insert.append(bson::cstr!("documents"), pets.into_iter().collect::<bson::RawArrayBuf>());
    network.run(&mut client, "test", &insert);
    network.pass(MINUTE);
    let any: bson::RawArrayBuf = (0..30).map(|y| rawdoc! { "y": y }).collect();

    network.run(&mut client, "test", &rawdoc! { "count": "pets", "query": { "$or": any } });
    network.start(&mut client, "test", &rawdoc! { "ping": 1 });

    assert!(network.finish(&mut client).is_none(), "it waits");
    network.admin(&mut other, &rawdoc! { "ping": 1 });
    network.pass(Duration::from_secs(2));
    assert!(network.finish(&mut client).is_some());
}

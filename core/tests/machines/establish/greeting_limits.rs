//! How much a server may send before and after a connection is established.

use std::sync::Arc;

use bson::rawdoc;
use cmap_core::connection::{Command, Establish, Phase, Progress};
use cmap_core::options::Credential;
use cmap_core::wire::{CommandReply, CompressorId, HEADER_LEN, Header, MessageIds, OpCode};

use super::{PASSWORD, ScriptedServer, credential, establish, message, options};

/// The header alone of a reply of this many bytes to the request `response_to`.
fn header(response_to: i32, length: usize) -> [u8; HEADER_LEN] {
    Header { length, ids: MessageIds::reply(1000, response_to), op_code: OpCode::Msg }.encode()
}

/// A compressed reply that announces its bytes without a header, and has none.
fn compressed(response_to: i32, uncompressed_size: i32) -> Vec<u8> {
    let content = [&2013_i32.to_le_bytes()[..], &uncompressed_size.to_le_bytes(), &[CompressorId::Noop.id()]].concat();
    let ids = MessageIds::reply(1000, response_to);
    let header = Header { length: HEADER_LEN + content.len(), ids, op_code: OpCode::Compressed };
    [&header.encode()[..], &content].concat()
}

/// A connection whose hello was sent and is not answered yet.
fn greeting(credential: Option<Credential>) -> (Establish, Vec<u8>) {
    let mut establish = Establish::new(Arc::new(options(credential)), [5; 24]).unwrap();
    let mut request = Vec::new();
    establish.write_to(&mut request);
    (establish, request)
}

#[test]
fn a_hello_of_more_than_a_megabyte_is_refused_by_its_header() {
    const MEGABYTE: i32 = 1024 * 1024;
    let refused = |reply: &[u8]| greeting(None).0.handle_bytes(reply).unwrap_err().to_string();

    let plain = refused(&header(1, 1024 * 1024 + 1));
    assert_eq!(
        plain,
        "the hello failed: the server sent what is no message: a message announces 1048577 bytes; at most 1048576 are allowed"
    );
    let unpacked = refused(&compressed(1, MEGABYTE - 15));
    assert!(
        unpacked.contains("a compressed message announces 1048561 bytes; at most 1048560 are allowed"),
        "{unpacked}"
    );
    assert!(matches!(greeting(None).0.handle_bytes(&header(1, 1024 * 1024)), Ok(Progress::Exchange)));
}

#[test]
fn a_message_of_an_authentication_has_a_megabyte_at_most() {
    for reply in [header(2, 1024 * 1024 + 1).to_vec(), compressed(2, 2 * 1024 * 1024)] {
        let mut server = ScriptedServer { mechanisms: vec!["SCRAM-SHA-256"], ..ScriptedServer::default() };
        let (mut establish, hello) = greeting(Some(credential(PASSWORD, None)));
        assert!(matches!(establish.handle_bytes(&server.answer(&hello)), Ok(Progress::Exchange)));

        let error = establish.handle_bytes(&reply).unwrap_err();

        assert_eq!(error.phase, Phase::Authenticate);
        assert!(error.to_string().contains("announces"), "{error}");
    }
}

#[test]
fn a_reply_on_an_established_connection_may_have_more_than_a_megabyte() {
    let mut connection = establish(&mut ScriptedServer::default(), options(None)).unwrap();
    connection.send(&mut Vec::new(), &Command::new("db", &rawdoc! { "find": "c" })).unwrap();
    let large = message(2, &rawdoc! { "ok": 1, "large": "x".repeat(2 * 1024 * 1024) });

    let reply = connection.read(&mut &large[..]).unwrap().unwrap();

    assert!(CommandReply::read(reply.body).ok);
}

#[test]
fn a_hello_whose_length_begins_like_an_alert_of_tls_is_read() {
    for length in [0x315, 0x316] {
        assert!(matches!(greeting(None).0.handle_bytes(&header(1, length)), Ok(Progress::Exchange)), "{length} bytes");
    }
}

#[test]
fn a_server_that_answers_in_tls_is_said_so() {
    const FATAL_ALERT: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x0a];

    let error = greeting(None).0.handle_bytes(&FATAL_ALERT).unwrap_err();

    assert_eq!(error.to_string(), "the hello failed: the server speaks TLS at this port; set tls=true");
}

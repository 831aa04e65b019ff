//! What the server says that it knows: it does, and its README lists the same.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use bson::raw::CString;
use bson::{RawDocumentBuf, rawdoc};
use cmap_core::time::Instant;
use cmap_core::wire::{CommandReply, Field, Flags, Limits, Message, MessageIds, MessageWriter};
use cmap_test_server::{KNOWN, Peer, ServerConfig, ServerOutput, TestServer};

/// A name that no server knows.
const UNKNOWN_COMMAND: i32 = 59;
const UNKNOWN_STAGE: i32 = 40324;
const NOT_SUPPORTED: i32 = 115;

fn names(subject: &str) -> &'static [&'static str] {
    KNOWN.iter().find(|known| known.subject == subject).unwrap().names
}

/// The code by which a server refuses a command, if it does.
fn code(database: &str, command: &RawDocumentBuf) -> Option<i32> {
    let now = Instant::ORIGIN;
    let mut server = TestServer::new(ServerConfig::new("localhost:27017"), now);
    let client = server.accept(now, Peer::at("127.0.0.1:50000"));
    let (mut request, limits) = (Vec::new(), Limits::DEFAULT);
    let fields = [Field::String("$db", database)];
    MessageWriter::begin(&mut request, MessageIds::request(1), Flags::NONE, command, &fields, &limits)
        .unwrap()
        .finish();
    server.handle_bytes(now, client, &request);
    let Some(ServerOutput::Send { bytes, .. }) = server.poll_output() else { panic!("{command:?}") };
    CommandReply::read(Message::decode(&bytes, &limits).unwrap().body).failure().and_then(|error| error.code)
}

fn document(name: &str, value: impl Into<bson::RawBson>) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(CString::try_from(name).unwrap(), value.into());
    document
}

#[test]
fn every_command_is_known() {
    for name in names("commands on data").iter().chain(names("other commands")) {
        assert_ne!(code("admin", &document(name, 1)), Some(UNKNOWN_COMMAND), "{name}");
    }
}

#[test]
fn every_stage_is_known() {
    for name in names("pipeline stages") {
        let command = rawdoc! { "aggregate": "c", "pipeline": [document(name, "x")], "cursor": {} };
        assert!(!matches!(code("db", &command), Some(UNKNOWN_STAGE | NOT_SUPPORTED)), "{name}");
    }
}

#[test]
fn every_update_operator_is_known() {
    for name in names("update operators") {
        let update = rawdoc! { "q": {}, "u": document(name, rawdoc! {}), "upsert": true };
        let command = rawdoc! { "update": "c", "updates": [update] };
        assert_eq!(code("db", &command), None, "{name}");
    }
}

#[test]
fn every_fail_point_and_every_parameter_is_known() {
    for name in names("fail points") {
        assert_eq!(code("admin", &rawdoc! { "configureFailPoint": *name, "mode": "off" }), None, "{name}");
    }
    for name in names("parameters") {
        let mut command = rawdoc! { "getParameter": 1 };
        command.append(CString::try_from(*name).unwrap(), 1);
        assert_eq!(code("admin", &command), None, "{name}");
    }
}

#[test]
fn the_readme_lists_every_name() {
    let readme = include_str!("../README.md");
    for known in KNOWN {
        for name in known.names {
            assert!(readme.contains(&format!("`{name}`")), "{}: {name}", known.subject);
        }
    }
}

//! Commands that cannot be read: texts that are not UTF-8, and documents that are none.

use bson::raw::RawJavaScriptCodeWithScopeRef;
use bson::{RawBson, RawDocument, RawDocumentBuf, Regex, cstr, rawdoc};
use cmap_core::wire::{CommandReply, Compression, Compressor, Flags, Limits, MessageIds, MessageWriter, encode_query};

use super::hidden::{commands, damaged};
use super::{Client, Done, Hub, at, code};

/// An open hub, a client of it, and what a message comes to.
fn said(message: impl FnOnce(&mut Client) -> Vec<u8>) -> (Hub, Client, Done) {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let message = message(&mut client);
    let done = client.send(&mut hub, at(0), &message);
    (hub, client, done)
}

/// Asserts that a command is refused, that nothing of it runs, and that the connection goes on.
fn assert_refused(what: &str, message: impl FnOnce(&mut Client) -> Vec<u8>) {
    let (mut hub, mut client, done) = said(message);
    assert!(done.runs.is_empty() && done.ending.is_none(), "{what}: {done:?}");
    assert_eq!(code(&done), Some(22), "{what}: {done:?}");
    let next = client.say(&mut hub, at(0), "d", &rawdoc! { "find": "c" });
    assert_eq!(next.runs.len(), 1, "{what}: {next:?}");
}

fn assert_body_is_refused(what: &str, body: &RawDocument) {
    assert_refused(what, |client| damaged(&client.message("d", body)));
}

#[test]
fn what_names_a_collection_behind_a_text_that_is_not_utf8_is_refused_x_133() {
    for command in commands() {
        assert_refused(&format!("{command:?}"), |client| client.message("shop", &command));
    }
}

#[test]
fn a_text_that_is_not_utf8_is_refused_whatever_kind_of_text_it_is_x_133() {
    let with = |value: RawBson| rawdoc! { "find": "c", "filter": { "deep": [{ "x": value }] } };
    let regex = |pattern: &str, options: &str| {
        RawBson::RegularExpression(Regex { pattern: pattern.try_into().unwrap(), options: options.try_into().unwrap() })
    };
    let code = |code: &str, scope: RawDocumentBuf| {
        let mut body = rawdoc! { "find": "c" };
        body.append(cstr!("filter"), RawJavaScriptCodeWithScopeRef { code, scope: &scope });
        body
    };
    for (what, body) in [
        ("a string", with(RawBson::String("?!?!".into()))),
        ("a symbol", with(RawBson::Symbol("?!?!".into()))),
        ("code", with(RawBson::JavaScriptCode("?!?!".into()))),
        ("a pattern", with(regex("?!?!", "i"))),
        ("options", with(regex("x", "?!?!"))),
        ("code with a scope", code("?!?!", rawdoc! {})),
        ("a scope", code("x", rawdoc! { "x": ["?!?!"] })),
        ("a key", with(RawBson::Document(rawdoc! { "?!?!": 1 }))),
        ("a key of the command", rawdoc! { "find": "c", "?!?!": 1 }),
        ("the collection", rawdoc! { "find": "?!?!" }),
        ("what is explained", rawdoc! { "explain": { "?!?!": "c" } }),
    ] {
        assert_body_is_refused(what, &body);
    }
}

#[test]
fn a_text_that_is_not_utf8_is_refused_wherever_it_is_sent_x_133() {
    let (body, wrong) = (rawdoc! { "insert": "c", "$db": "d" }, rawdoc! { "x": [{ "y": "?!?!" }] });
    assert_refused("a document sequence", |_| {
        let mut out = Vec::new();
        let ids = MessageIds::request(9);
        let mut message = MessageWriter::begin(&mut out, ids, Flags::NONE, &body, &[], &Limits::DEFAULT).unwrap();
        message.sequence("documents", [&*rawdoc! { "x": 1 }, &*wrong]).unwrap();
        message.finish();
        damaged(&out)
    });
    let mut hub = Hub::open();
    let mut client = Client::new();
    client.say(&mut hub, at(0), "admin", &rawdoc! { "hello": 1, "loadBalanced": true, "compression": ["snappy"] });
    let mut message = damaged(&client.message("d", &rawdoc! { "find": "c", "filter": wrong.clone() }));
    let mut compressor = Compressor::new(Compression::Snappy).unwrap();
    assert_eq!(compressor.compress_reply(&mut message, 0, &Limits::DEFAULT), Ok(true));
    let done = client.send(&mut hub, at(0), &message);
    assert_eq!((code(&done), done.runs.len()), (Some(22), 0), "a compressed message");

    let mut query = Vec::new();
    encode_query(&mut query, MessageIds::request(2), "d", &rawdoc! { "find": "c", "filter": wrong }, &Limits::DEFAULT)
        .unwrap();
    hub.with(|around| client.line.handle_bytes(at(0), &damaged(&query), around));
    let outputs: Vec<_> = core::iter::from_fn(|| client.line.poll_output()).collect();
    assert!(outputs.iter().all(|output| !matches!(output, super::LineOutput::Run(_))), "a query: {outputs:?}");
}

#[test]
fn the_error_says_where_and_what_to_do() {
    let (_, _, done) = said(|client| damaged(&client.message("d", &rawdoc! { "find": "c", "comment": "?!?!" })));

    let error = CommandReply::read(&done.replies[0]).failure().unwrap();
    assert_eq!(
        error.to_string(),
        "the command cannot be read (malformed document: at byte 29: not UTF-8), so no rule can be applied to it; send texts \
         in UTF-8, other bytes as binData (22, InvalidBSON)"
    );
}

#[test]
fn a_document_that_is_none_is_refused_and_the_connection_goes_on() {
    let inner = rawdoc! { "x": 1 };
    let body = rawdoc! { "find": "c", "filter": inner.clone() };
    for length in [0, 4, 11, 1_000, -1_i32] {
        assert_refused(&length.to_string(), |client| {
            let mut message = client.message("d", &body);
            let at = message.windows(inner.as_bytes().len()).position(|bytes| bytes == inner.as_bytes()).unwrap();
            message[at..at + 4].copy_from_slice(&length.to_le_bytes());
            message
        });
    }
}

#[test]
fn a_command_without_a_reply_that_cannot_be_read_has_none() {
    let (_, _, done) = said(|client| {
        let mut message = damaged(&client.message("d", &rawdoc! { "insert": "c", "x": "?!?!" }));
        message[16] |= 2;
        message
    });

    assert!(done.replies.is_empty() && done.runs.is_empty() && done.ending.is_none(), "{done:?}");
}

//! A write of any number of items holds two messages in memory, however many items it has.
//!
//! Counted is what the test's own thread allocates, where the client lives too: the server has a thread of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use cmap_tokio::Client;
use cmap_tokio::bson::{RawDocumentBuf, doc, rawdoc};
use cmap_tokio::cmap_core::wire::{Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter};

/// Two messages of the greatest size.
const TWO_MESSAGES: u64 = 2 * Limits::DEFAULT.max_message_size as u64;

/// What may be allocated besides.
const SLACK: u64 = 16 << 20;

#[test]
fn an_insert_holds_two_messages() {
    insert(60_000);
}

#[test]
#[ignore = "full: a gigabyte takes half a minute"]
fn an_insert_of_a_million_documents_holds_two_messages() {
    insert(1_000_000);
}

/// Inserts as many documents of 1 KiB by one operation.
fn insert(documents: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async { Client::connect(&serve()).await.unwrap() });
    let text = "x".repeat(1000);
    let values = (0..documents).map(|n| rawdoc! { "_id": i64::try_from(n).unwrap(), "text": text.as_str() });

    let mut inserted = 0;
    let allocated = allocation_counter::measure(|| {
        let operation = client.operation(("db", doc! { "insert": "items" }));
        inserted = runtime.block_on(operation.sequence("documents", values).run()).unwrap().inserted;
    });

    assert_eq!(inserted, documents);
    println!("{documents} documents of 1 KiB: at most {} MB at once", allocated.bytes_max / 1_000_000);
    assert!(allocated.bytes_max <= TWO_MESSAGES + SLACK, "{allocated:?}");
}

/// A server that finds everything good. Returns its connection string.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("mongodb://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || answer(stream.unwrap()));
        }
    });
    uri
}

/// Until the client hangs up.
fn answer(mut stream: TcpStream) {
    let (mut frames, mut decoder, mut buffer) = (FrameReader::new(), Decoder::new(), vec![0; 1 << 20]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut input = &buffer[..count];
        while let Some(frame) = frames.read(&mut input, &Limits::DEFAULT).unwrap() {
            let Content::Message(request) = decoder.decode(frame, &Limits::DEFAULT).unwrap().content else { panic!() };
            let written: usize = request.sequences().map(|sequence| sequence.documents().count()).sum();
            let mut bytes = Vec::new();
            let ids = MessageIds::reply(1, request.header.ids.request_id);
            MessageWriter::begin(&mut bytes, ids, Flags::NONE, &reply(written), &[], &Limits::DEFAULT)
                .unwrap()
                .finish();
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    }
}

fn reply(written: usize) -> RawDocumentBuf {
    rawdoc! {
        "ok": 1, "n": i64::try_from(written).unwrap(), "isWritablePrimary": true, "helloOk": true, "minWireVersion": 0,
        "maxWireVersion": 21, "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
    }
}

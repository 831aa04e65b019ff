//! Idle connections keep no large buffers and no coders, and steady large replies reuse the client's pooled buffers.
//!
//! Counted is what the test's own thread allocates, where the client lives too: the server has threads of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use cmap_conformance::{Hosts, LocalServer, Setup};
use cmap_tokio::Client;
use cmap_tokio::bson::{RawDocument, RawDocumentBuf, oid::ObjectId, rawdoc};
use cmap_tokio::cmap_core::connection::Command;
use cmap_tokio::cmap_core::wire::{
    Compression, Compressor, Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter, ZlibLevel,
};

const KIB: i64 = 1024;
const MIB: i64 = 1024 * KIB;

/// What may be left one second after everything was given back, beside what there was before.
const LEFT: i64 = 16 * MIB;

#[test]
fn connections_that_are_given_back_keep_no_large_replies() {
    let left = left_by(20, &Server::start(None, 15 << 20).uri, &fetch());

    assert!(left < LEFT, "{left} bytes");
}

#[test]
fn connections_under_tls_that_are_given_back_keep_no_large_commands_and_replies() {
    let server = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
    let uri = server.uri(&format!("maxPoolSize=100&tls=true&tlsCAFile={}", server.authority().display()));
    let large = reply(15 << 20);

    let left = [
        left_by(10, &uri, &rawdoc! { "insert": "large", "documents": [large] }),
        left_by(20, &uri, &rawdoc! { "find": "large", "limit": 1 }),
    ];

    assert!(left.iter().all(|&left| left < LEFT), "{left:?} bytes");
}

#[test]
fn connections_that_are_given_back_keep_nothing_of_bombs() {
    for compression in [Compression::Snappy, Compression::Zlib(ZlibLevel::DEFAULT), Compression::Zstd] {
        let left = left_by(50, &Server::start(Some(compression), 16_000_000).uri, &fetch());

        assert!(left < LEFT, "{compression:?}: {left} bytes");
    }
}

#[test]
fn idle_connections_keep_no_coders() {
    const CONNECTIONS: usize = 50;
    for compression in [Compression::Snappy, Compression::Zlib(ZlibLevel::DEFAULT), Compression::Zstd] {
        let (client, runtime) = client(&Server::start(Some(compression), 1000).uri);

        let allocated = measure(|| {
            runtime.block_on(async {
                let mut connections = Vec::with_capacity(CONNECTIONS);
                for _ in 0..CONNECTIONS {
                    let mut connection = client.check_out().await.unwrap();
                    connection.exchange(&Command::new("test", &fetch())).await.unwrap();
                    connections.push(connection);
                }
            });
        });

        let each = allocated.bytes_current / CONNECTIONS as i64;
        assert!(each < 64 * KIB, "{compression:?}: {each} bytes for each of {CONNECTIONS}");
    }
}

#[test]
fn steady_large_replies_allocate_once_in_eight_uses_at_most() {
    const USES: i64 = 64;
    const LARGE: i64 = 256 * KIB;
    for compression in [None, Some(Compression::Snappy), Some(Compression::Zlib(ZlibLevel::DEFAULT))] {
        let (client, runtime) = client(&Server::start(compression, 1 << 20).uri);
        let uses = |count: i64| {
            measure(|| {
                runtime.block_on(async {
                    for _ in 0..count {
                        let mut connection = client.check_out().await.unwrap();
                        connection.exchange(&Command::new("test", &fetch())).await.unwrap();
                    }
                });
            })
        };
        uses(2);

        let allocated = uses(USES);

        // Were all of it in large pieces, there would be so many.
        let large = i64::try_from(allocated.bytes_total).unwrap() / LARGE;
        assert!(large <= USES / 8, "{compression:?}: {allocated:?}");
    }
}

/// The bytes that are left one second after so many connections, which ran `command` each, were given back.
fn left_by(connections: usize, uri: &str, command: &RawDocument) -> i64 {
    let (client, runtime) = client(uri);
    let allocated: AllocationInfo = measure(|| {
        runtime.block_on(async {
            let mut in_use = Vec::with_capacity(connections);
            for _ in 0..connections {
                let mut connection = client.check_out().await.unwrap();
                connection.exchange(&Command::new("test", command)).await.unwrap();
                in_use.push(connection);
            }
            drop(in_use);
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
    });
    assert_eq!(client.stats().counts.available, u32::try_from(connections).unwrap());
    allocated.bytes_current
}

/// A command that a [`Server`] has a large reply to.
fn fetch() -> RawDocumentBuf {
    rawdoc! { "fetch": 1 }
}

fn client(uri: &str) -> (Client, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async { Client::connect(uri).await.unwrap() });
    (client, runtime)
}

/// Answers every `fetch` by the same reply, compressed if so agreed, and anything else by a hello.
struct Server {
    uri: String,
}

impl Server {
    fn start(compression: Option<Compression>, bytes: usize) -> Self {
        let name = compression.map_or("", |compression| compression.id().name());
        let hello = rawdoc! {
            "ok": 1, "isWritablePrimary": true, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 21,
            "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
            "compression": [name],
        };
        let mut large = message(&reply(bytes));
        if let Some(compression) = compression {
            let mut compressor = Compressor::new(compression).unwrap();
            assert!(compressor.compress_reply(&mut large, 0, &Limits::DEFAULT).unwrap());
        }
        let replies = Arc::new((message(&hello), large));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("mongodb://{}/?maxPoolSize=100&compressors={name}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let replies = Arc::clone(&replies);
                thread::spawn(move || serve(stream.unwrap(), &replies.0, &replies.1));
            }
        });
        Self { uri }
    }
}

fn reply(bytes: usize) -> RawDocumentBuf {
    let bytes =
        cmap_tokio::bson::Binary { subtype: cmap_tokio::bson::spec::BinarySubtype::Generic, bytes: vec![0; bytes] };
    rawdoc! { "ok": 1, "id": ObjectId::new(), "bytes": bytes }
}

fn message(body: &RawDocument) -> Vec<u8> {
    let mut bytes = Vec::new();
    MessageWriter::begin(&mut bytes, MessageIds::reply(1, 0), Flags::NONE, body, &[], &Limits::DEFAULT)
        .unwrap()
        .finish();
    bytes
}

/// Until the client hangs up.
fn serve(mut stream: TcpStream, hello: &[u8], large: &[u8]) {
    let (mut frames, mut decoder, mut buffer) = (FrameReader::new(), Decoder::new(), vec![0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut input = &buffer[..count];
        while let Some(frame) = frames.read(&mut input, &Limits::DEFAULT).unwrap() {
            let Content::Message(request) = decoder.decode(frame, &Limits::DEFAULT).unwrap().content else { panic!() };
            let reply = if request.body.get("fetch").unwrap().is_some() { large } else { hello };
            let mut header: [u8; 16] = reply[..16].try_into().unwrap();
            header[8..12].copy_from_slice(&request.header.ids.request_id.to_le_bytes());
            let sent = stream.write_all(&header).and_then(|()| stream.write_all(&reply[16..]));
            if sent.is_err() {
                return;
            }
        }
    }
}

//! The cost of one `ping` in instructions (callgrind): encoding the command, finding the reply in the bytes that came,
//! and reading whether it succeeded. No socket takes part.
//!
//! `cargo bench --manifest-path core/benches/Cargo.toml --bench ping`; see `instructions.rs`, and divide by [`OPERATIONS`].

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::connection::{ClientMetadata, Command, Connection, ConnectionOptions, Establish};
use cmap_core::wire::{CommandReply, Flags, Limits, MessageIds, MessageWriter};
use gungraun::prelude::*;

/// How often each benchmark repeats its operation.
const OPERATIONS: u8 = 50;

/// A connection, and the replies to its coming commands.
struct Pings {
    connection: Connection,
    ping: RawDocumentBuf,
    out: Vec<u8>,
    replies: Vec<Vec<u8>>,
}

fn message(response_to: i32, body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    let ids = MessageIds::reply(1000, response_to);
    MessageWriter::begin(&mut out, ids, Flags::NONE, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}

fn warm() -> Pings {
    let options = ConnectionOptions::new(ClientMetadata::new("Linux"));
    let mut establish = Establish::new(Arc::new(options), [0; 24]).unwrap();
    let hello = rawdoc! { "ok": 1.0, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 21 };
    let _ = establish.handle_bytes(&message(1, &hello)).unwrap();
    let replies = (0..i32::from(OPERATIONS)).map(|number| message(2 + number, &rawdoc! { "ok": 1.0 })).collect();
    let connection = establish.finish().unwrap();
    Pings { connection, ping: rawdoc! { "ping": 1 }, out: Vec::with_capacity(256), replies }
}

#[library_benchmark]
#[bench::warm(warm())]
fn ping(mut pings: Pings) -> Pings {
    for reply in &pings.replies {
        pings.out.clear();
        pings.connection.send(&mut pings.out, &Command::new("admin", &pings.ping)).unwrap();
        black_box(&pings.out);
        let reply = pings.connection.read(&mut &reply[..]).unwrap().unwrap();
        assert!(CommandReply::read(reply.body).ok);
    }
    pings
}

library_benchmark_group!(name = round_trip, benchmarks = [ping]);
main!(library_benchmark_groups = [round_trip]);

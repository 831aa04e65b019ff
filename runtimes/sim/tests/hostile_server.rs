//! A server that lies: in any field, at any byte, at any speed. Whatever it sends, every call of the client ends in time,
//! nothing is lost, and the client works as soon as the server tells the truth.
//!
//! `CMAP_SIM_SEEDS` says under how many seeds (60 without it), `CMAP_SIM_SEED` names a single one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a test is told by its name and fails by panicking"
)]

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cmap_core::wire::{Field, Flags, Limits, Message, MessageIds, MessageWriter};
use cmap_runtime::Runtime;
use cmap_sim::bson::raw::RawDocumentBuf;
use cmap_sim::bson::{RawArrayBuf, RawBson, RawDocument, rawdoc};
use cmap_sim::core::random::Random;
use cmap_sim::core::time::Instant;
use cmap_sim::{Client, ServerConfig, Sim, SimRuntime, Stream, User, for_seeds};
use cmap_test_server::{Peer, ServerOutput, TestServer};
use futures_io::{AsyncRead, AsyncWrite};

/// One connection of a server that lies while `lies` says so.
async fn serve(mut stream: Stream, runtime: SimRuntime, mut chance: Random, lies: Arc<AtomicBool>, login: bool) {
    let now = |runtime: &SimRuntime| Instant::ORIGIN + runtime.elapsed();
    let mut server = TestServer::new(config(login), now(&runtime));
    let client = server.accept(now(&runtime), Peer::at("the client"));
    let mut buffer = vec![0; 4096];
    loop {
        // A reply that streams is the machine's own doing; it comes when its time has come.
        let due = server.poll_timeout().map(|at| at.saturating_since(now(&runtime)));
        match read(&mut stream, &mut buffer, &runtime, due).await {
            Some(0) => return,
            Some(count) => server.handle_bytes(now(&runtime), client, &buffer[..count]),
            None => server.handle_timeout(now(&runtime)),
        }
        while let Some(output) = server.poll_output() {
            let ServerOutput::Send { bytes, .. } = output else { return };
            let told = if lies.load(Ordering::Relaxed) { distort(bytes, &mut chance) } else { vec![bytes] };
            for bytes in told {
                if lies.load(Ordering::Relaxed) && chance.up_to(19) == 0 {
                    runtime.sleep(Duration::from_millis(chance.up_to(3000))).await;
                }
                let piece = if lies.load(Ordering::Relaxed) && chance.up_to(9) == 0 { 1 } else { usize::MAX };
                for piece in bytes.chunks(piece.min(bytes.len().max(1))) {
                    if !write(&mut stream, piece).await {
                        return;
                    }
                }
            }
            if lies.load(Ordering::Relaxed) && chance.up_to(29) == 0 {
                return;
            }
        }
    }
}

fn config(login: bool) -> ServerConfig {
    let mut config = ServerConfig::new("db.example:27017");
    config.authorization = login;
    config.users = vec![User::with_password("app", "secret")];
    config.iterations = (4096, 4096);
    config
}

/// What is sent instead of an honest reply.
fn distort(bytes: Vec<u8>, chance: &mut Random) -> Vec<Vec<u8>> {
    match chance.up_to(11) {
        0..5 => vec![bytes],
        5..8 => vec![lie_in_a_field(&bytes, chance).unwrap_or(bytes)],
        8 => vec![flip(bytes, chance)],
        9 => vec![bytes.clone(), bytes],
        10 => vec![bytes[..pick(chance, bytes.len())].to_vec()],
        _ => vec![(0..chance.up_to(200)).map(|_| chance.next_u64().to_le_bytes()[0]).collect(), bytes],
    }
}

fn pick(chance: &mut Random, len: usize) -> usize {
    usize::try_from(chance.up_to(len.saturating_sub(1) as u64)).unwrap()
}

fn flip(mut bytes: Vec<u8>, chance: &mut Random) -> Vec<u8> {
    for _ in 0..=chance.up_to(2) {
        let place = pick(chance, bytes.len());
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= 1 << chance.up_to(7);
        }
    }
    bytes
}

/// The same reply with another value in one of its fields, or one field more.
fn lie_in_a_field(bytes: &[u8], chance: &mut Random) -> Option<Vec<u8>> {
    let message = Message::decode(bytes, &Limits::DEFAULT).ok()?;
    let fields: Vec<_> = message.body.iter().filter_map(Result::ok).collect();
    let place = pick(chance, fields.len() + 1);
    let mut body = RawDocumentBuf::new();
    for (number, (name, value)) in fields.iter().enumerate() {
        if number != place {
            body.append(name, RawBson::from(*value));
        } else if chance.up_to(3) > 0 {
            body.append(name, odd_value(chance));
        }
    }
    if place == fields.len() {
        let names =
            ["setName", "arbiterOnly", "serviceId", "saslSupportedMechs", "topologyVersion", "errorLabels", "code"];
        let name = names[pick(chance, names.len())];
        body.append(cmap_sim::bson::raw::CString::try_from(name).ok()?, odd_value(chance));
    }
    Some(encode(bytes, &body))
}

fn encode(reply: &[u8], body: &RawDocument) -> Vec<u8> {
    let response_to = i32::from_le_bytes(reply[8..12].try_into().unwrap());
    let mut out = Vec::new();
    let none: [Field<'_>; 0] = [];
    let ids = MessageIds::reply(1, response_to);
    MessageWriter::begin(&mut out, ids, Flags::NONE, body, &none, &Limits::DEFAULT).unwrap().finish();
    out
}

fn odd_value(chance: &mut Random) -> RawBson {
    match chance.up_to(12) {
        0 => RawBson::Int32(-1),
        1 => RawBson::Int32(i32::MAX),
        2 => RawBson::Int64(i64::MIN),
        3 => RawBson::Int64(i64::MAX),
        4 => RawBson::Double(f64::NAN),
        5 => RawBson::Double(-0.0),
        6 => RawBson::String("x".repeat(pick(chance, 20_000))),
        7 => RawBson::Null,
        8 => RawBson::Boolean(chance.up_to(1) == 0),
        9 => RawBson::Array(RawArrayBuf::new()),
        10 => RawBson::Document(rawdoc! { "processId": 1, "counter": -1_i64 }),
        11 => RawBson::Int32(0),
        _ => RawBson::Undefined,
    }
}

/// The number of bytes read, none at the end of the stream; nothing if `limit` has passed.
async fn read(stream: &mut Stream, buffer: &mut [u8], runtime: &SimRuntime, limit: Option<Duration>) -> Option<usize> {
    let mut timer = limit.map(|limit| Box::pin(runtime.sleep(limit)));
    poll_fn(|cx| {
        if let std::task::Poll::Ready(count) = Pin::new(&mut *stream).poll_read(cx, buffer) {
            return std::task::Poll::Ready(Some(count.unwrap_or(0)));
        }
        match &mut timer {
            Some(timer) => timer.as_mut().poll(cx).map(|()| None),
            None => std::task::Poll::Pending,
        }
    })
    .await
}

async fn write(stream: &mut Stream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, bytes)).await {
            Ok(count) => bytes = &bytes[count..],
            Err(_) => return false,
        }
    }
    true
}

fn run(seed: u64) {
    let sim = Sim::new(seed);
    let login = seed.is_multiple_of(2);
    let listener = sim.listen("db.example", 27017);
    let lies = Arc::new(AtomicBool::new(true));
    let (told, runtime, mut chance) = (Arc::clone(&lies), sim.runtime().clone(), Random::new(seed));
    sim.spawn(async move {
        loop {
            let Some(stream) = listener.accept().await else { return };
            let chance = Random::new(chance.next_u64());
            runtime.spawn(serve(stream, runtime.clone(), chance, Arc::clone(&told), login));
        }
    });
    sim.run(async {
        let user = if login { "app:secret@" } else { "" };
        let options = "maxPoolSize=3&heartbeatFrequencyMS=500&timeoutMS=3000&connectTimeoutMS=1000&compressors=zlib";
        let client = Client::connect(&format!("mongodb://{user}db.example/?{options}")).await.unwrap();
        for _ in 0..30 {
            let began = sim.elapsed();
            if let Ok(mut connection) = client.check_out().await {
                let _ = connection.run_command("shop", rawdoc! { "ping": 1 }).await;
            }
            let took = sim.elapsed() - began;
            assert!(took <= Duration::from_millis(6100), "an operation took {took:?}");
        }

        lies.store(false, Ordering::Relaxed);
        sim.sleep(Duration::from_secs(15)).await;
        let mut works = false;
        for _ in 0..4 {
            let Ok(mut connection) = client.check_out().await else { continue };
            works |= connection.run_command("shop", rawdoc! { "ping": 1 }).await.is_ok();
        }
        assert!(works, "the server tells the truth, and the client does not work: {:?}", client.description());
        let stats = client.stats();
        assert_eq!((stats.counts.in_use, stats.counts.waiting), (0, 0), "{stats:?}");
        assert_eq!(client.close(Duration::from_secs(1)).await.unwrap(), 0);
    });
}

#[test]
fn a_server_that_lies_costs_errors_and_nothing_else() {
    let count = std::env::var("CMAP_SIM_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(60);

    for_seeds(0..count, run);
}

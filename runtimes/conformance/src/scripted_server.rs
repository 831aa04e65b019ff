//! A server that treats each connection as a script says, in a task of its own: with harm, or with its duty only.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::wire::{Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter};

use super::ground::{self, Site, Socket};

/// The number of replies in a ring.
const RING: i32 = 1000;

/// A server at a port of its own.
pub(super) struct ScriptedServer {
    counts: Arc<Counts>,
    // Dropped before its site.
    _acceptor: Box<dyn Send>,
    site: Box<dyn Site>,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    sent: AtomicU64,
}

/// A connection that was accepted.
pub(super) struct Accepted {
    socket: Arc<dyn Socket>,
    counts: Arc<Counts>,
    frames: FrameReader,
    decoder: Decoder,
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    id: i32,
    /// Whether more than one reply may follow (MSG-9).
    pub(super) exhaust_allowed: bool,
}

impl ScriptedServer {
    /// Carries out `script` on each connection, given the number of earlier ones. An error ends the connection: the
    /// client has hung up.
    pub(super) fn start<W: Future<Output = io::Result<()>> + Send + 'static>(
        script: impl Fn(usize, Accepted) -> W + Send + 'static,
    ) -> Self {
        let ground = ground::current();
        let site = ground.site().unwrap();
        let counts = Arc::<Counts>::default();
        let shared = Arc::clone(&counts);
        let acceptor = site.listen(Box::new(move |socket| {
            let before = shared.accepted.fetch_add(1, Ordering::SeqCst);
            let counts = Arc::clone(&shared);
            let accepted = Accepted { socket, counts, frames: FrameReader::new(), decoder: Decoder::new() };
            let treatment = script(before, accepted);
            ground.spawn(Box::pin(async move { drop(treatment.await) }));
        }));
        Self { counts, _acceptor: acceptor.unwrap(), site }
    }

    /// The connection string; `query` are its options.
    pub(super) fn uri(&self, query: &str) -> String {
        format!("mongodb://{}/?{query}", self.site.place())
    }

    /// The number of connections so far.
    pub(super) fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// The number of bytes that were sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.counts.sent.load(Ordering::SeqCst)
    }
}

impl Accepted {
    /// Waits for the next request.
    pub(super) async fn next_request(&mut self) -> io::Result<Request> {
        let mut buffer = [0; 4096];
        loop {
            let count = ground::read(&*self.socket, &mut buffer).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut bytes = &buffer[..count];
            let Some(frame) = self.frames.read(&mut bytes, &Limits::DEFAULT).map_err(io::Error::other)? else {
                continue;
            };
            let incoming = self.decoder.decode(frame, &Limits::DEFAULT).map_err(io::Error::other)?;
            if let Content::Message(message) = incoming.content {
                return Ok(Request { id: message.header.ids.request_id, exhaust_allowed: message.exhaust_allowed() });
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        ground::write_all(&*self.socket, bytes).await?;
        self.counts.sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    /// Answers `request` by `body`, as an honest server does.
    pub(super) async fn answer(&mut self, request: Request, body: &RawDocument) -> io::Result<()> {
        self.send(&message(1, request.id, Flags::NONE, body)).await
    }

    /// Answers `request` by bytes without end, which begin as a reply of the greatest size.
    pub(super) async fn babble(&mut self, request: Request) -> io::Result<()> {
        let mut bytes = message(1, request.id, Flags::NONE, &rawdoc! { "ok": 1 });
        bytes[..4].copy_from_slice(&Limits::DEFAULT.max_message_size.to_le_bytes());
        bytes.resize(1 << 20, 0);
        self.send(&bytes).await?;
        bytes.fill(0);
        loop {
            self.send(&bytes).await?;
        }
    }

    /// Answers `request` by replies without end, each of which announces the next one, and has the bodies by turns.
    pub(super) async fn flood(&mut self, request: Request, bodies: [&RawDocument; 2]) -> io::Result<()> {
        let flags = Flags::MORE_TO_COME;
        // The first reply of the ring follows the last one, so the ring can be sent again and again.
        let mut ring = Vec::new();
        for (id, body) in (1..=RING).zip(bodies.iter().cycle()) {
            let before = if id == 1 { RING } else { id - 1 };
            ring.extend(message(id, before, flags, body));
        }
        self.send(&message(RING, request.id, flags, bodies[0])).await?;
        loop {
            self.send(&ring).await?;
        }
    }

    /// Waits until the client hangs up.
    pub(super) async fn wait_for_the_end(&mut self) -> io::Result<()> {
        loop {
            self.next_request().await?;
        }
    }
}

/// The reply to hello of a server that can stream, in one of its processes.
pub(super) fn streaming_hello(process: u8) -> RawDocumentBuf {
    rawdoc! {
        "ok": 1, "helloOk": true, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 21,
        "topologyVersion": { "processId": ObjectId::from_bytes([process; 12]), "counter": 1_i64 },
    }
}

fn message(id: i32, response_to: i32, flags: Flags, body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    let ids = MessageIds::reply(id, response_to);
    MessageWriter::begin(&mut out, ids, flags, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}

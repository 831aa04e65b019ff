//! Lies: what a server sends instead of its replies, in any field, at any byte, at any speed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::raw::{CString, RawDocumentBuf};
use bson::{RawArrayBuf, RawBson, RawDocument, rawdoc};
use cmap_core::random::Random;
use cmap_core::wire::{Flags, Limits, Message, MessageIds, MessageWriter};

use crate::ground::Ground;

/// The longest pause in milliseconds.
const LONGEST_PAUSE: u64 = 500;

/// What decides how a server lies. Zeros are the truth.
#[derive(Clone)]
pub enum Whim {
    /// It follows from a seed.
    Seeded(Random),
    /// Bytes, of which each decision takes two. All connections share them.
    Script(Arc<Mutex<VecDeque<u8>>>),
}

impl Whim {
    fn next_u64(&mut self) -> u64 {
        match self {
            Self::Seeded(random) => random.next_u64(),
            Self::Script(script) => {
                let mut script = script.lock().unwrap();
                (0..2).fold(0, |number, _| number << 8 | u64::from(script.pop_front().unwrap_or_default()))
            }
        }
    }

    /// A number from 0 to `bound`, both included.
    fn up_to(&mut self, bound: u64) -> u64 {
        self.next_u64() % (bound + 1)
    }

    /// Once in `count` times.
    fn rarely(&mut self, count: u64) -> bool {
        self.up_to(count - 1) == count - 1
    }

    /// The whim of one more connection.
    fn fork(&mut self) -> Self {
        match self {
            Self::Seeded(random) => Self::Seeded(Random::new(random.next_u64())),
            Self::Script(script) => Self::Script(Arc::clone(script)),
        }
    }
}

/// The lies of one server, until it is told to stop.
pub(super) struct Lies {
    whim: Mutex<Whim>,
    has_stopped: AtomicBool,
    ground: Arc<dyn Ground>,
}

/// The lies on one connection.
pub(super) struct Liar {
    whim: Mutex<Whim>,
    lies: Arc<Lies>,
}

/// What a liar does.
pub(super) enum Deed {
    Pause(Duration),
    Send(Vec<u8>),
    HangUp,
}

impl Lies {
    pub(super) fn new(whim: Whim, ground: Arc<dyn Ground>) -> Arc<Self> {
        Arc::new(Self { whim: Mutex::new(whim), has_stopped: AtomicBool::new(false), ground })
    }

    pub(super) fn stop(&self) {
        self.has_stopped.store(true, Ordering::SeqCst);
    }

    /// The lies on one more connection.
    pub(super) fn liar(self: &Arc<Self>) -> Liar {
        Liar { whim: Mutex::new(self.whim.lock().unwrap().fork()), lies: Arc::clone(self) }
    }
}

impl Liar {
    /// What is done instead of sending `bytes`.
    pub(super) fn tell(&self, bytes: &[u8]) -> Vec<Deed> {
        if self.lies.has_stopped.load(Ordering::SeqCst) {
            return vec![Deed::Send(bytes.to_vec())];
        }
        let whim = &mut *self.whim.lock().unwrap();
        let mut deeds = Vec::new();
        for told in distort(bytes.to_vec(), whim) {
            if whim.rarely(20) {
                deeds.push(Deed::Pause(Duration::from_millis(whim.up_to(LONGEST_PAUSE))));
            }
            let piece = if whim.rarely(10) { 1 } else { told.len().max(1) };
            deeds.extend(told.chunks(piece).map(|piece| Deed::Send(piece.to_vec())));
        }
        if whim.rarely(30) {
            deeds.push(Deed::HangUp);
        }
        deeds
    }

    pub(super) async fn pause(&self, pause: Duration) {
        self.lies.ground.sleep_until(self.lies.ground.age() + pause).await;
    }
}

/// What is sent instead of an honest reply.
fn distort(bytes: Vec<u8>, whim: &mut Whim) -> Vec<Vec<u8>> {
    match whim.up_to(11) {
        0..5 => vec![bytes],
        5..8 => vec![lie_in_a_field(&bytes, whim).unwrap_or(bytes)],
        8 => vec![flip(bytes, whim)],
        9 => vec![bytes.clone(), bytes],
        10 => vec![bytes[..pick(whim, bytes.len())].to_vec()],
        _ => vec![(0..whim.up_to(200)).map(|_| whim.next_u64().to_le_bytes()[0]).collect(), bytes],
    }
}

fn pick(whim: &mut Whim, len: usize) -> usize {
    usize::try_from(whim.up_to(len.saturating_sub(1) as u64)).unwrap()
}

fn flip(mut bytes: Vec<u8>, whim: &mut Whim) -> Vec<u8> {
    for _ in 0..=whim.up_to(2) {
        let place = pick(whim, bytes.len());
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= 1 << whim.up_to(7);
        }
    }
    bytes
}

/// Puts another value in one field of a reply, or adds a field.
fn lie_in_a_field(bytes: &[u8], whim: &mut Whim) -> Option<Vec<u8>> {
    let message = Message::decode(bytes, &Limits::DEFAULT).ok()?;
    let fields: Vec<_> = message.body.iter().filter_map(Result::ok).collect();
    let place = pick(whim, fields.len() + 1);
    let mut body = RawDocumentBuf::new();
    for (number, (name, value)) in fields.iter().enumerate() {
        if number != place {
            body.append(name, RawBson::from(*value));
        } else if whim.up_to(3) > 0 {
            body.append(name, odd_value(whim));
        }
    }
    if place == fields.len() {
        let names =
            ["setName", "arbiterOnly", "serviceId", "saslSupportedMechs", "topologyVersion", "errorLabels", "code"];
        let name = names[pick(whim, names.len())];
        body.append(CString::try_from(name).ok()?, odd_value(whim));
    }
    Some(encode(bytes, &body))
}

fn encode(reply: &[u8], body: &RawDocument) -> Vec<u8> {
    let response_to = i32::from_le_bytes(reply[8..12].try_into().unwrap());
    let mut out = Vec::new();
    let ids = MessageIds::reply(1, response_to);
    MessageWriter::begin(&mut out, ids, Flags::NONE, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}

fn odd_value(whim: &mut Whim) -> RawBson {
    match whim.up_to(12) {
        0 => RawBson::Int32(-1),
        1 => RawBson::Int32(i32::MAX),
        2 => RawBson::Int64(i64::MIN),
        3 => RawBson::Int64(i64::MAX),
        4 => RawBson::Double(f64::NAN),
        5 => RawBson::Double(-0.0),
        6 => RawBson::String("x".repeat(pick(whim, 20_000))),
        7 => RawBson::Null,
        8 => RawBson::Boolean(whim.up_to(1) == 0),
        9 => RawBson::Array(RawArrayBuf::new()),
        10 => RawBson::Document(rawdoc! { "processId": 1, "counter": -1_i64 }),
        11 => RawBson::Int32(0),
        _ => RawBson::Undefined,
    }
}

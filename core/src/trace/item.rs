//! The schema of a trace: what it consists of, in the order in which it stands in the file.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::history::History;
use crate::time::Instant;
use crate::topology::{CheckOut, Input, Topology};

/// A trace that was read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trace {
    /// What was recorded.
    pub header: Header,
    /// Texts by their numbers, as [`Note::Holder`] uses them: sorted, and possibly none, since nothing depends on them.
    pub texts: Vec<(u32, String)>,
    /// Each goes on where the one before it ends, unless calls between them were dropped. None where there is a history.
    pub segments: Vec<Segment>,
    /// What a sparse recorder kept.
    pub history: Option<History>,
}

/// What a trace is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Header {
    /// Which version of the machines' behaviour it was recorded with; see [`BEHAVIOUR`](super::BEHAVIOUR).
    pub behaviour: u32,
    /// Who recorded it: a runtime, a simulation.
    pub producer: String,
    /// Why it was written.
    pub trigger: String,
    /// The time of the machine when it was written, and the same in milliseconds since 1970, where that is known.
    pub written_at: Instant,
    /// See `written_at`.
    pub unix_millis: Option<u64>,
}

/// A state, and the calls that followed it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Segment {
    /// How many calls had been recorded before it.
    pub first: u64,
    /// The time of the last call before it.
    pub begun_at: Instant,
    /// The state.
    pub snapshot: Topology<()>,
    /// What followed.
    pub items: Vec<Item>,
}

impl Segment {
    /// A segment without calls.
    pub fn new(first: u64, begun_at: Instant, snapshot: Topology<()>) -> Self {
        Self { first, begun_at, snapshot, items: Vec::new() }
    }
}

/// One thing that followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Item {
    /// A call.
    Call(Call),
    /// Something that the machine did not see, and that an explanation needs.
    Note(Note),
    /// What is known of the state before the next call.
    Check {
        /// The digest of all answers and outputs of the segment until here.
        digest: u64,
        /// When the machine wanted to be called.
        timeout: Option<Instant>,
    },
    /// Outputs that were polled here, besides those that calls tell of. At the end of a trace one more than there were, if none was
    /// left: a replay that polls as often has to find nothing more, either.
    Polled(u32),
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Call {
    /// How many outputs had been polled since the call before it.
    pub polled: u32,
    /// A part of the digest before the call: where it differs, the call before it had other answers or outputs.
    pub digest: u8,
    /// The nanoseconds from the time of the call before it, which may have come later.
    pub after: i64,
    /// What was called.
    pub input: Input,
}

/// Something that the machine did not see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Note {
    /// The caller of the last call is the one with this text.
    Holder(u32),
    /// The task of a check-out that waited took its answer.
    Taken(CheckOut, Instant),
}

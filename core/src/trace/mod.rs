//! What happened in a topology, recorded so that it can be repeated: the calls with their times, from a known state on.
//!
//! [`Recorded`] is a [`Topology`](crate::topology::Topology) whose calls go through a recorder, if there is one. The recorder
//! keeps *segments*: a copy of the state without its sockets, and the calls that followed. It drops whole segments, so that what
//! it keeps can always be repeated from its beginning. [`Contents::encode`] makes a file of it, [`Trace::read`] reads it, and
//! [`Replay`] makes the same calls again and compares what they led to.
//!
//! Outputs are not recorded: they follow. A digest of them stands next to every call, one of 64 bits every 64 calls, so
//! that a version with other outputs is found out and the call is named at which it differs.
//!
//! A trace has no credentials, no commands and no replies but those to hellos, which events of heartbeats have. It has the names of hosts
//! and the texts of errors.
//!
//! | file | what it holds |
//! |---|---|
//! | `recorded` | a topology whose calls are recorded |
//! | `tape` | what records them |
//! | `recorder` | all calls, as segments in bounded memory |
//! | `sparse`, `history` | hours of them, as counts and explained waits |
//! | `words` | how a call is kept in memory: the frequent ones in one to five words |
//! | `digest` | the digest of answers and outputs |
//! | `item`, `file` | the schema: what a trace consists of, and how a file holds it |
//! | `read`, `error` | reading files, and why one cannot be read |
//! | `replay` | making the calls again |
//! | `explain`, `follow`, `wait` | why check-outs waited |
//! | `occurrence`, `uses` | what happened meanwhile; who used the connections |
//! | `what_if` | how they would have waited with other options |

mod digest;
mod error;
mod explain;
mod file;
mod follow;
mod history;
mod item;
mod occurrence;
mod read;
mod recorded;
mod recorder;
mod replay;
mod sparse;
mod tape;
mod uses;
mod wait;
mod what_if;
mod words;

pub use self::error::{TraceError, TraceErrorKind};
pub use self::explain::{Question, explain, waits};
pub use self::history::{History, Period};
pub use self::item::{Call, Header, Item, Note, Segment, Trace};
pub use self::occurrence::{Demand, Happening, Occurrence};
pub use self::recorded::Recorded;
pub use self::replay::{Difference, Divergence, Replay, Step};
pub use self::tape::{Contents, Detail, RecorderOptions};
pub use self::wait::{Establishment, Interval, Limit, Use, Wait, WaitEnd};
pub use self::what_if::{Change, Changes, Estimate, Fate, Outcome, ParseChangeError, Totals, WhatIfError, what_if};

/// The version of the file's schema. A file of another one is refused.
pub const SCHEMA: u32 = 1;

/// The version of the machines' behaviour: raised whenever the same calls get other answers or outputs. A file of another one is refused.
pub const BEHAVIOUR: u32 = 1;

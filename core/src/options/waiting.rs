//! Options of a pool beyond the specification: how many wait, and which connection serves next.

use serde::{Deserialize, Serialize};

/// The most check-outs that may wait at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueDepth {
    /// This many, at least 1.
    Waiters(u32),
    /// This many times maxPoolSize, at least once; maxPoolSize must not be 0, which is unlimited.
    TimesMaxPoolSize(u32),
}

/// The available connection that serves the next check-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reuse {
    /// The one that was returned last (CMAP-26): the others reach maxIdleTimeMS, and a pool shrinks when less is asked
    /// of it.
    #[default]
    Lifo,
    /// The one that was returned first: all are used equally often.
    Fifo,
}

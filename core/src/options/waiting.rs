//! Options of a pool beyond the specification: who waits, for how many, and which connection serves next.

use serde::{Deserialize, Serialize};

/// The most check-outs that may wait at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueDepth {
    /// This many, at least 1.
    Waiters(u32),
    /// This many times maxPoolSize, at least once; maxPoolSize must not be 0, which is unlimited.
    TimesMaxPoolSize(u32),
}

/// The order in which check-outs wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitOrder {
    /// First in, first out (CMAP-14).
    #[default]
    Arrival,
    /// The earliest deadline of a request first, then those without one; in each case by arrival.
    Deadline,
}

/// Which identity is served next at a server, where check-outs of several wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdentityOrder {
    /// That of the check-out that has waited longest.
    #[default]
    Arrival,
    /// The one whose waiters were served longest ago: one with a single waiter does not wait for all of another's.
    Turns,
}

/// The available connection that serves the next check-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reuse {
    /// The one that was returned last (CMAP-26): the others reach maxIdleTimeMS, and a pool shrinks when less is asked
    /// of it.
    #[default]
    LastIn,
    /// The one that was returned first: all are used equally often.
    FirstIn,
    /// Any, by chance. A choice walks along half of the available connections at most.
    Random,
}

//! The states of a pool and of a connection, and every transition between them.
//!
//! A pool is created paused, because its server is not yet known to answer. A successful check of the server makes it
//! ready, an error that blames the server clears and pauses it, and closing ends it (CMAP-17 to CMAP-20,
//! CMAP-37). In the profile of the edition before, a pool is created ready, and a clear does not pause it (X-99). Load-balanced pools have no monitor; they are made ready once and only cleared service by service (LB-8).
//!
//! A connection is pending from its creation until it is established (CMAP-23), then available or in use, and finally
//! closed for good. A connection that was available for long is checked before it is delivered, and may be refreshed
//! between its uses.
//!
//! A pool changes its state as the first table below says; every change of a connection's state is asserted to stand in
//! the second. `docs/states.md` is generated from both, and a test compares.

use serde::{Deserialize, Serialize};

use PoolCall as Call;
use PoolState as Pool;

/// Every change of a pool's state. A call that is not listed for a state leaves it as it is.
pub(crate) const POOL_TRANSITIONS: [(Pool, Call, Pool); 4] = [
    (Pool::Paused, Call::Ready, Pool::Ready),
    (Pool::Paused, Call::Close, Pool::Closed),
    (Pool::Ready, Call::Clear, Pool::Paused),
    (Pool::Ready, Call::Close, Pool::Closed),
];

use ConnectionState as Connection;

/// Every change of a connection's state, with its cause.
pub(crate) const CONNECTION_TRANSITIONS: [(Connection, &str, Connection); 13] = [
    (Connection::Closed, "create", Connection::Pending),
    (Connection::Pending, "established", Connection::Available),
    (Connection::Pending, "failed, interrupted, stale, surplus or pool closed", Connection::Closed),
    (Connection::Available, "deliver", Connection::InUse),
    (Connection::Available, "idle for long: check", Connection::Checking),
    (Connection::Available, "perished, surplus or pool closed", Connection::Closed),
    (Connection::Checking, "alive", Connection::Available),
    (Connection::Checking, "dead, stale, surplus or pool closed", Connection::Closed),
    (Connection::Available, "idle for long: refresh", Connection::Refreshing),
    (Connection::Refreshing, "refreshed", Connection::Available),
    (Connection::Refreshing, "failed, interrupted, perished, surplus or pool closed", Connection::Closed),
    (Connection::InUse, "check in", Connection::Available),
    (Connection::InUse, "check in, perished, surplus or pool closed", Connection::Closed),
];

/// The state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolState {
    /// The server is not known to answer: check-outs fail, nothing is populated.
    Paused,
    /// Check-outs are served.
    Ready,
    /// The end: connections that come back are closed.
    Closed,
}

/// The calls that change a pool's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolCall {
    Ready,
    Clear,
    Close,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// For good.
    Closed,
    /// Being established.
    Pending,
    /// Waiting for a check-out.
    Available,
    /// Available, and looked at before it is delivered: has its peer hung up?
    Checking,
    /// Available, and asked for a sign of life (X-95).
    Refreshing,
    /// Delivered to a check-out, and not checked in.
    InUse,
}

impl PoolState {
    /// The state that `call` leads to, if it leads to another one.
    pub(crate) fn after(self, call: PoolCall) -> Option<Self> {
        POOL_TRANSITIONS.iter().find(|&&(from, by, _)| from == self && by == call).map(|&(_, _, to)| to)
    }
}

impl ConnectionState {
    /// Whether the table has a transition from this state to `next`.
    pub(crate) fn may_become(self, next: Self) -> bool {
        CONNECTION_TRANSITIONS.iter().any(|&(from, _, to)| from == self && to == next)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use super::*;

    /// What each call does in each state of the pool.
    const CALLS: [[&str; 4]; 24] = [
        ["`check_out`", "fails: `PoolCleared`", "delivers, checks, creates or waits", "fails: `PoolClosed`"],
        ["`cancel_check_out`", "`Delivered` or `Finished`", "`Cancelled`, `Delivered` or `Finished`", "as paused"],
        ["`set_purpose`, in use", "cursor, transaction or other", "the same", "the same"],
        ["`check_in`, in use", "closed: stale or error", "available or closed; serves the queue", "closed: poolClosed"],
        ["`check_in`, not in use", "`NotInUse`, the socket back", "the same", "the same"],
        ["`check_in`, in another use", "`OtherUse`, the socket back", "the same", "the same"],
        ["`check_in`, another pool's", "`ForeignConnection`, the socket back", "the same", "the same"],
        ["`ready`", "ready", "nothing", "nothing"],
        [
            "`clear`",
            "raises the generation, interrupts if told to",
            "the same, pauses, fails every waiter; profile 1.1: raises the generation",
            "nothing",
        ],
        ["`clear`, one service", "as ready", "raises its generation, interrupts if told to", "nothing"],
        [
            "`reset_after_fork`",
            "closes and forgets everything",
            "the same, fails every waiter; pauses, but for load balancers and profile 1.1",
            "forgets what is left",
        ],
        ["`close`", "closes", "closes, fails every waiter", "nothing"],
        ["`handle_hello`", "joins the service", "the same", "the same"],
        ["`handle_established`, pending", "closed: stale", "serves the queue, or available", "closed: poolClosed"],
        ["`handle_established`, closed", "hands the socket to `Close`", "the same", "the same"],
        ["`handle_establish_failed`", "closed: error", "closed: error; fails its origin", "closed: poolClosed"],
        ["`handle_checked`", "closed: stale or error", "serves the queue, or closed", "closed: poolClosed"],
        ["`handle_refreshed`", "closed: stale or idle", "serves the queue, or available", "closed: poolClosed"],
        ["`handle_refresh_failed`", "closed: error", "closed: error; serves the queue", "closed: poolClosed"],
        ["`handle_peer_closed`", "closed: error; in use: at check-in", "the same", "the same, reason poolClosed"],
        ["`resize`", "closes what is too much", "the same; serves the queue", "nothing to close"],
        ["`resume`", "has the available connections checked at their next use", "the same", "nothing"],
        ["`warm_up`", "fails: `PoolCleared`", "creates what it lacks, or ends", "fails: `PoolClosed`"],
        ["`handle_timeout`", "prunes", "fails overdue check-outs, refreshes, prunes, populates", "nothing"],
    ];

    fn page() -> String {
        let mut page =
            String::from("<!-- Made from the tables in core/src/pool/state.rs; a test there compares. -->\n");
        page += "\n## The pool\n\n```mermaid\nstateDiagram-v2\n    [*] --> Paused: new\n    [*] --> Ready: new, profile 1.1\n";
        for (from, call, to) in POOL_TRANSITIONS {
            page += &format!("    {from:?} --> {to:?}: {}\n", format!("{call:?}").to_lowercase());
        }
        page += "    Closed --> [*]\n```\n\n## A connection\n\n```mermaid\nstateDiagram-v2\n";
        for (from, cause, to) in CONNECTION_TRANSITIONS {
            let name = |state, end| if state == ConnectionState::Closed { end } else { format!("{state:?}") };
            let (from, to) = (name(from, String::from("[*]")), name(to, String::from("Closed")));
            page += &format!("    {from} --> {to}: {cause}\n").replace(": idle for long: ", ": idle for long, ");
        }
        page += "    Closed --> [*]\n```\n\n## What each call does in each state of the pool\n\n";
        page += "| call | paused | ready | closed |\n|---|---|---|---|\n";
        for [call, paused, ready, closed] in CALLS {
            page += &format!("| {call} | {paused} | {ready} | {closed} |\n");
        }
        page
    }

    #[test]
    fn the_documented_diagrams_are_those_of_the_tables() {
        assert_eq!(include_str!("../../docs/states.md"), page(), "replace docs/states.md by the right-hand side");
    }

    #[test]
    fn closed_is_terminal_for_a_pool() {
        for call in [PoolCall::Ready, PoolCall::Clear, PoolCall::Close] {
            assert_eq!(PoolState::Closed.after(call), None);
        }
    }
}

//! The outputs of a pool, in the terms of the reference and the ledger.
//!
//! Handles and ids of check-outs are opaque, so here a connection is its number, and a check-out its place among all
//! check-outs, from 1. Errors keep the predictable parts: their kind, the counts and the time waited.

use core::time::Duration;
use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::pool::{self, CheckOutError, CheckOutErrorKind, CheckOutId, Counts, ServiceId, WaitLimit};
use cmap_core::pool::{CheckOutFailedReason, ConnectionClosedReason, Event, WarmUpError, WarmUpErrorKind};

/// A connection's number in its pool (CMAP-9).
pub(crate) type Id = u64;
/// A check-out's place among all check-outs of its pool, from 1.
pub(crate) type CheckOut = usize;
/// A service, as one byte instead of twelve.
pub(crate) type Service = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    // Actions.
    Connect(Id),
    Check(Id),
    Refresh(Id),
    Deliver(CheckOut, Id),
    Fail(CheckOut, Failure),
    Close(Id, ConnectionClosedReason),
    Interrupt(Id),
    /// The warm-up's number, its end, and of a failure the connections established and wanted.
    WarmedUp(u64, Warmed, Option<[usize; 2]>),
    // Events, with their durations in nanoseconds.
    PoolCreated,
    PoolReady,
    PoolCleared {
        service: Option<Service>,
        interrupts: bool,
    },
    PoolClosed,
    ConnectionCreated(Id),
    ConnectionReady(Id, u64),
    ConnectionClosed(Id, ConnectionClosedReason, Option<Cause>),
    CheckOutStarted(CheckOut),
    CheckOutFailed(CheckOut, CheckOutFailedReason, Failure),
    CheckedOut(CheckOut, Id, u64),
    CheckedIn(Id),
}

/// Why a check-out failed, the state of the pool, and how long it had taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    /// Pending, available, in use, waiting.
    pub(crate) counts: [usize; 4],
    pub(crate) waited: u64,
}

/// How a warm-up ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warmed {
    Reached,
    BeyondMaxPoolSize,
    Establish(Cause),
    PoolCleared(Cause),
    PoolClosed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    PoolClosed,
    PoolCleared(Cause),
    Timeout(WaitLimit),
    Establish(Cause),
    Cancelled,
    WaitQueueFull,
}

/// The cause of a clear or of the end of an establishment: the number of the test's own call, or the pool's own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Call(u64),
    PoolsOwn,
}

impl Output {
    /// Translates an output of the pool at `address`; `number` numbers check-outs.
    pub(crate) fn of(
        output: &pool::Output<()>,
        address: &ServerAddress,
        number: impl Fn(CheckOutId) -> CheckOut,
    ) -> Self {
        use pool::Action;
        let failure = |error: &CheckOutError| {
            assert_eq!(&*error.address, address, "an error names another pool's address");
            Failure::of(error)
        };
        match output {
            pool::Output::Action(action) => match action {
                Action::Connect { connection } => Self::Connect(connection.id().get()),
                Action::Check { connection } => Self::Check(connection.id().get()),
                Action::Refresh { connection, socket: (), .. } => Self::Refresh(connection.id().get()),
                Action::Deliver { check_out, connection, socket: () } => {
                    Self::Deliver(number(*check_out), connection.id().get())
                }
                Action::Fail { check_out, error } => Self::Fail(number(*check_out), failure(error)),
                Action::Close { connection, socket: (), reason } => Self::Close(connection.id().get(), *reason),
                Action::Interrupt { connection } => Self::Interrupt(connection.id().get()),
                Action::WarmedUp { warm_up, result } => {
                    let (how, counts) = Warmed::of(result);
                    Self::WarmedUp(warm_up.get(), how, counts)
                }
            },
            pool::Output::Event(event) => match event {
                Event::PoolCreated { .. } => Self::PoolCreated,
                Event::PoolReady => Self::PoolReady,
                Event::PoolCleared { service_id, interrupt_in_use_connections } => {
                    let service = service_id.map(|ServiceId(bytes)| bytes[0]);
                    Self::PoolCleared { service, interrupts: *interrupt_in_use_connections }
                }
                Event::PoolClosed => Self::PoolClosed,
                Event::ConnectionCreated { connection_id } => Self::ConnectionCreated(connection_id.get()),
                Event::ConnectionReady { connection_id, duration } => {
                    Self::ConnectionReady(connection_id.get(), nanos(*duration))
                }
                Event::ConnectionClosed { connection_id, reason, error } => {
                    let cause = error.as_ref().map(|error| Cause::of(&error.message));
                    Self::ConnectionClosed(connection_id.get(), *reason, cause)
                }
                Event::ConnectionCheckOutStarted { check_out } => Self::CheckOutStarted(number(*check_out)),
                Event::ConnectionCheckOutFailed { check_out, reason, error, duration } => {
                    assert_eq!(*duration, error.waited, "the event and its error tell different durations");
                    Self::CheckOutFailed(number(*check_out), *reason, failure(error))
                }
                Event::ConnectionCheckedOut { check_out, connection_id, duration } => {
                    Self::CheckedOut(number(*check_out), connection_id.get(), nanos(*duration))
                }
                Event::ConnectionCheckedIn { connection_id } => Self::CheckedIn(connection_id.get()),
                other => unreachable!("an event that the specification does not have: {other:?}"),
            },
        }
    }

    /// Whether an unobserved pool leaves it out.
    pub(crate) fn is_event(&self) -> bool {
        !matches!(
            self,
            Self::Connect(_)
                | Self::Check(_)
                | Self::Refresh(_)
                | Self::Deliver(..)
                | Self::Fail(..)
                | Self::Close(..)
                | Self::Interrupt(_)
                | Self::WarmedUp(..)
        )
    }
}

impl Warmed {
    fn of(result: &Result<(), Arc<WarmUpError>>) -> (Self, Option<[usize; 2]>) {
        let Err(error) = result else { return (Self::Reached, None) };
        let how = match &error.kind {
            WarmUpErrorKind::BeyondMaxPoolSize { .. } => Self::BeyondMaxPoolSize,
            WarmUpErrorKind::Establish(error) => Self::Establish(Cause::of(&error.message)),
            WarmUpErrorKind::PoolCleared { cause } => Self::PoolCleared(Cause::of(&cause.to_string())),
            WarmUpErrorKind::PoolClosed => Self::PoolClosed,
            other => unreachable!("a warm-up ended in a way of which the rules know nothing: {other:?}"),
        };
        (how, Some([error.established as usize, error.wanted as usize]))
    }
}

impl Failure {
    fn of(error: &CheckOutError) -> Self {
        let kind = match &error.kind {
            CheckOutErrorKind::PoolClosed => Kind::PoolClosed,
            CheckOutErrorKind::PoolCleared { cause } => Kind::PoolCleared(Cause::of(&cause.to_string())),
            CheckOutErrorKind::Timeout(limit) => Kind::Timeout(*limit),
            CheckOutErrorKind::Establish(error) => Kind::Establish(Cause::of(&error.message)),
            CheckOutErrorKind::Cancelled => Kind::Cancelled,
            CheckOutErrorKind::WaitQueueFull { .. } => Kind::WaitQueueFull,
            other => unreachable!("a check-out failed in a way of which the rules know nothing: {other:?}"),
        };
        Self { kind, counts: count(error.counts), waited: nanos(error.waited) }
    }
}

impl Cause {
    /// Reads the number at the end of a text that the test made; a pool's own texts have none.
    fn of(text: &str) -> Self {
        text.rsplit_once("call ").and_then(|(_, number)| number.parse().ok()).map_or(Self::PoolsOwn, Self::Call)
    }

    /// The text that [`of`](Self::of) reads.
    pub(crate) fn text(number: u64) -> String {
        format!("call {number}")
    }
}

/// Pending, available, in use, waiting.
pub(crate) fn count(counts: Counts) -> [usize; 4] {
    [counts.pending, counts.available, counts.in_use, counts.waiting].map(|count| count as usize)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a case lasts for less than 584 years")
}

//! The operations of a soak, counted by operation and end, and errors by kind.

use core::fmt;
use std::collections::BTreeMap;

use cmap_runtime::events::{Event, PoolEvent};
use serde::{Deserialize, Serialize};

use super::failure::{Failure, Kind};

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Operation {
    /// `ping`.
    Ping,
    /// `insert`, `find` and `delete` of a document.
    Write,
    /// `ping`, with a few milliseconds to get a connection.
    Timed,
    /// `ping`, whose future is dropped at an await point.
    Dropped,
    /// A cursor that keeps its connection.
    Pinned,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As it should.
    Succeeded,
    /// Its future was dropped.
    Dropped,
}

/// Operations of one sort, by their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ends {
    /// As they should.
    pub(crate) succeeded: u64,
    /// Dropped by the task.
    pub(crate) dropped: u64,
    /// By an error.
    pub(crate) failed: u64,
}

/// All operations so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    ends: BTreeMap<Operation, Ends>,
    errors: BTreeMap<Kind, u64>,
}

/// The pool's events, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Events {
    /// ConnectionCheckOutStarted.
    pub(crate) check_outs_started: u64,
    /// ConnectionCheckedOut.
    pub(crate) checked_out: u64,
    /// ConnectionCheckOutFailed.
    pub(crate) check_outs_failed: u64,
    /// ConnectionCheckedIn.
    pub(crate) checked_in: u64,
    /// ConnectionCreated.
    pub(crate) created: u64,
    /// ConnectionClosed.
    pub(crate) closed: u64,
    /// PoolCleared.
    pub(crate) cleared: u64,
}

impl Operation {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [Self::Ping, Self::Write, Self::Timed, Self::Dropped, Self::Pinned];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ping => "ping",
            Self::Write => "insert, find, delete",
            Self::Timed => "ping with little time",
            Self::Dropped => "ping to be dropped",
            Self::Pinned => "pinned cursor",
        })
    }
}

impl Ends {
    /// All together.
    pub(crate) fn total(&self) -> u64 {
        self.succeeded + self.dropped + self.failed
    }
}

impl Tally {
    /// An operation has ended.
    pub(crate) fn note(&mut self, operation: Operation, end: Result<End, &Failure>) {
        let ends = self.ends.entry(operation).or_default();
        match end {
            Ok(End::Succeeded) => ends.succeeded += 1,
            Ok(End::Dropped) => ends.dropped += 1,
            Err(failure) => {
                ends.failed += 1;
                *self.errors.entry(failure.kind()).or_default() += 1;
            }
        }
    }

    /// By operation; those that never ended are missing.
    pub(crate) fn ends(&self) -> Vec<(Operation, Ends)> {
        self.ends.iter().map(|(&operation, &ends)| (operation, ends)).collect()
    }

    /// Errors by kind; those that never came are missing.
    pub(crate) fn errors(&self) -> Vec<(Kind, u64)> {
        self.errors.iter().map(|(&kind, &count)| (kind, count)).collect()
    }

    /// How many operations ended.
    pub(crate) fn total(&self) -> u64 {
        self.ends.values().map(Ends::total).sum()
    }
}

impl Events {
    /// Something happened.
    pub(crate) fn note(&mut self, event: &Event) {
        let Event::Pool(event) = event else { return };
        let count = match event {
            PoolEvent::ConnectionCheckOutStarted { .. } => &mut self.check_outs_started,
            PoolEvent::ConnectionCheckedOut { .. } => &mut self.checked_out,
            PoolEvent::ConnectionCheckOutFailed { .. } => &mut self.check_outs_failed,
            PoolEvent::ConnectionCheckedIn { .. } => &mut self.checked_in,
            PoolEvent::ConnectionCreated { .. } => &mut self.created,
            PoolEvent::ConnectionClosed { .. } => &mut self.closed,
            PoolEvent::PoolCleared { .. } => &mut self.cleared,
            PoolEvent::PoolCreated { .. }
            | PoolEvent::PoolReady
            | PoolEvent::PoolClosed
            | PoolEvent::ConnectionReady { .. }
            | _ => return,
        };
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_by_their_end_and_errors_by_kind() {
        let mut tally = Tally::default();
        tally.note(Operation::Ping, Ok(End::Succeeded));
        tally.note(Operation::Dropped, Ok(End::Dropped));
        tally.note(Operation::Ping, Err(&Failure::WrongReply));

        let ping = Ends { succeeded: 1, dropped: 0, failed: 1 };
        let dropped = Ends { succeeded: 0, dropped: 1, failed: 0 };
        assert_eq!(tally.ends(), [(Operation::Ping, ping), (Operation::Dropped, dropped)]);
        assert_eq!(tally.errors(), [(Kind::WrongReply, 1)]);
        assert_eq!(tally.total(), 3);
    }
}

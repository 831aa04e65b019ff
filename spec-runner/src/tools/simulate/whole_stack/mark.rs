//! What whole-stack simulations have to have met, or they prove little.

use super::fault::FaultKind;

/// Something worth meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    GaveUp,
    CheckOutFailed,
    CommandFailed,
    OperationFailed,
    OrderWritten,
    CursorRead,
    CursorFailed,
    Cleared,
    ClosedStale,
    ClosedIdle,
    /// Nothing went wrong, and time was not short.
    Calm,
    /// A fault began before another one had ended.
    Overlapped,
    Befell(FaultKind),
}

impl Mark {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let others = [
            Self::GaveUp,
            Self::CheckOutFailed,
            Self::CommandFailed,
            Self::OperationFailed,
            Self::OrderWritten,
            Self::CursorRead,
            Self::CursorFailed,
            Self::Cleared,
            Self::ClosedStale,
            Self::ClosedIdle,
            Self::Calm,
            Self::Overlapped,
        ];
        others.into_iter().chain(FaultKind::ALL.into_iter().map(Self::Befell))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::GaveUp => "a caller gave up",
            Self::CheckOutFailed => "a check-out failed",
            Self::CommandFailed => "a command failed",
            Self::OperationFailed => "an operation failed that is tried again",
            Self::OrderWritten => "a write that is tried again was acknowledged",
            Self::CursorRead => "a cursor was read to its end",
            Self::CursorFailed => "a cursor failed",
            Self::Cleared => "a pool was cleared",
            Self::ClosedStale => "a stale connection was closed",
            Self::ClosedIdle => "an idle connection was closed",
            Self::Calm => "nothing went wrong",
            Self::Overlapped => "faults overlapped",
            Self::Befell(kind) => kind.name(),
        }
    }
}

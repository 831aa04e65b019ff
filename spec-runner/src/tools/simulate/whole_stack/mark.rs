//! What whole-stack simulations have to have met, or they prove little.

/// Something worth meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    GaveUp,
    CheckOutFailed,
    CommandFailed,
    OperationFailed,
    CursorRead,
    CursorFailed,
    Cleared,
    ClosedStale,
    ClosedIdle,
}

impl Mark {
    pub(super) const ALL: [Self; 9] = [
        Self::GaveUp,
        Self::CheckOutFailed,
        Self::CommandFailed,
        Self::OperationFailed,
        Self::CursorRead,
        Self::CursorFailed,
        Self::Cleared,
        Self::ClosedStale,
        Self::ClosedIdle,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::GaveUp => "a caller gave up",
            Self::CheckOutFailed => "a check-out failed",
            Self::CommandFailed => "a command failed",
            Self::OperationFailed => "an operation failed that is tried again",
            Self::CursorRead => "a cursor was read to its end",
            Self::CursorFailed => "a cursor failed",
            Self::Cleared => "a pool was cleared",
            Self::ClosedStale => "a stale connection was closed",
            Self::ClosedIdle => "an idle connection was closed",
        }
    }
}

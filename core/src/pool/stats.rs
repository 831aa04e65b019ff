//! Counts of the pool: the current ones, the totals, and the high-water marks.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::event::{CheckOutFailedReason, ConnectionClosedReason};

/// A pool's connections by state (CMAP-12), and its waiters, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Being established.
    pub pending: u32,
    /// Established and not in use; those being checked before their delivery, or refreshed, included.
    pub available: u32,
    /// Checked out.
    pub in_use: u32,
    /// Check-outs that wait.
    pub waiting: u32,
}

/// A snapshot of the pool: [`Counts`] now, high-water marks, and totals since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stats {
    /// Now.
    pub counts: Counts,
    /// The highest number of each, not necessarily at the same time.
    pub high_water: Counts,
    /// The highest number of connections.
    pub high_water_total: u32,
    /// Connections created.
    pub created: u64,
    /// Connections established.
    pub established: u64,
    /// Connections closed, by reason.
    pub closed: ClosedTotals,
    /// Check-outs started.
    pub check_outs_started: u64,
    /// Check-outs that got a connection.
    pub checked_out: u64,
    /// Check-outs that failed, by reason; cancelled ones included.
    pub check_outs_failed: FailedTotals,
    /// Check-outs that their callers cancelled.
    pub cancelled: u64,
    /// Connections checked in.
    pub checked_in: u64,
    /// Times that the pool, or a service's part of it, was cleared.
    pub cleared: u64,
}

/// What is counted as it happens; the rest of [`Stats`] follows from the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) high_water: Counts,
    pub(crate) high_water_total: u32,
    pub(crate) established: u64,
    pub(crate) closed: ClosedTotals,
    pub(crate) check_outs_failed: FailedTotals,
    pub(crate) cancelled: u64,
    pub(crate) cleared: u64,
}

/// Connections closed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClosedTotals {
    /// The pool had been cleared.
    pub stale: u64,
    /// Available for longer than maxIdleTimeMS.
    pub idle: u64,
    /// Establishing or using it failed.
    pub error: u64,
    /// The pool was closed.
    pub pool_closed: u64,
    /// There were more than the limits allow.
    pub surplus: u64,
}

/// Check-outs that failed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedTotals {
    /// The pool was closed.
    pub pool_closed: u64,
    /// Time was up.
    pub timeout: u64,
    /// Anything else.
    pub connection_error: u64,
}

impl Stats {
    /// What has happened in a pool that is gone: its high-water marks say nothing of what is there.
    pub(crate) fn without_marks(self) -> Self {
        Self { counts: Counts::default(), high_water: Counts::default(), high_water_total: 0, ..self }
    }

    /// Those of two pools together. High-water marks are added, though the pools may not have reached them at the same time.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            counts: self.counts.merge(other.counts),
            high_water: self.high_water.merge(other.high_water),
            high_water_total: self.high_water_total.saturating_add(other.high_water_total),
            created: self.created.saturating_add(other.created),
            established: self.established.saturating_add(other.established),
            closed: self.closed.merge(other.closed),
            check_outs_started: self.check_outs_started.saturating_add(other.check_outs_started),
            checked_out: self.checked_out.saturating_add(other.checked_out),
            check_outs_failed: self.check_outs_failed.merge(other.check_outs_failed),
            cancelled: self.cancelled.saturating_add(other.cancelled),
            checked_in: self.checked_in.saturating_add(other.checked_in),
            cleared: self.cleared.saturating_add(other.cleared),
        }
    }
}

impl Counts {
    fn merge(self, other: Self) -> Self {
        Self {
            pending: self.pending.saturating_add(other.pending),
            available: self.available.saturating_add(other.available),
            in_use: self.in_use.saturating_add(other.in_use),
            waiting: self.waiting.saturating_add(other.waiting),
        }
    }

    /// Connections in all (CMAP-12).
    pub fn total(&self) -> u32 {
        self.pending.saturating_add(self.available).saturating_add(self.in_use)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pending, available, in_use, waiting } = self;
        write!(f, "{in_use} in use, {available} available, {pending} pending, {waiting} waiting")
    }
}

impl ClosedTotals {
    fn merge(self, other: Self) -> Self {
        Self {
            stale: self.stale.saturating_add(other.stale),
            idle: self.idle.saturating_add(other.idle),
            error: self.error.saturating_add(other.error),
            pool_closed: self.pool_closed.saturating_add(other.pool_closed),
            surplus: self.surplus.saturating_add(other.surplus),
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.stale
            .saturating_add(self.idle)
            .saturating_add(self.error)
            .saturating_add(self.pool_closed)
            .saturating_add(self.surplus)
    }

    pub(crate) fn count(&mut self, reason: ConnectionClosedReason) {
        match reason {
            ConnectionClosedReason::Stale => self.stale = self.stale.saturating_add(1),
            ConnectionClosedReason::Idle => self.idle = self.idle.saturating_add(1),
            ConnectionClosedReason::Error => self.error = self.error.saturating_add(1),
            ConnectionClosedReason::PoolClosed => self.pool_closed = self.pool_closed.saturating_add(1),
            ConnectionClosedReason::Surplus => self.surplus = self.surplus.saturating_add(1),
        }
    }
}

impl FailedTotals {
    fn merge(self, other: Self) -> Self {
        Self {
            pool_closed: self.pool_closed.saturating_add(other.pool_closed),
            timeout: self.timeout.saturating_add(other.timeout),
            connection_error: self.connection_error.saturating_add(other.connection_error),
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.pool_closed.saturating_add(self.timeout).saturating_add(self.connection_error)
    }

    pub(crate) fn count(&mut self, reason: CheckOutFailedReason) {
        match reason {
            CheckOutFailedReason::PoolClosed => self.pool_closed = self.pool_closed.saturating_add(1),
            CheckOutFailedReason::Timeout => self.timeout = self.timeout.saturating_add(1),
            CheckOutFailedReason::ConnectionError => self.connection_error = self.connection_error.saturating_add(1),
        }
    }
}

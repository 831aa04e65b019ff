//! How check-outs end without a connection, and when they have to (CMAP-15, CMAP-28 to CMAP-31, CSOT-4, SEL-17, X-16, X-80).

use std::time::Duration;

use cmap_core::options::{PoolOptions, QueueDepth};
use cmap_core::pool::{CheckOutErrorKind, CheckOutId, WaitLimit};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, SelectionErrorKind, SelectionId};

use super::super::ledger::{State, Waiter};
use super::{Broken, Oracle, law};

/// The limits of waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    wait_queue_timeout: Option<Duration>,
    pub(super) max_wait_queue_depth: Option<u32>,
}

impl Patience {
    pub(super) fn of(options: &PoolOptions) -> Self {
        let max_wait_queue_depth = match options.max_wait_queue_depth {
            Some(QueueDepth::Waiters(waiters)) => Some(waiters),
            _ => None,
        };
        Self { wait_queue_timeout: options.wait_queue_timeout, max_wait_queue_depth }
    }

    /// When a check-out has waited in its pool for long enough.
    fn end_in_pool(self, waiter: &Waiter) -> Option<Instant> {
        Some(waiter.queued_at? + self.wait_queue_timeout?)
    }
}

impl Oracle {
    /// A check-out failed in a pool.
    pub(super) fn judge_failure(
        &mut self,
        place: usize,
        check_out: CheckOutId,
        kind: &CheckOutErrorKind,
    ) -> Result<(), Broken> {
        let now = self.now;
        let Some(waiter) = self.waiting.find(CheckOut::Started(check_out)).map(|waiter| *waiter) else { return Ok(()) };
        // The users of a client share the limit of a server.
        let at_server = self.pools.server_of(place).map(|server| self.pools.at_server(server));
        let waiting: usize = at_server.into_iter().flatten().map(|(_, pool)| pool.queue.len()).sum();
        let Some(pool) = self.pools.judged(place) else { return Ok(()) };
        let is_lawful = match kind {
            CheckOutErrorKind::Timeout(WaitLimit::Deadline) => waiter.end().is_some_and(|end| end <= now),
            CheckOutErrorKind::Timeout(WaitLimit::WaitQueueTimeout) => {
                self.patience.end_in_pool(&waiter).is_some_and(|end| end <= now)
            }
            CheckOutErrorKind::WaitQueueFull { .. } => {
                self.patience.max_wait_queue_depth.is_some_and(|depth| waiting > depth as usize)
            }
            CheckOutErrorKind::PoolCleared { .. } => !pool.is_ready,
            CheckOutErrorKind::PoolClosed => pool.is_closed,
            CheckOutErrorKind::Establish(_) => self.has_failed_to_establish,
            CheckOutErrorKind::Cancelled | _ => true,
        };
        law("a check-out fails for a reason that is there", is_lawful, || format!("{waiter:?} at {now:?}: {kind:?}"))
    }

    /// A check-out failed that waited for a server.
    pub(super) fn judge_selection(&mut self, selection: SelectionId, kind: &SelectionErrorKind) -> Result<(), Broken> {
        let now = self.now;
        let Some(waiter) = self.waiting.find(CheckOut::Selecting(selection)).map(|waiter| *waiter) else {
            return Ok(());
        };
        let is_lawful = match kind {
            SelectionErrorKind::Timeout => waiter.end_of_selection() <= now,
            SelectionErrorKind::UnknownIdentity(identity) => self.identities.is_removed(*identity),
            SelectionErrorKind::Closed => self.is_closed,
            SelectionErrorKind::WaitQueueFull { .. } => {
                let selecting = self.waiting.iter().filter(|waiter| matches!(waiter.check_out, CheckOut::Selecting(_)));
                self.patience.max_wait_queue_depth.is_some_and(|depth| selecting.count() > depth as usize)
            }
            SelectionErrorKind::Incompatible(_)
            | SelectionErrorKind::MaxStaleness(_)
            | SelectionErrorKind::ServerLeft
            | SelectionErrorKind::Forked
            | _ => false,
        };
        law("a selection fails for a reason that is there", is_lawful, || format!("{waiter:?} at {now:?}: {kind:?}"))
    }

    /// Judges who waits still when timeouts have been handled.
    pub(super) fn judge_waits(&self, now: Instant) -> Result<(), Broken> {
        let overdue = self.waiting.iter().find(|waiter| waiter.end().is_some_and(|end| end <= now));
        law("nobody waits beyond a deadline", overdue.is_none(), || format!("{overdue:?}"))?;
        if self.patience.wait_queue_timeout.is_none() {
            return Ok(());
        }
        // One for whom a connection is being established waits for that.
        let overdue =
            self.waiting.iter().filter(|waiter| self.patience.end_in_pool(waiter).is_some_and(|end| end <= now));
        let overdue = overdue.count();
        let pending: u32 = self.pools.iter().map(|pool| pool.number(State::Pending)).sum();
        law(
            "nobody waits beyond waitQueueTimeoutMS but for a connection of its own",
            overdue <= pending as usize,
            || format!("{overdue} wait beyond waitQueueTimeoutMS, {pending} connections are being established"),
        )
    }
}

//! Check-outs that end without a connection (CMAP-28 to CMAP-32, X-18).

use alloc::sync::Arc;

use super::error::{CheckOutError, CheckOutErrorKind, WaitLimit};
use super::event::Event;
use super::list::Key;
use super::output::{Action, Output};
use super::state::PoolState;
use super::wait_bound::WaitBound;
use super::{CheckOutId, ConnectionId, Pool};
use crate::connection::EstablishError;

impl<C> Pool<C> {
    /// Ends a check-out without a connection and tells its caller.
    pub(super) fn fail(&mut self, check_out: Key, kind: CheckOutErrorKind) {
        let error = self.end_in_failure(check_out, kind);
        self.tell_failure(self.wait_queue.id(check_out), error);
    }

    /// Ends a check-out whose connection could not be established.
    pub(super) fn fail_with_connection(
        &mut self,
        check_out: Key,
        connection: ConnectionId,
        error: Arc<EstablishError>,
    ) {
        let mut failure = self.end_in_failure(check_out, CheckOutErrorKind::Establish(error));
        failure.connection = Some(connection);
        self.tell_failure(self.wait_queue.id(check_out), failure);
    }

    /// Ends a check-out whose time is up, and says what it lacked.
    pub(super) fn fail_at_its_time(&mut self, check_out: Key, limit: WaitLimit, bound: WaitBound) {
        let mut error = self.end_in_failure(check_out, CheckOutErrorKind::Timeout(limit));
        error.bound_by = Some(bound);
        error.timeouts = self.totals.check_outs_failed.timeout.saturating_add(1);
        self.tell_failure(self.wait_queue.id(check_out), error);
    }

    /// Ends a check-out that its caller has given up.
    pub(super) fn cancel(&mut self, check_out: Key) {
        let id = self.wait_queue.id(check_out);
        let error = self.end_in_failure(check_out, CheckOutErrorKind::Cancelled);
        self.totals.cancelled = self.totals.cancelled.saturating_add(1);
        self.totals.check_outs_failed.count(error.reason());
        if self.observed {
            self.emit_failure(&Arc::new(error), id);
        }
    }

    fn tell_failure(&mut self, id: CheckOutId, error: CheckOutError) {
        let error = Arc::new(error);
        let reason = error.reason();
        self.emit_failure(&error, id);
        self.totals.check_outs_failed.count(reason);
        self.outputs.push_back(Output::Action(Action::Fail { check_out: id, error }));
    }

    fn end_in_failure(&mut self, check_out: Key, kind: CheckOutErrorKind) -> CheckOutError {
        let waited = self.now.saturating_since(self.wait_queue.started_at(check_out));
        let (counts, in_use_by) = (self.counts(), self.in_use_by());
        self.leave_queue(check_out);
        self.leave_sticky(check_out);
        self.wait_queue.finish(check_out);
        let address = Arc::clone(&self.address);
        let in_use_by = self.limits.load_balanced.then_some(in_use_by);
        let max_pool_size = if self.limits.max_pool_size == u32::MAX { 0 } else { self.limits.max_pool_size };
        let backed_off_by = self.backed_off_by();
        let paused_for = (self.state == PoolState::Paused).then(|| self.now.saturating_since(self.paused_since));
        CheckOutError {
            kind,
            address,
            counts,
            waited,
            in_use_by,
            max_pool_size,
            backed_off_by,
            paused_for,
            connection: None,
            bound_by: None,
            held_by: Arc::default(),
            timeouts: self.totals.check_outs_failed.timeout,
        }
    }

    fn emit_failure(&mut self, error: &Arc<CheckOutError>, check_out: CheckOutId) {
        self.emit(|| Event::ConnectionCheckOutFailed {
            check_out,
            reason: error.reason(),
            duration: error.waited,
            error: Arc::clone(error),
        });
    }
}

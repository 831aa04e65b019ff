//! Limits of time on what waits. One timer serves them all, so that any task of any runtime can wait.

use std::future::Future;
use std::task::Waker;
use std::time::Duration;

use super::Driver;
use super::deadlines::Entry;
use crate::runtime::Runtime;
use crate::runtime::sync::Arc;
use crate::socket::abort::{Abort, AbortReason};

/// A limit on what goes on at a connection. Dropping it lifts the limit.
pub(crate) struct Limited<'a, R: Runtime> {
    driver: &'a Driver<R>,
    abort: Arc<Abort>,
    entry: Entry,
}

impl<R: Runtime> Driver<R> {
    /// Aborts what goes on after `limit`, or at once if no task will ever do that; `None` means never.
    pub(crate) fn limit(self: &Arc<Self>, limit: Option<Duration>, abort: &Arc<Abort>) -> Option<Limited<'_, R>> {
        let at = self.clock.deadline(limit)?;
        let mut state = self.lock();
        if state.runtime_gone {
            drop(state);
            abort.abort(AbortReason::RuntimeGone).into_iter().for_each(Waker::wake);
            return None;
        }
        let entry = state.deadlines.insert(at, Arc::clone(abort));
        let is_first = state.arm(at);
        drop(state);
        if is_first {
            self.alarm.ring();
        }
        Some(Limited { driver: self, abort: Arc::clone(abort), entry })
    }

    /// The output of `work`, unless `limit` passes or the client's runtime ends before.
    pub(crate) async fn within<T>(
        self: &Arc<Self>,
        limit: Option<Duration>,
        work: impl Future<Output = T>,
    ) -> Result<T, AbortReason> {
        let end = Arc::new(Abort::default());
        let limit = self.limit(limit, &end);
        let ended = end.during(work).await;
        drop(limit);
        ended
    }
}

impl<R: Runtime> Drop for Limited<'_, R> {
    fn drop(&mut self) {
        self.driver.lock().deadlines.remove(self.entry);
        // A limit that passed when its work was just done in time must not abort what comes next.
        self.abort.forget_timeout();
    }
}

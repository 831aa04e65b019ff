//! Closing a client, and waiting for its last connection.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use cmap_core::topology::Input;

use super::Driver;
use crate::error::RuntimeGone;
use crate::runtime::Runtime;
use crate::runtime::sync::Arc;
use crate::socket::abort::{Abort, AbortReason};

/// Closes a client when it is dropped.
pub(crate) struct Closing<R: Runtime>(pub(crate) Arc<Driver<R>>);

impl<R: Runtime> Drop for Closing<R> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<R: Runtime> Driver<R> {
    /// Closes the monitors and the pools, and gives up what is being established.
    pub(crate) fn close(self: &Arc<Self>) {
        // Servers that have just joined get their monitors.
        self.drive(|_, _, _| {});
        // The last events of the monitors come first (MON-14).
        self.close_monitors();
        self.drive(|state, now, work| {
            state.machine.call(now, Input::Close, None);
            state.report_refused(now);
            work.wake_all(state.abort_all(true, AbortReason::Closed));
            work.wake_all(state.srv_lookup.abort(AbortReason::Closed));
        });
        // Those of servers that joined meanwhile.
        self.close_monitors();
        self.log_uses(false);
    }

    /// Waits until the last connection of a closed pool came back, for at most `patience`; then aborts what is still in use.
    /// Returns how many connections that were.
    pub(crate) async fn closed(self: &Arc<Self>, patience: Duration) -> Result<u32, RuntimeGone> {
        let end = Arc::new(Abort::default());
        {
            let mut state = self.lock();
            if !state.runtime_gone && state.machine.connections() == 0 {
                return Ok(0);
            }
            state.closing.retain(|other| other.strong_count() > 0);
            state.closing.push(Arc::downgrade(&end));
        }
        // The end of the runtime ends it, too.
        let _limited = self.limit(Some(patience), &end);
        let Err(reason) = end.during(pending::<Infallible>()).await;
        match reason {
            AbortReason::RuntimeGone => Err(RuntimeGone),
            AbortReason::Closed => Ok(0),
            AbortReason::TimedOut | AbortReason::Interrupted => {
                self.log_uses(true);
                Ok(self.drive(|state, _, work| {
                    work.wake_all(state.abort_all(false, AbortReason::Closed));
                    state.machine.servers().map(|(_, server)| server.pool().counts().in_use).sum()
                }))
            }
        }
    }

    /// How many tasks wait for the last connection of a closed pool.
    pub(crate) fn waits_for_the_end(&self) -> usize {
        self.lock().closing.iter().filter(|end| end.strong_count() > 0).count()
    }
}

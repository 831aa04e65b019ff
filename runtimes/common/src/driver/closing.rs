//! Closing a client, and waiting for its last connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cmap_core::topology::Input;

use super::Driver;
use crate::error::RuntimeGone;
use crate::runtime::Runtime;
use crate::socket::abort::AbortReason;

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
            work.wake_all(state.srv_lookup.end());
        });
        // Those of servers that joined meanwhile.
        self.close_monitors();
        self.log_uses(false);
    }

    /// Waits until the last connection of a closed pool came back, for at most `patience`; then aborts what is still in use.
    /// Returns how many connections that were.
    pub(crate) async fn closed(self: &Arc<Self>, patience: Duration) -> Result<u32, RuntimeGone> {
        let outcome = self.within(Some(patience), LastConnection { driver: self, place: None }).await;
        outcome.unwrap_or_else(|reason| {
            if reason == AbortReason::RuntimeGone {
                return Err(RuntimeGone);
            }
            self.log_uses(true);
            Ok(self.drive(|state, _, work| {
                work.wake_all(state.abort_all(false, AbortReason::Closed));
                state.machine.servers().map(|(_, server)| server.pool().counts().in_use).sum()
            }))
        })
    }

    /// How many tasks wait for the last connection of a closed pool.
    pub(crate) fn waits_for_the_end(&self) -> usize {
        self.lock().closing.len()
    }
}

/// Waits until the last connection of a closed client came back.
struct LastConnection<'a, R: Runtime> {
    driver: &'a Arc<Driver<R>>,
    /// The place of its waker.
    place: Option<usize>,
}

impl<R: Runtime> Future for LastConnection<'_, R> {
    type Output = Result<u32, RuntimeGone>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = cx.waker().clone();
        let mut state = self.driver.lock();
        if state.runtime_gone {
            return Poll::Ready(Err(RuntimeGone));
        }
        if state.machine.connections() == 0 {
            return Poll::Ready(Ok(0));
        }
        // A waker is dropped without the lock: the last one of a task drops its future, which may own a connection.
        let before = self.place.and_then(|place| state.closing.try_remove(place));
        let place = state.closing.insert(waker);
        drop(state);
        drop(before);
        self.place = Some(place);
        Poll::Pending
    }
}

impl<R: Runtime> Drop for LastConnection<'_, R> {
    fn drop(&mut self) {
        let waker = self.place.and_then(|place| self.driver.lock().closing.try_remove(place));
        drop(waker);
    }
}

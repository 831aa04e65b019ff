//! What waits for a client as a whole: for connections that nobody needs yet, and for the last connection of one that is closed.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::topology::{Answer, Criteria, Input, WarmUpId};

use super::{Driver, Job};
use crate::error::{RuntimeGone, WarmUpError};
use crate::runtime::Runtime;
use crate::runtime::slot::Slot;
use crate::runtime::sync::Arc;
use crate::socket::abort::{Abort, AbortReason};

/// The servers that a warm-up was for, or what they lack.
pub(super) type WarmedUp = Result<Vec<ServerAddress>, WarmUpError>;

/// One warm-up. Dropping it gives it up, with what it has come to.
struct WarmUp<'a, R: Runtime> {
    driver: &'a Arc<Driver<R>>,
    id: WarmUpId,
}

/// Closes a client when it is dropped.
pub(crate) struct Closing<R: Runtime>(pub(crate) Arc<Driver<R>>);

impl<R: Runtime> Driver<R> {
    /// Waits until every server that suits has as many connections, for at most `limit`. Returns these servers.
    pub(crate) async fn warm_up(
        self: Arc<Self>,
        criteria: Criteria,
        connections: Option<u32>,
        limit: Option<Duration>,
    ) -> WarmedUp {
        let (slot, filler) = Slot::empty();
        let id = self.drive(|state, now, _| {
            if state.runtime_gone {
                return Err(RuntimeGone);
            }
            let id = state.machine.warm_up(now, &criteria, connections);
            state.warm_ups.insert(id, filler);
            Ok(id)
        })?;
        let warm_up = WarmUp { driver: &self, id };
        if let Ok(ended) = self.within(limit, poll_fn(|cx| slot.poll(cx))).await {
            return ended?;
        }
        drop(warm_up);
        // It has its result now; or it had ended before, and that is on its way.
        poll_fn(|cx| slot.poll(cx)).await?
    }

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
            let proofs = std::mem::take(&mut state.refused_logins.proofs);
            work.wake_all(proofs.iter().filter_map(|proof| proof.upgrade()?.abort(AbortReason::Closed)));
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
                    state.machine.pools().map(|(_, pool)| pool.counts().in_use).sum()
                }))
            }
        }
    }

    /// How many tasks wait for the last connection of a closed pool.
    pub(crate) fn waits_for_the_end(&self) -> usize {
        self.lock().closing.iter().filter(|end| end.strong_count() > 0).count()
    }
}

impl<R: Runtime> Drop for WarmUp<'_, R> {
    fn drop(&mut self) {
        self.driver.drive(|state, now, work| {
            // None if it has ended.
            let Some(filler) = state.warm_ups.remove(&self.id) else { return };
            let ended = match state.machine.call(now, Input::CancelWarmUp(self.id), None) {
                Answer::WarmUpCancelled(Some(ended)) => ended.map_err(Into::into),
                // Nothing was left to wait for.
                Answer::Done | _ => Ok(Vec::new()),
            };
            work.jobs.push(Job::EndWarmUp(filler, Some(ended)));
        });
    }
}

impl<R: Runtime> Drop for Closing<R> {
    fn drop(&mut self) {
        self.0.close();
    }
}

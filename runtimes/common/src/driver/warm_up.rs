//! Warm-up: the wait of a caller for connections that nobody needs yet.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::topology::{Answer, Criteria, Input, WarmUpId};

use super::{Driver, Job};
use crate::error::{RuntimeGone, WarmUpError};
use crate::runtime::Runtime;
use crate::runtime::slot::Slot;

/// The servers that a warm-up was for, or what they lack.
pub(super) type WarmedUp = Result<Vec<ServerAddress>, WarmUpError>;

/// One warm-up. Dropping it gives it up, with what it has come to.
struct WarmUp<'a, R: Runtime> {
    driver: &'a Arc<Driver<R>>,
    id: WarmUpId,
}

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

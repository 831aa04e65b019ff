//! Warm-up: the wait of a caller for connections that nobody needs yet.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::topology::{Answer, Criteria, Input, WarmUpId};

use super::Driver;
use crate::error::{RuntimeGone, WarmUpError};
use crate::runtime::Runtime;
use crate::runtime::slot::Slot;

/// The servers that a warm-up was for, or what they lack.
pub(super) type WarmedUp = Result<Vec<ServerAddress>, WarmUpError>;

/// One warm-up. Dropping it gives it up.
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
        let in_time = self.within(limit, poll_fn(|cx| slot.poll(cx))).await;
        match in_time.ok().or_else(|| warm_up.give_up().map(Ok)) {
            Some(ended) => ended?,
            // It has ended by now, and its result is on its way.
            None => poll_fn(|cx| slot.poll(cx)).await?,
        }
    }
}

impl<R: Runtime> WarmUp<'_, R> {
    /// Nobody waits any longer. Returns what it has come to, unless it had ended.
    fn give_up(&self) -> Option<WarmedUp> {
        // Dropped behind the lock, as wakers must be.
        let (_filler, given_up) = self.driver.drive(|state, now, _| {
            let filler = state.warm_ups.remove(&self.id)?;
            match state.machine.call(now, Input::CancelWarmUp(self.id), None) {
                Answer::WarmUpCancelled(Some(ended)) => Some((filler, ended.map_err(Into::into))),
                // Nothing was left to wait for.
                Answer::Done | _ => Some((filler, Ok(Vec::new()))),
            }
        })?;
        Some(given_up)
    }
}

impl<R: Runtime> Drop for WarmUp<'_, R> {
    fn drop(&mut self) {
        self.give_up();
    }
}

//! Warm-up: the wait of a caller for connections that nobody needs yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::time::Instant;
use cmap_core::topology::{self, Answer, Criteria, Input, WarmUpId};

use super::Driver;
use super::state::State;
use crate::error::{RuntimeGone, WarmUpError};
use crate::runtime::Runtime;
use crate::socket::abort::Abort;

/// The warm-ups that callers wait for, or whose end they have not seen yet.
pub(super) type WarmUps = BTreeMap<WarmUpId, Wait>;

/// A caller's wait.
pub(super) enum Wait {
    /// Until this task is woken.
    Sleeping(Option<Waker>),
    /// It is over.
    Over(Result<Vec<ServerAddress>, WarmUpError>),
}

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
    ) -> Result<Vec<ServerAddress>, WarmUpError> {
        let warm_up = self.begin_warm_up(&criteria, connections)?;
        let end = Arc::new(Abort::default());
        let timer = self.limit(limit, &end);
        let ended = end.during(std::future::poll_fn(|cx| warm_up.poll(cx))).await;
        drop(timer);
        ended.unwrap_or_else(|_| warm_up.give_up())
    }

    fn begin_warm_up(
        self: &Arc<Self>,
        criteria: &Criteria,
        connections: Option<u32>,
    ) -> Result<WarmUp<'_, R>, RuntimeGone> {
        let id = self.drive(|state, now, _| {
            if state.runtime_gone {
                return Err(RuntimeGone);
            }
            let id = state.machine.warm_up(now, criteria, connections);
            state.warm_ups.insert(id, Wait::Sleeping(None));
            Ok(id)
        })?;
        Ok(WarmUp { driver: self, id })
    }
}

impl<R: Runtime> WarmUp<'_, R> {
    fn poll(&self, cx: &Context<'_>) -> Poll<Result<Vec<ServerAddress>, WarmUpError>> {
        let mut state = self.driver.lock();
        let before = match state.warm_ups.get_mut(&self.id) {
            Some(Wait::Sleeping(waker)) => waker.replace(cx.waker().clone()),
            Some(Wait::Over(result)) => return Poll::Ready(result.clone()),
            None => return Poll::Ready(Err(RuntimeGone.into())),
        };
        // Wakers are dropped without the lock: the last one of a task drops its future.
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Its time is up, or the client has ended.
    fn give_up(&self) -> Result<Vec<ServerAddress>, WarmUpError> {
        self.driver.drive(|state, now, _| match state.warm_ups.get(&self.id) {
            Some(Wait::Over(result)) => result.clone(),
            Some(Wait::Sleeping(_)) => {
                match state.machine.call(now, Input::CancelWarmUp(self.id), None) {
                    Answer::WarmUpCancelled(Some(ended)) => ended.map_err(Into::into),
                    // Nothing was left to wait for.
                    Answer::Done | _ => Ok(Vec::new()),
                }
            }
            None => Err(RuntimeGone.into()),
        })
    }
}

impl<R: Runtime> Drop for WarmUp<'_, R> {
    fn drop(&mut self) {
        // Dropped behind the lock, as wakers must be.
        let _wait = self.driver.drive(|state, now, _| {
            state.machine.call(now, Input::CancelWarmUp(self.id), None);
            state.warm_ups.remove(&self.id)
        });
    }
}

impl<R: Runtime> State<R> {
    /// A warm-up has ended; returns the task to wake.
    pub(super) fn end_warm_up(
        &mut self,
        id: WarmUpId,
        result: Result<Vec<ServerAddress>, topology::WarmUpError>,
    ) -> Option<Waker> {
        let wait = self.warm_ups.get_mut(&id)?;
        match std::mem::replace(wait, Wait::Over(result.map_err(Into::into))) {
            Wait::Sleeping(waker) => waker,
            Wait::Over(_) => None,
        }
    }

    /// The runtime is gone: no warm-up ends. Returns the tasks to wake.
    pub(super) fn abandon_warm_ups(&mut self, now: Instant) -> Vec<Waker> {
        let waits = std::mem::take(&mut self.warm_ups);
        let mut wake = Vec::new();
        for (id, wait) in waits {
            self.machine.call(now, Input::CancelWarmUp(id), None);
            if let Wait::Sleeping(Some(waker)) = wait {
                wake.push(waker);
            }
        }
        wake
    }
}

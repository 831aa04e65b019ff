//! The pauses of a client's operations. They end when the client is closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;

use crate::driver::Driver;
use crate::runtime::Runtime;
use crate::socket::abort::{Abort, AbortReason};

/// The pauses under way in a client.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    under_way: Slab<Arc<Abort>>,
}

/// The client was closed during a pause, or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientClosed;

/// A pause under way. Dropping it forgets it.
struct Pause<'a> {
    pauses: &'a Pauses,
    place: usize,
}

impl Pauses {
    /// Pauses for `duration`, by the clock of `driver`. A runtime that ends ends the pause.
    pub(crate) async fn pause<R: Runtime>(
        &self,
        driver: &Arc<Driver<R>>,
        duration: Duration,
    ) -> Result<(), ClientClosed> {
        let end = Arc::new(Abort::default());
        let _pause = self.begin(&end)?;
        let limit = driver.limit(Some(duration), &end);
        let ended = end.during(std::future::pending::<()>()).await;
        drop(limit);
        if ended == Err(AbortReason::Closed) { Err(ClientClosed) } else { Ok(()) }
    }

    fn begin(&self, end: &Arc<Abort>) -> Result<Pause<'_>, ClientClosed> {
        let mut state = self.state();
        if state.is_closed {
            return Err(ClientClosed);
        }
        let place = state.under_way.insert(Arc::clone(end));
        Ok(Pause { pauses: self, place })
    }

    /// The client is closed: ends the pauses, and those that would begin.
    pub(crate) fn close(&self) {
        let under_way = {
            let mut state = self.state();
            state.is_closed = true;
            // A pause forgets itself when it ends.
            state.under_way.iter().map(|(_, end)| Arc::clone(end)).collect::<Vec<_>>()
        };
        for waker in under_way.iter().filter_map(|end| end.abort(AbortReason::Closed)) {
            waker.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.pauses.state().under_way.try_remove(self.place);
    }
}

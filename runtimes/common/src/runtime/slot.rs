//! A place where a task of the home runtime, or the driver, leaves a result for somebody who comes for it, or never does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::RuntimeGone;

/// Where a result will be.
#[derive(Debug)]
pub(crate) struct Slot<T>(Arc<Mutex<State<T>>>);

/// The duty to leave a result. Dropping it says that the runtime has dropped the task half-way, unless nobody comes any more.
#[derive(Debug)]
pub(crate) struct Filler<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
struct State<T> {
    result: Option<Result<T, RuntimeGone>>,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    /// An empty place, and the duty to fill it.
    pub(crate) fn empty() -> (Self, Filler<T>) {
        let state = Arc::new(Mutex::new(State { result: None, waker: None }));
        (Self(Arc::clone(&state)), Filler(state))
    }

    /// The result, once it is there.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Result<T, RuntimeGone>> {
        let waker = cx.waker().clone();
        let (result, before) = {
            let mut state = lock(&self.0);
            match state.result.take() {
                Some(result) => (Some(result), None),
                None => (None, state.waker.replace(waker)),
            }
        };
        // A waker is dropped without the lock: the last one of a task drops its future.
        drop(before);
        result.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Filler<T> {
    pub(crate) fn fill(self, result: T) {
        lock(&self.0).result = Some(Ok(result));
    }
}

impl<T> Drop for Filler<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = lock(&self.0);
            state.result.get_or_insert(Err(RuntimeGone));
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    // Nothing under the lock panics.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

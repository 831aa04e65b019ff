//! Closing a client, and waiting for its last connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Driver;
use crate::error::RuntimeGone;
use crate::runtime::Runtime;

/// Closes a client when it is dropped.
pub(crate) struct Closing<R: Runtime>(pub(crate) Arc<Driver<R>>);

impl<R: Runtime> Drop for Closing<R> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits until the last connection of a closed client came back.
pub(super) struct LastConnection<'a, R: Runtime> {
    driver: &'a Arc<Driver<R>>,
    /// The place of its waker.
    place: Option<usize>,
}

impl<'a, R: Runtime> LastConnection<'a, R> {
    pub(super) fn of(driver: &'a Arc<Driver<R>>) -> Self {
        Self { driver, place: None }
    }
}

impl<R: Runtime> Future for LastConnection<'_, R> {
    type Output = Result<u32, RuntimeGone>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.driver.lock();
        if state.runtime_gone {
            return Poll::Ready(Err(RuntimeGone));
        }
        if state.connections() == 0 {
            return Poll::Ready(Ok(0));
        }
        let before = match self.place.and_then(|place| state.closing.get_mut(place)) {
            Some(own) if own.will_wake(cx.waker()) => None,
            Some(own) => Some(std::mem::replace(own, cx.waker().clone())),
            None => {
                let place = state.closing.insert(cx.waker().clone());
                drop(state);
                self.place = Some(place);
                return Poll::Pending;
            }
        };
        // Wakers are dropped without the lock: the last one of a task drops its future, which may own a connection.
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl<R: Runtime> Drop for LastConnection<'_, R> {
    fn drop(&mut self) {
        let waker = self.place.and_then(|place| self.driver.lock().closing.try_remove(place));
        drop(waker);
    }
}

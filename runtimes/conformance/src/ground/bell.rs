//! A bell: tasks that wait for a condition look again whenever it rings.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Wakes all tasks that wait, whenever something has changed.
#[derive(Default)]
pub(crate) struct Bell {
    waiters: Mutex<Vec<Waker>>,
}

impl Bell {
    /// Has every waiter look again.
    pub(crate) fn ring(&self) {
        let waiters = std::mem::take(&mut *self.waiters.lock().unwrap_or_else(PoisonError::into_inner));
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Waits until `has_come`, which may be true already.
    pub(crate) async fn wait_until(&self, mut has_come: impl FnMut() -> bool) {
        poll_fn(|cx| self.poll(cx, &mut has_come)).await;
    }

    /// Whether `has_come`; if not, the task is woken when the bell rings.
    pub(crate) fn poll(&self, cx: &mut Context<'_>, mut has_come: impl FnMut() -> bool) -> Poll<()> {
        if has_come() {
            return Poll::Ready(());
        }
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
        // The lock is free while the condition is looked at: it may have one of its own.
        drop(waiters);
        // It may have come, and the bell rung, before this task was among the waiters.
        if has_come() { Poll::Ready(()) } else { Poll::Pending }
    }
}

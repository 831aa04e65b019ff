//! Tells a task something, once or again and again.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;

/// A notice for one task by any other.
#[derive(Debug, Default)]
pub(crate) struct Notice {
    is_set: AtomicBool,
    waiting: AtomicWaker,
}

impl Notice {
    /// Tells it.
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.waiting.wake();
    }

    /// Whether there was a notice since it last looked.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waiting.register(cx.waker());
        if self.is_set.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits for a notice.
    pub(crate) async fn take(&self) {
        poll_fn(|cx| self.poll_take(cx)).await;
    }
}

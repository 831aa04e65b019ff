//! What cuts off that which goes on at a connection: an interruption, a deadline, the end of the client or its runtime.
//!
//! Each connection has one [`Cutoff`], shared by the endpoint, which cuts, and by whoever works on the socket, who
//! looks at it whenever it is polled.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Poll, Waker};

use atomic_waker::AtomicWaker;

/// Why something was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cut {
    /// The pool was cleared with interruptInUseConnections (CMAP-40 to CMAP-42).
    Interrupted = 1,
    /// The operation's time was up (CSOT-11, CSOT-12).
    TimedOut = 2,
    /// The client was closed.
    Closed = 3,
    /// The home runtime has ended.
    RuntimeGone = 4,
}

#[derive(Debug, Default)]
pub(crate) struct Cutoff {
    /// 0, or a [`Cut`]. The first cut stays.
    cut: AtomicU8,
    waker: AtomicWaker,
}

impl Cutoff {
    /// Cuts. Returns whom to wake, where no lock is held.
    #[must_use = "whoever works on the connection sleeps"]
    pub(crate) fn cut(&self, cut: Cut) -> Option<Waker> {
        let _ = self.cut.compare_exchange(0, cut as u8, Ordering::AcqRel, Ordering::Relaxed);
        self.waker.take()
    }

    pub(crate) fn get(&self) -> Option<Cut> {
        match self.cut.load(Ordering::Acquire) {
            1 => Some(Cut::Interrupted),
            2 => Some(Cut::TimedOut),
            3 => Some(Cut::Closed),
            4 => Some(Cut::RuntimeGone),
            _ => None,
        }
    }

    /// Forgets a deadline that passed when its operation had just ended in time.
    pub(crate) fn forget_timeout(&self) {
        let _ = self.cut.compare_exchange(Cut::TimedOut as u8, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// `work`, unless it is cut off before its end.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, Cut> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            if let Some(cut) = self.get() {
                return Poll::Ready(Err(cut));
            }
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            self.waker.register(cx.waker());
            // A cut before the registration woke nobody.
            self.get().map_or(Poll::Pending, |cut| Poll::Ready(Err(cut)))
        })
        .await
    }
}

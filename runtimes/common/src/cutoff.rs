//! What cuts off that which goes on at a connection: an interruption, a deadline, the end of the client or its runtime.
//!
//! Each connection has one [`Cutoff`], shared by the endpoint, which cuts, and by whoever works on the socket, who
//! looks at it whenever it is polled.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Poll, Waker};

use atomic_waker::AtomicWaker;

/// Why something was cut off. One of a greater number overrides one of a smaller number: what concerns the connection counts more
/// than what concerns one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cut {
    /// The operation's time was up (CSOT-11, CSOT-12).
    TimedOut = 1,
    /// The pool was cleared with interruptInUseConnections (CMAP-40 to CMAP-42).
    Interrupted = 2,
    /// The client was closed.
    Closed = 3,
    /// The home runtime has ended.
    RuntimeGone = 4,
}

#[derive(Debug, Default)]
pub(crate) struct Cutoff {
    /// 0, or the [`Cut`] of the greatest number.
    cut: AtomicU8,
    waker: AtomicWaker,
}

impl Cutoff {
    /// Cuts. Returns whom to wake, where no lock is held.
    #[must_use = "whoever works on the connection sleeps"]
    pub(crate) fn cut(&self, cut: Cut) -> Option<Waker> {
        self.cut.fetch_max(cut as u8, Ordering::AcqRel);
        self.waker.take()
    }

    pub(crate) fn get(&self) -> Option<Cut> {
        match self.cut.load(Ordering::Acquire) {
            1 => Some(Cut::TimedOut),
            2 => Some(Cut::Interrupted),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_that_comes_just_as_a_limit_passed_is_not_forgotten_with_it() {
        let cutoff = Cutoff::default();
        let _ = cutoff.cut(Cut::TimedOut);
        let _ = cutoff.cut(Cut::Interrupted);

        cutoff.forget_timeout();

        assert_eq!(cutoff.get(), Some(Cut::Interrupted));
    }

    #[test]
    fn a_limit_that_passes_on_a_closed_client_does_not_hide_the_close() {
        let cutoff = Cutoff::default();
        let _ = cutoff.cut(Cut::Closed);
        let _ = cutoff.cut(Cut::TimedOut);

        assert_eq!(cutoff.get(), Some(Cut::Closed));
    }
}

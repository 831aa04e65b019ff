//! Aborts the work at a connection: for an interruption, a deadline, the end of the client or of its runtime.
//!
//! Each connection has one [`Abort`], shared by the server, which aborts, and by the task that works on the socket,
//! which checks it whenever it is polled.

use std::future::Future;
use std::pin::pin;
use std::task::{Poll, Waker};

use cmap_core::connection::Phase;

use crate::runtime::sync::{AtomicU8, AtomicWaker, Ordering};

/// Why work was aborted. A reason with a greater number overrides one with a smaller number: a reason that concerns the
/// connection counts more than one that concerns a single operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AbortReason {
    /// The operation's time was up (CSOT-11, CSOT-12).
    TimedOut = 1,
    /// The pool was cleared with interruptInUseConnections (CMAP-40 to CMAP-42).
    Interrupted = 2,
    /// The client was closed.
    Closed = 3,
    /// The home runtime has ended.
    RuntimeGone = 4,
}

/// The phases of an establishment, by number.
const PHASES: [Phase; 6] =
    [Phase::Resolve, Phase::Proxy, Phase::Connect, Phase::Tls, Phase::Hello, Phase::Authenticate];

#[derive(Debug, Default)]
pub(crate) struct Abort {
    /// 0, or the [`AbortReason`] of the greatest number.
    reason: AtomicU8,
    /// 0, or 1 more than the number of the [`Phase`] that an establishment is in.
    phase: AtomicU8,
    waker: AtomicWaker,
}

impl Abort {
    /// Aborts. Returns the task to wake, where no lock is held.
    #[must_use = "the task that works on the connection sleeps"]
    pub(crate) fn abort(&self, reason: AbortReason) -> Option<Waker> {
        self.reason.fetch_max(reason as u8, Ordering::AcqRel);
        self.waker.take()
    }

    pub(crate) fn get(&self) -> Option<AbortReason> {
        match self.reason.load(Ordering::Acquire) {
            1 => Some(AbortReason::TimedOut),
            2 => Some(AbortReason::Interrupted),
            3 => Some(AbortReason::Closed),
            4 => Some(AbortReason::RuntimeGone),
            _ => None,
        }
    }

    /// An establishment is in this phase now.
    pub(crate) fn enter(&self, phase: Phase) {
        let at = PHASES.iter().position(|own| *own == phase).and_then(|at| u8::try_from(at + 1).ok());
        self.phase.store(at.unwrap_or_default(), Ordering::Relaxed);
    }

    /// The phase that an establishment is in.
    pub(crate) fn phase(&self) -> Option<Phase> {
        PHASES.get(usize::from(self.phase.load(Ordering::Relaxed)).checked_sub(1)?).copied()
    }

    /// Forgets a deadline that passed when its operation had just ended in time.
    pub(crate) fn forget_timeout(&self) {
        let _ = self.reason.compare_exchange(AbortReason::TimedOut as u8, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// `work`, unless it is aborted before its end.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, AbortReason> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            if let Some(reason) = self.get() {
                return Poll::Ready(Err(reason));
            }
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            self.waker.register(cx.waker());
            // An abort before the registration woke no task.
            self.get().map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use super::*;

    #[test]
    fn work_does_not_begin_once_it_was_aborted() {
        let abort = Abort::default();
        let _ = abort.abort(AbortReason::Closed);

        let outcome = pin!(abort.during(async {})).poll(&mut Context::from_waker(Waker::noop()));

        assert_eq!(outcome, Poll::Ready(Err(AbortReason::Closed)));
    }

    #[test]
    fn an_establishment_says_what_it_is_at() {
        let abort = Abort::default();
        assert_eq!(abort.phase(), None);

        for phase in PHASES {
            abort.enter(phase);
            assert_eq!(abort.phase(), Some(phase));
        }
    }

    #[test]
    fn an_abort_just_before_the_task_sleeps_is_not_missed() {
        let abort = Abort::default();
        let work = std::future::poll_fn(|_| {
            assert!(abort.abort(AbortReason::TimedOut).is_none(), "no task can be woken yet");
            Poll::<()>::Pending
        });

        let outcome = pin!(abort.during(work)).poll(&mut Context::from_waker(Waker::noop()));

        assert_eq!(outcome, Poll::Ready(Err(AbortReason::TimedOut)));
    }

    #[test]
    fn an_interruption_that_comes_just_as_a_limit_passed_is_not_forgotten_with_it() {
        let abort = Abort::default();
        let _ = abort.abort(AbortReason::TimedOut);
        let _ = abort.abort(AbortReason::Interrupted);

        abort.forget_timeout();

        assert_eq!(abort.get(), Some(AbortReason::Interrupted));
    }

    #[test]
    fn a_limit_that_passes_on_a_closed_client_does_not_hide_the_close() {
        let abort = Abort::default();
        let _ = abort.abort(AbortReason::Closed);
        let _ = abort.abort(AbortReason::TimedOut);

        assert_eq!(abort.get(), Some(AbortReason::Closed));
    }
}

//! Conversion between the runtime's time and the core's: nanoseconds since the client was made.
//!
//! The core's time never runs backwards: while a runtime's clock shows less than it has shown before, time stands still.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use cmap_core::time::Instant;

use super::deadline::Deadline;
use crate::runtime::Runtime;

/// A runtime's time in the core's terms. Its origin is when it was made.
#[derive(Clone, Debug)]
pub struct Clock<R> {
    runtime: R,
    origin: std::time::Instant,
}

impl<R: Runtime> Clock<R> {
    /// Time begins now.
    pub fn new(runtime: R) -> Self {
        let origin = runtime.now();
        Self { runtime, origin }
    }

    /// The present.
    #[inline]
    pub fn now(&self) -> Instant {
        let age = self.runtime.now().saturating_duration_since(self.origin);
        // Cheaper than `ORIGIN + age`, and the same for 584 years.
        Instant::from_nanos(age.as_secs().wrapping_mul(1_000_000_000).wrapping_add(age.subsec_nanos().into()))
    }

    /// The end of a wait that begins now and may last for `limit`; `None` means forever.
    pub(crate) fn deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        limit.map(|limit| self.now() + limit)
    }

    /// A deadline in the core's terms; `None` if it lies beyond the runtime's range.
    pub(crate) fn instant_of(&self, deadline: Deadline) -> Option<Instant> {
        deadline.at().map(|at| Instant::ORIGIN + at.saturating_duration_since(self.origin))
    }

    /// Ends at `at`; never, if `at` lies beyond the runtime's range.
    pub async fn sleep_until(&self, at: Instant) {
        match self.origin.checked_add(Duration::from_nanos(at.as_nanos())) {
            Some(at) => self.runtime.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// The output of `work`; `None` if it has not ended within `limit`.
    pub async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.before(Some(self.now() + limit), work).await
    }

    /// The output of `work`; `None` if it has not ended before `until`, where that is a time.
    pub async fn before<T>(&self, until: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut timer = pin!(async {
            match until {
                Some(until) => self.sleep_until(until).await,
                None => std::future::pending().await,
            }
        });
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// The runtime.
    pub fn runtime(&self) -> &R {
        &self.runtime
    }
}

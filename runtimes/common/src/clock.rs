//! Conversion between the runtime's time and the core's: nanoseconds since the client was made.
//!
//! The core's time never runs backwards: while a runtime's clock shows less than it has shown before, time stands still.

use std::time::Duration;

use cmap_core::time::Instant;

use crate::deadline::Deadline;
use crate::runtime::Runtime;

#[derive(Clone)]
pub(crate) struct Clock<R> {
    runtime: R,
    origin: std::time::Instant,
}

impl<R: Runtime> Clock<R> {
    pub(crate) fn new(runtime: R) -> Self {
        let origin = runtime.now();
        Self { runtime, origin }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
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
    pub(crate) async fn sleep_until(&self, at: Instant) {
        match self.origin.checked_add(Duration::from_nanos(at.as_nanos())) {
            Some(at) => self.runtime.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn runtime(&self) -> &R {
        &self.runtime
    }
}

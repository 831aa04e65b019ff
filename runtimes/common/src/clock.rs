//! From the runtime's time to the core's and back: nanoseconds since the client was made.
//!
//! The core's time never runs backwards, and stands still when its caller's does. A runtime's clock should not step back
//! either; where one does (a platform's defect, a virtual machine that was moved), the clock here goes on from the latest
//! time it has told, so that no limit on waiting is prolonged by the step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cmap_core::time::Instant;

use crate::runtime::Runtime;

/// The time of one client. Clones are one clock.
#[derive(Clone)]
pub(crate) struct Clock<R> {
    runtime: R,
    origin: std::time::Instant,
    steps: Arc<Steps>,
}

/// What is known of steps backwards, in nanoseconds.
#[derive(Debug, Default)]
struct Steps {
    /// The latest time that was noted, now and then.
    noted: AtomicU64,
    /// How far the runtime's clock has stepped back in all.
    sum: AtomicU64,
}

/// Time is noted so often.
const NOTE: u64 = 100_000_000;
/// So far back is no race between threads, but a step.
const STEP: u64 = 1_000_000_000;

impl<R: Runtime> Clock<R> {
    pub(crate) fn new(runtime: R) -> Self {
        let origin = runtime.now();
        Self { runtime, origin, steps: Arc::default() }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        let now = self.read(self.steps.sum.load(Ordering::Relaxed));
        let noted = self.steps.noted.load(Ordering::Relaxed);
        // One comparison for both: what lies before wraps.
        let now = if now.wrapping_sub(noted) > NOTE { self.note(now, noted) } else { now };
        Instant::from_nanos(now)
    }

    /// The end of a wait that may last for `limit`; zero and none mean for ever (CSOT-2).
    pub(crate) fn deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        limit.filter(|limit| !limit.is_zero()).map(|limit| self.now() + limit)
    }

    /// Ends at `at`; never, if that lies beyond what the runtime can count.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        let at = Duration::from_nanos(at.as_nanos());
        let steps = Duration::from_nanos(self.steps.sum.load(Ordering::Relaxed));
        let at = match at.checked_sub(steps) {
            Some(ahead) => self.origin.checked_add(ahead),
            None => self.origin.checked_sub(steps.saturating_sub(at)),
        };
        match at {
            Some(at) => self.runtime.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn runtime(&self) -> &R {
        &self.runtime
    }

    /// The time, if the runtime's clock has stepped back by `sum`. Wraps where that is not true any more.
    #[inline]
    fn read(&self, sum: u64) -> u64 {
        let now = self.runtime.now();
        let shown = match now.checked_duration_since(self.origin) {
            Some(since) => nanoseconds(since),
            None => nanoseconds(self.origin.saturating_duration_since(now)).wrapping_neg(),
        };
        shown.wrapping_add(sum)
    }

    /// Notes the time, or goes on from what was noted if `now` lies before it.
    #[cold]
    fn note(&self, now: u64, noted: u64) -> u64 {
        let is_before = |now: u64| now.wrapping_sub(noted).cast_signed() < 0;
        if !is_before(now) {
            self.steps.noted.store(now, Ordering::Relaxed);
            return now;
        }
        // Once more: this thread may have been late to compare.
        let sum = self.steps.sum.load(Ordering::Relaxed);
        let now = self.read(sum);
        let step = noted.wrapping_sub(now);
        if is_before(now) && step > STEP {
            // Of several threads that see the step, one takes it.
            let all = sum.wrapping_add(step);
            let _ = self.steps.sum.compare_exchange(sum, all, Ordering::Relaxed, Ordering::Relaxed);
        }
        noted
    }
}

/// Wraps after 584 years.
#[inline]
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs().wrapping_mul(1_000_000_000).wrapping_add(duration.subsec_nanos().into())
}

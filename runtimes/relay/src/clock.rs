//! The runtime's time as the machines take it: nanoseconds since the relay began.

use std::time::Duration;

use cmap_core::time::Instant;
use cmap_runtime::Runtime;

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

    pub(crate) fn runtime(&self) -> &R {
        &self.runtime
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ORIGIN + self.runtime.now().saturating_duration_since(self.origin)
    }

    /// Ends at `at`; never, if that lies beyond the runtime's range.
    pub(crate) async fn sleep_until(self, at: Instant) {
        match self.origin.checked_add(Duration::from_nanos(at.as_nanos())) {
            Some(at) => self.runtime.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// The output of `future`, if it ends within `limit`.
    pub(crate) async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut timer = std::pin::pin!(self.clone().sleep_until(self.now() + limit));
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
        })
        .await
    }
}

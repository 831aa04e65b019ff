//! A runtime that counts its tasks: those of the client, and those of the soak itself.
//!
//! In all else it is an adapter's runtime. Only tokio counts its tasks; the other two keep theirs in executors without
//! counts.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use cmap_runtime::runtime::Target;
use cmap_runtime::{Runtime, RuntimeGone};

/// An adapter's runtime whose tasks are counted. Clones count together.
#[derive(Clone, Debug)]
pub(super) struct Counted<R> {
    runtime: R,
    alive: Arc<AtomicU64>,
}

/// A task that is not over.
struct Alive(Arc<AtomicU64>);

impl<R> Counted<R> {
    pub(super) fn new(runtime: R) -> Self {
        Self { runtime, alive: Arc::default() }
    }

    /// Tasks that were spawned and are not over.
    pub(super) fn alive(&self) -> u64 {
        self.alive.load(Ordering::Relaxed)
    }
}

impl Alive {
    fn new(alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(alive))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R: Runtime> Runtime for Counted<R> {
    const NAME: &'static str = R::NAME;

    type Stream = R::Stream;

    fn current() -> Result<Self, RuntimeGone> {
        R::current().map(Self::new)
    }

    fn now(&self) -> Instant {
        self.runtime.now()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static {
        self.runtime.sleep_until(at)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // A task that the runtime drops is over, too.
        let alive = Alive::new(&self.alive);
        self.runtime.spawn(async move {
            let _alive = alive;
            task.await;
        });
    }

    fn spawn_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send {
        self.runtime.spawn_blocking(job)
    }

    fn read_now(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        R::read_now(stream, buffer)
    }

    fn poll_readable(stream: &mut Self::Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        R::poll_readable(stream, cx)
    }

    fn wake_after_others(stream: &mut Self::Stream, cx: &mut Context<'_>) {
        R::wake_after_others(stream, cx);
    }

    fn connect(&self, target: Target) -> impl Future<Output = io::Result<Self::Stream>> + Send {
        self.runtime.connect(target)
    }
}

//! Tasks on any runtime: spawned and joined; and the small steps of a load.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use atomic_waker::AtomicWaker;
use cmap_runtime::Runtime;

/// The awaited tasks.
struct Running<T> {
    left: AtomicUsize,
    outputs: Mutex<Vec<T>>,
    waker: AtomicWaker,
}

/// One of them; it has ended when this is dropped.
struct Runner<T>(Arc<Running<T>>);

/// Spawns `tasks` and waits for their outputs, which come in the order they ended in.
pub async fn join<R, T, F>(runtime: &R, tasks: impl IntoIterator<Item = F>) -> Vec<T>
where
    R: Runtime,
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<F> = tasks.into_iter().collect();
    let count = tasks.len();
    let running = Running { left: count.into(), outputs: Mutex::default(), waker: AtomicWaker::new() };
    let running = Arc::new(running);
    for task in tasks {
        let runner = Runner(Arc::clone(&running));
        runtime.spawn(async move {
            let output = task.await;
            runner.0.outputs.lock().unwrap().push(output);
        });
    }
    poll_fn(|cx| {
        running.waker.register(cx.waker());
        if running.left.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let outputs = std::mem::take(&mut *running.outputs.lock().unwrap());
    assert_eq!(outputs.len(), count, "a task panicked");
    outputs
}

impl<T> Drop for Runner<T> {
    fn drop(&mut self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.waker.wake();
        }
    }
}

/// Runs `task` as a task of its own, where a runtime treats it as it treats others.
pub async fn in_a_task<R: Runtime, T: Send + 'static>(
    runtime: &R,
    task: impl Future<Output = T> + Send + 'static,
) -> T {
    join(runtime, [task]).await.remove(0)
}

/// Lets other tasks run. Tokio's cooperative budget is renewed by it, too.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls once; no task is woken.
pub fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// The output of `work` within `limit`, by the timer of `runtime`.
pub async fn within<R: Runtime, T>(runtime: &R, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut timer = pin!(runtime.sleep_until(runtime.now() + limit));
    poll_fn(|cx| {
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        timer.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// The time.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub fn clock() -> Instant {
    Instant::now()
}

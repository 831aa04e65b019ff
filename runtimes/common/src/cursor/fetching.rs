//! A getMore under way, in a task of the home runtime: its reply is read when it comes, and its connection goes back, whether or not
//! somebody polls the cursor meanwhile.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use super::server_cursor::{Fetched, Left};
use crate::error::OperationError;
use crate::operation::Context;
use crate::runtime::Runtime;
use crate::runtime::chores::Chore;

type Work<R> = Pin<Box<dyn Future<Output = Fetched<R>> + Send>>;

/// A getMore in a task. Dropping it cuts the getMore off.
pub(super) struct Fetching<R: Runtime> {
    context: Arc<Context<R>>,
    state: Arc<Mutex<State<R>>>,
}

struct State<R: Runtime> {
    /// `None` while it is polled, and after its end.
    work: Option<Work<R>>,
    fetched: Option<Fetched<R>>,
    has_ended: bool,
    /// Whether nobody wants the batch.
    is_given_up: bool,
    /// Counts from when it was given up while it was polled to when it is dropped.
    chore: Option<Chore>,
    task: Option<Waker>,
    reader: Option<Waker>,
}

/// The task. The runtime may drop it half-way.
struct Task<R: Runtime>(Arc<Mutex<State<R>>>);

impl<R: Runtime> Fetching<R> {
    /// Begins a getMore. If it has to wait, it goes on in a task, and `cx` is woken at its end.
    pub(super) fn begin(
        context: Arc<Context<R>>,
        work: impl Future<Output = Fetched<R>> + Send + 'static,
        cx: &mut TaskContext<'_>,
    ) -> Result<Fetched<R>, Self> {
        let mut work: Work<R> = Box::pin(work);
        if let Poll::Ready(fetched) = work.as_mut().poll(cx) {
            return Ok(fetched);
        }
        let (task, reader) = (None, Some(cx.waker().clone()));
        let (work, fetched, chore) = (Some(work), None, None);
        let state = State { work, fetched, has_ended: false, is_given_up: false, chore, task, reader };
        let state = Arc::new(Mutex::new(state));
        let task = Task(Arc::clone(&state));
        context.driver.clock().runtime().spawn(async move { poll_fn(|cx| task.poll(cx)).await });
        Err(Self { context, state })
    }

    /// What the getMore has led to. Before its end `cx` is woken then.
    pub(super) fn poll(self, cx: &TaskContext<'_>) -> Result<Fetched<R>, Self> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        if let Some(fetched) = state.fetched.take() {
            return Ok(fetched);
        }
        // Dropped without the lock: the last waker of a task drops its future.
        let before = state.reader.replace(waker);
        drop(state);
        drop(before);
        Err(self)
    }
}

impl<R: Runtime> Drop for Fetching<R> {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.is_given_up = true;
        let work = state.work.take();
        if work.is_none() && !state.has_ended {
            state.chore = Some(self.context.chores.begin());
        }
        let left = (work, state.fetched.take(), state.task.take(), state.reader.take());
        drop(state);
        let (work, fetched, task, _) = left;
        drop(work);
        drop(fetched);
        task.into_iter().for_each(Waker::wake);
    }
}

impl<R: Runtime> Task<R> {
    fn poll(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.0);
        let before = state.task.replace(waker);
        let work = state.work.take();
        drop(state);
        drop(before);
        let Some(mut work) = work else { return Poll::Ready(()) };
        let polled = work.as_mut().poll(cx);
        let mut state = lock(&self.0);
        if state.is_given_up {
            let chore = state.chore.take();
            drop(state);
            drop((polled, work));
            drop(chore);
            return Poll::Ready(());
        }
        match polled {
            Poll::Ready(fetched) => {
                (state.fetched, state.has_ended) = (Some(fetched), true);
                let reader = state.reader.take();
                drop(state);
                reader.into_iter().for_each(Waker::wake);
                Poll::Ready(())
            }
            Poll::Pending => {
                state.work = Some(work);
                Poll::Pending
            }
        }
    }
}

impl<R: Runtime> Drop for Task<R> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        let work = state.work.take();
        if !state.has_ended && !state.is_given_up {
            state.fetched = Some((Err(OperationError::runtime_gone()), Left::Exhausted));
        }
        let (reader, task) = (state.reader.take(), state.task.take());
        drop(state);
        drop(work);
        drop(task);
        reader.into_iter().for_each(Waker::wake);
    }
}

fn lock<R: Runtime>(state: &Mutex<State<R>>) -> MutexGuard<'_, State<R>> {
    // Nothing under the lock panics.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A getMore under way, in a task of the home runtime: its reply is read when it comes, and its connection goes back, whether or not
//! somebody polls the cursor meanwhile.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

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
    stage: Stage<R>,
    task: Option<Waker>,
    reader: Option<Waker>,
}

enum Stage<R: Runtime> {
    /// It waits for its next poll.
    Waiting(Work<R>),
    /// The task polls it.
    Polled,
    Ended(Fetched<R>),
    /// Nobody wants the batch any more. The chore counts from when it was given up while it was polled to when it is dropped.
    GivenUp(Option<Chore>),
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
        let state = State { stage: Stage::Waiting(work), task: None, reader: Some(cx.waker().clone()) };
        let state = Arc::new(Mutex::new(state));
        let task = Task(Arc::clone(&state));
        context.driver.clock.runtime().spawn(async move { poll_fn(|cx| task.poll(cx)).await });
        Err(Self { context, state })
    }

    /// What the getMore has led to. Before its end `cx` is woken then.
    pub(super) fn poll(self, cx: &TaskContext<'_>) -> Result<Fetched<R>, Self> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        if matches!(state.stage, Stage::Ended(_))
            && let Stage::Ended(fetched) = std::mem::replace(&mut state.stage, Stage::GivenUp(None))
        {
            return Ok(fetched);
        }
        // Dropped without the lock: the last waker of a task drops its future.
        let before = state.reader.replace(waker);
        drop(state);
        drop(before);
        Err(self)
    }

    /// Cuts the getMore off, and waits for at most `limit` until its cursor has ended on the server.
    pub(super) async fn cut_off(self, limit: Duration) {
        let context = Arc::clone(&self.context);
        let chores = &context.chores;
        let before = *chores.begun().end();
        drop(self);
        let ended = async {
            // The first chore may be a poll under way, which begins the second.
            for _ in 0..2 {
                let last = *chores.begun().end();
                if last > before {
                    chores.ended(before + 1..=last).await;
                }
            }
        };
        // However it ends, nobody waits any longer.
        let _ = context.driver.within(Some(limit), ended).await;
    }
}

impl<R: Runtime> Drop for Fetching<R> {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        let is_polled = matches!(state.stage, Stage::Polled);
        let given_up = Stage::GivenUp(is_polled.then(|| self.context.chores.begin()));
        let stage = std::mem::replace(&mut state.stage, given_up);
        let (task, reader) = (state.task.take(), state.reader.take());
        drop(state);
        drop((stage, reader));
        task.into_iter().for_each(Waker::wake);
    }
}

impl<R: Runtime> Task<R> {
    fn poll(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.0);
        let before = state.task.replace(waker);
        let mut work = match std::mem::replace(&mut state.stage, Stage::Polled) {
            Stage::Waiting(work) => work,
            over @ (Stage::Polled | Stage::Ended(_) | Stage::GivenUp(_)) => {
                state.stage = over;
                drop(state);
                drop(before);
                return Poll::Ready(());
            }
        };
        drop(state);
        drop(before);
        let polled = work.as_mut().poll(cx);
        let mut state = lock(&self.0);
        if let Stage::GivenUp(chore) = &mut state.stage {
            let chore = chore.take();
            drop(state);
            drop((polled, work));
            drop(chore);
            return Poll::Ready(());
        }
        match polled {
            Poll::Ready(fetched) => {
                state.stage = Stage::Ended(fetched);
                let reader = state.reader.take();
                drop(state);
                reader.into_iter().for_each(Waker::wake);
                Poll::Ready(())
            }
            Poll::Pending => {
                state.stage = Stage::Waiting(work);
                Poll::Pending
            }
        }
    }
}

impl<R: Runtime> Drop for Task<R> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        let is_over = matches!(state.stage, Stage::Ended(_) | Stage::GivenUp(_));
        let gone = || Stage::Ended((Err(OperationError::runtime_gone()), Left::Exhausted));
        let stage = (!is_over).then(|| std::mem::replace(&mut state.stage, gone()));
        let (reader, task) = (state.reader.take(), state.task.take());
        drop(state);
        drop((stage, task));
        reader.into_iter().for_each(Waker::wake);
    }
}

fn lock<R: Runtime>(state: &Mutex<State<R>>) -> MutexGuard<'_, State<R>> {
    // Nothing under the lock panics.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Looking up the seed list of a `mongodb+srv` connection string, before a client is made.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use cmap_core::options::ClientOptions;
use cmap_core::pool::Cause;
use cmap_core::random::Random;
use cmap_core::topology::seed_list::{Resolved, SeedList};

use crate::error::{ClientError, RuntimeGone};
use crate::names::Names;
use crate::runtime::Runtime;

/// `options` with the hosts and the defaults that DNS has for them.
pub(crate) async fn resolve<R: Runtime>(
    runtime: &R,
    names: &Names,
    seed_list: &SeedList,
    options: ClientOptions,
) -> Result<Resolved, ClientError> {
    let (request, home, names) = (seed_list.request(), runtime.clone(), names.clone());
    let answers = at_home(runtime, async move {
        (names.srv(&home, &request.srv_name).await, names.txt(&home, &request.txt_name).await)
    });
    let (srv, txt) = answers.await.ok_or(RuntimeGone)?;
    let cause = |error: io::Error| Cause::of(&error);
    let mut seed = [0; 8];
    // Without random numbers the first hosts would be chosen each time, which is no reason to fail.
    let _ = runtime.fill_random(&mut seed);
    let mut random = Random::new(u64::from_le_bytes(seed));
    Ok(seed_list.resolve(options, srv.map_err(cause), txt.map_err(cause), &mut random)?)
}

/// The outcome of `work`, which runs in a task of the runtime, because only those sleep and connect; `None` if the runtime ends
/// before.
async fn at_home<R: Runtime, T: Send + 'static>(
    runtime: &R,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let slot = Arc::new(Slot { state: Mutex::new(State::Working), waker: AtomicWaker::new() });
    let end = End(Arc::clone(&slot));
    runtime.spawn(async move {
        let outcome = work.await;
        end.set(Some(outcome));
    });
    poll_fn(|cx| {
        slot.waker.register(cx.waker());
        match &mut *slot.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Working => Poll::Pending,
            State::Ended(outcome) => Poll::Ready(outcome.take()),
        }
    })
    .await
}

struct Slot<T> {
    state: Mutex<State<T>>,
    waker: AtomicWaker,
}

enum State<T> {
    Working,
    /// With an outcome, unless the task was dropped.
    Ended(Option<T>),
}

/// Held by the task. When it is dropped, the work has ended.
struct End<T>(Arc<Slot<T>>);

impl<T> End<T> {
    fn set(&self, outcome: Option<T>) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Working = *state {
            *state = State::Ended(outcome);
        }
        drop(state);
        self.0.waker.wake();
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        self.set(None);
    }
}

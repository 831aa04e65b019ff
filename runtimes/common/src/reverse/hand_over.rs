//! How a socket comes from the task that has parked it to the one that wants a connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The duty to hand a `T` over. Dropping it tells the other side that there will be none.
pub(super) struct Promise<T>(Arc<Mutex<State<T>>>);

/// The claim to a `T`. Dropping it tells the other side that nobody wants it any more.
pub(super) struct Claim<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    stage: Stage<T>,
    claimant: Option<Waker>,
    promiser: Option<Waker>,
}

enum Stage<T> {
    Waiting,
    /// Somebody works at it.
    Begun,
    Done(T),
    /// One of the sides has gone.
    Errored,
}

/// Both ends.
pub(super) fn pair<T>() -> (Promise<T>, Claim<T>) {
    let state = Arc::new(Mutex::new(State { stage: Stage::Waiting, claimant: None, promiser: None }));
    (Promise(Arc::clone(&state)), Claim(state))
}

impl<T> Promise<T> {
    pub(super) fn begin(&self) {
        let mut state = lock(&self.0);
        if let Stage::Waiting = state.stage {
            state.stage = Stage::Begun;
        }
    }

    /// Hands it over; drops it, if nobody wants it any more.
    pub(super) fn fulfil(self, value: T) {
        let mut state = lock(&self.0);
        let unwanted = if matches!(state.stage, Stage::Errored) {
            Some(value)
        } else {
            state.stage = Stage::Done(value);
            None
        };
        // A socket is dropped where no lock is held.
        drop(state);
        drop(unwanted);
    }

    pub(super) fn is_unwanted(&self) -> bool {
        matches!(lock(&self.0).stage, Stage::Errored)
    }

    /// Ends when nobody wants it any more.
    pub(super) fn poll_unwanted(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        if matches!(state.stage, Stage::Errored) {
            return Poll::Ready(());
        }
        state.promiser = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Claim<T> {
    /// Whether somebody works at it.
    pub(super) fn has_begun(&self) -> bool {
        matches!(lock(&self.0).stage, Stage::Begun)
    }

    /// What is handed over; `None` if there will be nothing.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0);
        match std::mem::replace(&mut state.stage, Stage::Errored) {
            Stage::Done(value) => Poll::Ready(Some(value)),
            Stage::Errored => Poll::Ready(None),
            pending @ (Stage::Waiting | Stage::Begun) => {
                state.stage = pending;
                state.claimant = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        if matches!(state.stage, Stage::Waiting | Stage::Begun) {
            state.stage = Stage::Errored;
        }
        let waker = state.claimant.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        let unclaimed = std::mem::replace(&mut state.stage, Stage::Errored);
        let (waker, own) = (state.promiser.take(), state.claimant.take());
        drop(state);
        drop((unclaimed, own));
        waker.into_iter().for_each(Waker::wake);
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<T>(claim: &Claim<T>) -> Poll<Option<T>> {
        claim.poll(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_is_promised_is_handed_over_once() {
        let (promise, claim) = pair();
        assert_eq!(poll(&claim), Poll::Pending);

        promise.begin();
        assert!(claim.has_begun());
        promise.fulfil(7);

        assert_eq!(poll(&claim), Poll::Ready(Some(7)));
        assert_eq!(poll(&claim), Poll::Ready(None));
    }

    #[test]
    fn a_promise_that_is_dropped_is_nothing_to_wait_for() {
        let (promise, claim) = pair::<u8>();

        drop(promise);

        assert_eq!(poll(&claim), Poll::Ready(None));
    }

    #[test]
    fn a_claim_that_is_dropped_gives_back_what_was_handed_over() {
        let (promise, claim) = pair();
        let (other, _other_claim) = pair::<Arc<u8>>();
        let value = Arc::new(7);
        promise.fulfil(Arc::clone(&value));

        drop(claim);

        assert_eq!(Arc::strong_count(&value), 1);
        assert!(!other.is_unwanted());
    }
}

//! The clean-up that a client has begun by itself: ends of cursors and transactions that nobody waits for.
//!
//! Each is a [`Chore`] from the moment at which its owner gives it up until it is done. A client that is closed, or dropped, waits for
//! those that have begun.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The chores under way in a client.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    under_way: BTreeSet<u64>,
    /// Who waits for chores to end, by number.
    waiting: BTreeMap<u64, Waker>,
    last_waiter: u64,
}

/// A chore under way. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Chore {
    chores: Arc<Chores>,
    number: u64,
}

/// Ends when the chores of these numbers have ended.
struct Ended<'a> {
    chores: &'a Chores,
    numbers: RangeInclusive<u64>,
    /// Its number among those who wait.
    waiter: Option<u64>,
}

impl Chores {
    pub(crate) fn begin(self: &Arc<Self>) -> Chore {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        state.under_way.insert(number);
        drop(state);
        Chore { chores: Arc::clone(self), number }
    }

    /// The number of chores under way.
    pub(crate) fn under_way(&self) -> usize {
        self.state().under_way.len()
    }

    /// The numbers of those that have begun by now.
    pub(crate) fn begun(&self) -> RangeInclusive<u64> {
        0..=self.state().last
    }

    /// Waits until the chores of these numbers have ended.
    pub(crate) fn ended(&self, numbers: RangeInclusive<u64>) -> impl Future<Output = ()> + Send {
        Ended { chores: self, numbers, waiter: None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chore {
    /// Its number, as a range.
    pub(crate) fn number(&self) -> RangeInclusive<u64> {
        self.number..=self.number
    }
}

impl Future for Ended<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.chores.state();
        if state.under_way.range(self.numbers.clone()).next().is_none() {
            return Poll::Ready(());
        }
        let waiter = self.waiter.unwrap_or_else(|| {
            state.last_waiter += 1;
            state.last_waiter
        });
        let before = state.waiting.insert(waiter, waker);
        drop(state);
        // A waker is dropped without the lock: the last one of a task drops its future.
        drop(before);
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let waker = self.waiter.and_then(|waiter| self.chores.state().waiting.remove(&waiter));
        drop(waker);
    }
}

impl Drop for Chore {
    fn drop(&mut self) {
        let wake = {
            let mut state = self.chores.state();
            state.under_way.remove(&self.number);
            std::mem::take(&mut state.waiting)
        };
        wake.into_values().for_each(Waker::wake);
    }
}

//! The keys of SCRAM: derived once per user and server, one derivation at a time, in a thread for blocking work (AUTH-17).
//!
//! A connection waits for its keys in [`Keys::get`]. When that future is dropped, because the connection's time is up
//! or its client is closed, the connection leaves the queue, and a derivation that no other connection waits for is
//! stopped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use cmap_core::connection::auth::{DeriveKey, DerivedKeys, KeyCache, Lookup, Ticket, Waiter};
use cmap_core::options::Secret;

use crate::error::RuntimeGone;
use crate::runtime::Runtime;

/// The keys that all connections of a client share.
#[derive(Debug, Default)]
pub(crate) struct Keys(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    cache: KeyCache,
    /// The wakers of the waiters that have to look up again; all are woken together.
    wakers: Vec<Waker>,
}

/// A connection that waits for its keys. Dropping it ends the wait.
struct Waiting<'k> {
    keys: &'k Keys,
    waiter: Option<Waiter>,
}

/// A derivation in progress. Dropping it hands over the derived keys, and lets another derivation begin.
struct Derivation {
    keys: Arc<Keys>,
    ticket: Option<Ticket>,
    derived: Option<DerivedKeys>,
}

impl Keys {
    /// The keys that `request` asks for.
    pub(crate) async fn get<R: Runtime>(
        self: &Arc<Self>,
        runtime: &R,
        request: DeriveKey,
    ) -> Result<DerivedKeys, RuntimeGone> {
        let request = Arc::new(request);
        let waiting = Waiting { keys: self, waiter: Some(self.lock().cache.enter(&request)) };
        loop {
            let ticket = match waiting.look_up().await {
                Ok(keys) => return Ok(keys),
                Err(ticket) => ticket,
            };
            let derivation = Derivation { keys: Arc::clone(self), ticket: Some(ticket), derived: None };
            let request = Arc::clone(&request);
            let ended = runtime.spawn_blocking(move || derivation.run(&request)).await;
            // The derivation ends here and not in its thread, so that the next one begins after that thread was given
            // back.
            drop(ended.ok_or(RuntimeGone)?);
        }
    }

    /// Forgets the keys of a password that is not used any more.
    pub(crate) fn forget(&self, username: &str, password: &Secret) {
        self.lock().cache.forget(username, password);
    }

    fn wake_all(&self) {
        let wakers = std::mem::take(&mut self.lock().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting<'_> {
    /// The keys, or the right to derive them.
    async fn look_up(&self) -> Result<DerivedKeys, Ticket> {
        std::future::poll_fn(|cx| {
            let mut state = self.keys.lock();
            let lookup = self.waiter.as_ref().map_or(Lookup::Wait, |waiter| state.cache.look_up(waiter));
            match lookup {
                Lookup::Ready(keys) => Poll::Ready(Ok(keys)),
                Lookup::Derive(ticket) => Poll::Ready(Err(ticket)),
                Lookup::Wait => {
                    if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                        state.wakers.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let made_way = self.keys.lock().cache.leave(waiter);
        if made_way {
            self.keys.wake_all();
        }
    }
}

impl Derivation {
    fn run(mut self, request: &DeriveKey) -> Self {
        self.derived = request.run_while(|| self.is_wanted());
        self
    }

    fn is_wanted(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| self.keys.lock().cache.is_wanted(ticket))
    }
}

impl Drop for Derivation {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        {
            let cache = &mut self.keys.lock().cache;
            match &self.derived {
                Some(keys) => cache.finish(ticket, keys),
                None => cache.abandon(ticket),
            }
        }
        self.keys.wake_all();
    }
}

#[cfg(test)]
#[cfg(feature = "auth")]
mod tests;

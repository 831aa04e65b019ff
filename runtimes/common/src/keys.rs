//! The keys of SCRAM, derived once per user and server, in a thread for blocking work (AUTH-17).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use cmap_core::connection::auth::{DeriveKey, DerivedKeys, KeyCache, Lookup, Ticket};

use crate::error::RuntimeGone;
use crate::runtime::Runtime;

/// The keys that all connections of a client share.
#[derive(Debug, Default)]
pub(crate) struct Keys(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    cache: KeyCache,
    /// Those who wait for somebody else's derivation; all are woken by the end of any.
    waiting: Vec<Waker>,
}

/// A derivation in progress. Dropped before its end, it lets another begin.
struct Derivation {
    keys: Arc<Keys>,
    ticket: Option<Ticket>,
}

impl Keys {
    /// The keys that `request` asks for. Connections that start together derive them once; a derivation ends and is
    /// kept also when the connection that began it is given up.
    pub(crate) async fn get<R: Runtime>(
        self: &Arc<Self>,
        runtime: &R,
        request: DeriveKey,
    ) -> Result<DerivedKeys, RuntimeGone> {
        let ticket = match self.look_up(&request).await {
            Ok(keys) => return Ok(keys),
            Err(ticket) => ticket,
        };
        let derivation = Derivation { keys: Arc::clone(self), ticket: Some(ticket) };
        runtime.spawn_blocking(move || derivation.run(request)).await.ok_or(RuntimeGone)
    }

    async fn look_up(&self, request: &DeriveKey) -> Result<DerivedKeys, Ticket> {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            match state.cache.look_up(request) {
                Lookup::Ready(keys) => Poll::Ready(Ok(keys)),
                Lookup::Derive(ticket) => Poll::Ready(Err(ticket)),
                Lookup::Wait => {
                    state.waiting.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Derivation {
    fn run(mut self, request: DeriveKey) -> DerivedKeys {
        let keys = request.run();
        if let Some(ticket) = self.ticket.take() {
            self.keys.lock().cache.finish(ticket, &keys);
        }
        keys
    }
}

impl Drop for Derivation {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.keys.lock();
            if let Some(ticket) = self.ticket.take() {
                state.cache.abandon(ticket);
            }
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

//! The machine, shared by all connections, and the way of its outputs to the tasks that send them.
//!
//! Every call drains the machine before the lock is released. What is for other clients than the caller's lies in their
//! routes until their tasks, which are told, take it.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmap_core::time::Instant;
use cmap_test_server::{ClientId, Peer, ServerConfig, ServerOutput, TestServer};
use tokio::sync::Notify;
use tokio::time::Instant as RuntimeInstant;

/// How many bytes may be on their way to a client before its next request waits.
const MAX_UNSENT: usize = 1 << 20;

/// The machine and its surroundings.
pub(super) struct Shared {
    state: Mutex<State>,
    origin: RuntimeInstant,
    /// The next timeout has come nearer.
    earlier: Notify,
}

struct State {
    server: TestServer,
    routes: BTreeMap<ClientId, Route>,
    /// What the timer sleeps for.
    armed: Option<Instant>,
}

/// The way to one client.
struct Route {
    queue: Vec<Vec<u8>>,
    /// Bytes that came out for the client and were not reported as sent.
    unsent: usize,
    is_held: bool,
    is_over: bool,
    mail: Arc<Notify>,
}

impl Shared {
    /// A machine whose time starts now.
    pub(super) fn new(config: ServerConfig) -> Self {
        let server = TestServer::new(config, Instant::ORIGIN);
        let state = State { server, routes: BTreeMap::new(), armed: None };
        Self { state: Mutex::new(state), origin: RuntimeInstant::now(), earlier: Notify::new() }
    }

    /// A client has connected; the task that serves it is told through `mail` when there is something to send.
    pub(super) fn connect(&self, peer: Peer, mail: Arc<Notify>) -> ClientId {
        let mut state = self.lock();
        let now = self.now();
        let id = state.server.accept(now, peer);
        let route = Route { queue: Vec::new(), unsent: 0, is_held: false, is_over: false, mail };
        state.routes.insert(id, route);
        // A client too many is hung up on; another waits for its turn.
        state.drain(now, None);
        self.rearm(&state);
        id
    }

    /// A client's task has sent `sent` bytes and received others; what it is to send next goes to the end of `out`.
    /// Returns whether the connection ends after that.
    pub(super) fn exchange(&self, id: ClientId, sent: usize, received: &[u8], out: &mut VecDeque<Vec<u8>>) -> bool {
        let now = self.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(route) = state.routes.get_mut(&id) {
            route.unsent = route.unsent.saturating_sub(sent);
            if route.is_held && route.unsent <= MAX_UNSENT / 2 {
                route.is_held = false;
                state.server.release(now, id);
            }
        }
        if !received.is_empty() {
            state.server.handle_bytes(now, id, received);
        }
        state.drain(now, Some(id));
        self.rearm(state);
        match state.routes.get_mut(&id) {
            Some(route) => {
                out.extend(route.queue.drain(..));
                route.is_over
            }
            None => true,
        }
    }

    /// A client is gone.
    pub(super) fn disconnect(&self, id: ClientId) {
        let now = self.now();
        let mut state = self.lock();
        state.routes.remove(&id);
        state.server.handle_hang_up(now, id);
        state.drain(now, None);
    }

    /// Calls the machine whenever it wants to be called. Never ends.
    pub(super) async fn keep_time(self: Arc<Self>) {
        loop {
            let next = self.handle_timeout();
            match next {
                Some(at) => {
                    let at = self.origin + Duration::from_nanos(at.as_nanos());
                    // Too early or too late is harmless.
                    let _ = tokio::time::timeout_at(at, self.earlier.notified()).await;
                }
                None => self.earlier.notified().await,
            }
        }
    }

    fn handle_timeout(&self) -> Option<Instant> {
        let now = self.now();
        let mut state = self.lock();
        state.server.handle_timeout(now);
        state.drain(now, None);
        state.armed = state.server.poll_timeout();
        state.armed
    }

    fn rearm(&self, state: &State) {
        let is_earlier = match (state.server.poll_timeout(), state.armed) {
            (Some(next), Some(armed)) => next < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_earlier {
            self.earlier.notify_one();
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Carries out what the machine wants. The task of `caller` needs no telling.
    fn drain(&mut self, now: Instant, caller: Option<ClientId>) {
        while let Some(output) = self.server.poll_output() {
            let id = match &output {
                ServerOutput::Send { client, .. } | ServerOutput::HangUp { client } => *client,
                _ => continue,
            };
            let Some(route) = self.routes.get_mut(&id) else { continue };
            if let ServerOutput::Send { bytes, .. } = output {
                route.unsent += bytes.len();
                route.queue.push(bytes);
                if route.unsent > MAX_UNSENT && !route.is_held {
                    route.is_held = true;
                    self.server.hold(now, id);
                }
            } else {
                route.is_over = true;
            }
            if caller != Some(id) {
                route.mail.notify_one();
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

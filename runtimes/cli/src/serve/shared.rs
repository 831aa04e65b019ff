//! The machine, shared by all connections, and the way of its outputs to the tasks that send them.
//!
//! Every call drains the machine before the lock is released. What is for other clients than the caller's lies in their
//! routes until their tasks, which it wakes, take it. What is for the listeners goes to the task that has them.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmap_core::time::Instant;
use cmap_test_server::{ClientId, Deployment, DeploymentConfig, DeploymentOutput, MemberId, Peer, ServerOutput};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
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

/// A connection to a member.
pub(super) type ConnectionId = (MemberId, ClientId);

struct State {
    deployment: Deployment,
    routes: BTreeMap<ConnectionId, Route>,
    /// Takes the instructions to listen, and to stop.
    listeners: UnboundedSender<DeploymentOutput>,
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
    pub(super) fn new(config: DeploymentConfig, listeners: UnboundedSender<DeploymentOutput>) -> Self {
        let deployment = Deployment::new(config, Instant::ORIGIN);
        let state = State { deployment, routes: BTreeMap::new(), listeners, armed: None };
        Self { state: Mutex::new(state), origin: RuntimeInstant::now(), earlier: Notify::new() }
    }

    /// A client has connected to a member; `mail` tells the task that serves it when there is something to send.
    pub(super) fn connect(&self, member: MemberId, peer: Peer, mail: Arc<Notify>) -> ConnectionId {
        let mut state = self.lock();
        let now = self.now();
        let id = (member, state.deployment.accept(now, member, peer));
        let route = Route { queue: Vec::new(), unsent: 0, is_held: false, is_over: false, mail };
        state.routes.insert(id, route);
        // A client too many is hung up on; another waits for its turn.
        state.drain(now, None);
        self.rearm(&state);
        id
    }

    /// A client's task has sent `sent` bytes and received others; what it is to send next goes to the end of `out`.
    /// Returns whether the connection ends after that.
    pub(super) fn exchange(&self, id: ConnectionId, sent: usize, received: &[u8], out: &mut VecDeque<Vec<u8>>) -> bool {
        let now = self.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(route) = state.routes.get_mut(&id) {
            route.unsent = route.unsent.saturating_sub(sent);
            if route.is_held && route.unsent <= MAX_UNSENT / 2 {
                route.is_held = false;
                state.deployment.release(now, id.0, id.1);
            }
        }
        if !received.is_empty() {
            state.deployment.handle_bytes(now, id.0, id.1, received);
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
    pub(super) fn disconnect(&self, id: ConnectionId) {
        let now = self.now();
        let mut state = self.lock();
        state.routes.remove(&id);
        state.deployment.handle_hang_up(now, id.0, id.1);
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
        state.deployment.handle_timeout(now);
        state.drain(now, None);
        state.armed = state.deployment.poll_timeout();
        state.armed
    }

    fn rearm(&self, state: &State) {
        let is_earlier = match (state.deployment.poll_timeout(), state.armed) {
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
    fn drain(&mut self, now: Instant, caller: Option<ConnectionId>) {
        while let Some(output) = self.deployment.poll_output() {
            let DeploymentOutput::Server { member, output } = output else {
                // At the end of the program nobody listens any more.
                let _ = self.listeners.send(output);
                continue;
            };
            let id = match &output {
                ServerOutput::Send { client, .. } | ServerOutput::HangUp { client } => (member, *client),
                _ => continue,
            };
            let Some(route) = self.routes.get_mut(&id) else { continue };
            if let ServerOutput::Send { bytes, .. } = output {
                route.unsent += bytes.len();
                route.queue.push(bytes);
                if route.unsent > MAX_UNSENT && !route.is_held {
                    route.is_held = true;
                    self.deployment.hold(now, id.0, id.1);
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

//! A client's server sessions and its cluster time, behind a lock of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bson::RawDocument;
use cmap_core::session::{ClusterTime, ServerSession, SessionId, SessionPool};
use cmap_core::time::Instant;

use crate::driver::Driver;
use crate::runtime::Runtime;

/// The server sessions of a client.
pub(crate) struct Sessions {
    state: Mutex<State>,
    /// The chance of operations' pauses.
    seed: u64,
    /// The operations so far.
    operations: AtomicU64,
}

struct State {
    pool: SessionPool,
    cluster_time: Option<Arc<ClusterTime>>,
}

/// A server session in use. Dropping it gives it back; a command that was cut off half-way makes it dirty (SES-8).
pub(crate) struct Borrowed<R: Runtime> {
    driver: Arc<Driver<R>>,
    sessions: Arc<Sessions>,
    id: SessionId,
    /// There until it is dropped.
    session: Option<ServerSession>,
    /// How long the topology kept unused sessions when it was taken.
    timeout: Option<Duration>,
    /// When it was taken, until its id is sent for the first time: the clock need not be asked again for that.
    taken_at: Option<Instant>,
    is_under_way: bool,
    /// Whether it stands for one that its owner keeps, and gives back.
    is_copy: bool,
}

impl Sessions {
    pub(crate) fn new(load_balanced: bool, seed: u64) -> Self {
        let state = State { pool: SessionPool::new(load_balanced), cluster_time: None };
        Self { state: Mutex::new(state), seed, operations: AtomicU64::new(0) }
    }

    /// A free server session, or a new one, for a command that is about to be sent. `None` if the system has no random bits for
    /// its id.
    pub(crate) fn take<R: Runtime>(self: &Arc<Self>, driver: &Arc<Driver<R>>) -> Option<Borrowed<R>> {
        let now = driver.clock.now();
        let timeout = driver.session_timeout();
        let taken = self.state().pool.take(now, timeout);
        let session = match taken {
            Some(session) => session,
            None => {
                let mut random = [0; 16];
                driver.clock.runtime().fill_random(&mut random).ok()?;
                self.state().pool.make(now, SessionId::of_random(random))
            }
        };
        let (driver, sessions) = (Arc::clone(driver), Arc::clone(self));
        let id = session.id();
        Some(Borrowed {
            driver,
            sessions,
            id,
            session: Some(session),
            timeout,
            taken_at: Some(now),
            is_under_way: false,
            is_copy: false,
        })
    }

    /// A reply came, other than to a hello (SES-13).
    pub(crate) fn handle_reply(&self, reply: &RawDocument) {
        if let Some(seen) = ClusterTime::of_reply(reply) {
            let mut state = self.state();
            if let Some(greater) = ClusterTime::greater_than(state.cluster_time.as_deref(), seen) {
                state.cluster_time = Some(Arc::new(greater));
            }
        }
    }

    /// The greatest cluster time that a reply named.
    pub(crate) fn cluster_time(&self) -> Option<Arc<ClusterTime>> {
        self.state().cluster_time.clone()
    }

    /// Takes out the ids of all free sessions, as many together as one endSessions may name.
    pub(crate) fn take_all_ids(&self) -> Vec<Vec<SessionId>> {
        let mut state = self.state();
        std::iter::from_fn(|| Some(state.pool.take_ids()).filter(|ids| !ids.is_empty())).collect()
    }

    /// How many sessions are free.
    pub(crate) fn len(&self) -> usize {
        self.state().pool.len()
    }

    /// Whether no session is free.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().pool.is_empty()
    }

    /// The number of an operation that begins, from 1.
    pub(crate) fn next_operation(&self) -> u64 {
        self.operations.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// The chance of the pauses of an operation, by its number.
    pub(crate) fn seed_of(&self, operation: u64) -> u64 {
        self.seed.wrapping_add(operation)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Runtime> Borrowed<R> {
    /// Whether its last command was given up half-way.
    pub(super) fn is_cut_off(&self) -> bool {
        self.is_under_way
    }

    /// Whether it stands for one that its owner keeps.
    pub(super) fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// The session for a command of its owner's that a task sends.
    pub(crate) fn copy(&self) -> Self {
        let (driver, sessions) = (Arc::clone(&self.driver), Arc::clone(&self.sessions));
        let (id, session, timeout) = (self.id, self.session.clone(), self.timeout);
        Self { driver, sessions, id, session, timeout, taken_at: None, is_under_way: false, is_copy: true }
    }

    /// The session itself, for somebody who keeps it longer.
    pub(super) fn take_over(&mut self) -> Self {
        let (driver, sessions) = (Arc::clone(&self.driver), Arc::clone(&self.sessions));
        let Self { id, timeout, taken_at, is_under_way, is_copy, .. } = *self;
        Self { driver, sessions, id, session: self.session.take(), timeout, taken_at, is_under_way, is_copy }
    }

    /// The id, which is about to be sent.
    pub(crate) fn send_id(&mut self) -> SessionId {
        let now = self.taken_at.take().unwrap_or_else(|| self.driver.clock.now());
        if let Some(session) = &mut self.session {
            session.mark_used(now);
            // The future of the command before was dropped half-way.
            if self.is_under_way {
                session.mark_dirty();
            }
        }
        self.is_under_way = true;
        self.id
    }

    /// The command has ended, by a network error or otherwise.
    pub(crate) fn end_command(&mut self, network_error: bool) {
        self.is_under_way = false;
        if let Some(session) = self.session.as_mut().filter(|_| network_error) {
            session.mark_dirty();
        }
    }

    pub(crate) fn next_transaction_number(&mut self) -> Option<i64> {
        self.session.as_mut().map(ServerSession::next_transaction_number)
    }

    /// The number of the last write or transaction.
    pub(crate) fn transaction_number(&self) -> i64 {
        self.session.as_ref().map_or(0, ServerSession::transaction_number)
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.session.as_ref().is_some_and(ServerSession::is_dirty)
    }

    /// Whether it is a session of the client with these.
    pub(crate) fn is_of(&self, sessions: &Arc<Sessions>) -> bool {
        Arc::ptr_eq(&self.sessions, sessions)
    }
}

impl<R: Runtime> Drop for Borrowed<R> {
    fn drop(&mut self) {
        let Some(mut session) = self.session.take().filter(|_| !self.is_copy) else { return };
        if self.is_under_way {
            session.mark_dirty();
        }
        let now = self.driver.clock.now();
        self.sessions.state().pool.give_back(now, self.timeout, session);
    }
}

//! The budget of bytes, awaited: a connection that has begun a large message waits here before it is read on, and hears when it has to
//! give way.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::clock::Clock;
use crate::protocol::{Gauge, Memory, MemoryLimits, UNCOUNTED};

/// How often one that waits looks for one that gives way.
const LOOK: Duration = Duration::from_secs(1);

/// The bytes of all connections.
#[derive(Debug)]
pub(super) struct Purse {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    memory: Memory,
    /// Tells a connection that it may go on.
    grants: BTreeMap<i64, oneshot::Sender<()>>,
    /// Tells a connection that it has to go.
    ends: BTreeMap<i64, oneshot::Sender<()>>,
    ended: u64,
}

/// What one connection holds. Dropping it gives all back.
#[derive(Debug)]
pub(super) struct Hold {
    purse: Arc<Purse>,
    number: i64,
    /// What is counted.
    bytes: usize,
    grant: Option<oneshot::Receiver<()>>,
    end: Option<oneshot::Receiver<()>>,
}

/// What a connection hears of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Its client may be read from again.
    GoOn,
    /// It has to end.
    GiveWay,
}

impl Purse {
    pub(super) fn new(limits: MemoryLimits, clock: Clock) -> Self {
        let (grants, ends) = (BTreeMap::new(), BTreeMap::new());
        Self { clock, state: Mutex::new(State { memory: Memory::new(limits), grants, ends, ended: 0 }) }
    }

    pub(super) fn set_limits(&self, limits: MemoryLimits) {
        self.lock().memory.set_limits(limits);
        self.grant();
    }

    /// Looks at what is held: how much, how many wait for more, and how many have given way.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Gauge, usize, u64) -> T) -> T {
        let State { memory, ended, .. } = &mut *self.lock();
        let waiting = memory.waiting();
        look(memory.held(), waiting, *ended)
    }

    /// Tells those that may go on.
    fn grant(&self) {
        let now = self.clock.now();
        let mut state = self.lock();
        while let Some(holder) = state.memory.next_grant(now) {
            // One that is gone gives back what it was granted when its hold is dropped.
            let _ = state.grants.remove(&holder).map(|grant| grant.send(()));
        }
    }

    /// Ends one that makes no progress, if somebody waits.
    fn press(&self) {
        let mut state = self.lock();
        let Some(holder) = state.memory.slow(self.clock.now()) else { return };
        if let Some(end) = state.ends.remove(&holder) {
            state.ended += u64::from(end.send(()).is_ok());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    /// Nothing, of the connection of this number.
    pub(super) fn new(purse: &Arc<Purse>, number: i64) -> Self {
        Self { purse: Arc::clone(purse), number, bytes: 0, grant: None, end: None }
    }

    /// The connection holds so many bytes. What is small is not counted.
    pub(super) fn set(&mut self, user: &Arc<str>, bytes: usize) {
        let bytes = if bytes > UNCOUNTED { bytes } else { 0 };
        if bytes == self.bytes && self.grant.is_none() {
            return;
        }
        let was_waiting = self.grant.take().is_some();
        let is_less = was_waiting || bytes < self.bytes;
        self.bytes = bytes;
        let purse = Arc::clone(&self.purse);
        let mut state = purse.lock();
        state.memory.set(self.number, user, bytes);
        state.grants.remove(&self.number);
        self.register(&mut state);
        drop(state);
        if is_less {
            purse.grant();
        }
    }

    /// The connection's client has begun a message, with which it holds so many bytes: waits for a grant, if they are not small.
    pub(super) fn ask(&mut self, user: &Arc<str>, bytes: usize) {
        if bytes <= UNCOUNTED || bytes == self.bytes {
            return;
        }
        self.bytes = bytes;
        let purse = Arc::clone(&self.purse);
        let mut state = purse.lock();
        if !state.memory.ask(purse.clock.now(), self.number, user, bytes) {
            let (grant, granted) = oneshot::channel();
            state.grants.insert(self.number, grant);
            self.grant = Some(granted);
        }
        self.register(&mut state);
    }

    /// The client is to take what is held.
    pub(super) fn watch(&self) {
        if self.bytes > 0 {
            self.purse.lock().memory.watch(self.purse.clock.now(), self.number);
        }
    }

    /// The client has sent or taken so many bytes of what is held.
    pub(super) fn note_progress(&self, bytes: usize) {
        if self.bytes > 0 {
            self.purse.lock().memory.note_progress(self.purse.clock.now(), self.number, bytes);
        }
    }

    /// Whether it holds, or waits for, what is counted.
    pub(super) fn is_open(&self) -> bool {
        self.bytes > 0
    }

    /// Whether the client is not to be read from.
    pub(super) fn is_waiting(&self) -> bool {
        self.grant.is_some()
    }

    /// Waits until the connection hears something of its bytes; for ever, if it neither waits for any nor holds any.
    pub(super) async fn told(&mut self) -> Told {
        let Self { purse, grant, end, .. } = self;
        let told = tokio::select! {
            biased;
            () = ended(end) => Told::GiveWay,
            () = granted(purse, grant) => Told::GoOn,
        };
        if told == Told::GoOn {
            self.grant = None;
        }
        told
    }

    /// Waits until the connection has to give way.
    pub(super) async fn end(&mut self) {
        ended(&mut self.end).await;
    }

    /// Makes it known as long as it holds something.
    fn register(&mut self, state: &mut State) {
        if self.bytes == 0 {
            state.ends.remove(&self.number);
            self.end = None;
        } else if self.end.is_none() {
            let (end, ended) = oneshot::channel();
            state.ends.insert(self.number, end);
            self.end = Some(ended);
        }
    }
}

async fn granted(purse: &Purse, grant: &mut Option<oneshot::Receiver<()>>) {
    let Some(grant) = grant else { return core::future::pending().await };
    while tokio::time::timeout(LOOK, &mut *grant).await.is_err() {
        purse.press();
    }
}

async fn ended(end: &mut Option<oneshot::Receiver<()>>) {
    let Some(end) = end else { return core::future::pending().await };
    if end.await.is_err() {
        core::future::pending::<()>().await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // Whose it is was said when it began to hold something.
            self.set(&"".into(), 0);
        }
    }
}

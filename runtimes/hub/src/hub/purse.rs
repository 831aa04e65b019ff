//! The budget of bytes, awaited: a connection that has begun a large message waits here before it is read on, a command waits here for room
//! for its reply, and who holds bytes hears when it has to give way.

use core::pin::pin;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::clock::Clock;
use crate::protocol::{Gauge, Memory, MemoryLimits, UNCOUNTED};

/// How often one that waits looks for one that gives way.
const LOOK: Duration = Duration::from_secs(1);

/// The bytes of all connections.
#[derive(Debug)]
pub(super) struct Purse {
    clock: Clock,
    state: Mutex<State>,
    /// Told when there may be room for replies.
    freed: Notify,
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

/// A command that waits for room for its reply. Dropping it ends the wait.
struct Waiting<'a>(&'a Purse);

/// What one connection holds. Dropping it gives all back.
#[derive(Debug)]
pub(super) struct Hold {
    purse: Arc<Purse>,
    number: i64,
    /// What is counted.
    bytes: usize,
    /// Whether these are of a message that has begun.
    is_asked: bool,
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
        let state = State { memory: Memory::new(limits), grants, ends, ended: 0 };
        Self { clock, state: Mutex::new(state), freed: Notify::new() }
    }

    /// Whether replies that are not taken leave room for one more to this user.
    pub(super) fn has_room_for_reply(&self, user: &str) -> bool {
        self.lock().memory.has_room_for_reply(user)
    }

    /// Waits until they do.
    pub(super) async fn wait_for_room(&self, user: &str) {
        self.lock().memory.begin_wait();
        let _waiting = Waiting(self);
        let mut look = Instant::now() + LOOK;
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.has_room_for_reply(user) {
                return;
            }
            if look <= Instant::now() {
                self.press();
                look = Instant::now() + LOOK;
            }
            // What others free does not put off the look.
            let _ = timeout_at(look, freed).await;
        }
    }

    pub(super) fn set_limits(&self, limits: MemoryLimits) {
        self.lock().memory.set_limits(limits);
        self.freed.notify_waiters();
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
        Self { purse: Arc::clone(purse), number, bytes: 0, is_asked: false, grant: None, end: None }
    }

    /// The connection holds so many bytes. What is small is not counted.
    pub(super) fn set(&mut self, user: &Arc<str>, bytes: usize) {
        let bytes = if bytes > UNCOUNTED { bytes } else { 0 };
        if bytes != self.bytes || self.grant.is_some() {
            self.change(bytes, |memory, number| {
                memory.set(number, user, bytes);
                true
            });
        }
    }

    /// The connection holds so many bytes, with a large reply that its client has to take.
    pub(super) fn offer(&mut self, user: &Arc<str>, bytes: usize) {
        self.change(bytes, |memory, number| {
            memory.offer(number, user, bytes);
            true
        });
    }

    /// Counts so many bytes. `change` says whether the connection may go on; otherwise it waits for a grant.
    fn change(&mut self, bytes: usize, change: impl FnOnce(&mut Memory, i64) -> bool) {
        let was_waiting = self.grant.take().is_some();
        (self.bytes, self.is_asked) = (bytes, false);
        let purse = Arc::clone(&self.purse);
        let mut state = purse.lock();
        let (held, untaken) = (state.memory.held().now(), state.memory.untaken());
        let goes_on = change(&mut state.memory, self.number);
        let is_less = was_waiting || state.memory.held().now() < held;
        let is_freed = state.memory.untaken() < untaken;
        state.grants.remove(&self.number);
        if !goes_on {
            let (grant, granted) = oneshot::channel();
            state.grants.insert(self.number, grant);
            self.grant = Some(granted);
        }
        self.register(&mut state);
        drop(state);
        if is_freed {
            purse.freed.notify_waiters();
        }
        if is_less {
            purse.grant();
        }
    }

    /// The connection's client has begun a message, with which it holds so many bytes, and nothing of what came before: waits for a grant, if
    /// they are not small.
    pub(super) fn ask(&mut self, user: &Arc<str>, bytes: usize) {
        if bytes <= UNCOUNTED || self.is_asked && bytes == self.bytes {
            return;
        }
        let now = self.purse.clock.now();
        self.change(bytes, |memory, number| memory.ask(now, number, user, bytes));
        self.is_asked = true;
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
    while timeout(LOOK, &mut *grant).await.is_err() {
        purse.press();
    }
}

async fn ended(end: &mut Option<oneshot::Receiver<()>>) {
    let Some(end) = end else { return core::future::pending().await };
    if end.await.is_err() {
        core::future::pending::<()>().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().memory.end_wait();
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

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const MEBI: usize = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn a_command_waits_until_the_replies_of_its_user_are_taken_or_their_client_gives_way_x_141() {
        let limits = MemoryLimits { budget: 40 * MEBI, per_user: 20 * MEBI };
        let purse = Arc::new(Purse::new(limits, Clock::start()));
        let ([greedy, modest], begun): ([Arc<str>; 2], _) = (["greedy".into(), "modest".into()], Instant::now());
        let (mut taken, mut unread) = (Hold::new(&purse, 1), Hold::new(&purse, 2));
        for hold in [&mut taken, &mut unread] {
            hold.offer(&greedy, 16 * MEBI);
            hold.watch();
        }
        purse.wait_for_room(&modest).await;
        assert!(timeout(LOOK, purse.wait_for_room(&greedy)).await.is_err());

        let waiter = Arc::clone(&purse);
        let waiting = tokio::spawn(async move { waiter.wait_for_room("greedy").await });
        tokio::task::yield_now().await;
        taken.set(&greedy, 0);
        waiting.await.unwrap();
        assert_eq!(begun.elapsed(), LOOK, "as soon as one is taken");

        taken.offer(&greedy, 16 * MEBI);
        taken.watch();
        let gives_way = async {
            unread.end().await;
            drop(unread);
        };
        tokio::join!(gives_way, purse.wait_for_room(&greedy));
        assert!(begun.elapsed() >= Duration::from_secs(10), "after {:?}", begun.elapsed());
        assert_eq!(purse.look(|held, waiting, ended| (held.now(), waiting, ended)), (16 * MEBI, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_free_does_not_put_off_the_look_for_one_that_gives_way_x_141() {
        let limits = MemoryLimits { budget: 40 * MEBI, per_user: 20 * MEBI };
        let purse = Arc::new(Purse::new(limits, Clock::start()));
        let [greedy, modest]: [Arc<str>; 2] = ["greedy".into(), "modest".into()];
        let (mut unread, mut other) = (Hold::new(&purse, 1), Hold::new(&purse, 2));
        unread.offer(&greedy, 20 * MEBI);
        unread.watch();
        let waiter = Arc::clone(&purse);
        let waiting = tokio::spawn(async move { waiter.wait_for_room("greedy").await });
        let others = tokio::spawn(async move {
            for _ in 0..60 {
                other.offer(&modest, MEBI);
                sleep(LOOK / 2).await;
                other.set(&modest, 0);
            }
        });

        let told = timeout(Duration::from_secs(15), unread.end()).await;

        assert!(told.is_ok(), "it has not heard that it has to give way");
        drop(unread);
        waiting.await.unwrap();
        others.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_begins_frees_what_its_connection_held_before_x_141() {
        let limits = MemoryLimits { budget: 40 * MEBI, per_user: 20 * MEBI };
        let (purse, user): (_, Arc<str>) = (Arc::new(Purse::new(limits, Clock::start())), "greedy".into());
        let (mut one, mut other) = (Hold::new(&purse, 1), Hold::new(&purse, 2));
        one.offer(&user, 20 * MEBI);
        other.ask(&user, MEBI);
        assert!(other.is_waiting());
        let waiter = Arc::clone(&purse);
        let waiting = tokio::spawn(async move { waiter.wait_for_room("greedy").await });
        tokio::task::yield_now().await;

        // The message is as long as what was held with the reply.
        one.ask(&user, 20 * MEBI);

        timeout(LOOK / 2, waiting).await.unwrap().unwrap();
        for hold in [&mut other, &mut one] {
            assert_eq!(timeout(LOOK / 2, hold.told()).await, Ok(Told::GoOn));
        }
        assert_eq!(purse.look(|held, waiting, _| (held.now(), waiting)), (21 * MEBI, 0));
    }
}

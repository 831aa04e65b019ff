//! The queue, awaited: each command waits here for its turn, and holds its place until it has its reply. While it waits for a server,
//! it is parked.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmap_core::time::Instant;
use tokio::sync::oneshot;

use super::clock::Clock;
use crate::protocol::{Class, Crowded, Entered, Placed, Queue, QueueLimits, Ticket};
use crate::users::Share;

/// How often a pause looks whether something runs.
const LOOK: Duration = Duration::from_millis(10);

/// What becomes of one that waits.
type Called = Result<Placed, NoPlace>;

/// The queue of all commands.
#[derive(Debug)]
pub(super) struct Gate {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    waiting: BTreeMap<Ticket, oneshot::Sender<Called>>,
}

/// A command's place. Dropping it gives the place to the next one.
#[derive(Debug)]
pub(super) struct Place {
    gate: Arc<Gate>,
    placed: Placed,
    is_left: bool,
}

/// A command that has left its place to others, until there is a server for it.
#[derive(Debug)]
pub(super) struct Parked {
    gate: Arc<Gate>,
    user: Arc<str>,
    class: Class,
    bytes: usize,
    has_ended: bool,
}

/// There is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// Too many wait.
    Full,
    /// Those that wait have too many bytes.
    TooLarge,
    /// It has waited long enough.
    TooLong,
    /// It has, and its user runs as many as it may.
    AtLimit,
    /// It has, and there was no room for its reply: too many others are not taken.
    NoRoom,
}

/// How the queue has received a command, with what tells it of its turn.
enum Arrival {
    Runs(Placed),
    Waits(Ticket, oneshot::Receiver<Called>),
    Refused(NoPlace),
}

/// One that waits. Dropping it before its turn costs no other theirs.
struct Waiter {
    gate: Arc<Gate>,
    user: Arc<str>,
    ticket: Ticket,
    turn: oneshot::Receiver<Called>,
    has_ended: bool,
}

impl Gate {
    pub(super) fn new(limits: QueueLimits, clock: Clock) -> Self {
        Self { clock, state: Mutex::new(State { queue: Queue::new(limits), waiting: BTreeMap::new() }) }
    }

    /// Waits for a place, `patience` at most.
    pub(super) async fn enter(
        self: &Arc<Self>,
        user: &Arc<str>,
        class: Class,
        bytes: usize,
        patience: Duration,
    ) -> Result<Place, NoPlace> {
        let now = self.clock.now();
        let entered = self.lock().enter(|queue| queue.enter(now, user, class, bytes));
        self.wait(user, entered, patience).await
    }

    async fn wait(self: &Arc<Self>, user: &Arc<str>, entered: Arrival, patience: Duration) -> Result<Place, NoPlace> {
        let (ticket, turn) = match entered {
            Arrival::Runs(placed) => return Ok(Place::new(self, placed)),
            Arrival::Refused(no_place) => return Err(no_place),
            Arrival::Waits(ticket, turn) => (ticket, turn),
        };
        let (gate, user) = (Arc::clone(self), Arc::clone(user));
        let mut waiter = Waiter { gate, user, ticket, turn, has_ended: false };
        match tokio::time::timeout(patience, &mut waiter.turn).await {
            Ok(Ok(called)) => {
                waiter.has_ended = true;
                called.map(|placed| Place::new(self, placed))
            }
            Ok(Err(_)) => Err(NoPlace::Full),
            Err(_) if self.look(|queue| queue.is_at_limit(&waiter.user, ticket)) => Err(NoPlace::AtLimit),
            Err(_) => Err(NoPlace::TooLong),
        }
    }

    /// Looks at the queue.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Queue) -> T) -> T {
        look(&mut self.lock().queue)
    }

    /// How long a pause to ask drivers for, in units of the shortest.
    pub(super) fn backoff_factor(&self) -> u32 {
        self.lock().queue.backoff_factor()
    }

    /// Changes the limits, and what users have of whom something is said.
    pub(super) fn set_limits(&self, limits: QueueLimits, shares: impl IntoIterator<Item = (Arc<str>, Share)>) {
        {
            let queue = &mut self.lock().queue;
            queue.set_limits(limits);
            queue.set_shares(shares);
        }
        self.call_next(self.clock.now());
    }

    /// Gives ordinary commands no turns any more, and waits until nothing runs, `patience` at most; how many commands run then. Those that
    /// let go have their turns, so that transactions and cursors that are open can end.
    pub(super) async fn pause(&self, patience: Duration) -> usize {
        self.look(|queue| queue.set_paused(true));
        let until = tokio::time::Instant::now() + patience;
        loop {
            let running = self.look(|queue| queue.running().now());
            if running == 0 || tokio::time::Instant::now() >= until {
                return running;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether it gives no turns.
    pub(super) fn is_paused(&self) -> bool {
        self.look(|queue| queue.is_paused())
    }

    /// Gives turns again.
    pub(super) fn resume(&self) {
        self.look(|queue| queue.set_paused(false));
        self.call_next(self.clock.now());
    }

    /// Gives a place back.
    fn leave(&self, placed: &Placed) {
        let now = self.clock.now();
        self.lock().queue.leave(now, placed);
        self.call_next(now);
    }

    /// Wakes the waiters whose turn it is, without the lock. One that has just given up leaves its place to the next.
    fn call_next(&self, now: Instant) {
        loop {
            let (placed, sender) = {
                let mut state = self.lock();
                let Some((ticket, placed)) = state.queue.next_turn(now) else { return };
                (placed, state.waiting.remove(&ticket))
            };
            let untold = match sender {
                Some(sender) => sender.send(Ok(placed)).err().and_then(Result::ok),
                None => Some(placed),
            };
            if let Some(placed) = untold {
                self.lock().queue.leave(now, &placed);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, call: impl FnOnce(&mut Queue) -> Entered) -> Arrival {
        match call(&mut self.queue) {
            Entered::Runs(placed) => Arrival::Runs(placed),
            Entered::Full => Arrival::Refused(NoPlace::Full),
            Entered::TooLarge => Arrival::Refused(NoPlace::TooLarge),
            Entered::Waits(ticket) => self.wait(ticket),
            Entered::Displaces { ticket, refused, why } => {
                for sender in refused.iter().filter_map(|refused| self.waiting.remove(refused)) {
                    // One that has just given up need not know.
                    let _ = sender.send(Err(why.into()));
                }
                self.wait(ticket)
            }
        }
    }
}

impl State {
    fn wait(&mut self, ticket: Ticket) -> Arrival {
        let (sender, turn) = oneshot::channel();
        self.waiting.insert(ticket, sender);
        Arrival::Waits(ticket, turn)
    }
}

impl Place {
    fn new(gate: &Arc<Gate>, placed: Placed) -> Self {
        Self { gate: Arc::clone(gate), placed, is_left: false }
    }

    /// Since when it is there.
    pub(super) fn since(&self) -> Instant {
        self.placed.since
    }

    /// Leaves it to others, until there is a server. If too many wait already, it is left for good.
    pub(super) fn park(mut self, bytes: usize) -> Result<Parked, NoPlace> {
        self.is_left = true;
        let (gate, now) = (Arc::clone(&self.gate), self.gate.clock.now());
        let Placed { user, class, .. } = &self.placed;
        let (user, class) = (Arc::clone(user), *class);
        let parked = gate.lock().queue.park(now, &self.placed, bytes);
        gate.call_next(now);
        match parked {
            Ok(()) => Ok(Parked { gate, user, class, bytes, has_ended: false }),
            Err(crowded) => Err(crowded.into()),
        }
    }
}

impl From<Crowded> for NoPlace {
    fn from(crowded: Crowded) -> Self {
        match crowded {
            Crowded::Full => Self::Full,
            Crowded::TooLarge => Self::TooLarge,
        }
    }
}

impl Parked {
    /// There is a server: waits for a place again, `patience` at most.
    pub(super) async fn resume(mut self, patience: Duration) -> Result<Place, NoPlace> {
        self.has_ended = true;
        let now = self.gate.clock.now();
        let entered = self.gate.lock().enter(|queue| queue.resume(now, &self.user, self.class, self.bytes));
        self.gate.wait(&self.user, entered, patience).await
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if !self.has_ended {
            self.gate.lock().queue.give_up_parked(&self.user, self.bytes);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_left {
            self.gate.leave(&self.placed);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let was_waiting = {
            let mut state = self.gate.lock();
            state.queue.give_up(&self.user, self.ticket);
            state.waiting.remove(&self.ticket).is_some()
        };
        if was_waiting {
            return;
        }
        // Its turn has come at this moment. If it was told, it gives the place back; otherwise `call_next` finds no receiver, and does.
        self.turn.close();
        if let Ok(Ok(placed)) = self.turn.try_recv() {
            self.gate.leave(&placed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        running: 1,
        reserved: 0,
        running_per_user: 1,
        awaiting: 1,
        waiting: 2,
        waiting_per_user: 2,
        waiting_bytes: 100,
    };
    const BRIEFLY: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(60);

    /// How many run, and wait.
    fn depth(gate: &Gate) -> (usize, usize) {
        gate.look(|queue| (queue.running().now(), queue.waiting().now()))
    }

    #[tokio::test]
    async fn a_place_that_is_dropped_is_the_next_ones() {
        let (gate, user) = (Arc::new(Gate::new(LIMITS, Clock::start())), "a".into());
        let place = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();
        let mut second = Box::pin(gate.enter(&user, Class::Ordinary, 1, LONG));
        assert!(tokio::time::timeout(BRIEFLY, &mut second).await.is_err(), "it waits");

        drop(place);

        let place = second.await.unwrap();
        assert_eq!(depth(&gate), (1, 0));
        drop(place);
        assert_eq!(depth(&gate), (0, 0));
    }

    #[tokio::test]
    async fn one_that_gives_up_leaves_no_trace() {
        let (gate, user) = (Arc::new(Gate::new(LIMITS, Clock::start())), "a".into());
        let place = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();

        let given_up = gate.enter(&user, Class::Ordinary, 1, BRIEFLY).await;

        assert_eq!(given_up.unwrap_err(), NoPlace::TooLong);
        assert_eq!(depth(&gate), (1, 0));
        drop(place);
        assert!(gate.enter(&user, Class::Ordinary, 1, LONG).await.is_ok());
    }

    #[tokio::test]
    async fn one_that_only_its_users_limit_keeps_out_is_told_so_x_135() {
        let limits = QueueLimits { running: 2, ..LIMITS };
        let (gate, user) = (Arc::new(Gate::new(limits, Clock::start())), "a".into());
        let _place = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();

        let refused = gate.enter(&user, Class::Ordinary, 1, BRIEFLY).await;

        assert_eq!(refused.unwrap_err(), NoPlace::AtLimit);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_waits_for_what_runs_and_holds_up_the_others_until_it_ends() {
        let (gate, user) = (Arc::new(Gate::new(LIMITS, Clock::start())), "a".into());
        let place = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();
        assert_eq!(gate.pause(BRIEFLY).await, 1);

        let mut second = Box::pin(gate.enter(&user, Class::Ordinary, 1, LONG));
        assert!(tokio::time::timeout(BRIEFLY, &mut second).await.is_err(), "it waits");
        drop(place);
        assert_eq!(gate.pause(BRIEFLY).await, 0);
        assert!(tokio::time::timeout(BRIEFLY, &mut second).await.is_err(), "it still waits");

        gate.resume();
        assert!(second.await.is_ok());
    }

    #[tokio::test]
    async fn one_that_is_parked_lets_the_next_one_in_and_has_its_turn_again_x_135() {
        let (gate, user) = (Arc::new(Gate::new(LIMITS, Clock::start())), "a".into());
        let place = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();

        let parked = place.park(1).unwrap();

        let other = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();
        assert_eq!(depth(&gate), (1, 1));
        let mut resumed = Box::pin(parked.resume(LONG));
        assert!(tokio::time::timeout(BRIEFLY, &mut resumed).await.is_err(), "it waits for its turn");
        drop(other);
        let place = resumed.await.unwrap();
        drop(place.park(1).unwrap());
        assert_eq!(depth(&gate), (0, 0));
    }

    #[tokio::test]
    async fn one_that_may_not_wait_for_a_server_leaves_its_place_to_the_next_one_x_141() {
        let (gate, user) = (Arc::new(Gate::new(LIMITS, Clock::start())), "a".into());
        let place = gate.enter(&user, Class::Ordinary, 1_000, LONG).await.unwrap();
        let mut second = Box::pin(gate.enter(&user, Class::Ordinary, 1, LONG));
        assert!(tokio::time::timeout(BRIEFLY, &mut second).await.is_err(), "it waits");

        assert_eq!(place.park(1_000).unwrap_err(), NoPlace::TooLarge);

        assert!(second.await.is_ok());
        assert_eq!(depth(&gate), (0, 0));
    }

    #[tokio::test]
    async fn one_that_is_displaced_is_told_at_once_x_135() {
        let (gate, user) = (Arc::new(Gate::new(LIMITS, Clock::start())), "a".into());
        let place = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(gate.enter(&user, Class::Ordinary, 1, LONG))).collect();
        for waiter in &mut waiting {
            assert!(tokio::time::timeout(BRIEFLY, waiter).await.is_err(), "it waits");
        }

        assert_eq!(waiting.remove(0).await.unwrap_err(), NoPlace::Full);

        assert_eq!(depth(&gate), (1, 2));
        drop(place);
        assert!(waiting.remove(0).await.is_ok());
    }

    #[tokio::test]
    async fn a_turn_that_comes_as_its_waiter_goes_is_not_lost() {
        let (gate, user) = (Arc::new(Gate::new(LIMITS, Clock::start())), "a".into());
        let place = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();
        let mut second = Box::pin(gate.enter(&user, Class::Ordinary, 1, LONG));
        assert!(tokio::time::timeout(BRIEFLY, &mut second).await.is_err(), "it waits");

        drop(place);
        drop(second);

        assert_eq!(depth(&gate), (0, 0));
    }
}

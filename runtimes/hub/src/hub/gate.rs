//! The queue, awaited: each command waits here for its turn, and holds its place until it has its reply.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::protocol::{Class, Entered, Queue, QueueLimits, Ticket};

/// The queue of all commands.
#[derive(Debug)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug)]
struct State {
    queue: Queue,
    waiting: BTreeMap<Ticket, oneshot::Sender<()>>,
}

/// A command's place. Dropping it gives the place to the next one.
#[derive(Debug)]
pub(super) struct Place(Arc<Gate>);

/// There is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// Too many wait.
    Full,
    /// Those that wait have too many bytes.
    TooLarge,
    /// It has waited long enough.
    TooLong,
}

/// One that waits. Dropping it before its turn costs no other theirs.
struct Waiter {
    gate: Arc<Gate>,
    user: Arc<str>,
    ticket: Ticket,
    turn: oneshot::Receiver<()>,
    has_ended: bool,
}

impl Gate {
    pub(super) fn new(limits: QueueLimits) -> Self {
        Self(Mutex::new(State { queue: Queue::new(limits), waiting: BTreeMap::new() }))
    }

    /// Waits for a place, `patience` at most.
    pub(super) async fn enter(
        self: &Arc<Self>,
        user: &Arc<str>,
        class: Class,
        bytes: usize,
        patience: Duration,
    ) -> Result<Place, NoPlace> {
        let mut waiter = {
            let mut state = self.lock();
            match state.queue.enter(user, class, bytes) {
                Entered::Runs(_) => return Ok(Place(Arc::clone(self))),
                Entered::Full => return Err(NoPlace::Full),
                Entered::TooLarge => return Err(NoPlace::TooLarge),
                Entered::Waits(ticket) => {
                    let (sender, turn) = oneshot::channel();
                    state.waiting.insert(ticket, sender);
                    let (gate, user) = (Arc::clone(self), Arc::clone(user));
                    Waiter { gate, user, ticket, turn, has_ended: false }
                }
            }
        };
        match tokio::time::timeout(patience, &mut waiter.turn).await {
            Ok(Ok(())) => {
                waiter.has_ended = true;
                Ok(Place(Arc::clone(self)))
            }
            Ok(Err(_)) | Err(_) => Err(NoPlace::TooLong),
        }
    }

    /// Looks at the queue.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Queue) -> T) -> T {
        look(&mut self.lock().queue)
    }

    pub(super) fn set_limits(&self, limits: QueueLimits) {
        self.lock().queue.set_limits(limits);
        self.call_next();
    }

    /// Gives a place back.
    fn leave(&self) {
        self.lock().queue.leave();
        self.call_next();
    }

    /// Wakes the waiters whose turn it is, without the lock. One that has just given up leaves its place to the next.
    fn call_next(&self) {
        loop {
            let sender = {
                let mut state = self.lock();
                let Some(ticket) = state.queue.next_turn() else { return };
                state.waiting.remove(&ticket)
            };
            let is_told = sender.is_some_and(|sender| sender.send(()).is_ok());
            if !is_told {
                self.lock().queue.leave();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
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
        if self.turn.try_recv().is_ok() {
            self.gate.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits =
        QueueLimits { running: 1, reserved: 0, waiting: 2, waiting_per_user: 2, waiting_bytes: 100 };
    const BRIEFLY: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(60);

    /// How many run, and wait.
    fn depth(gate: &Gate) -> (usize, usize) {
        gate.look(|queue| (queue.running().now(), queue.waiting().now()))
    }

    #[tokio::test]
    async fn a_place_that_is_dropped_is_the_next_ones() {
        let (gate, user) = (Arc::new(Gate::new(LIMITS)), "a".into());
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
        let (gate, user) = (Arc::new(Gate::new(LIMITS)), "a".into());
        let place = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();

        let given_up = gate.enter(&user, Class::Ordinary, 1, BRIEFLY).await;

        assert_eq!(given_up.unwrap_err(), NoPlace::TooLong);
        assert_eq!(depth(&gate), (1, 0));
        drop(place);
        assert!(gate.enter(&user, Class::Ordinary, 1, LONG).await.is_ok());
    }

    #[tokio::test]
    async fn a_turn_that_comes_as_its_waiter_goes_is_not_lost() {
        let (gate, user) = (Arc::new(Gate::new(LIMITS)), "a".into());
        let place = gate.enter(&user, Class::Ordinary, 1, LONG).await.unwrap();
        let mut second = Box::pin(gate.enter(&user, Class::Ordinary, 1, LONG));
        assert!(tokio::time::timeout(BRIEFLY, &mut second).await.is_err(), "it waits");

        drop(place);
        drop(second);

        assert_eq!(depth(&gate), (0, 0));
    }
}

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
    /// It has waited long enough.
    TooLong,
}

/// What the queue is at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    pub(super) running: u32,
    pub(super) waiting: usize,
    pub(super) most_waiting: usize,
}

/// One that waits. Dropping it before its turn costs no other theirs.
struct Waiter {
    gate: Arc<Gate>,
    customer: Arc<str>,
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
        customer: &Arc<str>,
        class: Class,
        patience: Duration,
    ) -> Result<Place, NoPlace> {
        let mut waiter = {
            let mut state = self.lock();
            match state.queue.enter(customer, class) {
                Entered::Runs(_) => return Ok(Place(Arc::clone(self))),
                Entered::Full => return Err(NoPlace::Full),
                Entered::Waits(ticket) => {
                    let (sender, turn) = oneshot::channel();
                    state.waiting.insert(ticket, sender);
                    let (gate, customer) = (Arc::clone(self), Arc::clone(customer));
                    Waiter { gate, customer, ticket, turn, has_ended: false }
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

    pub(super) fn depth(&self) -> Depth {
        let state = self.lock();
        let queue = &state.queue;
        Depth { running: queue.running(), waiting: queue.waiting(), most_waiting: queue.most_waiting() }
    }

    pub(super) fn waiting_of(&self, customer: &str) -> usize {
        self.lock().queue.waiting_of(customer)
    }

    pub(super) fn set_limits(&self, limits: QueueLimits) {
        let mut state = self.lock();
        state.queue.set_limits(limits);
        state.call_next();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells those whose turn it is. One that has just given up passes its place on.
    fn call_next(&mut self) {
        while let Some(ticket) = self.queue.next() {
            let told = self.waiting.remove(&ticket).is_some_and(|sender| sender.send(()).is_ok());
            if !told {
                self.queue.leave();
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.queue.leave();
        state.call_next();
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = self.gate.lock();
        state.waiting.remove(&self.ticket);
        match self.turn.try_recv() {
            // Its turn came in this very moment.
            Ok(()) => {
                state.queue.leave();
                state.call_next();
            }
            Err(_) => state.queue.give_up(&self.customer, self.ticket),
        }
    }
}

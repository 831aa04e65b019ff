//! The delivery of events from the machine to listeners: in order, by one deliverer at a time, and never under the
//! server's lock.
//!
//! A thread that causes events delivers them before it goes on. Events that other threads cause meanwhile are left to a
//! task, so that no thread is held up for longer than its own events take: neither a caller nor the timer, on which
//! all time limits depend. A handler may call the client; the events of that call are delivered when the handler has
//! returned.

use std::sync::Arc;

use super::queue::{AddressedEvent, EventQueue};
use crate::runtime::Runtime;
use crate::socket::yield_now::yield_now;

/// Where events happen, and how they get to listeners.
pub(crate) trait EventSource: Send + Sync + 'static {
    /// The home runtime.
    fn runtime(&self) -> &impl Runtime;

    /// Tells the listeners, and empties `events`. No lock is held.
    fn tell(&self, events: &mut Vec<AddressedEvent>);

    /// Calls the queue, under the lock.
    fn with_events<T>(&self, call: impl FnOnce(&mut EventQueue) -> T) -> T;
}

/// The duty to deliver events, which one deliverer has at a time. However it ends, the next event is delivered.
pub(crate) struct EventDelivery<S: EventSource> {
    source: Arc<S>,
    /// The events to deliver next.
    events: Vec<AddressedEvent>,
    is_done: bool,
}

impl<S: EventSource> EventDelivery<S> {
    /// A delivery of events that [`EventQueue::begin`](super::EventQueue::begin) returned.
    pub(crate) fn new(source: &Arc<S>, events: Vec<AddressedEvent>) -> Self {
        Self { source: Arc::clone(source), events, is_done: false }
    }

    /// Delivers the events, and arranges the delivery of those that happen meanwhile.
    pub(crate) fn begin(mut self) {
        if self.go_on() {
            let runtime = self.source.runtime().clone();
            runtime.spawn(async move {
                while self.go_on() {
                    yield_now().await;
                }
            });
        }
    }

    /// Delivers the events at hand; returns whether more have happened meanwhile.
    fn go_on(&mut self) -> bool {
        self.source.tell(&mut self.events);
        let has_more = self.source.with_events(|queue| queue.more(&mut self.events));
        self.is_done = !has_more;
        has_more
    }
}

impl<S: EventSource> Drop for EventDelivery<S> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if std::thread::panicking() {
            // The work that the panic interrupted.
            return self.source.with_events(|queue| queue.give_back(&mut self.events));
        }
        // Its task was dropped, because the runtime has ended.
        while self.go_on() {}
    }
}

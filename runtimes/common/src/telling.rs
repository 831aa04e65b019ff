//! How events get from the machine to those who listen: in order, by one at a time, and never under the endpoint's lock.
//!
//! Whoever causes events tells them before it goes on. What others cause meanwhile is left to a task, so that nobody is kept
//! for longer than its own events take: neither a caller nor the driver, whom all time limits hang on. A handler may call the
//! client; what that causes is told when the handler has returned.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::event::Event;
use crate::runtime::Runtime;
use crate::yield_now::yield_now;

/// Most events whose room is kept from one telling to the next.
const KEPT: usize = 1024;

/// Most events that wait to be told. Handlers that take longer than what happens miss the others, and are told how many.
const MOST: usize = 1 << 16;

/// Events that happened and were not told yet. Lives under the endpoint's lock.
#[derive(Default)]
pub(crate) struct Untold {
    events: Vec<Event>,
    /// How many happened after the last of `events` and were not kept.
    lost: u64,
    is_being_told: bool,
}

/// The duty to tell events, which one has at a time. Whatever becomes of it, the next event finds somebody who tells.
pub(crate) struct Telling<R: Runtime> {
    endpoint: Arc<Endpoint<R>>,
    /// What is told next.
    events: Vec<Event>,
    is_done: bool,
}

impl Untold {
    /// Something happened.
    pub(crate) fn push(&mut self, event: Event) {
        if self.events.len() < MOST {
            self.events.push(event);
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// The events to tell, if nobody else tells.
    pub(crate) fn begin(&mut self) -> Option<Vec<Event>> {
        if self.events.is_empty() || std::mem::replace(&mut self.is_being_told, true) {
            return None;
        }
        self.note_loss();
        Some(std::mem::take(&mut self.events))
    }

    /// More events for the one who tells, in exchange for the emptied buffer; `false` ends the telling.
    fn more(&mut self, told: &mut Vec<Event>) -> bool {
        told.shrink_to(KEPT);
        self.note_loss();
        std::mem::swap(&mut self.events, told);
        self.is_being_told = !told.is_empty();
        self.is_being_told
    }

    /// Says at the end of the events how many are missing there.
    fn note_loss(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.events.push(Event::Lost(lost));
        }
    }

    /// Takes back the events of one who gave up before the end.
    fn give_back(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
        std::mem::swap(&mut self.events, events);
        self.is_being_told = false;
    }
}

impl<R: Runtime> Telling<R> {
    /// Of events that [`Untold::begin`] gave out.
    pub(crate) fn new(endpoint: &Arc<Endpoint<R>>, events: Vec<Event>) -> Self {
        Self { endpoint: Arc::clone(endpoint), events, is_done: false }
    }

    /// Tells the events, and sees to it that those are told that happen meanwhile.
    pub(crate) fn begin(mut self) {
        if self.go_on() {
            let runtime = self.endpoint.runtime().clone();
            runtime.spawn(async move {
                while self.go_on() {
                    yield_now().await;
                }
            });
        }
    }

    /// Tells what there is; returns whether more has happened meanwhile.
    fn go_on(&mut self) -> bool {
        self.endpoint.tell(&mut self.events);
        let has_more = self.endpoint.untold(|untold| untold.more(&mut self.events));
        self.is_done = !has_more;
        has_more
    }
}

impl<R: Runtime> Drop for Telling<R> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if std::thread::panicking() {
            // What should have been done before it panicked.
            return self.endpoint.untold(|untold| untold.give_back(&mut self.events));
        }
        // Its task was dropped, since the runtime has ended.
        while self.go_on() {}
    }
}

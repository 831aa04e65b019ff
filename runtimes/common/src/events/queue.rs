//! Events that happened and were not delivered yet: a bounded queue that counts lost events.

use super::event::Event;

/// The most events whose room is kept from one delivery to the next.
const KEPT: usize = 1024;

/// The most events that wait for delivery. If handlers are slower than the events come, the others are lost, and their
/// number is reported.
const MOST: usize = 1 << 16;

/// Events that happened and were not delivered yet. Lives under the server's lock.
#[derive(Default)]
pub(crate) struct EventQueue {
    events: Vec<Event>,
    /// The number of events that happened after the last of `events` and were not kept.
    lost: u64,
    is_being_told: bool,
}

impl EventQueue {
    /// Adds an event.
    pub(crate) fn push(&mut self, event: Event) {
        if self.events.len() < MOST {
            self.events.push(event);
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// The events to deliver, unless a delivery is under way.
    pub(crate) fn begin(&mut self) -> Option<Vec<Event>> {
        if self.events.is_empty() || std::mem::replace(&mut self.is_being_told, true) {
            return None;
        }
        self.note_loss();
        Some(std::mem::take(&mut self.events))
    }

    /// Gives the deliverer more events in exchange for the emptied buffer; `false` ends the delivery.
    pub(super) fn more(&mut self, told: &mut Vec<Event>) -> bool {
        told.shrink_to(KEPT);
        self.note_loss();
        std::mem::swap(&mut self.events, told);
        self.is_being_told = !told.is_empty();
        self.is_being_told
    }

    /// Reports at the end of the events how many are missing there.
    fn note_loss(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.events.push(Event::Lost(lost));
        }
    }

    /// Takes back the events of a delivery that stopped before the end.
    pub(super) fn give_back(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
        std::mem::swap(&mut self.events, events);
        self.is_being_told = false;
    }
}

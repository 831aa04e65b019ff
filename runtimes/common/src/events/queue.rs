//! Events that happened and were not delivered yet: a bounded queue that counts lost events.

use std::sync::Arc;

use cmap_core::address::ServerAddress;

use super::event::Event;

/// An event, and the server that it is about. An event of the topology goes with its first seed.
pub(crate) type AddressedEvent = (Arc<ServerAddress>, Event);

/// The most events whose room is kept from one delivery to the next.
const KEPT: usize = 1024;

/// The most events that wait for delivery. If handlers are slower than the events come, the others are lost, and their
/// number is reported.
const MOST: usize = 1 << 16;

/// Events that happened and were not delivered yet. Lives under the server's lock.
#[derive(Default)]
pub(crate) struct EventQueue {
    events: Vec<AddressedEvent>,
    /// The number of events that happened after the last of `events` and were not kept.
    lost: u64,
    is_being_told: bool,
}

impl EventQueue {
    /// Adds an event.
    pub(crate) fn push(&mut self, address: &Arc<ServerAddress>, event: Event) {
        if self.events.len() < MOST {
            self.events.push((Arc::clone(address), event));
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// The events to deliver, unless a delivery is under way.
    pub(crate) fn begin(&mut self) -> Option<Vec<AddressedEvent>> {
        if self.events.is_empty() || std::mem::replace(&mut self.is_being_told, true) {
            return None;
        }
        self.note_loss();
        Some(std::mem::take(&mut self.events))
    }

    /// Gives the deliverer more events in exchange for the emptied buffer; `false` ends the delivery.
    pub(super) fn more(&mut self, told: &mut Vec<AddressedEvent>) -> bool {
        told.shrink_to(KEPT);
        self.note_loss();
        std::mem::swap(&mut self.events, told);
        self.is_being_told = !told.is_empty();
        self.is_being_told
    }

    /// Reports at the end of the events how many are missing there.
    fn note_loss(&mut self) {
        if self.lost > 0
            && let Some((address, _)) = self.events.last()
        {
            let lost = std::mem::take(&mut self.lost);
            self.events.push((Arc::clone(address), Event::Lost(lost)));
        }
    }

    /// Takes back the events of a delivery that stopped before the end.
    pub(super) fn give_back(&mut self, events: &mut Vec<AddressedEvent>) {
        events.append(&mut self.events);
        std::mem::swap(&mut self.events, events);
        self.is_being_told = false;
    }
}

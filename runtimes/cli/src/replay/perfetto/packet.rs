//! The packets of a trace for Perfetto: tracks, and what happens on them. The numbers are those of the published schema,
//! `perfetto_trace.proto`, whose names the comments give.

use cmap_core::time::Instant;

use super::protobuf::Message;

/// A track's number, which every event names.
pub(super) type Track = u64;

/// What happens on a track.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// TYPE_SLICE_BEGIN
    Begin = 1,
    /// TYPE_SLICE_END
    End = 2,
    /// TYPE_INSTANT
    Instant = 3,
    /// TYPE_COUNTER
    Counter = 4,
}

/// An event that is being made.
pub(super) struct Event {
    at: Instant,
    message: Message,
}

impl Event {
    pub(super) fn new(at: Instant, kind: Kind, track: Track) -> Self {
        // type, track_uuid
        Self { at, message: Message::default().number(9, kind as u64).number(11, track) }
    }

    pub(super) fn named(self, category: &str, name: &str) -> Self {
        // categories, name
        Self { message: self.message.text(22, category).text(23, name), ..self }
    }

    pub(super) fn value(self, value: u32) -> Self {
        // counter_value
        Self { message: self.message.number(30, value.into()), ..self }
    }

    /// Something to know about it; nothing if there is nothing.
    pub(super) fn with(self, name: &str, text: &str) -> Self {
        if text.is_empty() {
            return self;
        }
        // debug_annotations { name, string_value }
        Self { message: self.message.message(4, &Message::default().text(10, name).text(6, text)), ..self }
    }

    /// The beginning of an arrow.
    pub(super) fn begins_flow(self, flow: u64) -> Self {
        // flow_ids
        Self { message: self.message.fixed(47, flow), ..self }
    }

    /// The end of an arrow.
    pub(super) fn ends_flow(self, flow: u64) -> Self {
        // terminating_flow_ids
        Self { message: self.message.fixed(48, flow), ..self }
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// The packet of the event.
    pub(super) fn packet(&self) -> Message {
        // timestamp, track_event
        sequenced(Message::default().number(8, self.at.as_nanos()).message(11, &self.message))
    }
}

/// A track that stands for a program of its own: a pool, or all that waits.
pub(super) fn process(track: Track, number: u64, name: &str) -> Message {
    // process { pid, process_name }
    let process = Message::default().number(1, number).text(6, name);
    // uuid, process, child_ordering = EXPLICIT
    descriptor(Message::default().number(1, track).message(3, &process).number(11, 3))
}

/// A track within another one, in the order of ranks.
pub(super) fn track(track: Track, parent: Track, name: &str, rank: u32) -> Message {
    descriptor(child(track, parent, name, rank))
}

/// A track of numbers.
pub(super) fn counter(track: Track, parent: Track, name: &str, rank: u32) -> Message {
    // counter
    descriptor(child(track, parent, name, rank).message(8, &Message::default()))
}

/// What time it was elsewhere.
pub(super) fn clocks(at: Instant, unix_millis: u64) -> Message {
    let clock = |id, nanos| Message::default().number(1, id).number(2, nanos);
    // clocks { BUILTIN_CLOCK_BOOTTIME }, clocks { BUILTIN_CLOCK_REALTIME }
    let unix = unix_millis.saturating_mul(1_000_000);
    let both = Message::default().message(1, &clock(6, at.as_nanos())).message(1, &clock(1, unix));
    // clock_snapshot
    sequenced(Message::default().message(6, &both))
}

fn child(track: Track, parent: Track, name: &str, rank: u32) -> Message {
    // uuid, name, parent_uuid, sibling_order_rank
    Message::default().number(1, track).text(2, name).number(5, parent).number(12, rank.into())
}

fn descriptor(descriptor: Message) -> Message {
    // track_descriptor
    sequenced(Message::default().message(60, &descriptor))
}

/// All packets are of one sequence.
fn sequenced(packet: Message) -> Message {
    // trusted_packet_sequence_id
    packet.number(10, 1)
}

//! What both sides of a socket have in common: messages in and out, and the times by which something has to come or go.

use alloc::vec::Vec;
use core::time::Duration;

use super::inbox::Inbox;
use super::keep_alive::KeepAlive;
use super::message::{Message, ProtocolError};
use super::{Ending, GREETING_LIMIT};
use crate::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Line {
    now: Instant,
    inbox: Inbox,
    outbox: Vec<u8>,
    timing: Timing,
}

/// What the time is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timing {
    /// Both sides have to agree by then.
    Greeting(Instant),
    /// Pings of both sides.
    Parked(KeepAlive),
    /// Pings of the other side alone: whatever this side said could become a byte of the connection.
    Listening(KeepAlive),
    /// Pings of this side alone, for the same reason.
    Speaking(KeepAlive),
    /// Nothing: the socket belongs to somebody else, or ends.
    Over,
}

impl Line {
    pub(super) fn new(now: Instant) -> Self {
        let timing = Timing::Greeting(now + GREETING_LIMIT);
        Self { now, inbox: Inbox::default(), outbox: Vec::new(), timing }
    }

    /// Time has passed; it never runs backwards.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Bytes came.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        if let Timing::Parked(keep_alive) | Timing::Listening(keep_alive) = &mut self.timing {
            keep_alive.hear(self.now);
        }
        self.inbox.push(bytes);
    }

    pub(super) fn next_message(&mut self) -> Result<Option<Message>, ProtocolError> {
        match self.inbox.next()? {
            Some((kind, body)) => Message::decode(kind, &body).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn say(&mut self, message: &Message) {
        if let Timing::Parked(keep_alive) | Timing::Speaking(keep_alive) = &mut self.timing {
            keep_alive.speak(self.now);
        }
        self.outbox.extend_from_slice(&message.encode());
    }

    /// Both sides have agreed.
    pub(super) fn park(&mut self, interval: Duration) {
        self.timing = Timing::Parked(KeepAlive::new(interval, self.now));
    }

    /// This side says nothing any more until the socket is a connection.
    pub(super) fn only_listen(&mut self) {
        if let Timing::Parked(keep_alive) = self.timing {
            self.timing = Timing::Listening(keep_alive);
        }
    }

    /// The other side says nothing any more until the socket is a connection.
    pub(super) fn only_speak(&mut self) {
        if let Timing::Parked(keep_alive) = self.timing {
            self.timing = Timing::Speaking(keep_alive);
        }
    }

    /// There are no more messages. Returns what came behind the last one.
    pub(super) fn end(&mut self) -> Vec<u8> {
        self.timing = Timing::Over;
        core::mem::take(&mut self.inbox).into_rest()
    }

    /// Says a ping if it is time, or why the socket ends.
    pub(super) fn handle_timeout(&mut self) -> Result<(), Ending> {
        match self.timing {
            Timing::Greeting(until) if self.now >= until => return Err(Ending::NoGreeting),
            Timing::Parked(keep_alive) | Timing::Listening(keep_alive) if self.now >= keep_alive.gives_up_at() => {
                return Err(Ending::Silent(keep_alive.patience()));
            }
            Timing::Parked(keep_alive) | Timing::Speaking(keep_alive) if self.now >= keep_alive.pings_at() => {
                self.say(&Message::Ping);
            }
            Timing::Greeting(_) | Timing::Parked(_) | Timing::Listening(_) | Timing::Speaking(_) | Timing::Over => {}
        }
        Ok(())
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.timing {
            Timing::Greeting(until) => Some(*until),
            Timing::Parked(keep_alive) => Some(keep_alive.pings_at().min(keep_alive.gives_up_at())),
            Timing::Listening(keep_alive) => Some(keep_alive.gives_up_at()),
            Timing::Speaking(keep_alive) => Some(keep_alive.pings_at()),
            Timing::Over => None,
        }
    }

    pub(super) fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        (!self.outbox.is_empty()).then(|| core::mem::take(&mut self.outbox))
    }
}

//! A digest of answers and outputs: equal for equal ones on every machine, and cheap enough to take of every call.

use postcard::ser_flavors::Flavor;
use serde::Serialize;

use super::words::place_of;
use crate::pool::{self, Action, ConnectionId, Delivery};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Output};

/// The digest so far. Not a secure hash: it finds differences that nobody planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest(u64);

impl Digest {
    /// All of it.
    pub(super) fn get(self) -> u64 {
        self.0
    }

    /// Its part that stands next to every call.
    #[inline]
    pub(super) fn part(self) -> u8 {
        self.0.to_be_bytes()[0]
    }

    /// Takes in what a call returned.
    #[inline]
    pub(super) fn take_answer<C>(&mut self, answer: &Answer<C>) {
        if let Answer::CheckOut(CheckOut::Started(check_out), Some(Delivery { connection, .. })) = answer {
            self.take_delivery(check_out.sequence, connection.id, place_of(*connection));
        } else if !matches!(answer, Answer::CheckedIn(None)) {
            // The most frequent answer is the one that leaves the digest as it is.
            self.take_value(&answer.snapshot());
        }
    }

    /// Takes in an output that was polled.
    pub(super) fn take_output<C>(&mut self, output: &Output<C>) {
        if let Output::Pool { output: pool::Output::Action(Action::Deliver { check_out, connection, .. }), .. } = output
        {
            self.take_delivery(check_out.sequence, connection.id, place_of(*connection));
        } else {
            self.take_value(&output.snapshot());
        }
    }

    /// Takes in when the machine wants to be called.
    pub(super) fn take_timeout(&mut self, timeout: Option<Instant>) {
        self.take(timeout.map_or(u64::MAX, Instant::as_nanos));
    }

    /// Takes in that a check-out has a connection.
    #[inline]
    pub(super) fn take_delivery(&mut self, check_out: u64, connection: ConnectionId, place: u64) {
        self.take(check_out);
        self.take(connection.0.rotate_left(16) ^ place);
    }

    #[inline]
    fn take(&mut self, word: u64) {
        const SPREAD: u64 = 0x517c_c1b7_2722_0a95;
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }

    #[cold]
    #[inline(never)]
    fn take_value(&mut self, value: &impl Serialize) {
        // Values without a length that is known beforehand, which these types do not have, would be refused.
        if let Ok(digest) = postcard::serialize_with_flavor(value, Self(self.0)) {
            *self = digest;
        }
    }
}

impl Flavor for Digest {
    type Output = Self;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.take(u64::from(byte));
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Self> {
        Ok(self)
    }
}

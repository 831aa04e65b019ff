//! Whole messages out of a stream that comes in pieces.
//!
//! A peer announces in four bytes how long its message will be. [`FrameReader`] refuses a length that is not allowed as
//! soon as these bytes are there, and believes the others only as they arrive: its buffer grows with what came, at most
//! to twice that, and never beyond the message. A message that arrives in one piece is not copied at all. Only a spare
//! that is lent may be larger: it costs no memory that is not there already.

use alloc::vec::Vec;
use core::fmt;

use super::buffer_pool::{BufferPool, KEPT, Lender};
use super::error::WireError;
use super::header::Header;
use super::limits::Limits;

/// Collects a stream's bytes into messages.
#[derive(Clone, Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    /// The buffer holds a whole message, which was handed out.
    complete: bool,
}

// What came from a socket is nobody's business but its user's, so only its length is shown.
impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader").field("len", &self.buffer.len()).field("complete", &self.complete).finish()
    }
}

impl FrameReader {
    /// A reader at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next message's bytes off the front of `input`, and returns the message if it is whole.
    ///
    /// Call it until it returns `None`: then all of `input` is taken. After an error the stream is broken, since the
    /// two sides no longer agree where messages start: the same error comes again, and the connection is to be closed.
    pub fn read<'b, 'i: 'b>(
        &'b mut self,
        input: &mut &'i [u8],
        limits: &Limits,
    ) -> Result<Option<&'b [u8]>, WireError> {
        self.read_borrowing(input, limits, &mut BufferPool::none())
    }

    /// Takes the next message's bytes off the front of `input`, and returns the message if it is whole. One that is too large for
    /// the reader's own buffer is read into one that `lender` lends; [`give_back`](Self::give_back) returns that.
    pub fn read_borrowing<'b, 'i: 'b>(
        &'b mut self,
        input: &mut &'i [u8],
        limits: &Limits,
        lender: &mut impl Lender,
    ) -> Result<Option<&'b [u8]>, WireError> {
        self.start_over();
        let max = limits.message();
        if self.buffer.is_empty()
            && let Some(length) = Header::peek_length(input, max)?
            && let Some((message, rest)) = input.split_at_checked(length)
        {
            *input = rest;
            return Ok(Some(message));
        }

        // Without a length, only the bytes that make it up: more could be too many.
        self.take(input, 4, 4, lender);
        let Some(length) = Header::peek_length(&self.buffer, max)? else { return Ok(None) };
        self.take(input, length, length, lender);
        self.complete = self.buffer.len() == length;
        Ok(self.complete.then_some(&self.buffer[..]))
    }

    /// Whether the stream could end here, between two messages.
    pub fn is_at_boundary(&self) -> bool {
        self.complete || self.buffer.is_empty()
    }

    /// How many bytes are kept of a message that is not whole yet.
    pub fn pending(&self) -> usize {
        if self.complete { 0 } else { self.buffer.len() }
    }

    /// How long the message is that has begun and is not whole; `None` between two messages, and before its length is there.
    pub fn announced(&self) -> Option<usize> {
        let length = self.buffer.first_chunk().filter(|_| !self.complete)?;
        usize::try_from(i32::from_le_bytes(*length)).ok()
    }

    /// How many bytes the buffer takes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Gives a large buffer back, unless it holds the beginning of a message.
    #[inline]
    pub fn give_back(&mut self, lender: &mut impl Lender) {
        if self.buffer.capacity() > KEPT && self.is_at_boundary() {
            self.complete = false;
            lender.take_back(&mut self.buffer);
        }
    }

    fn start_over(&mut self) {
        if self.complete {
            self.complete = false;
            self.buffer.clear();
            self.buffer.shrink_to(KEPT);
        }
    }

    /// Moves bytes from `input` until there are `target`, in a buffer of its own that is never larger than `ceiling`, or in a
    /// lent one.
    fn take(&mut self, input: &mut &[u8], target: usize, ceiling: usize, lender: &mut impl Lender) {
        let count = target.saturating_sub(self.buffer.len()).min(input.len());
        let (taken, rest) = input.split_at(count);
        *input = rest;
        let needed = self.buffer.len() + count;
        if needed > self.buffer.capacity() {
            lender.lend(&mut self.buffer, ceiling);
        }
        if needed > self.buffer.capacity() {
            let capacity = needed.max(self.buffer.len() * 2).min(ceiling);
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
        self.buffer.extend_from_slice(taken);
    }
}

/// Whether `input` begins with an alert of TLS: what a server that expects TLS answers. A message begins with its length, lowest
/// byte first, so that of one with 789 bytes begins like an alert, too; all five bytes are those of none that is a first reply.
pub(crate) fn is_tls_alert(input: &[u8]) -> bool {
    matches!(input, [0x15, 0x03, 0x01..=0x04, 0x00, 0x02, ..])
}

//! Any message that can arrive, unpacked and checked.
//!
//! The bytes that [`FrameReader`](super::FrameReader) delivers become one of the three kinds of message there are.
//! Nothing is copied: the message refers to the frame or, if it was compressed, to the decoder's buffer.

use alloc::vec::Vec;
use core::fmt;

use super::buffer_pool::{BufferPool, KEPT, Lender};
use super::compression::{CompressorId, Decompressor};
use super::error::WireError;
use super::header::{Header, OpCode};
use super::limits::Limits;
use super::op_compressed::Packed;
use super::op_msg::{Message, Sequences};
use super::op_query::{Query, Reply};

/// Decodes messages, and keeps its buffer from one to the next. It may serve many connections.
#[derive(Default)]
pub struct Decoder {
    decompressor: Decompressor,
    plain: Vec<u8>,
    sequences: Sequences,
}

/// A message, and how it came.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The compressor, if the message was compressed.
    pub compressor: Option<CompressorId>,
    /// The message.
    pub content: Content<'a>,
}

/// The kinds of messages.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// OP_MSG.
    Message(Message<'a>),
    /// OP_QUERY.
    Query(Query<'a>),
    /// OP_REPLY.
    Reply(Reply<'a>),
}

// What came from a socket is nobody's business but its user's, so only its length is shown.
impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("len", &self.plain.len()).finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder for replies: one with document sequences is refused before they are looked at.
    pub fn of_replies() -> Self {
        Self { sequences: Sequences::Refused, ..Self::default() }
    }

    /// Decodes one whole message, compressed or not (COMP-5).
    pub fn decode<'a>(&'a mut self, frame: &'a [u8], limits: &Limits) -> Result<Incoming<'a>, WireError> {
        self.decode_borrowing(frame, limits, &mut BufferPool::none())
    }

    /// Decodes one whole message with what `lender` lends for a compressed one: a decompressor, and a buffer if it is too large
    /// for the decoder's own. [`give_back`](Self::give_back) returns both.
    pub fn decode_borrowing<'a>(
        &'a mut self,
        frame: &'a [u8],
        limits: &Limits,
        lender: &mut impl Lender,
    ) -> Result<Incoming<'a>, WireError> {
        self.plain.clear();
        self.plain.shrink_to(KEPT);
        let (header, _) = Header::split(frame, limits)?;
        let (compressor, op_code, message) = match header.op_code {
            OpCode::Compressed => {
                let packed = Packed::read(frame, limits)?;
                lender.lend(&mut self.plain, packed.room());
                self.decompressor.borrow(packed.compressor, lender);
                packed.unpack(&mut self.decompressor, &mut self.plain)?;
                (Some(packed.compressor), Header::split(&self.plain, limits)?.0.op_code, &self.plain[..])
            }
            plain @ (OpCode::Msg | OpCode::Query | OpCode::Reply) => (None, plain, frame),
        };
        let content = match op_code {
            OpCode::Query => Content::Query(Query::decode(message, limits)?),
            OpCode::Reply => Content::Reply(Reply::decode(message, limits)?),
            OpCode::Msg | OpCode::Compressed => {
                Content::Message(Message::read::<false>(message, limits, self.sequences)?)
            }
        };
        Ok(Incoming { compressor, content })
    }

    /// Gives back what was borrowed, or could be lent: the decompressor, and a large buffer.
    #[inline]
    pub fn give_back(&mut self, lender: &mut impl Lender) {
        lender.take_back(&mut self.plain);
        self.decompressor.give_back(lender);
    }
}

impl Content<'_> {
    /// The header.
    pub fn header(&self) -> Header {
        match self {
            Self::Message(message) => message.header,
            Self::Query(query) => query.header,
            Self::Reply(reply) => reply.header,
        }
    }
}

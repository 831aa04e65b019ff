//! The sixteen bytes at the start of every message: its length, its number, the number of the message it answers, and
//! its operation.

use super::cursor::Cursor;
use super::error::WireError;
use super::limits::Limits;

/// The length of a header.
pub const HEADER_LEN: usize = 16;

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OpCode {
    /// OP_REPLY: the answer to an OP_QUERY.
    Reply = 1,
    /// OP_QUERY: how some drivers still ask for the first hello (SRV-1).
    Query = 2004,
    /// OP_COMPRESSED: another operation, compressed (COMP-6).
    Compressed = 2012,
    /// OP_MSG: everything else (MSG-1).
    Msg = 2013,
}

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// messageLength: of the whole message, this header included. Never less than [`HEADER_LEN`].
    pub length: usize,
    /// The numbers of the message and of the one it answers.
    pub ids: MessageIds,
    /// The operation of the message.
    pub op_code: OpCode,
}

/// The numbers by which a reply finds its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageIds {
    /// requestID: this message's own number.
    pub request_id: i32,
    /// responseTo: the number of the message that this one answers; 0 in a request.
    pub response_to: i32,
}

impl MessageIds {
    /// Makes the numbers of a request, which answers no message.
    pub fn request(request_id: i32) -> Self {
        Self { request_id, response_to: 0 }
    }

    /// The numbers of the reply `request_id` to the message `response_to`.
    pub fn reply(request_id: i32, response_to: i32) -> Self {
        Self { request_id, response_to }
    }
}

impl OpCode {
    /// The operation of this number.
    pub fn from_code(code: i32) -> Result<Self, WireError> {
        match code {
            1 => Ok(Self::Reply),
            2004 => Ok(Self::Query),
            2012 => Ok(Self::Compressed),
            2013 => Ok(Self::Msg),
            unknown => Err(WireError::UnknownOpCode(unknown)),
        }
    }

    /// The operation's number.
    pub fn code(self) -> i32 {
        self as i32
    }
}

impl Header {
    /// The length in the first four bytes, once they have arrived, if a message may have it (MSG-4).
    pub(super) fn peek_length(bytes: &[u8], max: usize) -> Result<Option<usize>, WireError> {
        let Some(bytes) = bytes.first_chunk() else { return Ok(None) };
        let announced = i32::from_le_bytes(*bytes);
        let length = usize::try_from(announced).unwrap_or(0);
        if length < HEADER_LEN {
            return Err(WireError::MessageTooShort { length: announced, min: HEADER_LEN });
        }
        if length > max {
            return Err(WireError::MessageTooLong { length, max });
        }
        Ok(Some(length))
    }

    /// The header of a whole message, and the bytes after it.
    pub fn split<'a>(message: &'a [u8], limits: &Limits) -> Result<(Self, &'a [u8]), WireError> {
        let mut cursor = Cursor::new(message);
        let header = cursor.take(HEADER_LEN, "a message's header")?;
        let announced = Self::peek_length(header, limits.message())?.unwrap_or(0);
        if announced != message.len() {
            return Err(WireError::LengthMismatch { announced, found: message.len() });
        }
        let mut header = Cursor::new(&header[4..]);
        let ids = MessageIds { request_id: header.i32("requestID")?, response_to: header.i32("responseTo")? };
        let op_code = OpCode::from_code(header.i32("opCode")?)?;
        Ok((Self { length: announced, ids, op_code }, cursor.rest()))
    }

    /// Splits a header from a message that must be of one operation.
    pub(super) fn split_of<'a>(
        expected: OpCode,
        message: &'a [u8],
        limits: &Limits,
    ) -> Result<(Self, Cursor<'a>), WireError> {
        let (header, rest) = Self::split(message, limits)?;
        if header.op_code != expected {
            return Err(WireError::UnexpectedOpCode { expected, found: header.op_code });
        }
        Ok((header, Cursor::new(rest)))
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let fields = [length_field(self.length), self.ids.request_id, self.ids.response_to, self.op_code.code()];
        for (place, field) in bytes.chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }
}

/// A length as it is written. Limits keep every length below two gigabytes.
pub(super) fn length_field(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

/// Writes a length into the room that was left for it.
pub(super) fn patch_length(bytes: &mut [u8], at: usize, length: usize) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&length_field(length).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header { length: HEADER_LEN, ids: MessageIds::reply(-7, i32::MAX), op_code: OpCode::Msg };

        let bytes = header.encode();

        assert_eq!(bytes, *b"\x10\0\0\0\xf9\xff\xff\xff\xff\xff\xff\x7f\xdd\x07\0\0");
        assert_eq!(Header::split(&bytes, &Limits::DEFAULT), Ok((header, &[][..])));
    }

    #[test]
    fn impossible_headers_are_refused() {
        let header = |length: i32, op_code: i32| {
            let mut bytes = [0; HEADER_LEN];
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[12..].copy_from_slice(&op_code.to_le_bytes());
            bytes
        };
        for (bytes, expected) in [
            (header(15, 2013), WireError::MessageTooShort { length: 15, min: 16 }),
            (header(-1, 2013), WireError::MessageTooShort { length: -1, min: 16 }),
            (header(48_000_001, 2013), WireError::MessageTooLong { length: 48_000_001, max: 48_000_000 }),
            (header(17, 2013), WireError::LengthMismatch { announced: 17, found: 16 }),
            (header(16, 2014), WireError::UnknownOpCode(2014)),
        ] {
            assert_eq!(Header::split(&bytes, &Limits::DEFAULT), Err(expected));
        }
    }
}

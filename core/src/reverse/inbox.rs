//! Bytes as they come, cut into messages: a byte for the kind, two for the length of what follows, and that.

use alloc::vec::Vec;

use super::message::ProtocolError;

/// The greatest length of a message behind its first three bytes.
pub const MAX_MESSAGE: usize = 1024;

/// The kind of a message, and the length of the rest.
const HEADER: usize = 3;

/// Bytes that came, and belong to no message yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if it is there as a whole: its kind and the rest.
    pub(super) fn next(&mut self) -> Result<Option<(u8, Vec<u8>)>, ProtocolError> {
        let [kind, high, low, rest @ ..] = self.bytes.as_slice() else { return Ok(None) };
        let (kind, length) = (*kind, usize::from(u16::from_be_bytes([*high, *low])));
        if length > MAX_MESSAGE {
            return Err(ProtocolError::TooLong { kind, length });
        }
        let Some(body) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.bytes.drain(..HEADER + length);
        Ok(Some((kind, body)))
    }

    /// What came behind the last message.
    pub(super) fn into_rest(self) -> Vec<u8> {
        self.bytes
    }
}

/// The bytes of a message.
pub(super) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    // Bodies are made here, and shorter than the limit.
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.push(kind);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

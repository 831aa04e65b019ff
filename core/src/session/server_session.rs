//! A session as the server knows it: its id, and the number of its last transaction.

#[cfg(feature = "wire")]
use alloc::borrow::ToOwned;
use core::fmt;

#[cfg(feature = "wire")]
use bson::{RawDocument, RawDocumentBuf};
use serde::{Deserialize, Serialize};

use crate::time::Instant;

/// The id of a session: a random UUID, made by the client (SES-4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId([u8; 16]);

/// A session that the server knows, or will know once its id was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSession {
    id: SessionId,
    pub(super) last_use: Instant,
    transaction_number: i64,
    pub(super) is_dirty: bool,
    /// The number of forks before it was made.
    pub(super) forks: u32,
}

impl SessionId {
    /// The UUID of version 4 with these random bits.
    pub fn of_random(mut random: [u8; 16]) -> Self {
        random[6] = random[6] & 0x0f | 0x40;
        random[8] = random[8] & 0x3f | 0x80;
        Self(random)
    }

    /// The bytes of the UUID.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// The value of `lsid`.
    #[cfg(feature = "wire")]
    pub fn document(self) -> RawDocumentBuf {
        RawDocument::from_bytes(&self.document_bytes()).map(ToOwned::to_owned).unwrap_or_default()
    }

    /// The bytes of the value of `lsid`, `{ id: UUID }`. Every operation sends one, and nobody has to allocate for it.
    #[cfg(feature = "wire")]
    pub fn document_bytes(self) -> [u8; 30] {
        let mut bytes = *b"\x1e\0\0\0\x05id\0\x10\0\0\0\x04................\0";
        bytes[13..29].copy_from_slice(&self.0);
        bytes
    }
}

impl ServerSession {
    pub(super) fn new(id: SessionId, now: Instant, forks: u32) -> Self {
        Self { id, last_use: now, transaction_number: 0, is_dirty: false, forks }
    }

    /// The session's id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Notes that the id is sent: the server counts the session's idle time from now on (SES-5).
    pub fn mark_used(&mut self, now: Instant) {
        self.last_use = self.last_use.max(now);
    }

    /// A number for the next retryable write or transaction, greater than those before (RTY-7, SES-11).
    pub fn next_transaction_number(&mut self) -> i64 {
        self.transaction_number = self.transaction_number.saturating_add(1);
        self.transaction_number
    }

    /// The number of the last retryable write or transaction.
    pub fn transaction_number(&self) -> i64 {
        self.transaction_number
    }

    /// A network error cut off a command with its id, so what the server still does with it is unknown. It stays usable, and
    /// is not used again after its return (SES-8).
    pub fn mark_dirty(&mut self) {
        self.is_dirty = true;
    }

    /// Whether a network error has cut off a command with its id.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn an_id_is_a_uuid_of_version_4_ses_4() {
        assert_eq!(SessionId::of_random([0xff; 16]).to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(SessionId::of_random([0; 16]).to_string(), "00000000-0000-4000-8000-000000000000");
    }

    #[cfg(feature = "wire")]
    #[test]
    fn an_id_is_sent_as_a_uuid_ses_4() {
        use bson::spec::BinarySubtype::Uuid;
        let id = SessionId::of_random([7; 16]);
        let mut expected = RawDocumentBuf::new();
        expected.append(bson::cstr!("id"), bson::RawBinaryRef { subtype: Uuid, bytes: &id.bytes() });

        assert_eq!(id.document(), expected);
    }

    #[test]
    fn transaction_numbers_rise_rty_7() {
        let mut session = ServerSession::new(SessionId::of_random([1; 16]), Instant::ORIGIN, 0);

        assert_eq!([session.next_transaction_number(), session.next_transaction_number()], [1, 2]);
    }
}

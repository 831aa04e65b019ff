//! How large messages and documents may be.
//!
//! A server says in its hello what it takes. Each connection keeps the limits of its own hello, because two connections
//! may have reached two versions of a server (HS-16). What is read is held to the default limits, whatever the other
//! side says of itself: a server must not be able to make its client allocate more.

use bson::RawDocument;
use serde::{Deserialize, Serialize};

use super::reply::integer;

/// What a document around users' documents may have beyond maxBsonObjectSize, as in the server.
pub const DOCUMENT_ALLOWANCE: usize = 16 * 1024;

/// The limits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// maxMessageSizeBytes: the greatest length of a message, header included.
    pub max_message_size: u32,
    /// maxBsonObjectSize: the greatest length of a user's document.
    pub max_document_size: u32,
    /// maxWriteBatchSize: how many writes one command takes.
    pub max_write_batch: u32,
}

impl Limits {
    /// The limits of today's servers. They also bound what is read.
    pub const DEFAULT: Self =
        Self { max_message_size: 48_000_000, max_document_size: 16 * 1024 * 1024, max_write_batch: 100_000 };

    /// The limits in a hello reply (HS-16).
    ///
    /// What it lacks, or gives as nonsense, is the default. Sizes above the default are lowered to it: messages that
    /// are smaller than a server takes are right, too, and nothing here grows because a peer says so.
    pub fn from_hello(hello: &RawDocument) -> Self {
        let field = |name: &str, default: u32, ceiling: u32| {
            let value = hello.get(name).ok().flatten().and_then(integer);
            match value {
                Some(value) if value > 0 => u32::try_from(value).unwrap_or(u32::MAX).min(ceiling),
                Some(_) | None => default,
            }
        };
        let Self { max_message_size, max_document_size, max_write_batch } = Self::DEFAULT;
        Self {
            max_message_size: field("maxMessageSizeBytes", max_message_size, max_message_size),
            max_document_size: field("maxBsonObjectSize", max_document_size, max_document_size),
            max_write_batch: field("maxWriteBatchSize", max_write_batch, u32::MAX),
        }
    }

    pub(super) fn message(&self) -> usize {
        self.max_message_size as usize
    }

    /// The greatest length of a user's own document.
    pub(super) fn user_document(&self) -> usize {
        self.max_document_size as usize
    }

    /// The greatest length of a document that wraps users' documents: a command, a reply, an update statement.
    pub(super) fn document(&self) -> usize {
        self.user_document().saturating_add(DOCUMENT_ALLOWANCE)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_hello_lowers_the_limits_and_cannot_raise_what_is_allocated() {
        for (hello, expected) in [
            (rawdoc! {}, Limits::DEFAULT),
            (rawdoc! { "maxMessageSizeBytes": 1000 }, Limits { max_message_size: 1000, ..Limits::DEFAULT }),
            (rawdoc! { "maxBsonObjectSize": 2000.0 }, Limits { max_document_size: 2000, ..Limits::DEFAULT }),
            (rawdoc! { "maxWriteBatchSize": 200_000_i64 }, Limits { max_write_batch: 200_000, ..Limits::DEFAULT }),
            (rawdoc! { "maxMessageSizeBytes": i64::MAX, "maxBsonObjectSize": i32::MAX }, Limits::DEFAULT),
            (rawdoc! { "maxMessageSizeBytes": 0, "maxBsonObjectSize": -1, "maxWriteBatchSize": "7" }, Limits::DEFAULT),
        ] {
            assert_eq!(Limits::from_hello(&hello), expected, "{hello:?}");
        }
    }
}

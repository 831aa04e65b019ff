//! How large messages and documents may be.
//!
//! A server's hello names its limits. Each connection keeps the limits of its own hello, because two connections may
//! have reached two versions of a server (HS-16). Incoming messages are held to the default limits, whatever the server
//! says about itself, and to those of a greeting until the connection is established: a server must not be able to make
//! its client allocate more.

use bson::RawDocument;
use serde::{Deserialize, Serialize};

use super::reply::integer;

/// How much a document around users' documents may have beyond maxBsonObjectSize, as in the server.
pub const DOCUMENT_ALLOWANCE: usize = 16 * 1024;

/// The limits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// maxMessageSizeBytes: the greatest length of a message, header included.
    pub max_message_size: u32,
    /// maxBsonObjectSize: the greatest length of a user's document.
    pub max_document_size: u32,
    /// maxWriteBatchSize: the number of writes that one command takes.
    pub max_write_batch: u32,
}

impl Limits {
    /// The limits of today's servers. They also bound incoming messages.
    pub const DEFAULT: Self =
        Self { max_message_size: 48_000_000, max_document_size: 16 * 1024 * 1024, max_write_batch: 100_000 };

    /// The least limits of any MongoDB server, and of any compatible service: up to MongoDB 3.4 a command took 1,000
    /// writes. A hello that says less is nonsense.
    pub const LEAST: Self = Self { max_write_batch: 1_000, ..Self::DEFAULT };

    /// The limits of incoming messages before a connection is established, and of a monitor.
    ///
    /// The hello of a member of the largest set, of fifty, has some kilobytes, and so has a message of an authentication.
    /// A server that has proven nothing yet cannot make its client buffer more than a megabyte.
    pub const GREETING: Self = Self { max_message_size: 1024 * 1024, max_document_size: 1024 * 1024, ..Self::DEFAULT };

    /// The limits in a hello reply (HS-16).
    ///
    /// A limit that is missing, or is no whole number of at least [`LEAST`](Self::LEAST), is the default: a server must
    /// not be able to split a client's writes into millions of commands. A limit above the default is lowered to it: a
    /// message smaller than the server takes is right, too, and nothing grows because a peer says so.
    pub fn from_hello(hello: &RawDocument) -> Self {
        let field = |name: &str, least: u32, default: u32| {
            let value = hello.get(name).ok().flatten().and_then(integer);
            let value = value.map(|value| value.min(default.into()));
            value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value >= least).unwrap_or(default)
        };
        let (least, default) = (Self::LEAST, Self::DEFAULT);
        Self {
            max_message_size: field("maxMessageSizeBytes", least.max_message_size, default.max_message_size),
            max_document_size: field("maxBsonObjectSize", least.max_document_size, default.max_document_size),
            max_write_batch: field("maxWriteBatchSize", least.max_write_batch, default.max_write_batch),
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
    use bson::{Bson, RawDocumentBuf, doc, rawdoc};

    use super::*;

    #[test]
    fn a_hello_lowers_the_writes_of_a_command_to_a_thousand_at_the_least() {
        for (writes, expected) in [
            (Bson::Int32(1_000), 1_000),
            (Bson::Int64(1_001), 1_001),
            (Bson::Double(2_000.0), 2_000),
            (Bson::Int32(100_000), 100_000),
        ] {
            let limits = Limits::from_hello(&hello("maxWriteBatchSize", writes.clone()));
            assert_eq!(limits, Limits { max_write_batch: expected, ..Limits::DEFAULT }, "{writes:?}");
        }
    }

    #[test]
    fn a_hello_without_a_limit_that_makes_sense_has_the_default_one() {
        assert_eq!(Limits::from_hello(&rawdoc! {}), Limits::DEFAULT);
        for (name, below_the_least) in
            [("maxMessageSizeBytes", 47_999_999), ("maxBsonObjectSize", 16_777_215), ("maxWriteBatchSize", 999)]
        {
            for nonsense in [
                Bson::Int32(below_the_least),
                Bson::Int32(1),
                Bson::Int32(0),
                Bson::Int32(-1),
                Bson::Int64(i64::MIN),
                Bson::Double(f64::NAN),
                Bson::Double(f64::INFINITY),
                Bson::Double(f64::NEG_INFINITY),
                Bson::Double(100_000_000.5),
                Bson::String("100000000".into()),
            ] {
                assert_eq!(Limits::from_hello(&hello(name, nonsense.clone())), Limits::DEFAULT, "{name}: {nonsense:?}");
            }
        }
    }

    #[test]
    fn a_hello_cannot_raise_what_is_sent_at_once() {
        for name in ["maxMessageSizeBytes", "maxBsonObjectSize", "maxWriteBatchSize"] {
            for huge in [Bson::Int32(i32::MAX), Bson::Int64(1 << 32), Bson::Int64(i64::MAX), Bson::Double(1e18)] {
                assert_eq!(Limits::from_hello(&hello(name, huge.clone())), Limits::DEFAULT, "{name}: {huge:?}");
            }
        }
    }

    fn hello(name: &str, value: Bson) -> RawDocumentBuf {
        RawDocumentBuf::try_from(&doc! { name: value }).unwrap()
    }
}

//! The options of a transaction, and where those come from that it does not set itself.

use alloc::string::String;
use core::time::Duration;

use crate::options::{ClientOptions, ReadPreference, WriteConcern};

/// The options of a transaction. What is not set is taken from the session's defaults, and from the client's options after that.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// `level` of the read concern of all its reads: `snapshot`, `majority`, `local`.
    pub read_concern_level: Option<String>,
    /// The write concern of its commit.
    pub write_concern: Option<WriteConcern>,
    /// The read preference of its reads, which has to be the primary (TXN-3).
    pub read_preference: Option<ReadPreference>,
    /// `maxCommitTimeMS`: how long the server may take for the commit.
    pub max_commit_time: Option<Duration>,
}

impl TransactionOptions {
    /// Fills the options that are not set with `defaults`.
    #[must_use]
    pub fn or(self, defaults: &Self) -> Self {
        Self {
            read_concern_level: self.read_concern_level.or_else(|| defaults.read_concern_level.clone()),
            write_concern: self.write_concern.or_else(|| defaults.write_concern.clone()),
            read_preference: self.read_preference.or_else(|| defaults.read_preference.clone()),
            max_commit_time: self.max_commit_time.or(defaults.max_commit_time),
        }
    }

    /// Takes what a client's options set.
    pub fn of_client(options: &ClientOptions) -> Self {
        let ClientOptions { read_concern_level, write_concern, read_preference, .. } = options;
        Self {
            read_concern_level: read_concern_level.clone(),
            write_concern: Some(write_concern.clone()).filter(|concern| *concern != WriteConcern::default()),
            read_preference: Some(read_preference.clone()),
            max_commit_time: None,
        }
    }
}

impl From<WriteConcern> for TransactionOptions {
    fn from(concern: WriteConcern) -> Self {
        Self { write_concern: Some(concern), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_set_come_from_the_defaults() {
        let (client, _) = ClientOptions::parse("mongodb://h/?readConcernLevel=local&w=2").unwrap();
        let own = TransactionOptions { read_concern_level: Some("snapshot".into()), ..TransactionOptions::default() };

        let options = own.or(&TransactionOptions::of_client(&client));

        assert_eq!(options.read_concern_level.as_deref(), Some("snapshot"));
        assert_eq!(options.write_concern, Some(client.write_concern));
    }
}

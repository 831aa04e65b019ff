//! The time of a cluster: of a replica set, or of the one behind a mongos. Every reply tells it.

use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawDocumentBuf, Timestamp};

use super::document::document;

/// The logical clock, which goes on with the time of day and with each write.
#[derive(Clone, Debug)]
pub(crate) struct ClusterTime {
    /// The operations so far: the increment of the last one's time.
    operations: u32,
    /// The seconds of the last one's time. They never go back.
    seconds: u32,
}

impl Default for ClusterTime {
    fn default() -> Self {
        Self { operations: 1, seconds: 0 }
    }
}

impl ClusterTime {
    /// The time of the next operation.
    pub(super) fn next(&self, unix: Duration) -> Timestamp {
        Timestamp { time: self.seconds.max(seconds(unix)), increment: self.operations.saturating_add(1) }
    }

    /// Records an operation of this time.
    pub(super) fn count_write(&mut self, time: Timestamp) {
        self.operations = self.operations.max(time.increment);
        self.seconds = self.seconds.max(time.time);
    }

    /// The time of the last operation.
    pub(super) fn at(&self, unix: Duration) -> Timestamp {
        Timestamp { time: seconds(unix), increment: self.operations }
    }

    /// Whether an operation of that time has been carried out.
    pub(super) fn has_reached(&self, time: Timestamp) -> bool {
        self.operations >= time.increment
    }

    /// The fields of every reply: the cluster's time and the operation's, which is older on a member that lags behind.
    pub(super) fn stamp(&self, reply: &mut RawDocumentBuf, unix: Duration, complete_until: Duration) {
        let time = self.at(unix);
        // No client checks the signature.
        let hash = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: &[0; 20] };
        let signature = document! { "hash": hash, "keyId": 0_i64 };
        reply.append(bson::cstr!("$clusterTime"), document! { "clusterTime": time, "signature": signature });
        reply.append(bson::cstr!("operationTime"), self.at(complete_until));
    }
}

fn seconds(unix: Duration) -> u32 {
    u32::try_from(unix.as_secs()).unwrap_or(u32::MAX)
}

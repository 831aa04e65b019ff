//! Snapshot sessions: all their reads see the data of one time, that of the first read or one that the user names.

use bson::{RawDocument, RawDocumentBuf, Timestamp, cstr};

/// The wire version of MongoDB 5.0, the first with snapshot reads outside of transactions.
const FIRST_WIRE_VERSION: i32 = 13;

/// The time of a session's reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    at: Option<Timestamp>,
}

impl Snapshot {
    /// A snapshot of `at`, or else of the time of the first read.
    pub fn new(at: Option<Timestamp>) -> Self {
        Self { at }
    }

    /// The time that all reads see; `None` before the first one.
    pub fn at(&self) -> Option<Timestamp> {
        self.at
    }

    /// Whether a server of this wire version has snapshot reads (SES-16).
    pub fn is_supported(max_wire_version: i32) -> bool {
        max_wire_version >= FIRST_WIRE_VERSION
    }

    /// The read concern of every command of the session. Commands that know no snapshot are the server's to refuse.
    pub fn read_concern(&self) -> RawDocumentBuf {
        let mut concern = RawDocumentBuf::new();
        concern.append(cstr!("level"), "snapshot");
        if let Some(at) = self.at {
            concern.append(cstr!("atClusterTime"), at);
        }
        concern
    }

    /// The reply to a command of the session came. The first one that names a time fixes it (SES-17): `find` and `aggregate` name
    /// it in their cursor, `distinct` in the reply itself.
    pub fn handle_reply(&mut self, reply: &RawDocument) {
        if self.at.is_none() {
            let of_cursor = reply.get_document("cursor").and_then(|cursor| cursor.get_timestamp("atClusterTime"));
            self.at = of_cursor.or_else(|_| reply.get_timestamp("atClusterTime")).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    const FIRST: Timestamp = Timestamp { time: 5, increment: 1 };
    const LATER: Timestamp = Timestamp { time: 6, increment: 1 };

    #[test]
    fn the_first_reply_fixes_the_time_of_all_reads_ses_17() {
        for reply in
            [rawdoc! { "cursor": { "atClusterTime": FIRST } }, rawdoc! { "values": [], "atClusterTime": FIRST }]
        {
            let mut snapshot = Snapshot::default();
            assert_eq!(snapshot.read_concern(), rawdoc! { "level": "snapshot" });

            snapshot.handle_reply(&reply);
            snapshot.handle_reply(&rawdoc! { "atClusterTime": LATER });

            assert_eq!(snapshot.read_concern(), rawdoc! { "level": "snapshot", "atClusterTime": FIRST });
        }
    }

    #[test]
    fn a_time_of_the_user_s_stays() {
        let mut snapshot = Snapshot::new(Some(FIRST));

        snapshot.handle_reply(&rawdoc! { "atClusterTime": LATER });

        assert_eq!(snapshot.at(), Some(FIRST));
    }
}

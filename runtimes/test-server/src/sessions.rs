//! Logical sessions, reduced to what clients notice: their ids, writes that are sent twice and done once (SRV-8), and how their
//! transactions have ended.

use std::collections::BTreeMap;

use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawBsonRef, RawDocumentBuf};

use super::document::document;
use super::failure::fail;
use super::request::Request;
use crate::store::CommandFailure;

/// How long a session lives unused, in minutes.
pub(super) const TIMEOUT_MINUTES: i32 = 30;

/// The bytes of a session's id.
const UUID: usize = 16;
/// How many sessions are remembered. The one whose last write is the oldest is forgotten first.
const MAX_SESSIONS: usize = 10_000;

/// How many bytes of their replies are remembered, one reply more or less.
const MAX_BYTES: usize = 64 << 20;

/// The last number of each session, and what came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    last: BTreeMap<Vec<u8>, Last>,
    /// The sessions by the age of their last numbers, the oldest first.
    by_age: BTreeMap<u64, Vec<u8>>,
    next_age: u64,
    /// The bytes of the replies.
    bytes: usize,
}

/// The last number of a session.
#[derive(Clone, Debug)]
struct Last {
    number: i64,
    ended: Ended,
    /// Its place in the order of all sessions' last numbers.
    age: u64,
}

/// What came of a write or a transaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ended {
    /// The write was carried out, with this reply.
    Written(RawDocumentBuf),
    /// The transaction has begun.
    Begun,
    /// The transaction was committed.
    Committed,
    /// The transaction was aborted.
    Aborted,
}

/// A write that the client may send twice, or a transaction.
#[derive(Clone, Debug)]
pub(crate) struct NumberedWrite {
    pub(super) session: Vec<u8>,
    pub(super) number: i64,
}

impl NumberedWrite {
    /// The session and the number of `request`, if it has one.
    pub(super) fn of(request: &Request<'_>) -> Result<Option<Self>, CommandFailure> {
        let Some(number) = request.arguments.integer("txnNumber")? else { return Ok(None) };
        let session = match request.arguments.document("lsid")? {
            Some(lsid) => lsid.binary("id")?,
            None => None,
        };
        let session =
            session.ok_or_else(|| fail(72, "Transaction number requires a session ID to also be specified"))?;
        if session.len() != UUID {
            return Err(fail(207, "uuid must be a 16-byte binary field with UUID (4) subtype"));
        }
        Ok(Some(Self { session: session.to_vec(), number }))
    }
}

impl Sessions {
    /// The reply that `write` got before.
    pub(super) fn repeated(&self, write: &NumberedWrite) -> Result<Option<RawDocumentBuf>, CommandFailure> {
        let NumberedWrite { session, number } = write;
        match self.last.get(session) {
            Some(Last { number: last, .. }) if last > number => {
                let message = format!("Retryable write with txnNumber {number} is prohibited: {last} has started");
                Err(fail(225, message))
            }
            Some(Last { number: last, ended, .. }) if last == number => match ended {
                Ended::Written(reply) => Ok(Some(reply.clone())),
                Ended::Begun | Ended::Committed | Ended::Aborted => {
                    Err(fail(256, format!("txnNumber {number} is that of a transaction")))
                }
            },
            Some(_) | None => Ok(None),
        }
    }

    /// Refuses the number of a transaction that is older than the session's last one.
    pub(super) fn check_number(&self, transaction: &NumberedWrite) -> Result<(), CommandFailure> {
        let NumberedWrite { session, number } = transaction;
        match self.last.get(session) {
            Some(Last { number: last, .. }) if last > number => {
                Err(fail(225, format!("Cannot go on with transaction {number}: {last} has started")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the number of a transaction was used before.
    pub(super) fn knows(&self, transaction: &NumberedWrite) -> bool {
        self.last.get(&transaction.session).is_some_and(|last| last.number == transaction.number)
    }

    /// Whether the transaction was committed.
    pub(super) fn has_committed(&self, transaction: &NumberedWrite) -> bool {
        let last = self.last.get(&transaction.session);
        last.is_some_and(|last| last.number == transaction.number && last.ended == Ended::Committed)
    }

    /// A transaction has begun.
    pub(super) fn begin_transaction(&mut self, transaction: &NumberedWrite) {
        self.end_transaction(transaction, Ended::Begun);
    }

    /// A transaction has ended.
    pub(super) fn end_transaction(&mut self, transaction: &NumberedWrite, ended: Ended) {
        self.put(transaction.clone(), ended);
    }

    /// `write` was carried out, and got `reply`.
    pub(super) fn remember(&mut self, write: NumberedWrite, reply: &RawDocumentBuf) {
        self.put(write, Ended::Written(reply.clone()));
    }

    fn put(&mut self, write: NumberedWrite, ended: Ended) {
        self.forget(&write.session);
        // Before it comes in, so that it is not forgotten at once itself.
        while self.last.len() >= MAX_SESSIONS || self.bytes > MAX_BYTES {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.forget(&oldest);
        }
        self.bytes += ended.size();
        self.next_age += 1;
        let NumberedWrite { session, number } = write;
        self.by_age.insert(self.next_age, session.clone());
        self.last.insert(session, Last { number, ended, age: self.next_age });
    }

    /// Forgets the writes of sessions that have ended.
    pub(super) fn end(&mut self, ids: &[&[u8]]) {
        for id in ids {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: &[u8]) {
        let Some(Last { ended, age, .. }) = self.last.remove(id) else { return };
        self.by_age.remove(&age);
        self.bytes -= ended.size();
    }
}

impl Ended {
    /// The bytes of the reply.
    fn size(&self) -> usize {
        match self {
            Self::Written(reply) => reply.as_bytes().len(),
            Self::Begun | Self::Committed | Self::Aborted => 0,
        }
    }
}

/// The sessions that `endSessions` and its like name.
pub(super) fn ids<'a>(request: &Request<'a>) -> Result<Vec<&'a [u8]>, CommandFailure> {
    let sessions = request.arguments.array(request.name)?.into_iter().flatten().map_while(Result::ok);
    let id = |session: RawBsonRef<'a>| Some(session.as_document()?.get_binary("id").ok()?.bytes);
    Ok(sessions.filter_map(id).collect())
}

/// `startSession`.
pub(super) fn start(id: [u8; 16]) -> RawDocumentBuf {
    let id = RawBinaryRef { subtype: BinarySubtype::Uuid, bytes: &id };
    document! { "id": document! { "id": id }, "timeoutMinutes": TIMEOUT_MINUTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction(session: usize) -> NumberedWrite {
        let mut id = [0; UUID];
        id[8..].copy_from_slice(&session.to_be_bytes());
        NumberedWrite { session: id.to_vec(), number: 1 }
    }

    #[test]
    fn of_too_many_sessions_the_one_whose_last_write_is_the_oldest_is_forgotten() {
        let mut sessions = Sessions::default();
        (0..MAX_SESSIONS).for_each(|session| sessions.end_transaction(&transaction(session), Ended::Committed));
        sessions.end_transaction(&transaction(0), Ended::Committed);

        sessions.end_transaction(&transaction(MAX_SESSIONS), Ended::Committed);

        let remembered = [0, 1, 2, MAX_SESSIONS].map(|session| sessions.has_committed(&transaction(session)));
        assert_eq!(remembered, [true, false, true, true]);
    }

    #[test]
    fn a_session_that_has_ended_leaves_nothing() {
        let mut sessions = Sessions::default();
        sessions.remember(transaction(0), &document! { "n": 1 });

        sessions.end(&[&transaction(0).session]);

        assert_eq!((sessions.bytes, sessions.last.len(), sessions.by_age.len()), (0, 0, 0));
    }
}

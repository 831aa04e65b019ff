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
/// How many sessions are remembered. The one with the lowest id is forgotten first.
const MAX_SESSIONS: usize = 10_000;

/// How many bytes of their replies are remembered, one reply more or less.
const MAX_BYTES: usize = 64 << 20;

/// The last number of each session, and what came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    last: BTreeMap<Vec<u8>, (i64, Ended)>,
    /// The bytes of the replies.
    bytes: usize,
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
            Some((last, _)) if last > number => {
                let message = format!("Retryable write with txnNumber {number} is prohibited: {last} has started");
                Err(fail(225, message))
            }
            Some((last, Ended::Written(reply))) if last == number => Ok(Some(reply.clone())),
            Some((last, Ended::Begun | Ended::Committed | Ended::Aborted)) if last == number => {
                Err(fail(256, format!("txnNumber {number} is that of a transaction")))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Refuses the number of a transaction that is older than the session's last one.
    pub(super) fn check_number(&self, transaction: &NumberedWrite) -> Result<(), CommandFailure> {
        let NumberedWrite { session, number } = transaction;
        match self.last.get(session) {
            Some((last, _)) if last > number => {
                Err(fail(225, format!("Cannot go on with transaction {number}: {last} has started")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the number of a transaction was used before.
    pub(super) fn knows(&self, transaction: &NumberedWrite) -> bool {
        self.last.get(&transaction.session).is_some_and(|(last, _)| *last == transaction.number)
    }

    /// Whether the transaction was committed.
    pub(super) fn has_committed(&self, transaction: &NumberedWrite) -> bool {
        let last = self.last.get(&transaction.session);
        last.is_some_and(|(last, ended)| *last == transaction.number && *ended == Ended::Committed)
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
            let Some((_, (_, forgotten))) = self.last.pop_first() else { break };
            self.bytes -= forgotten.size();
        }
        self.bytes += ended.size();
        self.last.insert(write.session, (write.number, ended));
    }

    /// Forgets the writes of sessions that have ended.
    pub(super) fn end(&mut self, ids: &[&[u8]]) {
        for id in ids {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: &[u8]) {
        self.bytes -= self.last.remove(id).map_or(0, |(_, ended)| ended.size());
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

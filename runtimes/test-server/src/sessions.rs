//! Logical sessions, reduced to what clients notice: their ids, and writes that are sent twice and done once (SRV-8).

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

/// The last numbered write of each session, and its reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    written: BTreeMap<Vec<u8>, (i64, RawDocumentBuf)>,
    /// The bytes of the replies.
    bytes: usize,
}

/// A write that the client may send twice.
#[derive(Clone, Debug)]
pub(crate) struct RetryableWrite {
    session: Vec<u8>,
    number: i64,
}

impl RetryableWrite {
    /// The identity of `request`, if it is a write that may be sent twice.
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
    pub(super) fn repeated(&self, write: &RetryableWrite) -> Result<Option<RawDocumentBuf>, CommandFailure> {
        let RetryableWrite { session, number } = write;
        match self.written.get(session) {
            Some((last, _)) if last > number => {
                let message = format!("Retryable write with txnNumber {number} is prohibited: {last} has started");
                Err(fail(225, message))
            }
            Some((last, reply)) if last == number => Ok(Some(reply.clone())),
            Some(_) | None => Ok(None),
        }
    }

    /// `write` was carried out, and got `reply`.
    pub(super) fn remember(&mut self, write: RetryableWrite, reply: &RawDocumentBuf) {
        self.forget(&write.session);
        // Before it comes in, so that it is not forgotten at once itself.
        while self.written.len() >= MAX_SESSIONS || self.bytes > MAX_BYTES {
            let Some((_, (_, forgotten))) = self.written.pop_first() else { break };
            self.bytes -= forgotten.as_bytes().len();
        }
        self.bytes += reply.as_bytes().len();
        self.written.insert(write.session, (write.number, reply.clone()));
    }

    /// Forgets the writes of sessions that have ended.
    pub(super) fn end(&mut self, ids: &[&[u8]]) {
        for id in ids {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: &[u8]) {
        self.bytes -= self.written.remove(id).map_or(0, |(_, reply)| reply.as_bytes().len());
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

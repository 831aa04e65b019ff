//! What a client's connection holds upstream: cursors and transactions, each at its server.
//!
//! They belong to the connection, to which drivers keep with them, and end with it. Upstream they pin the server and the session,
//! and no connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{RawBsonRef, RawDocument};
use cmap_core::address::ServerAddress;
use cmap_core::retry::ErrorLabel;
use cmap_core::wire::{CommandReply, integer};

use super::request::{Part, Request, SessionId, session_id};

/// The cursors and transactions of one connection.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    cursors: BTreeMap<i64, CursorAt>,
    transactions: BTreeMap<SessionId, TransactionAt>,
}

/// An open cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorAt {
    /// Its id.
    pub id: i64,
    /// Its server.
    pub server: Arc<ServerAddress>,
    /// Its database.
    pub database: String,
    /// Its collection.
    pub collection: String,
    /// The session that it belongs to.
    pub session: Option<SessionId>,
    /// Whether a getMore of it waits for documents to come.
    pub awaits: bool,
}

/// A transaction that has begun and not ended, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionAt {
    /// Its session.
    pub session: SessionId,
    /// Its number.
    pub number: i64,
    /// Its server. None when that has not answered its end: any may tell how it ended.
    pub server: Option<Arc<ServerAddress>>,
}

/// Errors that say that a transaction is there no more: TransactionTooOld, NoSuchTransaction, TransactionCommitted.
const HAS_ENDED: [i64; 3] = [225, 251, 256];

impl Holdings {
    /// A cursor of this connection.
    pub fn cursor(&self, id: i64) -> Option<&CursorAt> {
        self.cursors.get(&id)
    }

    /// The transaction of this session and number.
    pub fn transaction(&self, session: &SessionId, number: i64) -> Option<&TransactionAt> {
        self.transactions.get(session).filter(|transaction| transaction.number == number)
    }

    /// How many cursors are open.
    pub fn cursors(&self) -> usize {
        self.cursors.len()
    }

    /// How many transactions are open.
    pub fn transactions(&self) -> usize {
        self.transactions.len()
    }

    /// Whether a cursor or a transaction is open.
    pub fn are_empty(&self) -> bool {
        self.cursors.is_empty() && self.transactions.is_empty()
    }

    /// All of them, which are then forgotten.
    pub fn take(&mut self) -> (Vec<CursorAt>, Vec<TransactionAt>) {
        let Self { cursors, transactions } = std::mem::take(self);
        (cursors.into_values().collect(), transactions.into_values().collect())
    }

    /// A command of a transaction was sent, or may have been, to `server`: the transaction is there from now on.
    pub fn note_sent(&mut self, request: &Request, server: &Arc<ServerAddress>) {
        let (Some(Part::Starts), Some(session), Some(number)) = (request.part, request.session, request.number) else {
            return;
        };
        let server = Some(Arc::clone(server));
        self.transactions.insert(session, TransactionAt { session, number, server });
    }

    /// A server has answered a command.
    pub fn note_reply(&mut self, request: &Request, server: &Arc<ServerAddress>, reply: &RawDocument, ok: bool) {
        let code = reply.get("code").ok().flatten().and_then(integer).filter(|_| !ok);
        let has_ended = code.is_some_and(|code| HAS_ENDED.contains(&code)) || is_transient(reply);
        if has_ended || ok && request.part == Some(Part::Ends) {
            self.take_transaction(request);
        }
        if request.name == "killCursors" && ok {
            // Those at other servers were not killed by this one.
            let killed = cursors_in(request.body());
            let killed: Vec<_> =
                killed.filter(|id| self.cursor(*id).is_some_and(|cursor| cursor.server == *server)).collect();
            killed.iter().for_each(|id| _ = self.cursors.remove(id));
        }
        // A server lets the cursors and transactions of a session that has ended live until it looks after its sessions, minutes later:
        // `endSessions` leaves what the connection holds still to be ended.
        if request.name == "killSessions" && ok {
            sessions_in(request.body()).for_each(|session| self.end_session(&session, server));
        }
        let continued = continued_cursor(request);
        if !ok {
            // CursorNotFound and its like: the server has it no more. After another error it may still be there.
            if code == Some(43) {
                continued.into_iter().for_each(|id| _ = self.cursors.remove(&id));
            }
            return;
        }
        let Ok(cursor) = reply.get_document("cursor") else { return };
        let id = cursor.get("id").ok().flatten().and_then(integer).unwrap_or_default();
        if id == 0 {
            continued.into_iter().for_each(|id| _ = self.cursors.remove(&id));
            return;
        }
        let (database, collection) = match cursor.get_str("ns").ok().and_then(|ns| ns.split_once('.')) {
            Some((database, collection)) => (database.to_owned(), collection.to_owned()),
            None => (request.database.clone(), String::new()),
        };
        let session = request.session;
        let server = Arc::clone(server);
        let awaits = awaits(request);
        self.cursors.entry(id).or_insert(CursorAt { id, server, database, collection, session, awaits });
    }

    /// No server has answered a command, and the hub has. Returns the transaction that its driver takes for aborted now, which has to be
    /// aborted at its server and is not held any more.
    ///
    /// Where it was the transaction's end that nobody answered, its server may be gone, and any other may tell what has become of it.
    pub fn note_unanswered(&mut self, request: &Request, reply: &RawDocument) -> Option<Self> {
        if is_transient(reply) {
            let transaction = self.take_transaction(request)?;
            let transactions = BTreeMap::from([(transaction.session, transaction)]);
            return Some(Self { transactions, ..Self::default() });
        }
        if request.part == Some(Part::Ends)
            && let Some(transaction) = request.session.as_ref().and_then(|id| self.transactions.get_mut(id))
        {
            transaction.server = None;
        }
        None
    }

    /// The transaction of this command, which is then forgotten.
    fn take_transaction(&mut self, request: &Request) -> Option<TransactionAt> {
        let session = request.session.filter(|_| request.part.is_some())?;
        self.transaction(&session, request.number?)?;
        self.transactions.remove(&session)
    }

    /// A server has killed a session, and with it what the session has there.
    pub fn end_session(&mut self, session: &SessionId, server: &ServerAddress) {
        self.transactions.retain(|id, transaction| id != session || transaction.server.as_deref() != Some(server));
        self.cursors.retain(|_, cursor| cursor.session.as_ref() != Some(session) || *cursor.server != *server);
    }
}

/// Whether a reply says that its transaction is aborted: drivers forget then on which connection it was, and abort it on any.
fn is_transient(reply: &RawDocument) -> bool {
    let labels = CommandReply::read(reply).failure().map(|error| error.labels).unwrap_or_default();
    labels.iter().any(|label| label == ErrorLabel::TransientTransactionError.name())
}

/// Whether a getMore of the cursor that a command opens waits for documents: a change stream's, and a tailable one's that is to await them.
fn awaits(request: &Request) -> bool {
    let body = request.body();
    match request.name.as_str() {
        "aggregate" => {
            let first = body.get_array("pipeline").ok().and_then(|stages| stages.into_iter().next()?.ok());
            let stage = first.and_then(RawBsonRef::as_document);
            stage.is_some_and(|stage| stage.get("$changeStream").is_ok_and(|stage| stage.is_some()))
        }
        "find" => ["tailable", "awaitData"].iter().all(|name| body.get_bool(name).unwrap_or_default()),
        _ => false,
    }
}

/// The cursor that a getMore continues.
pub(super) fn continued_cursor(request: &Request) -> Option<i64> {
    if request.name != "getMore" {
        return None;
    }
    request.body().get("getMore").ok().flatten().and_then(integer)
}

/// The sessions of a `killSessions`.
fn sessions_in(body: &RawDocument) -> impl Iterator<Item = SessionId> {
    let sessions = body.get("killSessions").ok().flatten().and_then(RawBsonRef::as_array);
    sessions.into_iter().flatten().filter_map(Result::ok).filter_map(session_id)
}

/// The cursors of a `killCursors`.
pub(super) fn cursors_in(body: &RawDocument) -> impl Iterator<Item = i64> {
    let cursors = body.get("cursors").ok().flatten().and_then(RawBsonRef::as_array);
    cursors.into_iter().flatten().filter_map(Result::ok).filter_map(integer)
}

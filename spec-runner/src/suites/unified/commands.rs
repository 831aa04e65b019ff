//! One client's commands: how they are sent, in which session, and their events.
//!
//! Every operation runs in an implicit session, as in drivers: a free one, or else a new one. When the client is closed
//! it tells the server that its sessions have ended. An operation that has a time limit tells the server how much of it
//! is left (CSOT-9).

use alloc::rc::Rc;
use core::cell::RefCell;
use core::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use cmap_core::options::ClientOptions;
use cmap_core::pool::Purpose;
use cmap_core::time::Instant;

use super::client::{Client, Connection};
use super::failure::{Failure, FailureKind};
use super::format::EventName;
use super::journal::Journal;

/// A client, its options, and its journal.
#[derive(Clone)]
pub struct Caller<C: Client> {
    /// The client.
    pub client: C,
    /// Its options.
    pub options: ClientOptions,
    /// Its journal.
    pub journal: Journal,
    /// All its sessions so far, by number, and whether each is in use.
    pub sessions: Rc<RefCell<Vec<bool>>>,
}

/// An implicit session, in use until it is dropped, and the time of its operation.
pub struct Session {
    number: usize,
    deadline: Option<Instant>,
    all: Rc<RefCell<Vec<bool>>>,
}

/// How long a closing client waits for a connection to end its sessions.
const LAST_WAIT: Duration = Duration::from_secs(1);

impl<C: Client> Caller<C> {
    /// Whether cursors keep their connections (LB-13).
    pub fn pins_cursors(&self) -> bool {
        self.options.load_balanced == Some(true)
    }

    /// A connection of the client.
    ///
    /// # Errors
    /// There is none; the reason.
    pub async fn check_out(&self, purpose: Purpose, session: &Session) -> Result<C::Connection, Failure> {
        self.client.check_out(purpose, session.deadline).await
    }

    /// A session for an operation: a free one if there is any. `timeout` or else the client's timeoutMS limits the time
    /// of the operation.
    pub fn session(&self, timeout: Option<Duration>) -> Session {
        let timeout = timeout.or(self.options.timeout).filter(|timeout| !timeout.is_zero());
        let mut sessions = self.sessions.borrow_mut();
        let free = sessions.iter().position(|in_use| !in_use);
        let number = free.unwrap_or(sessions.len());
        match sessions.get_mut(number) {
            Some(in_use) => *in_use = true,
            None => sessions.push(true),
        }
        Session { number, deadline: timeout.map(|timeout| self.client.now() + timeout), all: Rc::clone(&self.sessions) }
    }

    /// Ends the client's sessions, then the client. The server's answer does not matter.
    pub async fn close(&self) {
        let ids: Vec<Bson> = (0..self.sessions.borrow().len()).map(|number| session_id(number).into()).collect();
        let deadline = Some(self.client.now() + LAST_WAIT);
        if !ids.is_empty()
            && let Ok(mut connection) = self.client.check_out(Purpose::Other, deadline).await
        {
            let _ = self.send(&mut connection, "admin", doc! { "endSessions": ids }, deadline).await;
        }
        self.client.close().await;
    }

    /// Runs a command in a session and notes its events. The errors of single writes in a reply with `ok: 1` are
    /// errors, too, but not of the command.
    ///
    /// # Errors
    /// The server's error, a failure of the connection, or that there is no time left for a round trip (CSOT-10).
    pub async fn run(
        &self,
        connection: &mut C::Connection,
        database: &str,
        command: &Document,
        session: &Session,
    ) -> Result<Document, Failure> {
        let mut command = command.clone();
        command.insert("lsid", session_id(session.number));
        if let Some(deadline) = session.deadline {
            let left = deadline.saturating_since(self.client.now()).saturating_sub(self.client.min_round_trip_time());
            if left.as_millis() == 0 {
                return Err(Failure::new(FailureKind::CheckOutTimeout, "there is no time left for a round trip"));
            }
            command.insert("maxTimeMS", i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
        }
        self.send(connection, database, command, session.deadline).await
    }

    async fn send(
        &self,
        connection: &mut C::Connection,
        database: &str,
        command: Document,
        deadline: Option<Instant>,
    ) -> Result<Document, Failure> {
        let name = command.keys().next().map_or("", String::as_str);
        let identity = connection.identity();
        let fields = || {
            let mut fields = identity.clone();
            fields.insert("commandName", name);
            fields.insert("databaseName", database);
            fields
        };
        let event = |event, extra: Option<(&str, Bson)>| {
            self.journal.command_event(event, name, || {
                let mut fields = fields();
                fields.extend(extra.map(|(key, value)| (key.to_owned(), value)));
                fields
            });
        };
        let mut sent = command.clone();
        sent.insert("$db", database);
        event(EventName::CommandStartedEvent, Some(("command", sent.into())));
        match connection.run(database, &command, deadline).await {
            Ok(reply) => {
                event(EventName::CommandSucceededEvent, Some(("reply", reply.clone().into())));
                Failure::of_reply(&reply).map_or(Ok(reply), Err)
            }
            Err(failure) => {
                event(EventName::CommandFailedEvent, None);
                Err(failure)
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(in_use) = self.all.borrow_mut().get_mut(self.number) {
            *in_use = false;
        }
    }
}

/// Servers tell sessions apart by user and number; one test is one world.
fn session_id(number: usize) -> Document {
    let mut bytes = vec![0; 8];
    bytes.extend((number as u64).to_be_bytes());
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes } }
}

impl Failure {
    /// Whether the connection is lost with it.
    pub fn is_network(&self) -> bool {
        matches!(self.kind, FailureKind::Network { .. })
    }
}

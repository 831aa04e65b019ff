//! One client's commands: in which session they run, for how long, and on which servers.
//!
//! Every operation runs in a session that ends with it, or in one of the test's. A cursor keeps the session of its operation.

use alloc::rc::Rc;
use core::cell::RefCell;
use core::time::Duration;

use bson::Document;
use cmap_core::options::{ClientOptions, ReadPreference};
use cmap_core::session::TransactionState;
use cmap_core::time::Instant;
use cmap_core::topology::ServerSelector;
use cmap_sim::Consistency;

use super::client::{Client, Connection, Operate};
use super::failure::{Failure, FailureKind};
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
}

/// A session, which is away while a command uses it. Clones share it.
pub type Held<C> = Rc<RefCell<Option<<C as Client>::Session>>>;

/// The session of an operation, and when its time is up.
pub struct Session<C: Client> {
    held: Held<C>,
    deadline: Option<Instant>,
}

/// How a command is sent.
#[derive(Clone, Debug)]
pub struct Sending {
    /// Which servers may do it.
    pub selector: ServerSelector,
    /// Whether it is not repeated (RTY-2).
    pub is_once: bool,
}

impl<C: Client> Caller<C> {
    /// Whether cursors keep their connections (LB-13).
    pub fn pins_cursors(&self) -> bool {
        self.options.load_balanced == Some(true)
    }

    /// The session of an operation: the test's, or one of its own, which is not causally consistent (SES-15). `timeout` or else
    /// the client's timeoutMS limits the time of the operation.
    ///
    /// # Errors
    /// There can be no session.
    pub fn session(&self, of_test: Option<Held<C>>, timeout: Option<Duration>) -> Result<Session<C>, Failure> {
        let held = match of_test {
            Some(held) => held,
            None => Rc::new(RefCell::new(Some(self.client.start_session(Consistency::None.into())?))),
        };
        let timeout = timeout.or(self.options.timeout).filter(|timeout| !timeout.is_zero());
        Ok(Session { held, deadline: timeout.map(|timeout| self.client.now() + timeout) })
    }

    /// Runs a command, with retries. The errors of single writes in a reply with `ok: 1` are errors, too.
    ///
    /// # Errors
    /// The server's error, or a failure of the client.
    pub async fn run(
        &self,
        database: &str,
        command: &Document,
        sending: Sending,
        session: &Session<C>,
    ) -> Result<(Document, C::Connection), Failure> {
        let Sending { selector, is_once } = sending;
        let operation = Operate { database, command, selector, deadline: session.deadline, is_once };
        let mut taken = session.take()?;
        let ended = self.client.operate(&operation, &mut taken).await;
        session.held.replace(Some(taken));
        let (reply, connection) = ended?;
        match Failure::of_reply(&reply) {
            None => Ok((reply, connection)),
            Some(failure) => Err(failure),
        }
    }

    /// Runs a command of a cursor on the connection that it keeps.
    ///
    /// # Errors
    /// The server's error, or a failure of the connection.
    pub async fn run_on(
        &self,
        connection: &mut C::Connection,
        database: &str,
        command: &Document,
        session: &Session<C>,
    ) -> Result<Document, Failure> {
        if session.is_in_transaction() {
            let sending = Sending { selector: ServerSelector::Writable, is_once: false };
            return self.run(database, command, sending, session).await.map(|(reply, _)| reply);
        }
        let taken = session.take()?;
        let mut command = command.clone();
        command.insert("lsid", C::lsid(&taken));
        session.held.replace(Some(taken));
        connection.run(database, &command, session.deadline).await
    }
}

impl<C: Client> Session<C> {
    /// Whether operations in it are part of a transaction.
    pub fn is_in_transaction(&self) -> bool {
        is_in_transaction::<C>(&self.held)
    }

    /// The read preference of its transaction.
    pub fn preference_of_transaction(&self) -> Option<ReadPreference> {
        let held = self.held.borrow();
        let session = held.as_ref().filter(|_| self.is_in_transaction())?;
        Some(C::transaction_options(session).read_preference.clone().unwrap_or_default())
    }

    fn take(&self) -> Result<C::Session, Failure> {
        self.held.borrow_mut().take().ok_or_else(|| Failure::client("the session is in use"))
    }
}

/// Whether operations in a session are part of a transaction.
pub fn is_in_transaction<C: Client>(held: &Held<C>) -> bool {
    let state = held.borrow().as_ref().map(C::transaction_state);
    matches!(state, Some(TransactionState::Starting | TransactionState::InProgress))
}

impl Failure {
    /// Whether the connection is lost with it.
    pub fn is_network(&self) -> bool {
        matches!(self.kind, FailureKind::Network { .. })
    }
}

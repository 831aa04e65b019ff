//! One client's commands: in which session they run, for how long, and on which servers.
//!
//! An operation runs in one of the test's sessions, or else in one of its own, of which its client takes care.

use alloc::rc::Rc;
use core::cell::RefCell;
use core::time::Duration;

use bson::Document;
use cmap_core::options::{ClientOptions, ReadPreference};
use cmap_core::session::TransactionState;
use cmap_core::time::Instant;
use cmap_core::topology::ServerSelector;
use cmap_sim::{CursorOptions, WriteResult};

use super::client::{Client, Items, Operate};
use super::cursor::Cursor;
use super::failure::Failure;
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
    /// The test's; without it the operation has one of its own.
    held: Option<Held<C>>,
    end: Option<End>,
}

/// When the time of an operation is up, which says so itself.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// `timeoutMS: 0`.
    Never,
    /// Then.
    At(Instant),
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
    /// The session of an operation: the test's, or one of its own. `timeout` limits the time of the operation, instead of the
    /// client's timeoutMS.
    pub fn session(&self, of_test: Option<Held<C>>, timeout: Option<Duration>) -> Session<C> {
        let end = |timeout: Duration| match timeout.is_zero() {
            true => End::Never,
            false => End::At(self.client.now() + timeout),
        };
        Session { held: of_test, end: timeout.map(end) }
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
    ) -> Result<Document, Failure> {
        let Sending { selector, is_once } = sending;
        let operation = Operate { database, command, selector, end: session.end, is_once };
        let mut taken = session.take()?;
        let ended = self.client.operate(&operation, taken.as_mut()).await;
        session.give_back(taken);
        let reply = ended?;
        match Failure::of_reply(&reply) {
            None => Ok(reply),
            Some(failure) => Err(failure),
        }
    }

    /// Runs a write whose items are in sequences, with retries.
    ///
    /// # Errors
    /// The server's error, those of single writes too, or a failure of the client.
    pub async fn write(
        &self,
        database: &str,
        command: &Document,
        sequences: Vec<Items>,
        sending: Sending,
        session: &Session<C>,
    ) -> Result<WriteResult, Failure> {
        let Sending { selector, is_once } = sending;
        let operation = Operate { database, command, selector, end: session.end, is_once };
        let mut taken = session.take()?;
        let ended = self.client.write(&operation, sequences, taken.as_mut()).await;
        session.give_back(taken);
        ended
    }

    /// Runs a command that makes a cursor, with retries. `options` replace what the command says of its getMores.
    ///
    /// # Errors
    /// The server's error, or a failure of the client.
    pub async fn open(
        &self,
        database: &str,
        command: &Document,
        sending: Sending,
        options: Option<CursorOptions>,
        session: &Session<C>,
    ) -> Result<Cursor<C>, Failure> {
        let Sending { selector, is_once } = sending;
        let operation = Operate { database, command, selector, end: session.end, is_once };
        let mut taken = session.take()?;
        let made = self.client.cursor(&operation, options, taken.as_mut()).await;
        session.give_back(taken);
        Ok(Cursor::new(made?, session.held.as_ref()))
    }

    /// Opens a change stream, with retries. `options` replace what the command says of its getMores.
    ///
    /// # Errors
    /// The server's error, or a failure of the client.
    pub async fn watch(
        &self,
        database: &str,
        command: &Document,
        sending: Sending,
        options: Option<CursorOptions>,
        session: &Session<C>,
    ) -> Result<Cursor<C>, Failure> {
        let Sending { selector, is_once } = sending;
        let operation = Operate { database, command, selector, end: session.end, is_once };
        let mut taken = session.take()?;
        let made = self.client.watch(&operation, options, taken.as_mut()).await;
        session.give_back(taken);
        Ok(Cursor::new(made?, session.held.as_ref()))
    }
}

impl<C: Client> Session<C> {
    /// Whether operations in it are part of a transaction.
    pub fn is_in_transaction(&self) -> bool {
        self.held.as_ref().is_some_and(is_in_transaction::<C>)
    }

    /// The read preference of its transaction.
    pub fn preference_of_transaction(&self) -> Option<ReadPreference> {
        let held = self.held.as_ref().filter(|_| self.is_in_transaction())?.borrow();
        let session = held.as_ref()?;
        Some(C::transaction_options(session).read_preference.clone().unwrap_or_default())
    }

    fn take(&self) -> Result<Option<C::Session>, Failure> {
        let Some(held) = &self.held else { return Ok(None) };
        let taken = held.borrow_mut().take();
        taken.map(Some).ok_or_else(|| Failure::client("the session is in use"))
    }

    fn give_back(&self, session: Option<C::Session>) {
        if let (Some(held), Some(session)) = (&self.held, session) {
            held.replace(Some(session));
        }
    }
}

/// Whether operations in a session are part of a transaction.
pub fn is_in_transaction<C: Client>(held: &Held<C>) -> bool {
    let state = held.borrow().as_ref().map(C::transaction_state);
    matches!(state, Some(TransactionState::Starting | TransactionState::InProgress))
}

//! The transactions of a user's session: started, committed, aborted, and repeated as a whole.
//!
//! [`cmap_core::session::Transaction`] knows the state and what goes along with each command; here is what sends the end of a
//! transaction, and what repeats one that failed.

use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::time::Duration;

use bson::{RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::retry::{ErrorLabel, Labels};
use cmap_core::session::{
    AfterFailure, Ending, TransactionCommand, TransactionError, TransactionOptions, TransactionState, WithTransaction,
};
use cmap_core::time::Instant;
use cmap_core::topology::ServerSelector;

use super::labelled::Labelled;
use super::unfinished::{Guarded, Unfinished};
use super::user_session::Session;
use crate::client::Client;
use crate::connection::PinnedConnection;
use crate::error::OperationError;
use crate::runtime::Runtime;
use crate::spans::Spans;
use crate::time::{Deadline, Limit};

impl<R: Runtime> Session<R> {
    /// Starts a transaction, with the session's default options. Operations in the session are part of it, until it is committed
    /// or aborted. Nothing is sent before the first of them.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::{Client, Error, Runtime};
    ///
    /// /// Both documents are there, or neither.
    /// async fn order<R: Runtime>(client: &Client<R>) -> Result<(), Error> {
    ///     let mut session = client.start_session()?;
    ///     session.start_transaction()?;
    ///     for collection in ["orders", "shipments"] {
    ///         let insert = doc! { "insert": collection, "documents": [{ "item": "apple" }] };
    ///         session.run(("shop", insert)).await?;
    ///     }
    ///     session.commit_transaction().await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// One has been started, its write concern is `w: 0`, or the session is a snapshot session.
    pub fn start_transaction(&mut self) -> Result<(), OperationError> {
        self.start_transaction_with(TransactionOptions::default())
    }

    /// Starts a transaction with options of its own.
    ///
    /// # Errors
    /// Those of [`start_transaction`](Self::start_transaction).
    pub fn start_transaction_with(&mut self, options: TransactionOptions) -> Result<(), OperationError> {
        if self.snapshot.is_some() {
            return Err(OperationError::transaction(TransactionError::InSnapshotSession));
        }
        let options = options.or(&self.transaction_defaults);
        self.transaction.start(options).map_err(OperationError::transaction)?;
        self.deadline = None;
        self.is_commit_unsent = false;
        self.span = self.client.driver().settings.spans.as_ref().map(Spans::transaction);
        self.release_unpinned();
        self.borrowed.next_transaction_number();
        Ok(())
    }

    /// Commits the transaction. After an error labelled UnknownTransactionCommitResult it may be called again; the server commits
    /// once. If the future is dropped before its end, the commit goes on in the background.
    ///
    /// # Errors
    /// No transaction was started, or it was aborted; and those of [`Operation::run`](crate::Operation::run). An error labelled
    /// TransientTransactionError means that nothing was committed, and that the whole transaction may be repeated.
    pub async fn commit_transaction(&mut self) -> Result<(), OperationError> {
        self.commit(self.limit_of_end()).await
    }

    /// Commits the transaction within a [`Duration`] or before a [`Deadline`], as [`commit_transaction`](Self::commit_transaction).
    /// `None` means as long as it needs.
    ///
    /// # Errors
    /// Those of [`commit_transaction`](Self::commit_transaction).
    pub async fn commit_transaction_within(&mut self, limit: impl Into<Limit>) -> Result<(), OperationError> {
        self.commit(Some(limit.into())).await
    }

    async fn commit(&mut self, limit: Option<Limit>) -> Result<(), OperationError> {
        match self.transaction.commit().map_err(OperationError::transaction)? {
            Ending::Nothing => {}
            // A commit that is tried again belongs to the same span.
            Ending::Send => self.end(TransactionCommand::Commit, limit).await?,
        }
        self.span = None;
        Ok(())
    }

    /// Aborts the transaction: none of its writes takes effect. What the server says about it does not matter, since it forgets an
    /// unfinished transaction by itself. If the future is dropped before its end, or the abort cannot be sent in time, it goes on in the
    /// background.
    ///
    /// # Errors
    /// No transaction was started, or it has ended.
    pub async fn abort_transaction(&mut self) -> Result<(), OperationError> {
        // The time of the whole may be up, and the locks would stay (X-151).
        let of_end = self.limit_of_end();
        let of_whole = self.deadline.take().map(|_| self.client.context().timeout.unwrap_or(TO_ABORT).min(TO_ABORT));
        self.abort(of_whole.map(Limit::Within).or(of_end)).await
    }

    /// Aborts the transaction within a [`Duration`] or before a [`Deadline`], as [`abort_transaction`](Self::abort_transaction). `None`
    /// means as long as it needs. An abort that could not be sent in time goes on in the background.
    ///
    /// # Errors
    /// Those of [`abort_transaction`](Self::abort_transaction).
    pub async fn abort_transaction_within(&mut self, limit: impl Into<Limit>) -> Result<(), OperationError> {
        self.deadline = None;
        self.abort(Some(limit.into())).await
    }

    async fn abort(&mut self, limit: Option<Limit>) -> Result<(), OperationError> {
        match self.transaction.abort().map_err(OperationError::transaction)? {
            Ending::Nothing => {}
            Ending::Send => drop(self.end(TransactionCommand::Abort, limit).await),
        }
        self.span = None;
        self.release_unpinned();
        Ok(())
    }

    /// The session's own limit of a commit or an abort; `None` is timeoutMS, or what is left of
    /// [`with_transaction`](Self::with_transaction)'s.
    fn limit_of_end(&self) -> Option<Limit> {
        self.timeout.filter(|_| self.deadline.is_none()).map(of_option)
    }

    /// Ends the transaction. What is dropped before its end goes on in a task, and so does an abort that could not be sent.
    async fn end(&mut self, command: TransactionCommand, limit: Option<Limit>) -> Result<(), OperationError> {
        let may_straggle = self.borrowed.is_cut_off();
        let mut end = Unfinished { session: self, command, is_over: false, may_straggle };
        let ended = end.session.send_end(command, limit).await;
        let unsent = ended.as_ref().err().filter(|error| error.is_of_check_out());
        match command {
            TransactionCommand::Abort => end.is_over = unsent.is_none(),
            TransactionCommand::Commit | TransactionCommand::Operation => {
                end.session.is_commit_unsent = unsent.is_some_and(|error| error.retries == 0);
                end.is_over = true;
            }
        }
        if may_straggle && ended.as_ref().is_err_and(OperationError::is_no_such_transaction) {
            end.session.end_in_task(TransactionCommand::Abort, true);
        }
        ended
    }

    pub(super) async fn send_end(
        &mut self,
        command: TransactionCommand,
        limit: Option<Limit>,
    ) -> Result<(), OperationError> {
        let mut body = RawDocumentBuf::new();
        if command == TransactionCommand::Commit {
            body.append(cstr!("commitTransaction"), 1);
            // The server's share of any other limit takes its place (CSOT, *Validation and Overrides*).
            let is_limited = limit.is_some() || self.deadline.is_some() || self.client.context().has_timeout;
            let max_commit_time = self.transaction.options().max_commit_time.filter(|_| !is_limited);
            if let Some(millis) = max_commit_time.and_then(max_time) {
                body.append(cstr!("maxTimeMS"), millis);
            }
        } else {
            body.append(cstr!("abortTransaction"), 1);
        }
        // A task has a copy.
        let is_chore = self.borrowed.is_copy();
        let operation = self.operation(("admin", &*body)).on(ServerSelector::Writable).ending(command);
        let operation = if let Some(limit) = limit { operation.within(limit) } else { operation };
        let operation = if is_chore { operation.into_chore() } else { operation };
        operation.run().await.map(drop)
    }

    /// How far its transaction is.
    pub fn transaction_state(&self) -> TransactionState {
        self.transaction.state()
    }

    /// The options of its transaction, or of the last one.
    pub fn transaction_options(&self) -> &TransactionOptions {
        self.transaction.options()
    }

    /// Whether its transaction keeps to one mongos, or behind a load balancer to one connection (PIN-4).
    pub fn is_pinned(&self) -> bool {
        self.transaction.pinned_to().is_some()
    }

    /// The server that its transaction keeps to: its mongos, or the load balancer.
    pub fn pinned_to(&self) -> Option<&ServerAddress> {
        self.transaction.pinned_to()
    }

    /// The connection that its transaction keeps to, behind a load balancer (LB-15).
    pub fn pinned_connection(&mut self) -> Option<&mut PinnedConnection<R>> {
        self.pinned().as_mut()
    }

    /// Runs `callback` in a transaction, and commits it. Both are repeated while errors say that this may help, for timeoutMS or
    /// two minutes, and without an end where timeoutMS is 0 (TXN-9). With timeoutMS the operations of the callback have what is left
    /// of it, and none may have a [limit](crate::Operation::within) of its own (CSOT-27). The callback may run several times, so it should
    /// change nothing but through the session. If it ends the transaction itself, nothing more is done. If the future is dropped before its
    /// end, the transaction is aborted in the background; a commit that has begun goes on there. The session's next operation waits for
    /// that.
    ///
    /// In a task that is spawned, the compiler accepts only callbacks that capture nothing: use
    /// [`with_transaction_on`](Self::with_transaction_on) there.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::{Client, Error, Runtime};
    ///
    /// /// Moves an amount from one account to another: both are changed, or neither.
    /// async fn transfer<R: Runtime>(client: &Client<R>, from: &str, to: &str, amount: i64) -> Result<(), Error> {
    ///     let mut session = client.start_session()?;
    ///     let transfer = async |session: &mut cmap_runtime::Session<R>| {
    ///         for (account, change) in [(from, -amount), (to, amount)] {
    ///             let update = doc! { "q": { "_id": account }, "u": { "$inc": { "balance": change } } };
    ///             let command = doc! { "update": "accounts", "updates": [update] };
    ///             session.run(("bank", command)).await?;
    ///         }
    ///         Ok(())
    ///     };
    ///     session.with_transaction(transfer).await
    /// }
    /// ```
    ///
    /// # Errors
    /// The callback's, if it does not carry the label TransientTransactionError; those of
    /// [`commit_transaction`](Self::commit_transaction); and [`TransactionTimeout`](crate::OperationErrorKind::TransactionTimeout)
    /// once time is up.
    pub async fn with_transaction<T, E>(
        &mut self,
        mut callback: impl AsyncFnMut(&mut Self) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: Labelled + From<OperationError> + Into<Box<dyn StdError + Send + Sync>>,
    {
        let mut attempts = self.attempts(TransactionOptions::default(), self.transaction_limit());
        attempts.start(self)?;
        let guarded = Guarded(self);
        loop {
            let ended = callback(guarded.0).await;
            match attempts.conclude(guarded.0, ended).await {
                ControlFlow::Break(ended) => return ended,
                ControlFlow::Continue(at) => attempts.pause(at).await?,
            }
            attempts.start(guarded.0)?;
        }
    }

    /// Runs several operations as one, by a callback that gets what it works on as its second argument instead of capturing it:
    /// then the future may be spawned. With options of the transaction, and within a [`Duration`](std::time::Duration) or before a
    /// [`Deadline`], which limits the operations of the callback, too: none of them may have a limit of its own (CSOT-27). `None` means two
    /// minutes, in which operations have no limit but their own; or no end, where timeoutMS is 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::TransactionOptions;
    /// use cmap_runtime::{Client, Error, Runtime, Session};
    ///
    /// /// Inserts both documents within a second, in the background.
    /// fn insert_both<R: Runtime>(runtime: &R, client: Client<R>, collections: [String; 2]) {
    ///     runtime.spawn(async move {
    ///         let Ok(mut session) = client.start_session() else { return };
    ///         let insert = async |session: &mut Session<R>, collections: &mut [String; 2]| {
    ///             for collection in collections {
    ///                 let insert = doc! { "insert": collection.as_str(), "documents": [{ "_id": 1 }] };
    ///                 session.run(("db", insert)).await?;
    ///             }
    ///             Ok::<(), Error>(())
    ///         };
    ///         let (options, limit) = (TransactionOptions::default(), Duration::from_secs(1));
    ///         if let Err(error) = session.with_transaction_on(collections, options, limit, insert).await {
    ///             eprintln!("{error}");
    ///         }
    ///     });
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`with_transaction`](Self::with_transaction).
    pub async fn with_transaction_on<C, T, E>(
        &mut self,
        mut context: C,
        options: TransactionOptions,
        limit: impl Into<Limit>,
        mut callback: impl AsyncFnMut(&mut Self, &mut C) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: Labelled + From<OperationError> + Into<Box<dyn StdError + Send + Sync>>,
    {
        let mut attempts = self.attempts(options, limit.into());
        attempts.start(self)?;
        let guarded = Guarded(self);
        loop {
            let ended = callback(guarded.0, &mut context).await;
            match attempts.conclude(guarded.0, ended).await {
                ControlFlow::Break(ended) => return ended,
                ControlFlow::Continue(at) => attempts.pause(at).await?,
            }
            attempts.start(guarded.0)?;
        }
    }

    /// How long [`with_transaction`](Self::with_transaction) may take: by the session's own limit, or else by timeoutMS.
    pub fn transaction_limit(&self) -> Limit {
        self.timeout.map_or_else(|| self.client.context().timeout.into(), of_option)
    }

    fn attempts(&self, options: TransactionOptions, limit: Limit) -> Attempts<R> {
        let client = self.client.clone();
        let (driver, sessions) = (client.driver(), client.sessions());
        let deadline = limit.deadline(driver.clock.runtime());
        let seed = sessions.seed_of(sessions.next_operation());
        let is_unlimited = self.timeout.or(client.options().timeout).is_some_and(|timeout| timeout.is_zero());
        let decisions = match deadline.map(|deadline| driver.clock.instant_of(deadline)) {
            None if is_unlimited => WithTransaction::without_limit(seed),
            None => WithTransaction::new(driver.clock.now(), None, seed),
            // It lies beyond what the clock can show.
            Some(None) => WithTransaction::without_limit(seed),
            Some(ends_at) => WithTransaction::new(driver.clock.now(), ends_at, seed),
        };
        Attempts { client, options, deadline, decisions }
    }
}

/// How long the abort of a transaction with a limit may take (X-151).
const TO_ABORT: Duration = Duration::from_secs(1);

/// The pause between two commits (X-150).
const BETWEEN_COMMITS: Duration = Duration::from_millis(5);

/// The attempts at one transaction.
struct Attempts<R: Runtime> {
    client: Client<R>,
    options: TransactionOptions,
    deadline: Option<Deadline>,
    decisions: WithTransaction,
}

impl<R: Runtime> Attempts<R> {
    fn now(&self) -> Instant {
        self.client.driver().clock.now()
    }

    fn start(&self, session: &mut Session<R>) -> Result<(), OperationError> {
        session.start_transaction_with(self.options.clone())?;
        session.deadline = self.deadline;
        Ok(())
    }

    /// The callback has ended: the end of the whole, or when the next attempt begins.
    async fn conclude<T, E>(
        &mut self,
        session: &mut Session<R>,
        ended: Result<T, E>,
    ) -> ControlFlow<Result<T, E>, Instant>
    where
        E: Labelled + From<OperationError> + Into<Box<dyn StdError + Send + Sync>>,
    {
        let (error, labels, next) = match ended {
            Err(error) => {
                if session.transaction.is_open()
                    && let Err(error) = session.abort_transaction().await
                {
                    return ControlFlow::Break(Err(error.into()));
                }
                let labels = labels(&error);
                (error, labels, self.decisions.after_callback(self.now(), labels))
            }
            Ok(output) if !session.transaction.is_open() => return ControlFlow::Break(Ok(output)),
            Ok(output) => match self.commit(session).await {
                Ok(()) => return ControlFlow::Break(Ok(output)),
                Err((error, next)) => {
                    let labels = labels(&error);
                    (error.into(), labels, next)
                }
            },
        };
        match next {
            AfterFailure::RetryTransaction(at) => ControlFlow::Continue(at),
            AfterFailure::RetryCommit | AfterFailure::Raise => ControlFlow::Break(Err(error)),
            AfterFailure::RaiseTimeout => {
                ControlFlow::Break(Err(OperationError::transaction_timeout(error.into(), labels).into()))
            }
        }
    }

    /// Commits, again and again while it is unknown whether that was done.
    async fn commit(&mut self, session: &mut Session<R>) -> Result<(), (OperationError, AfterFailure)> {
        loop {
            let Err(error) = session.commit_transaction().await else { return Ok(()) };
            match self.decisions.after_commit(self.now(), labels(&error), error.is_max_time_expired()) {
                AfterFailure::RetryCommit => {
                    // A commit that cannot be sent may fail at once: other tasks must have their turn before the next one.
                    if self.pause(self.now() + BETWEEN_COMMITS).await.is_err() {
                        return Err((error, AfterFailure::Raise));
                    }
                }
                next @ (AfterFailure::RetryTransaction(_) | AfterFailure::Raise | AfterFailure::RaiseTimeout) => {
                    return Err((error, next));
                }
            }
        }
    }

    async fn pause(&self, at: Instant) -> Result<(), OperationError> {
        let context = self.client.context();
        let paused = context.pauses.pause(&context.driver, at.saturating_since(self.now())).await;
        paused.map_err(|_| OperationError::closed_before_it_began())
    }
}

/// A limit as options have it: zero is none.
fn of_option(timeout: Duration) -> Limit {
    if timeout.is_zero() { Limit::None } else { Limit::Within(timeout) }
}

/// `maxTimeMS` for a limit: a millisecond at least, because zero would be no limit. `None` if the limit is zero, and none itself.
fn max_time(limit: Duration) -> Option<i64> {
    (!limit.is_zero()).then(|| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).max(1))
}

fn labels(error: &impl Labelled) -> Labels {
    ErrorLabel::ALL.into_iter().filter(|label| error.has_label(label.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_a_limit_of_a_millisecond_at_least() {
        let sent = [0, 500, 1_000, 2_500].map(|micros| max_time(Duration::from_micros(micros)));

        assert_eq!(sent, [None, Some(1), Some(1), Some(2)]);
        assert_eq!(max_time(Duration::MAX), Some(i64::MAX));
    }
}

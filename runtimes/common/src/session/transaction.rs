//! The transactions of a user's session: started, committed, aborted, and repeated as a whole.
//!
//! [`cmap_core::session::Transaction`] knows the state and what goes along with each command; here is what sends the end of a
//! transaction, and what repeats one that failed.

use std::error::Error as StdError;

use bson::{RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::retry::{ErrorLabel, Labels};
use cmap_core::session::{
    AfterFailure, Ending, TransactionCommand, TransactionError, TransactionOptions, TransactionState, WithTransaction,
};
use cmap_core::topology::ServerSelector;

use super::labelled::Labelled;
use super::user_session::Session;
use crate::deadline::{Deadline, Limit};
use crate::operation::OperationError;
use crate::pinned::PinnedConnection;
use crate::runtime::Runtime;

impl<R: Runtime> Session<R> {
    /// Starts a transaction, with the session's default options. Operations in the session are part of it, until it is committed
    /// or aborted. Nothing is sent before the first of them.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::core::topology::ServerSelector::Writable;
    /// use cmap_runtime::{Client, Error, Runtime};
    ///
    /// /// Both documents are there, or neither.
    /// async fn order<R: Runtime>(client: &Client<R>) -> Result<(), Error> {
    ///     let mut session = client.start_session()?;
    ///     session.start_transaction()?;
    ///     for collection in ["orders", "shipments"] {
    ///         let insert = doc! { "insert": collection, "documents": [{ "item": "apple" }] };
    ///         session.run(Writable, ("shop", insert)).await?;
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

    /// The same with options of its own.
    ///
    /// # Errors
    /// Those of [`start_transaction`](Self::start_transaction).
    pub fn start_transaction_with(&mut self, options: TransactionOptions) -> Result<(), OperationError> {
        if self.snapshot.is_some() {
            return Err(OperationError::transaction(TransactionError::InSnapshotSession));
        }
        let options = options.or(&self.transaction_defaults);
        self.transaction.start(options).map_err(OperationError::transaction)?;
        self.limit = None;
        self.release_unpinned();
        self.lent.next_transaction_number();
        Ok(())
    }

    /// Commits the transaction. After an error labelled UnknownTransactionCommitResult it may be called again; the server commits
    /// once.
    ///
    /// # Errors
    /// No transaction was started, or it was aborted; and those of [`Operation::run`](crate::Operation::run). An error labelled
    /// TransientTransactionError means that nothing was committed, and that the whole transaction may be repeated.
    pub async fn commit_transaction(&mut self) -> Result<(), OperationError> {
        match self.transaction.commit().map_err(OperationError::transaction)? {
            Ending::Nothing => Ok(()),
            Ending::Send => {
                let mut body = RawDocumentBuf::new();
                body.append(cstr!("commitTransaction"), 1);
                if let Some(limit) = self.transaction.options().max_commit_time {
                    body.append(cstr!("maxTimeMS"), i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
                }
                self.end(body, TransactionCommand::Commit).await
            }
        }
    }

    /// Aborts the transaction: none of its writes takes effect. What the server says of it does not matter, since it forgets an
    /// unfinished transaction by itself.
    ///
    /// # Errors
    /// No transaction was started, or it has ended.
    pub async fn abort_transaction(&mut self) -> Result<(), OperationError> {
        match self.transaction.abort().map_err(OperationError::transaction)? {
            Ending::Nothing => {}
            Ending::Send => {
                let mut body = RawDocumentBuf::new();
                body.append(cstr!("abortTransaction"), 1);
                let _ = self.end(body, TransactionCommand::Abort).await;
            }
        }
        self.release_unpinned();
        Ok(())
    }

    async fn end(&mut self, body: RawDocumentBuf, ending: TransactionCommand) -> Result<(), OperationError> {
        self.operation(ServerSelector::Writable, ("admin", &*body)).ending(ending).run().await.map(drop)
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
    /// two minutes (TXN-9). The callback may run several times, so it should change nothing but through the session. If it ends
    /// the transaction itself, nothing more is done.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::core::topology::ServerSelector::Writable;
    /// use cmap_runtime::{Client, Error, Runtime};
    ///
    /// /// Moves an amount from one account to another: both are changed, or neither.
    /// async fn transfer<R: Runtime>(client: &Client<R>, from: &str, to: &str, amount: i64) -> Result<(), Error> {
    ///     let mut session = client.start_session()?;
    ///     let transfer = async |session: &mut cmap_runtime::Session<R>| {
    ///         for (account, change) in [(from, -amount), (to, amount)] {
    ///             let update = doc! { "q": { "_id": account }, "u": { "$inc": { "balance": change } } };
    ///             let command = doc! { "update": "accounts", "updates": [update] };
    ///             session.run(Writable, ("bank", command)).await?;
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
    pub async fn with_transaction<T, E>(&mut self, callback: impl AsyncFnMut(&mut Self) -> Result<T, E>) -> Result<T, E>
    where
        E: Labelled + From<OperationError> + Into<Box<dyn StdError + Send + Sync>>,
    {
        let limit = self.client.context().timeout.map_or(Limit::None, Limit::Within);
        self.with_transaction_within(TransactionOptions::default(), limit, callback).await
    }

    /// The same with options of the transaction, and within a [`Duration`](std::time::Duration) or before a [`Deadline`], which
    /// limits the operations of the callback, too. `None` means two minutes, in which operations have no limit but their own.
    ///
    /// # Errors
    /// Those of [`with_transaction`](Self::with_transaction).
    pub async fn with_transaction_within<T, E>(
        &mut self,
        options: TransactionOptions,
        limit: impl Into<Limit>,
        mut callback: impl AsyncFnMut(&mut Self) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: Labelled + From<OperationError> + Into<Box<dyn StdError + Send + Sync>>,
    {
        let client = self.client.clone();
        let (topology, sessions) = (client.topology(), client.sessions());
        let now = || topology.clock().now();
        let deadline = match limit.into() {
            Limit::None => None,
            Limit::Within(limit) => Some(client.deadline(limit)),
            Limit::Until(deadline) => Some(deadline),
        };
        let ends_at = deadline.and_then(Deadline::at).map(|at| topology.clock().instant(at));
        let seed = sessions.seed_of(sessions.next_operation());
        let mut attempts = WithTransaction::new(now(), ends_at, seed);
        loop {
            self.start_transaction_with(options.clone())?;
            self.limit = deadline.map(Limit::Until);
            let (error, labels, next) = match callback(self).await {
                Err(error) => {
                    if self.transaction.is_open() {
                        self.abort_transaction().await?;
                    }
                    let labels = labels(&error);
                    (error, labels, attempts.after_callback(now(), labels))
                }
                Ok(output) if !self.transaction.is_open() => return Ok(output),
                Ok(output) => match self.commit_repeatedly(&mut attempts).await {
                    Ok(()) => return Ok(output),
                    Err((error, next)) => {
                        let labels = labels(&error);
                        (error.into(), labels, next)
                    }
                },
            };
            match next {
                AfterFailure::RetryTransaction(at) => {
                    let pauses = &client.context().pauses;
                    let paused = pauses.pause(topology, at.saturating_since(now())).await;
                    paused.map_err(|_| OperationError::closed_before_it_began())?;
                }
                AfterFailure::RetryCommit | AfterFailure::Raise => return Err(error),
                AfterFailure::RaiseTimeout => {
                    return Err(OperationError::transaction_timeout(error.into(), labels).into());
                }
            }
        }
    }

    /// Commits, again and again while it is unknown whether that was done.
    async fn commit_repeatedly(
        &mut self,
        attempts: &mut WithTransaction,
    ) -> Result<(), (OperationError, AfterFailure)> {
        loop {
            let Err(error) = self.commit_transaction().await else { return Ok(()) };
            let now = self.client.topology().clock().now();
            match attempts.after_commit(now, labels(&error), error.is_max_time_expired()) {
                AfterFailure::RetryCommit => {}
                next @ (AfterFailure::RetryTransaction(_) | AfterFailure::Raise | AfterFailure::RaiseTimeout) => {
                    return Err((error, next));
                }
            }
        }
    }
}

fn labels(error: &impl Labelled) -> Labels {
    ErrorLabel::ALL.into_iter().filter(|label| error.has_label(label.name())).collect()
}

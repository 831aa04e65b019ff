//! A connection in use: the guard that runs commands and gives the connection back when it is dropped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{Command, CommandError as NotSent, Description, Fault};
use cmap_core::pool::{Cause, Condition, ConnectionId, Handle, Purpose};
use cmap_core::server::OperationError;
use cmap_core::wire::CommandReply;

use crate::command_limit::CommandLimit;
use crate::cutoff::Cut;
use crate::endpoint::Endpoint;
use crate::error::{CommandError, CommandErrorKind, RuntimeGone};
use crate::machine::Delivery;
use crate::pinned::PinnedConnection;
use crate::runtime::Runtime;
use crate::socket::Socket;

/// A connection that was checked out. Dropping it checks it in, on any thread, in or outside of a runtime.
///
/// A command whose future was dropped half-way leaves the connection in the middle of a message: such a connection is
/// closed instead of reused (CMAP-11).
pub struct Connection<R: Runtime> {
    endpoint: Arc<Endpoint<R>>,
    handle: Handle,
    /// There until the connection is dropped.
    socket: Option<Box<Socket<R::Stream>>>,
    /// From the first byte of a command to the last of its reply, and for ever if that never comes.
    under_way: bool,
}

impl<R: Runtime> Connection<R> {
    pub(crate) fn new(endpoint: Arc<Endpoint<R>>, delivery: Delivery<R::Stream>) -> Self {
        Self { endpoint, handle: delivery.connection, socket: Some(delivery.socket), under_way: false }
    }

    /// Runs `command` on `database`; returns the reply. For at most timeoutMS, or socketTimeoutMS (CSOT-3).
    ///
    /// # Errors
    /// The server refused the command, or there was no usable reply.
    pub async fn run_command(
        &mut self,
        database: &str,
        command: impl AsRef<RawDocument>,
    ) -> Result<RawDocumentBuf, CommandError> {
        self.exchange(&Command::new(database, command.as_ref())).await.map(ToOwned::to_owned)
    }

    /// The same without a copy of the reply, which is kept by the connection until its next command, and with all that
    /// a [`Command`] can say. An unacknowledged one has an empty reply (MSG-7).
    ///
    /// # Errors
    /// Those of [`run_command`](Self::run_command).
    pub async fn exchange(&mut self, command: &Command<'_>) -> Result<&RawDocument, CommandError> {
        self.perform(command, self.endpoint.command_limit()).await
    }

    /// The same for at most `limit`, whatever the options say: what is left of an operation that began before. The server
    /// is told how long it may work, unless the command says so itself or is a getMore (CSOT-9). Zero and none mean for ever,
    /// and then the command is sent as it is.
    ///
    /// # Errors
    /// Those of [`run_command`](Self::run_command).
    pub async fn exchange_within(
        &mut self,
        command: &Command<'_>,
        limit: Option<Duration>,
    ) -> Result<&RawDocument, CommandError> {
        self.perform(command, CommandLimit::operation(limit)).await
    }

    async fn perform(&mut self, command: &Command<'_>, limit: CommandLimit) -> Result<&RawDocument, CommandError> {
        if let Err(kind) = self.run(command, limit).await {
            return Err(self.failed(kind));
        }
        let reply = self.socket.as_ref().ok_or(CommandErrorKind::NotSent(NotSent::Broken)).and_then(|it| it.reply());
        reply.map_err(|kind| self.failed(kind))
    }

    /// The connection's number in events and log messages.
    pub fn id(&self) -> ConnectionId {
        self.handle.id()
    }

    /// The server.
    pub fn address(&self) -> &ServerAddress {
        &self.endpoint.address
    }

    /// What the server said of itself when the connection was established.
    pub fn description(&self) -> Option<&Description> {
        self.socket.as_ref().map(|socket| socket.protocol().description())
    }

    /// Whether the server still listens, as far as can be seen without asking it: it has not hung up.
    pub fn is_alive(&mut self) -> bool {
        !self.under_way && self.socket.as_mut().is_some_and(|socket| socket.is_alive::<R>())
    }

    /// Keeps the connection for a cursor or a transaction.
    pub fn pin(self, purpose: Purpose) -> PinnedConnection<R> {
        PinnedConnection::new(self, purpose)
    }

    pub(crate) fn set_purpose(&self, purpose: Purpose) {
        self.endpoint.set_purpose(self.handle, purpose);
    }

    async fn run(&mut self, command: &Command<'_>, limit: CommandLimit) -> Result<(), CommandErrorKind> {
        let Some(socket) = self.socket.as_mut() else { return Err(CommandErrorKind::NotSent(NotSent::Broken)) };
        if self.under_way {
            return Err(CommandErrorKind::NotSent(NotSent::Broken));
        }
        let command = limit.apply(command, || self.endpoint.description().min_round_trip_time)?;
        socket.prepare(&command)?;
        self.under_way = true;
        let cutoff = Arc::clone(&socket.cutoff);
        let timeout = limit.duration();
        let limit = self.endpoint.limit(timeout, &cutoff);
        let exchange = async {
            socket.send().await.map_err(CommandErrorKind::Network)?;
            if command.acknowledged { socket.receive::<R>().await } else { Ok(()) }
        };
        let outcome = cutoff.during(exchange).await;
        drop(limit);
        match outcome {
            Ok(outcome) => outcome?,
            Err(Cut::TimedOut) => return Err(CommandErrorKind::Timeout(timeout.unwrap_or_default())),
            Err(Cut::Interrupted) => return Err(CommandErrorKind::Interrupted(Arc::clone(&self.endpoint.address))),
            Err(Cut::Closed) => return Err(CommandErrorKind::Closed),
            Err(Cut::RuntimeGone) => return Err(RuntimeGone.into()),
        }
        self.under_way = !socket.protocol().is_idle();
        if !command.acknowledged {
            return Ok(());
        }
        let reply = CommandReply::read(socket.reply()?);
        // What a reply says of the server counts whether or not the command succeeded (SDAM-13).
        if let Some(error) = OperationError::of_reply(&reply) {
            self.endpoint.handle_operation_failed(self.handle, error);
        }
        reply.failure().map_or(Ok(()), |refusal| Err(CommandErrorKind::Server(Box::new(refusal))))
    }

    /// Says where a command failed, and tells the server's side of it.
    fn failed(&self, kind: CommandErrorKind) -> CommandError {
        let fault = match &kind {
            CommandErrorKind::Network(_) => Some(Fault::Network),
            CommandErrorKind::Timeout(_) => Some(Fault::Timeout),
            CommandErrorKind::Protocol(_) => Some(Fault::Other),
            CommandErrorKind::Server(_)
            | CommandErrorKind::NoTimeLeft { .. }
            | CommandErrorKind::Interrupted(_)
            | CommandErrorKind::NotSent(_)
            | CommandErrorKind::Closed
            | CommandErrorKind::RuntimeGone(_) => None,
        };
        if let Some(fault) = fault {
            self.endpoint.handle_operation_failed(self.handle, OperationError::new(fault, Cause::of(&kind)));
        }
        CommandError { kind, address: Arc::clone(&self.endpoint.address), connection_id: self.id() }
    }
}

impl<R: Runtime> Drop for Connection<R> {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            let condition = if self.under_way { Condition::Errored } else { Condition::Usable };
            self.endpoint.check_in(self.handle, socket, condition);
        }
    }
}

impl<R: Runtime> fmt::Debug for Connection<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Connection");
        debug.field("address", &self.endpoint.address).field("id", &self.id()).finish_non_exhaustive()
    }
}

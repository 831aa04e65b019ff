//! A connection in use: the guard that runs commands and gives the connection back when it is dropped.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the connection, its commands and its check-in |
//! | `check_out` | the future of a check-out |
//! | `pinned` | a connection that a cursor or a transaction keeps |
//! | `command_telling` | the events of a command, and its span |
//! | `reauthentication` | another login, which the server asks for |
//! | `unread_cursor` | the cursor of a command that was given up while it ran |

mod check_out;
mod command_telling;
mod pinned;
mod reauthentication;
mod unread_cursor;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{Command, CommandError as NotSent, Description, Outline, Peer};
use cmap_core::pool::{Cause, CheckOutId, Condition, ConnectionId, Handle, Purpose};
use cmap_core::server::{OperationError, SentCommand};
use cmap_core::session::{Along, PLACES, ReadsBy, compose};
use cmap_core::topology::{Input, ServerSelector};
use cmap_core::wire::{CommandReply, WriteFailure};

pub use self::check_out::CheckOut;
use self::command_telling::CommandTelling;
pub use self::pinned::PinnedConnection;
use self::reauthentication::Time;
pub(crate) use self::unread_cursor::kill_command;
use crate::document::{IntoCommand, IntoRequest, Reply, Request};
use crate::driver::{Delivery, Driver};
use crate::error::{CommandError, CommandErrorKind, RuntimeGone};
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::socket::abort::{Abort, AbortReason};
use crate::socket::cursor_duty::CursorDuty;
use crate::time::{Limit, TimeLimit, command_limit};
use crate::watch::Tag;

/// A connection that was checked out. Dropping it checks it in, on any thread, in or outside of a runtime.
///
/// A command whose future was dropped half-way leaves the connection in the middle of a message: such a connection is
/// closed instead of reused (CMAP-11). So is one on which more than the reply came. Until then it refuses further commands:
/// what nobody asked for could be taken for their replies. The reply itself is good.
pub struct Connection<R: Runtime> {
    driver: Arc<Driver<R>>,
    /// The check-out that it was delivered to.
    check_out: CheckOutId,
    handle: Handle,
    /// There until the connection is dropped.
    socket: Option<Box<Socket<R::Stream>>>,
    stage: Stage,
    /// What its server was selected by, unless for writes.
    selector: Option<Box<ServerSelector>>,
}

/// What a connection in use is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing: the next command may be sent.
    BetweenCommands,
    /// A command or a reply. So it stays if its future is dropped, if it fails, or if more came than was asked for: the
    /// connection is broken.
    UnderWay,
    /// A reply has announced the next one (MSG-8).
    MoreToCome,
}

impl<R: Runtime> Connection<R> {
    /// A connection to a server that was selected by `selector`. `tag` says who holds it, where that is noted.
    #[inline(always)]
    pub(crate) fn new(
        driver: Arc<Driver<R>>,
        mut delivery: Delivery<R::Stream>,
        tag: Tag,
        selector: Option<ServerSelector>,
    ) -> Self {
        if driver.watches_holders() {
            delivery.socket.tag = tag;
        }
        Self {
            driver,
            check_out: delivery.check_out,
            handle: delivery.connection,
            socket: Some(delivery.socket),
            stage: Stage::BetweenCommands,
            selector: selector.filter(|selector| *selector != ServerSelector::Writable).map(Box::new),
        }
    }

    /// Runs `command`, a document or a value that serialises as one, on `database`; returns the reply. For at most timeoutMS,
    /// or socketTimeoutMS (CSOT-3). The read concern, the write concern and the read preference of the options go along with
    /// commands that take them, unless the command says otherwise itself or belongs to a transaction.
    ///
    /// A write that failed is an error, with its place and its code, though the server carried out the rest of the command; so is a
    /// write concern that was not satisfied. The errors of `bulkWrite` are in its cursor, and remain in the reply.
    /// [`exchange`](Self::exchange) returns such replies as they are.
    ///
    /// ```
    /// use cmap_runtime::bson::rawdoc;
    /// use cmap_runtime::{CommandError, CommandErrorKind, Connection, Runtime};
    ///
    /// const DUPLICATE_KEY: i32 = 11000;
    ///
    /// /// Whether the name was free.
    /// async fn reserve<R: Runtime>(connection: &mut Connection<R>, name: &str) -> Result<bool, CommandError> {
    ///     let insert = rawdoc! { "insert": "names", "documents": [{ "_id": name }] };
    ///     match connection.run_command("db", insert).await {
    ///         Ok(_) => Ok(true),
    ///         Err(error) => match &error.kind {
    ///             CommandErrorKind::Writes(failure)
    ///                 if failure.writes.iter().any(|write| write.code == Some(DUPLICATE_KEY)) => Ok(false),
    ///             _ => Err(error),
    ///         },
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The server refused the command or [some of its writes](CommandErrorKind::Writes), or there was no usable reply.
    pub async fn run_command(
        &mut self,
        database: &str,
        command: impl IntoCommand,
    ) -> Result<Reply<'static>, CommandError> {
        let reply = self.exchange((database, command)).await.map(Reply::into_owned)?;
        self.written(reply)
    }

    /// Runs `command` with a limit of the caller's, which replaces that of the options: a `Duration`, or a
    /// [`Deadline`](crate::Deadline), what is left of an operation that began before. The server learns how long it may work,
    /// unless the command says so itself or is a getMore (CSOT-9). With `None` there is no limit, and the command is sent as it
    /// is; with zero time is up, and nothing is sent. A write whose time is up may have been carried out.
    ///
    /// # Errors
    /// Those of [`run_command`](Self::run_command).
    pub async fn run_command_within(
        &mut self,
        database: &str,
        command: impl IntoCommand,
        limit: impl Into<Limit>,
    ) -> Result<Reply<'static>, CommandError> {
        let reply = self.exchange_within((database, command), limit).await.map(Reply::into_owned)?;
        self.written(reply)
    }

    fn written(&self, reply: Reply<'static>) -> Result<Reply<'static>, CommandError> {
        match CommandReply::read(&reply).write_failure() {
            Some(failure) => Err(self.write_failed(failure)),
            None => Ok(reply),
        }
    }

    /// Runs a command with all that a [`Command`] can say; a database and a document will do, too. Returns the reply as the server
    /// sent it, also where single writes failed, without a copy: the connection keeps it until its next command. An unacknowledged
    /// command has an empty reply (MSG-7).
    ///
    /// # Errors
    /// The server refused the command, or there was no usable reply.
    pub async fn exchange(&mut self, command: impl IntoRequest) -> Result<Reply<'_>, CommandError> {
        let request = self.request(command)?;
        self.perform(&request.command(), self.driver.settings.command_limit).await
    }

    /// Runs a command as [`exchange`](Self::exchange) does, with a limit of the caller's, which
    /// [`run_command_within`](Self::run_command_within) explains.
    ///
    /// # Errors
    /// Those of [`exchange`](Self::exchange).
    pub async fn exchange_within(
        &mut self,
        command: impl IntoRequest,
        limit: impl Into<Limit>,
    ) -> Result<Reply<'_>, CommandError> {
        let request = self.request(command)?;
        let limit = limit.into().left(self.driver.clock.runtime()).map(TimeLimit::Caller);
        self.perform(&request.command(), limit).await
    }

    /// The next reply to a command that allowed several ([`Command::exhaust_allowed`], MSG-9), for at most timeoutMS, or
    /// socketTimeoutMS; `None` after the last one. Until then no other command may be sent, and dropping the connection
    /// closes it.
    ///
    /// # Errors
    /// The server reports a failure, there was no usable reply, or the connection is broken: also because an earlier call was
    /// dropped half-way.
    pub async fn next_reply(&mut self) -> Result<Option<Reply<'_>>, CommandError> {
        match self.stage {
            Stage::MoreToCome => {}
            Stage::BetweenCommands => return Ok(None),
            Stage::UnderWay => return Err(self.failed(CommandErrorKind::NotSent(NotSent::Errored))),
        }
        if let Err(kind) = self.receive_next().await {
            return Err(self.failed(kind));
        }
        self.reply().map(Some)
    }

    async fn perform(&mut self, command: &Command<'_>, limit: Option<TimeLimit>) -> Result<Reply<'_>, CommandError> {
        if let Err(kind) = self.run(command, limit).await {
            return Err(self.failed(kind));
        }
        self.reply()
    }

    fn reply(&self) -> Result<Reply<'_>, CommandError> {
        let reply = self.socket.as_ref().ok_or(CommandErrorKind::NotSent(NotSent::Errored)).and_then(|it| it.reply());
        reply.map(Reply::borrowed).map_err(|kind| self.failed(kind))
    }

    fn request<'c>(&self, command: impl IntoRequest + 'c) -> Result<Request<'c>, CommandError> {
        command.into_request().map_err(|error| self.failed(CommandErrorKind::Unwritable(Box::new(error))))
    }

    /// The connection's number in events and log messages.
    pub fn id(&self) -> ConnectionId {
        self.handle.id()
    }

    /// The server.
    pub fn address(&self) -> &ServerAddress {
        self.shared_address()
    }

    pub(crate) fn shared_address(&self) -> &Arc<ServerAddress> {
        // The socket is there until the connection is dropped.
        self.socket.as_ref().map_or_else(|| &self.driver.address, |socket| &socket.address)
    }

    /// What the server said of itself when the connection was established.
    pub fn description(&self) -> Option<&Description> {
        self.socket.as_ref().map(|socket| socket.protocol().description())
    }

    pub(crate) fn peer(&self) -> Peer {
        self.description().map(Description::peer).unwrap_or_default()
    }

    /// Whether the server still listens, as far as can be seen without asking it: it has not hung up. A connection that is not
    /// alive takes no more commands, and is closed when it is dropped.
    pub fn is_alive(&mut self) -> bool {
        match self.stage {
            Stage::BetweenCommands => {}
            Stage::UnderWay | Stage::MoreToCome => return false,
        }
        let is_alive = self.socket.as_mut().is_some_and(|socket| socket.is_alive::<R>());
        if !is_alive {
            self.stage = Stage::UnderWay;
        }
        is_alive
    }

    /// Keeps the connection for a cursor or a transaction.
    pub fn pin(self, purpose: Purpose) -> PinnedConnection<R> {
        PinnedConnection::new(self, purpose)
    }

    /// Whether the next command may be sent.
    pub(crate) fn is_between_commands(&self) -> bool {
        self.stage == Stage::BetweenCommands
    }

    pub(crate) fn set_purpose(&self, purpose: Purpose) {
        self.driver.call(Input::SetPurpose(self.check_out, self.handle, purpose));
    }

    /// Runs a command that has all its fields, but for `maxTimeMS`. It belongs to `operation`, by number.
    pub(crate) async fn exchange_as_it_is(
        &mut self,
        command: &Command<'_>,
        limit: Option<TimeLimit>,
        operation: Option<u64>,
    ) -> Result<Reply<'_>, CommandError> {
        match self.run_as_it_is(command, limit, operation).await {
            Ok(()) => self.reply(),
            Err(kind) => Err(self.failed(kind)),
        }
    }

    /// The reply to the last command, whatever it says: also one that reports an error, as its server has written it. `None` if
    /// there was no usable reply, or none was asked for.
    pub fn last_reply(&self) -> Option<Reply<'_>> {
        let reply = self.socket.as_ref()?.reply().ok();
        reply.filter(|reply| !reply.is_empty()).map(Reply::borrowed)
    }

    pub(crate) fn write_failed(&self, failure: WriteFailure) -> CommandError {
        self.failed(CommandErrorKind::Writes(Box::new(failure)))
    }

    async fn run(&mut self, command: &Command<'_>, limit: Option<TimeLimit>) -> Result<(), CommandErrorKind> {
        let reads = ReadsBy::of_connection(self.selector.as_deref());
        let defaults = self.driver.settings.command_defaults.as_ref();
        if defaults.is_none() && reads == ReadsBy::Client {
            return self.run_as_it_is(command, limit, None).await;
        }
        let has_limit = limit.is_some_and(TimeLimit::is_of_operation);
        let along = Along { reads, defaults, has_limit, ..Along::default() };
        let composed = compose(command, &Outline::of(command), self.peer(), &along);
        let mut places = PLACES;
        let mut command = *command;
        command.fields = composed.fields(&mut places);
        self.run_as_it_is(&command, limit, None).await
    }

    /// Runs a command, and once more if its server wants another login first (OIDC-1). All of that has one limit.
    async fn run_as_it_is(
        &mut self,
        command: &Command<'_>,
        limit: Option<TimeLimit>,
        operation: Option<u64>,
    ) -> Result<(), CommandErrorKind> {
        // Without a limit nothing has to know the time.
        let time = limit.map(|limit| Time { limit, began: self.driver.clock.now() });
        match self.run_once(command, limit, operation).await {
            Err(CommandErrorKind::Server(refusal))
                if reauthentication::is_asked_for(&refusal) && self.stage == Stage::BetweenCommands =>
            {
                Box::pin(self.run_after_login(refusal, command, time, operation)).await
            }
            ended => ended,
        }
    }

    /// Runs a command that has no `maxTimeMS` yet, unless its caller has set it.
    async fn run_once(
        &mut self,
        command: &Command<'_>,
        limit: Option<TimeLimit>,
        operation: Option<u64>,
    ) -> Result<(), CommandErrorKind> {
        let command = &command_limit::apply(limit, command, || self.driver.min_round_trip_time(self.handle))?;
        let Some(socket) = self.socket.as_mut() else { return Err(CommandErrorKind::NotSent(NotSent::Errored)) };
        match self.stage {
            Stage::BetweenCommands => {}
            Stage::MoreToCome => return Err(CommandErrorKind::NotSent(NotSent::Busy)),
            Stage::UnderWay => return Err(CommandErrorKind::NotSent(NotSent::Errored)),
        }
        let buffers = &self.driver.buffers;
        socket.prepare(command, buffers)?;
        self.stage = Stage::UnderWay;
        let is_followed = self.driver.follows_commands();
        let telling = is_followed.then(|| self.begin_following(command, operation)).flatten();
        let ended = self.carry_out(command, limit).await;
        if is_followed {
            self.end_following(telling, command, &ended);
        }
        ended
    }

    /// Notes and tells the start of a command, as far as that is wanted.
    #[cold]
    fn begin_following(&self, command: &Command<'_>, operation: Option<u64>) -> Option<Box<CommandTelling<R>>> {
        if self.driver.watches_holders() {
            let name = command.body.iter_elements().next().and_then(Result::ok);
            self.driver.note_command(self.handle, name.as_ref().map_or("", |name| name.key().as_str()));
        }
        let is_told = self.driver.settings.command_events || self.driver.settings.spans.is_some();
        is_told.then(|| self.begin_telling(command, operation)).flatten()
    }

    #[cold]
    fn end_following(
        &self,
        telling: Option<Box<CommandTelling<R>>>,
        command: &Command<'_>,
        ended: &Result<(), CommandErrorKind>,
    ) {
        if self.driver.watches_holders() {
            self.driver.note_end_of_command(self.handle);
        }
        if let Some(telling) = telling {
            telling.end(ended, self.last_reply().filter(|_| command.acknowledged));
        }
    }

    /// Sends a command that is prepared, and reads its reply.
    async fn carry_out(&mut self, command: &Command<'_>, limit: Option<TimeLimit>) -> Result<(), CommandErrorKind> {
        let Some(socket) = self.socket.as_mut() else { return Err(CommandErrorKind::NotSent(NotSent::Errored)) };
        let buffers = &self.driver.buffers;
        let (abort, address) = (Arc::clone(&socket.abort), Arc::clone(&socket.address));
        let (driver, handle) = (&self.driver, self.handle);
        let replies = || driver.note_reply(handle);
        let exchange = async {
            socket.send(buffers).await.map_err(CommandErrorKind::Network)?;
            if command.acknowledged { socket.receive::<R>(buffers, replies).await } else { Ok(()) }
        };
        limited(&self.driver, &address, &abort, limit, exchange).await?;
        if command.acknowledged {
            return self.end_reply();
        }
        // It has no reply (MSG-7).
        self.stage = self.socket.as_ref().map_or(Stage::UnderWay, |socket| self.stage_after_reply(socket));
        Ok(())
    }

    #[cold]
    fn begin_telling(&self, command: &Command<'_>, operation: Option<u64>) -> Option<Box<CommandTelling<R>>> {
        let socket = self.socket.as_ref()?;
        let (protocol, id) = (socket.protocol(), self.handle.id());
        let said = protocol.description();
        let sent = SentCommand::new(command, operation, id, said.connection_id, said.service_id);
        let sent = sent.with_request_id(protocol.last_request_id());
        let declaration = protocol.api_declaration();
        Some(Box::new(CommandTelling::begin(&self.driver, &socket.address, sent, command, declaration)))
    }

    /// Has the cursor ended that the next command makes, if that is given up while it runs.
    pub(crate) fn set_cursor_duty(&mut self, duty: Option<CursorDuty>) {
        if let Some(socket) = &mut self.socket {
            socket.cursor_duty = duty.map(Box::new);
        }
    }

    /// The reply to a command that was given up after it was sent.
    pub(crate) async fn receive_given_up(&mut self, limit: Option<TimeLimit>) -> Result<Reply<'_>, CommandError> {
        match self.receive_within(limit).await {
            Ok(()) => self.reply(),
            Err(kind) => Err(self.failed(kind)),
        }
    }

    async fn receive_next(&mut self) -> Result<(), CommandErrorKind> {
        self.receive_within(self.driver.settings.command_limit).await
    }

    async fn receive_within(&mut self, limit: Option<TimeLimit>) -> Result<(), CommandErrorKind> {
        let Some(socket) = self.socket.as_mut() else { return Err(CommandErrorKind::NotSent(NotSent::Errored)) };
        self.stage = Stage::UnderWay;
        let (abort, address) = (Arc::clone(&socket.abort), Arc::clone(&socket.address));
        let (driver, handle) = (&self.driver, self.handle);
        let receive = socket.receive::<R>(&driver.buffers, || driver.note_reply(handle));
        limited(&self.driver, &address, &abort, limit, receive).await?;
        self.end_reply()
    }

    /// A reply came: what does it say about the command, and of the server?
    fn end_reply(&mut self) -> Result<(), CommandErrorKind> {
        let Some(socket) = self.socket.as_ref() else { return Err(CommandErrorKind::NotSent(NotSent::Errored)) };
        self.stage = self.stage_after_reply(socket);
        let reply = CommandReply::read(socket.reply()?);
        // What a reply says of the server counts whether or not the command succeeded (SDAM-13).
        if let Some(error) = OperationError::of_reply(&reply) {
            self.driver.call(Input::OperationFailed(self.handle, error));
        }
        reply.failure().map_or(Ok(()), |refusal| Err(CommandErrorKind::Server(Box::new(refusal))))
    }

    fn stage_after_reply(&self, socket: &Socket<R::Stream>) -> Stage {
        if !socket.protocol().is_idle() {
            Stage::MoreToCome
        } else if !socket.is_between_commands() {
            Stage::UnderWay
        } else {
            Stage::BetweenCommands
        }
    }

    /// Checks in what is broken, or has memory to give back.
    #[inline(never)]
    fn check_in_the_long_way(&self, mut socket: Box<Socket<R::Stream>>) {
        if let Some(duty) = socket.cursor_duty.take()
            && self.stage == Stage::UnderWay
            && socket.is_sent()
        {
            let Self { check_out, handle, .. } = *self;
            let (driver, socket) = (Arc::clone(&self.driver), Some(socket));
            let given_up = Self { driver, check_out, handle, socket, stage: Stage::UnderWay, selector: None };
            return unread_cursor::end(*duty, given_up, self.driver.clock.runtime());
        }
        let condition = match self.stage {
            Stage::BetweenCommands => Condition::Usable,
            Stage::UnderWay | Stage::MoreToCome => Condition::Errored,
        };
        socket.give_back(&self.driver.buffers);
        self.driver.check_in(self.check_out, self.handle, socket, condition);
    }

    /// Says where a command failed, and tells the server's side of it.
    fn failed(&self, kind: CommandErrorKind) -> CommandError {
        if let Some(fault) = kind.fault() {
            // Before the connection is given back (CMAP-49). It is in use, or was closed since.
            self.driver.call(Input::OperationFailed(self.handle, OperationError::new(fault, Cause::of(&kind))));
        }
        CommandError { kind, address: Arc::clone(self.shared_address()), connection_id: self.id() }
    }
}

/// `work` at a connection, within `limit`, unless it is cut off.
async fn limited<R: Runtime>(
    driver: &Arc<Driver<R>>,
    address: &Arc<ServerAddress>,
    abort: &Arc<Abort>,
    limit: Option<TimeLimit>,
    work: impl Future<Output = Result<(), CommandErrorKind>>,
) -> Result<(), CommandErrorKind> {
    let limited = driver.limit(limit.map(TimeLimit::duration), abort);
    let outcome = abort.during(work).await;
    drop(limited);
    match (outcome, limit) {
        (Ok(outcome), _) => outcome,
        (Err(AbortReason::TimedOut), Some(limit)) => Err(CommandErrorKind::Timeout(limit)),
        (Err(AbortReason::Interrupted), _) => Err(CommandErrorKind::Interrupted(Arc::clone(address))),
        // Time is up only where there is a limit.
        (Err(AbortReason::Closed | AbortReason::TimedOut), _) => Err(CommandErrorKind::Closed),
        (Err(AbortReason::RuntimeGone), _) => Err(RuntimeGone.into()),
    }
}

impl<R: Runtime> Drop for Connection<R> {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            if self.stage == Stage::BetweenCommands && !socket.has_large_reply() {
                self.driver.check_in(self.check_out, self.handle, socket, Condition::Usable);
            } else {
                self.check_in_the_long_way(socket);
            }
        }
    }
}

impl<R: Runtime> fmt::Debug for Connection<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Connection");
        debug.field("address", self.address()).field("id", &self.id()).finish_non_exhaustive()
    }
}

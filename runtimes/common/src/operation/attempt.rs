//! One attempt at an operation: a connection to a server that suits, a session, and the command with its fields.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{ClientField, Command, Outline, Peer, Role};
use cmap_core::options::ReadPreference;
use cmap_core::pool::Purpose;
use cmap_core::retry::{Failure, Labels, Numbering, Retry, Retryability};
use cmap_core::session::{
    Along, BegunCommand, Composed, PLACES, Part, ReadsBy, TransactionCommand, compose, takes_session,
};
use cmap_core::topology::{Criteria, Operation as Named, ServerSelector};
use cmap_core::wire::CommandReply;

use super::{Answer, Batch, SessionOf, failure, part};
use crate::connection::{CheckOut, Connection, PinnedConnection};
use crate::document::Reply;
use crate::driver::Driver;
use crate::error::{CommandError, OperationErrorKind};
use crate::runtime::Runtime;
use crate::runtime::chores::Chores;
use crate::session::{Borrowed, Sessions};
use crate::socket::cursor_duty::CursorDuty;
use crate::time::Budget;
use crate::watch::Tag;

/// What all attempts at an operation have in common.
pub(super) struct Attempt<'o, R: Runtime> {
    pub(super) driver: &'o Arc<Driver<R>>,
    pub(super) sessions: &'o Arc<Sessions>,
    pub(super) command: Command<'o>,
    pub(super) outline: Outline<'o>,
    pub(super) selector: &'o ServerSelector,
    /// Who runs the operation.
    pub(super) tag: Tag,
    pub(super) budget: Budget,
    /// Whether its caller or timeoutMS has set a limit, which takes the place of `wtimeout`: also one of zero, which is none (CSOT-3).
    pub(super) has_limit: bool,
    /// Who counts the end of the cursor that the command makes, if the attempt is dropped.
    pub(super) cursor_duty: Option<&'o Arc<Chores>>,
    /// Whether errors of single writes fail it.
    pub(super) writes: bool,
    pub(super) session: SessionOf<'o, R>,
    /// Its part in the session's transaction.
    pub(super) part: Option<TransactionCommand>,
    /// Whether its caller wants no retries.
    pub(super) is_once: bool,
    /// Whether it keeps to the connection of a cursor (LB-13).
    pub(super) is_pinned: bool,
    /// That connection, except during an attempt and after success.
    pub(super) pinned: Option<Connection<R>>,
    /// The items that go along with the command, if it is a batch.
    pub(super) batch: Option<Batch<'o>>,
    /// What the server answered to the last attempt at a batch, if that failed in part.
    pub(super) answer: Option<Answer<R>>,
    /// What the server answered to the latest attempt before that which failed in part.
    pub(super) known_reply: Option<Reply<'static>>,
    /// The operation's own number (RTY-13).
    pub(super) number: u64,
    /// That of the first attempt, for all of them (RTY-7).
    pub(super) transaction_number: Option<i64>,
    /// Its name, for the events of selections.
    pub(super) named: Option<Arc<Named>>,
}

/// The end of an attempt.
pub(super) enum Attempted<R: Runtime> {
    Done(Answer<R>),
    Failed(Box<Failed>),
    /// Nothing was sent: the server would not recognise the repetition of a write.
    Refused,
}

/// An attempt that failed. Its connection has gone back (BP-7).
pub(super) struct Failed {
    pub(super) kind: OperationErrorKind,
    pub(super) failure: Failure,
    pub(super) server: Option<Server>,
}

/// The server of an attempt.
pub(crate) struct Server {
    pub(crate) address: Arc<ServerAddress>,
    pub(super) is_mongos: bool,
    pub(crate) max_wire_version: i32,
}

impl<R: Runtime> Attempt<'_, R> {
    pub(super) async fn make(&mut self, retry: &mut Retry) -> Attempted<R> {
        let mut connection = match self.take_pinned() {
            Some(pinned) => pinned,
            None => match self.check_out(retry).await {
                Ok(connection) => connection,
                Err(error) => return Attempted::Failed(Box::new(failure::of_check_out(error))),
            },
        };
        let server = connection.peer();
        if let Err(kind) = self.begin_session(server) {
            return Attempted::Failed(Box::new(failure::of_client(kind)));
        }
        if let Err(kind) = self.begin_batch(retry, &connection) {
            return Attempted::Failed(Box::new(failure::of_client(kind)));
        }
        let number = match self.number_for(retry, server) {
            ControlFlow::Continue(number) => number,
            ControlFlow::Break(refused) => return refused,
        };
        let begun = self.begin_part(&connection, server);
        let composed = self.compose(server, number, begun.as_ref().is_some_and(BegunCommand::is_first));
        let mut command = self.command;
        command.body = composed.body.as_deref().unwrap_or(command.body);
        let mut places = PLACES;
        command.fields = composed.fields(&mut places);
        let batch = self.batch.take();
        let sequences = batch.as_ref().map(|batch| batch.batches.sequences());
        command.sequences = sequences.as_deref().unwrap_or(command.sequences);
        let limit = self.budget.command_limit(self.driver.clock.runtime(), self.driver.settings.command_limit);
        if let Some(chores) = self.cursor_duty {
            let session = self.borrowed().map(|borrowed| borrowed.id());
            connection.set_cursor_duty(Some(CursorDuty { chores: Arc::clone(chores), session }));
        }
        let ran = match connection.exchange_as_it_is(&command, limit, Some(self.number)).await {
            Ok(reply) => Ok(reply.into_owned()),
            Err(error) => Err(error),
        };
        drop(sequences);
        self.batch = batch;
        let mut in_part = None;
        let ran =
            ran.and_then(|reply| match self.writes.then(|| CommandReply::read(&reply).write_failure()).flatten() {
                Some(failure) => {
                    in_part = self.batch.is_some().then_some(reply);
                    Err(connection.write_failed(failure))
                }
                None => Ok(reply),
            });
        if self.cursor_duty.is_some() {
            connection.set_cursor_duty(None);
        }
        self.end_command(&connection, ran.as_ref().err());
        match ran {
            Ok(reply) => {
                self.end_part(None, begun);
                Attempted::Done(self.answered(reply, connection))
            }
            Err(error) => {
                let was_sent = failure::is_of_network(&error) || failure::has_reply(&error);
                let failed = failure::of_command(error, server, number, self.part);
                self.end_part(Some((&failed.failure, was_sent)), begun);
                if let Some(reply) = in_part {
                    self.answer = Some(self.answered(reply, connection));
                } else {
                    // That of a cursor stays with it; others go back, or to the session.
                    self.pinned = self.pin(connection).filter(|_| self.is_pinned);
                }
                Attempted::Failed(Box::new(failed))
            }
        }
    }

    fn answered(&mut self, reply: Reply<'static>, connection: Connection<R>) -> Answer<R> {
        let peer = connection.peer();
        let server = Server {
            address: Arc::clone(connection.shared_address()),
            is_mongos: peer.role == Role::Mongos,
            max_wire_version: peer.max_wire_version,
        };
        let transaction = self.transaction_number.filter(|_| self.part.is_some());
        Answer { reply, server, connection: self.pin(connection), transaction }
    }

    /// Decides which items the batch has, by the limits of the connection, and with them whether it may be repeated (BW-10).
    fn begin_batch(&mut self, retry: &mut Retry, connection: &Connection<R>) -> Result<(), OperationErrorKind> {
        let Some(Batch { batches, .. }) = &mut self.batch else { return Ok(()) };
        let limits = connection.description().map(|description| description.limits).unwrap_or_default();
        if batches.begin(&limits)? {
            let sequences = batches.sequences();
            let mut command = self.command;
            command.sequences = &sequences;
            let by_itself = Retryability::of_command(&Outline::of(&command), command.acknowledged);
            retry.judge(part::retryability(self.part, self.is_once, by_itself));
        }
        Ok(())
    }

    /// The labels of a failure, with those of the transaction that it is part of.
    pub(super) fn labels(&self, failure: &Failure, labels: Labels) -> Labels {
        self.part.map_or(labels, |part| part.labels(failure, labels))
    }

    /// An attempt has failed: its transaction may need another server from here on (PIN-5). A command within the transaction is tried
    /// again at the same server (PIN-4): it lifts the pin only once it `is_over`.
    pub(super) fn unpin_after(&mut self, failure: &Failure, labels: Labels, is_over: bool) {
        let (Some(part), SessionOf::Explicit(session)) = (self.part, &mut self.session) else { return };
        if part == TransactionCommand::Operation && !is_over {
            return;
        }
        session.transaction.handle_failure(part, failure, labels);
        session.release_unpinned();
    }

    /// The connection that a cursor keeps, or a transaction behind a load balancer (LB-13, LB-15).
    fn take_pinned(&mut self) -> Option<Connection<R>> {
        if self.pinned.is_some() {
            return self.pinned.take();
        }
        let SessionOf::Explicit(session) = &mut self.session else { return None };
        self.part?;
        session.pinned().take().map(PinnedConnection::unpin)
    }

    /// Leaves the connection to the session if its transaction keeps it.
    fn pin(&mut self, connection: Connection<R>) -> Option<Connection<R>> {
        let SessionOf::Explicit(session) = &mut self.session else { return Some(connection) };
        let is_kept =
            self.part.is_some() && session.transaction.pinned_to().is_some() && connection.peer().is_load_balanced;
        if !is_kept {
            return Some(connection);
        }
        *session.pinned() = Some(connection.pin(Purpose::Transaction));
        None
    }

    /// The transaction number to send, or that nothing is to be sent. A write has one, the same on each attempt (RTY-7); a
    /// transaction has its own (TXN-2).
    fn number_for(&mut self, retry: &mut Retry, server: Peer) -> ControlFlow<Attempted<R>, Option<i64>> {
        if self.part.is_some() {
            self.transaction_number = self.borrowed().map(|borrowed| borrowed.transaction_number());
            // It is the server's to refuse.
            let _ = retry.begin(true);
            return ControlFlow::Continue(self.transaction_number);
        }
        // A command with a number of its own is its caller's to repeat.
        let has_session = self.borrowed().is_some() && !self.outline.has(ClientField::SessionId);
        match retry.begin(has_session && server.has_transaction_numbers()) {
            Numbering::Refused => ControlFlow::Break(Attempted::Refused),
            Numbering::None => ControlFlow::Continue(None),
            Numbering::Numbered => {
                if self.transaction_number.is_none() {
                    self.transaction_number = self.borrowed().and_then(Borrowed::next_transaction_number);
                    if let SessionOf::Explicit(session) = &mut self.session {
                        session.handle_numbered_write();
                    }
                }
                ControlFlow::Continue(self.transaction_number)
            }
        }
    }

    /// A command of a transaction is about to be sent. A mongos, and the connection behind a load balancer, keeps the transaction
    /// (PIN-4).
    fn begin_part(&mut self, connection: &Connection<R>, server: Peer) -> Option<BegunCommand> {
        let (Some(TransactionCommand::Operation), SessionOf::Explicit(session)) = (self.part, &mut self.session) else {
            return None;
        };
        let routes = server.is_load_balanced || server.role == Role::Mongos;
        Some(session.transaction.begin_command(routes.then(|| connection.address())))
    }

    /// A command of a transaction has ended; by a failure, with whether it was sent.
    fn end_part(&mut self, failed: Option<(&Failure, bool)>, begun: Option<BegunCommand>) {
        let (Some(part), SessionOf::Explicit(session)) = (self.part, &mut self.session) else { return };
        match (failed, begun) {
            (None, _) => {
                session.transaction.handle_success(part);
                session.release_unpinned();
            }
            (Some((failure, was_sent)), Some(begun)) if !was_sent || failure.is_overload() => {
                session.transaction.take_back(begun);
            }
            (Some(_), _) => {}
        }
    }

    fn check_out(&self, retry: &Retry) -> CheckOut<'_, R> {
        let limit = self.budget.limit();
        let selector = self.server_selector();
        let is_plain = selector == ServerSelector::Writable && retry.deprioritized().is_empty();
        if is_plain && self.named.is_none() {
            return CheckOut::within(self.driver, limit).tagged(self.tag);
        }
        let criteria =
            Criteria { selector, deprioritized: retry.deprioritized().to_vec(), operation: self.named.clone() };
        CheckOut::of(self.driver, criteria, limit).tagged(self.tag)
    }

    /// A transaction runs on its mongos, and elsewhere on the primary (PIN-4, PIN-6).
    fn server_selector(&self) -> ServerSelector {
        match (self.part, &self.session) {
            (Some(_), SessionOf::Explicit(session)) => match session.transaction.pinned_to() {
                Some(address) => ServerSelector::Pinned(Arc::new(address.clone())),
                None => ServerSelector::Writable,
            },
            (_, _) => self.own_selector().into_owned(),
        }
    }

    /// The caller's selector. The primary writes the result of an aggregation while a server is known whose secondaries cannot (SEL-38).
    fn own_selector(&self) -> Cow<'_, ServerSelector> {
        let ServerSelector::ReadPreference(preference) = self.selector else { return Cow::Borrowed(self.selector) };
        if !self.outline.writes_result() {
            return Cow::Borrowed(self.selector);
        }
        let preference = ReadPreference::clone(preference);
        Cow::Owned(self.driver.description().preference_for_output(preference).into())
    }

    /// Takes a session, if the server has them and the command takes one (SES-1, SES-10).
    fn begin_session(&mut self, server: Peer) -> Result<(), OperationErrorKind> {
        match &mut self.session {
            SessionOf::Explicit(_) if !server.has_sessions => Err(OperationErrorKind::NoSessions),
            SessionOf::Explicit(session) if !session.suits(server.max_wire_version) => {
                Err(OperationErrorKind::NoSnapshots)
            }
            SessionOf::Implicit(borrowed)
                if borrowed.is_none() && server.has_sessions && takes_session(&self.command, &self.outline) =>
            {
                *borrowed = self.sessions.take(self.driver);
                Ok(())
            }
            SessionOf::Explicit(_) | SessionOf::Implicit(_) => Ok(()),
        }
    }

    fn borrowed(&mut self) -> Option<&mut Borrowed<R>> {
        match &mut self.session {
            SessionOf::Implicit(borrowed) => borrowed.as_mut(),
            SessionOf::Explicit(session) => Some(&mut session.borrowed),
        }
    }

    fn compose(&mut self, server: Peer, number: Option<i64>, is_first: bool) -> Composed {
        let sends_session = server.has_sessions && takes_session(&self.command, &self.outline);
        let lsid = if sends_session { self.borrowed().map(Borrowed::send_id) } else { None };
        let session = match &self.session {
            SessionOf::Explicit(session) => Some(&**session),
            SessionOf::Implicit(_) => None,
        };
        let part = self.part.zip(session);
        let selector = self.own_selector();
        let along = Along {
            lsid,
            number,
            part: part.map(|(command, session)| Part { transaction: &session.transaction, command, is_first }),
            cluster_time: self.sessions.cluster_time(),
            causality: session.map(|session| &session.causality),
            snapshot: session.and_then(|session| session.snapshot.as_ref()),
            reads: ReadsBy::of_operation(&selector),
            defaults: self.driver.settings.command_defaults.as_ref(),
            has_limit: self.has_limit,
        };
        compose(&self.command, &self.outline, server, &along)
    }

    /// What the reply says about time counts whether or not the command succeeded (SES-13).
    fn end_command(&mut self, connection: &Connection<R>, error: Option<&CommandError>) {
        if let Some(borrowed) = self.borrowed() {
            borrowed.end_command(error.is_some_and(failure::is_of_network));
        }
        if error.is_none_or(failure::has_reply)
            && let Some(reply) = connection.last_reply()
        {
            self.sessions.handle_reply(&reply);
            if let SessionOf::Explicit(session) = &mut self.session {
                session.causality.handle_reply(&reply);
                if self.part.is_some() {
                    session.transaction.handle_reply(&reply);
                }
                if let Some(snapshot) = &mut session.snapshot {
                    snapshot.handle_reply(&reply);
                }
            }
        }
    }
}

impl Failed {
    pub(super) fn in_client(kind: OperationErrorKind, failure: Failure) -> Self {
        Self { kind, failure, server: None }
    }
}

//! One attempt at an operation: a connection to a server that suits, a session, and the command with its fields.

use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Command;
use cmap_core::options::ReadPreference;
use cmap_core::retry::{Failure, Numbering, Retry};
use cmap_core::topology::{Criteria, Operation as Named, ServerSelector};
use cmap_core::wire::CommandReply;

use super::error::OperationErrorKind;
use super::{SessionOf, failure, fields};
use crate::check_out::CheckOut;
use crate::command_limit::TimeLimit;
use crate::connection::Connection;
use crate::deadline::{Deadline, Limit};
use crate::document::Reply;
use crate::error::CommandError;
use crate::runtime::Runtime;
use crate::session::{Lent, Sessions};
use crate::topology::Topology;

/// What all attempts at an operation have in common.
pub(super) struct Attempt<'o, R: Runtime> {
    pub(super) topology: &'o Arc<Topology<R>>,
    pub(super) sessions: &'o Arc<Sessions>,
    pub(super) command: Command<'o>,
    pub(super) selector: &'o ServerSelector,
    pub(super) preference: Option<&'o ReadPreference>,
    /// The caller's own limit.
    pub(super) limit: Option<Limit>,
    /// The end of the operation, by the caller's limit or timeoutMS.
    pub(super) deadline: Option<Deadline>,
    /// Whether the limit is that of a cursor's iteration, which the server is not told.
    pub(super) is_iteration: bool,
    /// Whether errors of single writes fail it.
    pub(super) writes: bool,
    pub(super) session: SessionOf<'o, R>,
    /// Whether it keeps to the connection of a cursor (LB-13).
    pub(super) is_pinned: bool,
    /// That connection, except during an attempt and after success.
    pub(super) pinned: Option<Connection<R>>,
    /// The operation's own number (RTY-13).
    pub(super) number: u64,
    /// That of the first attempt, for all of them (RTY-7).
    pub(super) transaction_number: Option<i64>,
    /// Its name, for those who are told of selections.
    pub(super) named: Option<Arc<Named>>,
}

/// The end of an attempt.
pub(super) enum Attempted<R: Runtime> {
    Done(Reply<'static>, Connection<R>),
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

/// The server of an attempt that failed.
pub(super) struct Server {
    pub(super) address: Arc<ServerAddress>,
    pub(super) is_mongos: bool,
    pub(super) max_wire_version: i32,
}

impl<R: Runtime> Attempt<'_, R> {
    pub(super) async fn make(&mut self, retry: &mut Retry) -> Attempted<R> {
        let mut connection = match self.pinned.take() {
            Some(pinned) => pinned,
            None => match self.check_out(retry).await {
                Ok(connection) => connection,
                Err(error) => return Attempted::Failed(Box::new(failure::of_check_out(error))),
            },
        };
        let server = fields::ServerOf::connection(&connection);
        if let Err(kind) = self.begin_session(server) {
            return Attempted::Failed(Box::new(failure::of_client(kind)));
        }
        // A command with a number of its own is its caller's to repeat.
        let has_session = self.lent().is_some() && !fields::has(&self.command, "lsid");
        let numbering = retry.begin(has_session && server.has_transaction_numbers());
        match numbering {
            Numbering::Refused => return Attempted::Refused,
            Numbering::Numbered if self.transaction_number.is_none() => {
                self.transaction_number = self.lent().and_then(Lent::next_transaction_number);
            }
            Numbering::Numbered | Numbering::None => {}
        }
        let number = self.transaction_number.filter(|_| numbering == Numbering::Numbered);
        let composed = self.compose(server, number);
        let mut command = self.command;
        command.body = composed.body.as_deref().unwrap_or(command.body);
        command.fields = composed.fields.as_deref();
        let limit = self.time_limit();
        let ran = match connection.exchange_as_it_is(&command, limit, Some(self.number)).await {
            Ok(reply) => Ok(reply.into_owned()),
            Err(error) => Err(error),
        };
        let ran = ran.and_then(|reply| match CommandReply::read(&reply).write_failure().filter(|_| self.writes) {
            Some(failure) => Err(connection.write_failed(failure)),
            None => Ok(reply),
        });
        self.end_command(&connection, ran.as_ref().err());
        match ran {
            Ok(reply) => Attempted::Done(reply, connection),
            Err(error) => {
                let failed = failure::of_command(error, server, number.is_some());
                // Others go back.
                self.pinned = Some(connection).filter(|_| self.is_pinned);
                Attempted::Failed(Box::new(failed))
            }
        }
    }

    fn check_out(&self, retry: &Retry) -> CheckOut<'_, R> {
        let limit = self.deadline.map_or(Limit::None, Limit::Until);
        let is_plain = *self.selector == ServerSelector::Writable && retry.deprioritized().is_empty();
        if is_plain && self.named.is_none() {
            return CheckOut::within(self.topology, limit);
        }
        let criteria = Criteria {
            selector: self.selector.clone(),
            deprioritized: retry.deprioritized().to_vec(),
            operation: self.named.clone(),
        };
        CheckOut::of(self.topology, criteria, limit)
    }

    /// Takes a session, if the server has them and the command takes one (SES-1, SES-10).
    fn begin_session(&mut self, server: fields::ServerOf) -> Result<(), OperationErrorKind> {
        match &mut self.session {
            SessionOf::Explicit(_) if !server.has_sessions => Err(OperationErrorKind::NoSessions),
            SessionOf::Implicit(lent)
                if lent.is_none() && server.has_sessions && fields::takes_session(&self.command) =>
            {
                *lent = self.sessions.take(self.topology);
                Ok(())
            }
            SessionOf::Explicit(_) | SessionOf::Implicit(_) => Ok(()),
        }
    }

    fn lent(&mut self) -> Option<&mut Lent<R>> {
        match &mut self.session {
            SessionOf::Implicit(lent) => lent.as_mut(),
            SessionOf::Explicit(session) => Some(&mut session.lent),
        }
    }

    fn compose(&mut self, server: fields::ServerOf, number: Option<i64>) -> fields::Composed {
        let sends_session = server.has_sessions && fields::takes_session(&self.command);
        let lsid = if sends_session { self.lent().map(Lent::send_id) } else { None };
        let causality = match &self.session {
            SessionOf::Explicit(session) => Some(&session.causality),
            SessionOf::Implicit(_) => None,
        };
        let defaults = self.topology.command_defaults();
        self.sessions.with_cluster_time(|cluster_time| {
            let names_server = matches!(self.selector, ServerSelector::AnyOf(_));
            let preference = self.preference;
            let along = fields::Along { lsid, number, cluster_time, causality, preference, names_server, defaults };
            fields::compose(&self.command, server, &along)
        })
    }

    /// What the reply says of time counts whether or not the command succeeded (SES-13).
    fn end_command(&mut self, connection: &Connection<R>, error: Option<&CommandError>) {
        if let Some(lent) = self.lent() {
            lent.end_command(error.is_some_and(failure::is_of_network));
        }
        if error.is_none_or(failure::has_reply)
            && let Some(reply) = connection.last_reply()
        {
            self.sessions.handle_reply(&reply);
            if let SessionOf::Explicit(session) = &mut self.session {
                session.causality.handle_reply(&reply);
            }
        }
    }

    fn time_limit(&self) -> Option<TimeLimit> {
        let left = || self.deadline.map(|deadline| deadline.left(self.topology.clock().runtime()));
        let limit = match self.limit {
            None => left().map(TimeLimit::Operation).or_else(|| self.topology.command_limit()),
            Some(_) => left().map(TimeLimit::Caller),
        };
        if self.is_iteration { limit.map(TimeLimit::of_iteration) } else { limit }
    }
}

impl Failed {
    pub(super) fn in_client(kind: OperationErrorKind, failure: Failure) -> Self {
        Self { kind, failure, server: None }
    }
}

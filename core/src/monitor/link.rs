//! One socket of a monitor: from its opening through one hello after another, each with its time limit.

use alloc::borrow::ToOwned;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use bson::{RawDocumentBuf, oid::ObjectId};

use super::{MonitorConnection, MonitorOptions, Socket};
use crate::connection::{Command, Connection, Fault, first_hello};
use crate::pool::Cause;
use crate::time::Instant;
use crate::topology_version::TopologyVersion;
use crate::wire::{CommandReply, integer};

#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Socket,
    connection: Connection,
    out: Vec<u8>,
    stage: Stage,
    /// The deadline of the present stage.
    pub(super) deadline: Option<Instant>,
    /// Whether later hellos may use the command `hello` (HS-5).
    hello_ok: bool,
    server_id: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Idle,
    /// A hello was sent, or its next reply is awaited.
    Asking {
        since: Instant,
    },
}

/// A hello's reply, which says that it succeeded.
pub(super) struct Answer {
    pub(super) reply: RawDocumentBuf,
    pub(super) more_to_come: bool,
    /// The time since the hello was sent, or since the reply before.
    pub(super) duration: Duration,
}

/// Why a socket is of no use any more.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    pub(super) cause: Cause,
}

impl Link {
    /// A socket that is about to be opened.
    pub(super) fn new(now: Instant, socket: Socket, options: &MonitorOptions) -> Self {
        Self {
            socket,
            connection: Connection::new(options.connection.server_api),
            out: Vec::new(),
            stage: Stage::Connecting,
            deadline: limit(now, options),
            hello_ok: false,
            server_id: None,
        }
    }

    pub(super) fn name(&self) -> MonitorConnection {
        MonitorConnection { id: self.socket.number, server_id: self.server_id }
    }

    /// The socket is open: its first command is a hello with the full description of the client (HS-1, MON-4). Returns
    /// whether the socket was still being opened.
    pub(super) fn greet(&mut self, now: Instant, options: &MonitorOptions) -> Result<bool, Failure> {
        if self.stage != Stage::Connecting {
            return Ok(false);
        }
        self.stage = Stage::Idle;
        let hello = first_hello(&options.connection);
        self.send(now, &hello, false, limit(now, options))?;
        Ok(true)
    }

    /// Asks again, without the description of the client (HS-6). With a `topology_version` the server answers when it
    /// has a newer one, or after heartbeatFrequencyMS, and goes on answering (MON-7, MON-8).
    pub(super) fn ask(
        &mut self,
        now: Instant,
        topology_version: Option<TopologyVersion>,
        options: &MonitorOptions,
    ) -> Result<(), Failure> {
        let mut hello = RawDocumentBuf::new();
        if self.hello_ok || options.connection.server_api.is_some() {
            hello.append(bson::cstr!("hello"), 1);
        } else {
            hello.append(bson::cstr!("isMaster"), 1);
            hello.append(bson::cstr!("helloOk"), true);
        }
        let Some(TopologyVersion { process_id, counter }) = topology_version else {
            return self.send(now, &hello, false, limit(now, options));
        };
        let mut version = RawDocumentBuf::new();
        version.append(bson::cstr!("processId"), ObjectId::from_bytes(process_id));
        version.append(bson::cstr!("counter"), counter);
        hello.append(bson::cstr!("topologyVersion"), version);
        let millis = i64::try_from(options.heartbeat_frequency.as_millis()).unwrap_or(i64::MAX);
        hello.append(bson::cstr!("maxAwaitTimeMS"), millis);
        self.send(now, &hello, true, options.awaited_timeout().map(|timeout| now + timeout))
    }

    /// The server goes on answering: the next reply has its time from now on (MON-8).
    pub(super) fn await_next(&mut self, now: Instant, options: &MonitorOptions) {
        self.stage = Stage::Asking { since: now };
        self.deadline = options.awaited_timeout().map(|timeout| now + timeout);
    }

    /// Takes bytes off the front of `input`; returns the reply if it is whole.
    pub(super) fn read(&mut self, now: Instant, input: &mut &[u8]) -> Result<Option<Answer>, Failure> {
        let read =
            self.connection.read_greeting(input).map_err(|error| Failure::new(Fault::Other, &error.to_string()))?;
        let (Some(reply), Stage::Asking { since }) = (read, self.stage) else { return Ok(None) };
        if let Some(error) = CommandReply::read(reply.body).failure() {
            return Err(Failure { fault: Fault::Server { code: error.code }, cause: Cause::of(&error) });
        }
        let field = |name: &str| reply.body.get(name).ok().flatten();
        self.hello_ok |= field("helloOk").and_then(|value| value.as_bool()).unwrap_or_default();
        self.server_id = field("connectionId").and_then(integer).or(self.server_id);
        let answer = Answer {
            reply: reply.body.to_owned(),
            more_to_come: reply.more_to_come,
            duration: now.saturating_since(since),
        };
        self.stage = Stage::Idle;
        self.deadline = None;
        Ok(Some(answer))
    }

    /// Appends the bytes to send.
    pub(super) fn write_to(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.out);
    }

    /// The failure to report when the deadline is reached.
    pub(super) fn overdue(&self) -> Failure {
        let text = match self.stage {
            Stage::Connecting => {
                "there was no connection within connectTimeoutMS: the server could not be reached, or did not answer in the TLS \
                 handshake"
            }
            Stage::Idle | Stage::Asking { .. } => "the server did not answer the monitor's hello in time",
        };
        Failure::new(Fault::Timeout, text)
    }

    fn send(
        &mut self,
        now: Instant,
        hello: &RawDocumentBuf,
        exhaust_allowed: bool,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        let command = Command { exhaust_allowed, ..Command::new("admin", hello) };
        let sent = self.connection.send(&mut self.out, &command);
        sent.map_err(|error| Failure::new(Fault::Other, &error.to_string()))?;
        self.stage = Stage::Asking { since: now };
        self.deadline = deadline;
        Ok(())
    }
}

impl Failure {
    pub(super) fn new(fault: Fault, text: &str) -> Self {
        Self { fault, cause: Cause::new(text) }
    }

    /// Whether the network was at fault, or no server answered.
    pub(super) fn is_network(&self) -> bool {
        matches!(self.fault, Fault::Network | Fault::Timeout)
    }
}

/// connectTimeoutMS from now; no limit if that is zero (MON-1).
fn limit(now: Instant, options: &MonitorOptions) -> Option<Instant> {
    (options.connect_timeout > Duration::ZERO).then(|| now + options.connect_timeout)
}

//! One test while it is played: a topology and its monitors, the other sides, and connections for errors to happen to.
//!
//! Time is virtual. An answer waits for the check that it answers: where none is under way, time passes until one is. No
//! check times out by itself, so the servers that a phase does not name stay as they are. An answer of a server that is
//! not, or not any more, in the topology reaches nobody (TOP-14).

use std::collections::BTreeMap;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{ClientMetadata, EstablishError, Fault, Phase as Step};
use cmap_core::monitor::{Action, MonitorOptions, Role, Socket};
use cmap_core::options::ClientOptions;
use cmap_core::pool::{self, Cause, CheckOutRequest, Condition, Handle, Pool, PoolState};
use cmap_core::server::{OperationError, Server, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Output, ServerSelector, Topology, TopologyOptions};
use cmap_core::wire::{
    CommandReply, Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter, bson::RawDocumentBuf,
};
use serde_json::{Map, Value};

use super::actual;
use super::format::{ApplicationError, ErrorType, Phase, SdamFile, When};
use crate::suites::monitored::{self, Monitored};
use crate::suites::{extended_json, matching};

/// Plays the test; returns what was not as expected.
pub(super) fn play(file: &SdamFile) -> Vec<String> {
    let mut session = match Session::new(&file.uri) {
        Ok(session) => session,
        Err(reason) => return vec![reason],
    };
    for (number, phase) in file.phases.iter().enumerate() {
        if let Err(reason) = session.phase(phase) {
            let name = phase.description.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
            return vec![format!("phase {}{name}: {reason}", number + 1)];
        }
    }
    Vec::new()
}

/// How many connections of each kind and generation are kept ready: more than a phase has errors.
const SPARE: usize = 3;

/// The most steps of time until a check has begun.
const MOST_STEPS: usize = 1000;

struct Session {
    monitored: Monitored<()>,
    now: Instant,
    sides: BTreeMap<ServerId, Side>,
    /// The names of the servers so far: their last events come after they have left.
    addresses: BTreeMap<ServerId, String>,
    events: Vec<Value>,
    replies: i32,
    problem: Option<String>,
}

/// The other side of a server.
#[derive(Default)]
struct Side {
    /// The checks' socket, with the number of the hello that waits on it, if one does.
    check: Option<(Socket, Option<i32>)>,
    /// Connections by the generation that they were made in.
    pending: BTreeMap<u64, Vec<Handle>>,
    in_use: BTreeMap<u64, Vec<Handle>>,
}

impl Session {
    fn new(uri: &str) -> Result<Self, String> {
        let (options, _) = ClientOptions::parse(uri).map_err(|error| error.to_string())?;
        let mut pool_options = options.pool.clone();
        pool_options.max_connecting = Some(100);
        // The files let errors happen to any number of connections at one moment; a backoff would create none.
        pool_options.backoff = Some(false);
        let mut topology_options = TopologyOptions::of_client(&options);
        // Each connection has to be the one that was created for its check-out.
        topology_options.reselect = false;
        let now = Instant::ORIGIN;
        let topology = Topology::new(topology_options, pool_options).map_err(|error| error.to_string())?;
        let mut monitor = MonitorOptions::of_client(&options, ClientMetadata::new("unknown"));
        monitor.connect_timeout = Duration::ZERO;
        let mut session = Self {
            monitored: Monitored::new(now, topology, monitor),
            now,
            sides: BTreeMap::new(),
            addresses: BTreeMap::new(),
            events: Vec::new(),
            replies: 0,
            problem: None,
        };
        session.drain()?;
        Ok(session)
    }

    fn phase(&mut self, phase: &Phase) -> Result<(), String> {
        for (address, reply) in &phase.responses {
            if let Some(server) = self.server(address) {
                self.answer(server, reply)?;
            }
        }
        for error in &phase.application_errors {
            let server = self.server(&error.address).ok_or("the error is of a server that is not there")?;
            self.stock_up(server)?;
            self.meet(server, error)?;
            self.stock_up(server)?;
        }
        self.compare(&phase.outcome)
    }

    /// The server at `address`, if it is in the topology.
    fn server(&self, address: &str) -> Option<ServerId> {
        let address: ServerAddress = address.parse().ok()?;
        let is_it = |server: &Server<()>| !server.has_left() && *server.description().address == address;
        self.monitored.topology.servers().find(|(_, server)| is_it(server)).map(|(id, _)| id)
    }

    fn pool(&self, server: ServerId) -> Result<&Pool<()>, String> {
        self.monitored.topology.server(server).map(Server::pool).ok_or_else(|| "the server has left".into())
    }

    /// The server answers its next check.
    fn answer(&mut self, server: ServerId, reply: &Map<String, Value>) -> Result<(), String> {
        for _ in 0..MOST_STEPS {
            if let Some((socket, Some(request))) = self.sides.get(&server).and_then(|side| side.check) {
                return self.answer_on(server, socket, request, reply);
            }
            let next = self.monitored.next_at().ok_or("no check is going to begin")?;
            self.now = self.now.max(next);
            self.monitored.handle_timeout(self.now);
            self.drain()?;
        }
        Err("no check begins".into())
    }

    fn answer_on(
        &mut self,
        server: ServerId,
        socket: Socket,
        request: i32,
        reply: &Map<String, Value>,
    ) -> Result<(), String> {
        self.now = self.now + Duration::from_millis(1);
        self.sides.entry(server).or_default().check = Some((socket, None));
        let monitor = self.monitored.monitors.get_mut(&server).ok_or("a load balancer is not checked")?;
        if reply.is_empty() {
            monitor.handle_failed(self.now, socket, Fault::Network, Cause::new("the server hung up"));
        } else {
            let bytes = message(&document(reply)?, self.replies, request)?;
            self.replies += 1;
            monitor.handle_bytes(self.now, socket, &bytes);
        }
        self.drain()
    }

    /// Makes connections of the present generation, for errors to happen to.
    fn stock_up(&mut self, server: ServerId) -> Result<(), String> {
        let pool = self.pool(server)?;
        if pool.state() != PoolState::Ready || pool.options().load_balanced {
            return Ok(());
        }
        if self
            .monitored
            .topology
            .server(server)
            .is_none_or(|server| server.description().server_type == ServerType::Unknown)
        {
            return Ok(());
        }
        let generation = pool.generation().get();
        let count = |side: Option<&Side>, of: fn(&Side) -> &BTreeMap<u64, Vec<Handle>>| {
            side.and_then(|side| of(side).get(&generation)).map_or(0, Vec::len)
        };
        while count(self.sides.get(&server), |side| &side.in_use) < SPARE {
            let connection = self.begin_connection(server, generation)?;
            let refused = self.monitored.topology.handle_established(self.now, connection, ());
            refused.map_err(|refused| refused.to_string())?;
            self.drain()?;
        }
        while count(self.sides.get(&server), |side| &side.pending) < SPARE {
            let connection = self.begin_connection(server, generation)?;
            self.sides.entry(server).or_default().pending.entry(generation).or_default().push(connection);
        }
        Ok(())
    }

    /// Checks out; returns the connection that is created for it.
    fn begin_connection(&mut self, server: ServerId, generation: u64) -> Result<Handle, String> {
        let address = self.pool(server)?.address().clone();
        let criteria = Criteria { selector: ServerSelector::AnyOf([address].into()), ..Criteria::default() };
        let (_, delivery) = self.monitored.topology.check_out(self.now, &criteria, CheckOutRequest::default());
        if delivery.is_some() {
            return Err("a connection was available, and none should be".into());
        }
        self.drain()?;
        let side = self.sides.entry(server).or_default();
        side.pending.get_mut(&generation).and_then(Vec::pop).ok_or_else(|| "no connection was created".into())
    }

    fn meet(&mut self, server: ServerId, error: &ApplicationError) -> Result<(), String> {
        let present = self.pool(server)?.generation().get();
        let generation = error.generation.unwrap_or(present);
        let side = self.sides.entry(server).or_default();
        let stock = match error.when {
            When::BeforeHandshakeCompletes => &mut side.pending,
            When::AfterHandshakeCompletes => &mut side.in_use,
        };
        let connection = stock.get_mut(&generation).and_then(Vec::pop);
        let connection = connection.ok_or_else(|| format!("no connection of generation {generation} is left"))?;
        let reply = error.response.as_ref().map(document).transpose()?;
        let reply = reply.as_deref().map(CommandReply::read);
        let misuse = match error.when {
            When::BeforeHandshakeCompletes => {
                let failed = match (error.error_type, reply.and_then(|reply| reply.failure())) {
                    (ErrorType::Network, _) => EstablishError::new(Step::Hello, Fault::Network, "reset"),
                    (ErrorType::Timeout, _) => EstablishError::new(Step::Hello, Fault::Timeout, "no answer"),
                    (ErrorType::Command, None) => return Err("the response is not a failure".into()),
                    (ErrorType::Command, Some(error)) => {
                        EstablishError::new(Step::Hello, Fault::Server { code: error.code }, error.message)
                            .with_topology_version(error.topology_version)
                            .with_server_labels(error.labels)
                    }
                };
                self.monitored.topology.handle_establish_failed(self.now, connection, failed)
            }
            When::AfterHandshakeCompletes => {
                let cause = || Cause::new("the operation failed");
                let failed = match error.error_type {
                    ErrorType::Network => Some(OperationError::new(Fault::Network, cause())),
                    ErrorType::Timeout => Some(OperationError::new(Fault::Timeout, cause())),
                    ErrorType::Command => reply.as_ref().and_then(OperationError::of_reply),
                };
                let user = self.pool(server)?.use_of(connection).ok_or("the connection is not in use")?.check_out;
                let topology = &mut self.monitored.topology;
                let reported =
                    failed.map_or(Ok(()), |failed| topology.handle_operation_failed(self.now, connection, failed));
                // One that can be used again would serve the next check-out, for which none would then be created.
                let checked_in = topology.check_in(self.now, user, connection, (), Condition::Errored);
                reported.and(checked_in.map(|_| ()).map_err(|refused| refused.misuse))
            }
        };
        misuse.map_err(|misuse| misuse.to_string())?;
        self.drain()
    }

    fn compare(&mut self, outcome: &Map<String, Value>) -> Result<(), String> {
        let mut expected = outcome.clone();
        let events = std::mem::take(&mut self.events);
        if let Some(mut wanted) = expected.remove("events") {
            forget_possible_primaries(&mut wanted);
            matching::compare(&wanted, &Value::Array(events.clone()))
                .map_err(|mismatch| format!("events{mismatch}"))?;
            if wanted.as_array().map(Vec::len) != Some(events.len()) {
                return Err(format!("expected no more events, got {}", Value::Array(events)));
            }
        }
        let topology = &self.monitored.topology;
        let generation = |server: &ServerAddress| {
            let server = self.server(&server.to_string()).and_then(|server| topology.server(server));
            server.map(|server| server.pool().generation().get())
        };
        let actual = actual::topology(topology.description(), generation);
        expected.values_mut().for_each(forget_possible_primaries);
        compare_servers(&mut expected, &actual)?;
        matching::compare(&Value::Object(expected), &Value::Object(actual)).map_err(|mismatch| mismatch.to_string())
    }

    fn drain(&mut self) -> Result<(), String> {
        while let Some(output) = self.monitored.poll_output(self.now) {
            let output = match output {
                monitored::Output::Monitor(server, action) => {
                    self.act(server, action)?;
                    continue;
                }
                monitored::Output::Topology(output) => output,
            };
            match output {
                Output::Topology(event) => self.events.extend(actual::topology_event(&event)),
                Output::Server { server, event } => {
                    if let Some(known) = self.monitored.topology.server(server) {
                        self.addresses.insert(server, known.description().address.to_string());
                    }
                    let address = self.addresses.get(&server).ok_or("an event of a server that never was")?;
                    self.events.extend(actual::server_event(address, &event));
                }
                Output::Monitor { .. } | Output::Selection(_) => {}
                Output::Pool { server, output: pool::Output::Action(action) } => self.act_for_pool(server, action)?,
                Output::Pool { output: pool::Output::Event(_), .. } => {}
                Output::WarmedUp { .. } => return Err("a warm-up was not asked for".into()),
                Output::Selected { .. } | Output::Reselecting { .. } | Output::SelectionFailed { .. } => {
                    return Err("a check-out waited for a server".into());
                }
                Output::ResolveSrv { .. } => return Err("SRV records are polled".into()),
            }
        }
        match self.problem.take() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    /// The measurements' sockets are never opened: they say nothing that a test looks at.
    fn act(&mut self, server: ServerId, action: Action) -> Result<(), String> {
        let monitor = self.monitored.monitors.get_mut(&server).ok_or("a load balancer is not checked")?;
        let side = self.sides.entry(server).or_default();
        match action {
            Action::Connect(socket) if socket.role == Role::Check => {
                side.check = Some((socket, None));
                monitor.handle_connected(self.now, socket);
            }
            Action::Send(socket) if socket.role == Role::Check => {
                let mut bytes = Vec::new();
                monitor.write_to(socket, &mut bytes);
                side.check = Some((socket, Some(request_of(&bytes)?)));
            }
            Action::Close(socket) if socket.role == Role::Check => side.check = None,
            Action::Connect(_) | Action::Send(_) | Action::Close(_) => {}
        }
        Ok(())
    }

    fn act_for_pool(&mut self, server: ServerId, action: pool::Action<()>) -> Result<(), String> {
        // A pool that was closed with its server has nothing more to be done for it.
        let Ok(pool) = self.pool(server) else { return Ok(()) };
        let generation = pool.generation().get();
        let side = self.sides.entry(server).or_default();
        match action {
            pool::Action::Connect { connection } => side.pending.entry(generation).or_default().push(connection),
            pool::Action::Deliver { connection, .. } => side.in_use.entry(generation).or_default().push(connection),
            pool::Action::Check { .. } | pool::Action::Refresh { .. } => {
                self.problem = Some("a connection was idle, and none can be".into());
            }
            // A clear fails those that the pending connections were created for; they stay what they are.
            pool::Action::Fail { .. }
            | pool::Action::Close { .. }
            | pool::Action::Interrupt { .. }
            | pool::Action::WarmedUp { .. } => {}
        }
        Ok(())
    }
}

/// A possible primary is a server to be checked soon where one thread checks all; elsewhere it is an unknown one (TOP-2).
fn forget_possible_primaries(expected: &mut Value) {
    match expected {
        Value::String(text) if text == "PossiblePrimary" => *text = "Unknown".into(),
        Value::Array(items) => items.iter_mut().for_each(forget_possible_primaries),
        Value::Object(fields) => fields.values_mut().for_each(forget_possible_primaries),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// No server may be missing or too many, and an error is given by a part of its text.
fn compare_servers(expected: &mut Map<String, Value>, actual: &Map<String, Value>) -> Result<(), String> {
    let Some(servers) = expected.get_mut("servers").and_then(Value::as_object_mut) else { return Ok(()) };
    let known = actual.get("servers").and_then(Value::as_object).ok_or("no servers are known")?;
    if let Some(address) = known.keys().find(|address| !servers.contains_key(*address)) {
        return Err(format!("servers: {address} should not be there"));
    }
    for (address, server) in servers {
        let wanted = server.as_object_mut().and_then(|server| server.remove("error"));
        let error = known.get(address).and_then(|known| known.get("error")).and_then(Value::as_str).unwrap_or_default();
        match wanted.as_ref().and_then(Value::as_str) {
            Some(wanted) if !error.contains(wanted) => {
                return Err(format!("servers.{address}.error: expected {wanted:?} in {error:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A document of these fields.
fn document(fields: &Map<String, Value>) -> Result<RawDocumentBuf, String> {
    let document = extended_json::document(Value::Object(fields.clone()))?;
    RawDocumentBuf::try_from(&document).map_err(|error| error.to_string())
}

fn message(reply: &RawDocumentBuf, number: i32, request: i32) -> Result<Vec<u8>, String> {
    let (mut bytes, ids) = (Vec::new(), MessageIds::reply(number, request));
    let message = MessageWriter::begin(&mut bytes, ids, Flags::NONE, reply, &[], &Limits::DEFAULT);
    message.map_err(|error| error.to_string())?.finish();
    Ok(bytes)
}

/// The number of the request in `bytes`.
fn request_of(mut bytes: &[u8]) -> Result<i32, String> {
    let (mut frames, mut decoder) = (FrameReader::new(), Decoder::new());
    let frame = frames.read(&mut bytes, &Limits::DEFAULT).map_err(|error| error.to_string())?;
    let frame = frame.ok_or("the monitor sent half a message")?;
    match decoder.decode(frame, &Limits::DEFAULT).map_err(|error| error.to_string())?.content {
        Content::Message(message) => Ok(message.header.ids.request_id),
        Content::Query(_) | Content::Reply(_) => Err("the monitor sent a message that is not an OP_MSG".into()),
    }
}

//! One test while it is played: a server and its monitor, the other side, and connections for errors to happen to.
//!
//! Time is virtual. An answer waits for the check that it answers: where none is under way, time passes until one is.

use std::collections::BTreeMap;
use std::time::Duration;

use cmap_core::connection::{ClientMetadata, EstablishError, Fault, Phase as Step};
use cmap_core::monitor::{Action, MonitorOptions, Role, Socket};
use cmap_core::options::ClientOptions;
use cmap_core::pool::{self, Cause, CheckOutRequest, Condition, Handle, Pool};
use cmap_core::server::{OperationError, Output, ServerOptions};
use cmap_core::time::Instant;
use cmap_core::wire::{
    CommandReply, Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter, bson::RawDocumentBuf,
};
use serde_json::{Map, Value};

use super::actual;
use super::format::{ApplicationError, ErrorType, Phase, SdamFile, When};
use crate::suites::monitored::{self, Monitored};
use crate::suites::{extended_json, matching};

/// Why this test cannot be played, if it cannot.
pub(super) fn unsupported(file: &SdamFile) -> Option<String> {
    let several = "the topology of several servers does not exist yet";
    let seed = match ClientOptions::parse(&file.uri) {
        Err(error) => return Some(format!("the connection string cannot be used: {error}")),
        Ok((options, _)) if options.hosts.len() == 1 => options.hosts.first()?.to_string(),
        Ok(_) => return Some(several.into()),
    };
    let is_alone = |phase: &Phase| {
        let servers = phase.outcome.get("servers").and_then(Value::as_object);
        servers.is_none_or(|servers| servers.len() == 1 && servers.contains_key(&seed))
            && phase.responses.iter().all(|(address, _)| *address == seed)
            && phase.application_errors.iter().all(|error| error.address == seed)
    };
    (!file.phases.iter().all(is_alone)).then(|| several.into())
}

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
    /// The checks' socket, with the number of the hello that waits on it, if one does.
    check: Option<(Socket, Option<i32>)>,
    events: Vec<Value>,
    /// Connections by the generation that they were made in.
    pending: BTreeMap<u64, Vec<Handle>>,
    in_use: BTreeMap<u64, Vec<Handle>>,
    replies: i32,
    problem: Option<String>,
}

impl Session {
    fn new(uri: &str) -> Result<Self, String> {
        let (options, _) = ClientOptions::parse(uri).map_err(|error| error.to_string())?;
        let address = options.hosts.first().cloned().ok_or("no host")?;
        let mut pool_options = options.pool.clone();
        pool_options.max_connecting = Some(100);
        // The files let errors happen to any number of connections at one moment; a backoff would create none.
        pool_options.backoff = Some(false);
        let now = Instant::ORIGIN;
        let pool = Pool::new(address, pool_options, now).map_err(|error| error.to_string())?;
        let monitor = MonitorOptions::of_client(&options, ClientMetadata::new("unknown"));
        let mut session = Self {
            monitored: Monitored::new(now, pool, ServerOptions::of_client(&options), monitor),
            now,
            check: None,
            events: Vec::new(),
            pending: BTreeMap::new(),
            in_use: BTreeMap::new(),
            replies: 0,
            problem: None,
        };
        session.drain()?;
        Ok(session)
    }

    fn phase(&mut self, phase: &Phase) -> Result<(), String> {
        for (_, reply) in &phase.responses {
            self.answer(reply)?;
        }
        for error in &phase.application_errors {
            self.stock_up()?;
            self.meet(error)?;
        }
        self.stock_up()?;
        self.compare(&phase.outcome)
    }

    /// The server answers the next check.
    fn answer(&mut self, reply: &Map<String, Value>) -> Result<(), String> {
        for _ in 0..MOST_STEPS {
            if let Some((socket, Some(request))) = self.check {
                return self.answer_on(socket, request, reply);
            }
            let next = self.monitored.next_at().ok_or("no check is going to begin")?;
            self.now = self.now.max(next);
            self.monitored.handle_timeout(self.now);
            self.drain()?;
        }
        Err("no check begins".into())
    }

    fn answer_on(&mut self, socket: Socket, request: i32, reply: &Map<String, Value>) -> Result<(), String> {
        self.now = self.now + Duration::from_millis(1);
        self.check = Some((socket, None));
        let monitor = self.monitored.monitor.as_mut().ok_or("a load balancer is not checked")?;
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
    fn stock_up(&mut self) -> Result<(), String> {
        let server = &self.monitored.server;
        if !server.is_usable() || server.pool().options().load_balanced {
            return Ok(());
        }
        let generation = server.pool().generation().get();
        while self.in_use.get(&generation).map_or(0, Vec::len) < SPARE {
            let connection = self.begin_connection(generation)?;
            let refused = self.monitored.server.handle_established(self.now, connection, ());
            refused.map_err(|refused| refused.to_string())?;
            self.drain()?;
        }
        while self.pending.get(&generation).map_or(0, Vec::len) < SPARE {
            let connection = self.begin_connection(generation)?;
            self.pending.entry(generation).or_default().push(connection);
        }
        Ok(())
    }

    /// Checks out; returns the connection that is created for it.
    fn begin_connection(&mut self, generation: u64) -> Result<Handle, String> {
        let (_, delivery) = self.monitored.server.check_out(self.now, CheckOutRequest::default());
        if delivery.is_some() {
            return Err("a connection was available, and none should be".into());
        }
        self.drain()?;
        self.pending.get_mut(&generation).and_then(Vec::pop).ok_or_else(|| "no connection was created".into())
    }

    fn meet(&mut self, error: &ApplicationError) -> Result<(), String> {
        let generation = error.generation.unwrap_or_else(|| self.monitored.server.pool().generation().get());
        let stock = match error.when {
            When::BeforeHandshakeCompletes => &mut self.pending,
            When::AfterHandshakeCompletes => &mut self.in_use,
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
                self.monitored.server.handle_establish_failed(self.now, connection, failed)
            }
            When::AfterHandshakeCompletes => {
                let cause = || Cause::new("the operation failed");
                let failed = match error.error_type {
                    ErrorType::Network => Some(OperationError::new(Fault::Network, cause())),
                    ErrorType::Timeout => Some(OperationError::new(Fault::Timeout, cause())),
                    ErrorType::Command => reply.as_ref().and_then(OperationError::of_reply),
                };
                let server = &mut self.monitored.server;
                let reported =
                    failed.map_or(Ok(()), |failed| server.handle_operation_failed(self.now, connection, failed));
                // One that can be used again would serve the next check-out, for which none would then be created.
                let checked_in = server.check_in(self.now, connection, (), Condition::Errored);
                reported.and(checked_in.map(|_| ()).map_err(|refused| refused.misuse))
            }
        };
        misuse.map_err(|misuse| misuse.to_string())?;
        self.drain()
    }

    fn compare(&mut self, outcome: &Map<String, Value>) -> Result<(), String> {
        let mut expected = outcome.clone();
        let events = std::mem::take(&mut self.events);
        if let Some(wanted) = expected.remove("events") {
            matching::compare(&wanted, &Value::Array(events.clone()))
                .map_err(|mismatch| format!("events{mismatch}"))?;
            if wanted.as_array().map(Vec::len) != Some(events.len()) {
                return Err(format!("expected no more events, got {}", Value::Array(events)));
            }
        }
        let server = &self.monitored.server;
        let actual = actual::topology(server.topology(), server.pool().generation().get());
        matching::compare(&Value::Object(expected), &Value::Object(actual)).map_err(|mismatch| mismatch.to_string())
    }

    fn drain(&mut self) -> Result<(), String> {
        while let Some(output) = self.monitored.poll_output(self.now) {
            let output = match output {
                monitored::Output::Monitor(action) => {
                    self.act(action)?;
                    continue;
                }
                monitored::Output::Server(output) => output,
            };
            match output {
                Output::Event(event) => {
                    let address = self.monitored.server.description().address.to_string();
                    self.events.extend(actual::event(&address, &event));
                }
                Output::Monitor(_) => {}
                Output::Pool(pool::Output::Action(action)) => self.act_for_pool(action),
                Output::Pool(pool::Output::Event(_)) => {}
                Output::Selected { .. } | Output::SelectionFailed { .. } => {
                    return Err("a check-out waited for the server".into());
                }
            }
        }
        match self.problem.take() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    /// The measurements' socket is never opened: they say nothing that a test looks at.
    fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Connect(socket) if socket.role == Role::Check => {
                self.check = Some((socket, None));
                if let Some(monitor) = &mut self.monitored.monitor {
                    monitor.handle_connected(self.now, socket);
                }
            }
            Action::Send(socket) if socket.role == Role::Check => {
                let mut bytes = Vec::new();
                if let Some(monitor) = &mut self.monitored.monitor {
                    monitor.write_to(socket, &mut bytes);
                }
                self.check = Some((socket, Some(request_of(&bytes)?)));
            }
            Action::Close(socket) if socket.role == Role::Check => self.check = None,
            Action::Connect(_) | Action::Send(_) | Action::Close(_) => {}
        }
        Ok(())
    }

    fn act_for_pool(&mut self, action: pool::Action<()>) {
        let generation = self.monitored.server.pool().generation().get();
        match action {
            pool::Action::Connect { connection } => self.pending.entry(generation).or_default().push(connection),
            pool::Action::Deliver { connection, .. } => self.in_use.entry(generation).or_default().push(connection),
            pool::Action::Check { .. } => self.problem = Some("a connection was idle, and none can be".into()),
            // A clear fails those that the pending connections were created for; they stay what they are.
            pool::Action::Fail { .. } | pool::Action::Close { .. } | pool::Action::Interrupt { .. } => {}
        }
    }
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

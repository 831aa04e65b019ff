//! Clients and connections of a simulation, as the threads of a test hold them.

use alloc::sync::Arc;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use bson::{Document, RawDocumentBuf, doc};
use cmap_core::address::ServerAddress;
use cmap_core::connection::Command;
use cmap_core::options::ClientOptions;
use cmap_core::pool::{Cause, Purpose};
use cmap_core::time::Instant;
use cmap_core::topology::TopologyEvent;
use cmap_core::wire::ServerError;
use cmap_sim::{CheckOutError, CommandError, CommandErrorKind, Event, PinnedConnection, SimRuntime};

use crate::suites::unified::client::{Client, Connection};
use crate::suites::unified::failure::{Failure, FailureKind};
use crate::suites::unified::format::DriverInfo;
use crate::suites::unified::journal::Journal;

/// How long a closing client waits for its connections.
const PATIENCE: Duration = Duration::from_secs(1);

/// A client in a simulation.
#[derive(Clone)]
pub struct SimClient {
    runtime: SimRuntime,
    client: cmap_sim::Client,
    topology_type: Arc<Mutex<String>>,
}

/// A connection that is checked out.
pub struct SimConnection {
    runtime: SimRuntime,
    connection: PinnedConnection,
}

impl SimClient {
    /// A client that begins at once, and notes its events in `journal`.
    pub(super) async fn new(runtime: SimRuntime, options: ClientOptions, journal: Journal) -> Result<Self, Failure> {
        let topology_type = Arc::<Mutex<String>>::default();
        let noted = Arc::clone(&topology_type);
        let handler = move |address: &ServerAddress, event: &Event| match event {
            Event::Pool(event) => journal.pool_event(address, event),
            Event::Server(event) => journal.server_event(address, event),
            Event::Topology(event) => {
                if let TopologyEvent::TopologyDescriptionChanged { new, .. } = event {
                    *noted.lock().unwrap_or_else(PoisonError::into_inner) = new.topology_type.to_string();
                }
                journal.topology_event(event);
            }
            Event::Lost(_) | _ => {}
        };
        let client = cmap_sim::Client::builder(options).runtime(runtime.clone()).on_event(handler);
        // The tests count the errors of single check-outs.
        let client = client.reselect(false).build().await;
        let client = client.map_err(|error| Failure::client(Cause::of(&error).to_string()))?;
        Ok(Self { runtime, client, topology_type })
    }
}

/// The time on the clock of a simulation.
fn now(runtime: &SimRuntime) -> Instant {
    Instant::ORIGIN + runtime.elapsed()
}

/// The time left until `deadline`.
fn left(runtime: &SimRuntime, deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_since(now(runtime)))
}

impl Client for SimClient {
    type Connection = SimConnection;

    fn now(&self) -> Instant {
        now(&self.runtime)
    }

    async fn check_out(&self, purpose: Purpose, deadline: Option<Instant>) -> Result<SimConnection, Failure> {
        let connection = match left(&self.runtime, deadline) {
            None => self.client.check_out().await,
            left => self.client.check_out_within(left).await,
        };
        let connection = connection.map_err(|error| of_check_out(&error))?;
        Ok(SimConnection { runtime: self.runtime.clone(), connection: connection.pin(purpose) })
    }

    fn checked_out(&self) -> u64 {
        self.client.stats().counts.in_use.into()
    }

    fn available(&self) -> u64 {
        self.client.stats().counts.available.into()
    }

    fn min_round_trip_time(&self) -> Duration {
        let description = self.client.description();
        description.servers.first().map(|server| server.min_round_trip_time).unwrap_or_default()
    }

    fn topology_type(&self) -> String {
        self.topology_type.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn append_metadata(&self, info: &DriverInfo) -> Result<(), Failure> {
        let (version, platform) = (info.version.as_deref().unwrap_or(""), info.platform.as_deref().unwrap_or(""));
        let appended = self.client.append_metadata(&info.name, version, platform);
        appended.map_err(|error| Failure::client(error.to_string()))
    }

    async fn close(&self) {
        // How many connections were still in use is no matter of the test's.
        let _ = self.client.close(PATIENCE).await;
    }
}

impl Connection for SimConnection {
    fn identity(&self) -> Document {
        let mut identity = Document::new();
        if let Some(description) = self.connection.description() {
            if let Some(id) = description.connection_id {
                identity.insert("serverConnectionId", id);
            }
            if let Some(id) = description.service_id {
                identity.insert("serviceId", id.to_string());
            }
        }
        identity
    }

    async fn run(
        &mut self,
        database: &str,
        command: &Document,
        deadline: Option<Instant>,
    ) -> Result<Document, Failure> {
        let unusable = |error: &dyn core::fmt::Display| Failure::client(error.to_string());
        let body = RawDocumentBuf::try_from(command).map_err(|error| unusable(&error))?;
        let command = Command::new(database, &body);
        let reply = match left(&self.runtime, deadline) {
            None => self.connection.exchange(&command).await,
            left => self.connection.exchange_within(&command, left).await,
        };
        let reply = reply.map_err(|error| of_command(&error))?;
        Document::try_from(&*reply).map_err(|error| unusable(&error))
    }
}

fn of_check_out(error: &CheckOutError) -> Failure {
    match error {
        CheckOutError::Pool(error) => Failure::of_check_out(error),
        CheckOutError::Selection(error) => Failure::new(FailureKind::CheckOutTimeout, Cause::of(&**error).to_string()),
        error @ (CheckOutError::RuntimeGone(_) | _) => Failure::client(error.to_string()),
    }
}

fn of_command(error: &CommandError) -> Failure {
    let kind = match &error.kind {
        CommandErrorKind::Server(error) => return of_server(error),
        CommandErrorKind::Network(_) => FailureKind::Network { timeout: false },
        CommandErrorKind::Timeout(_) | CommandErrorKind::Interrupted(_) => FailureKind::Network { timeout: true },
        CommandErrorKind::NoTimeLeft { .. } => FailureKind::CheckOutTimeout,
        CommandErrorKind::Writes(_)
        | CommandErrorKind::NotSent(_)
        | CommandErrorKind::Unwritable(_)
        | CommandErrorKind::Protocol(_)
        | CommandErrorKind::Closed
        | CommandErrorKind::RuntimeGone(_)
        | _ => FailureKind::Client,
    };
    Failure::new(kind, error.to_string())
}

/// The server's error, with what a client keeps of the reply.
fn of_server(error: &ServerError) -> Failure {
    let mut reply = doc! { "ok": 0.0, "errmsg": error.message.as_str() };
    if let Some(code) = error.code {
        reply.insert("code", code);
    }
    if let Some(name) = &error.code_name {
        reply.insert("codeName", name.as_str());
    }
    if !error.labels.is_empty() {
        reply.insert("errorLabels", error.labels.clone());
    }
    Failure::of_reply(&reply).unwrap_or_else(|| Failure::client(error.to_string()))
}

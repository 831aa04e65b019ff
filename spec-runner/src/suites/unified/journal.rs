//! What a client notes while a test runs: events and log messages, in the order in which they happened.
//!
//! Only what its entity asks for is noted, as in the files: a test counts and compares what is here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::{Bson, Document, doc};
use cmap_core::address::ServerAddress;
use cmap_core::log::{self, LogRecord, LogValue, MaxDocumentLength, TopologyId};
use cmap_core::pool::Event;
use cmap_core::server::{CommandEvent, HeartbeatEvent, ServerEvent};
use cmap_core::topology::{SelectionEvent, SelectionEventKind, TopologyEvent};
use cmap_runtime::exports::SpanOptions;

use super::format::{ClientEntity, EventName, ExpectedEvent, Severity};
use super::matching::Saved;
use crate::suites::{extended_json, pool_event};

/// The journal of one client. Clones share the notes.
#[derive(Clone, Debug)]
pub struct Journal {
    wanted: Arc<ClientEntity>,
    notes: Arc<Mutex<Notes>>,
}

/// What is in a journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// The events.
    pub events: Vec<Noted>,
    /// The log messages.
    pub messages: Vec<Message>,
    /// The `lsid` of the last two commands, the last one first.
    pub lsids: [Option<Document>; 2],
}

/// An event as it happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Noted {
    /// Its type.
    pub name: EventName,
    /// Its fields.
    pub fields: Document,
}

/// A log message as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// How severe it is.
    pub level: Severity,
    /// What it is about.
    pub component: &'static str,
    /// Its fields.
    pub data: Document,
}

/// Journals are kept apart, so their topologies need not be.
const TOPOLOGY: TopologyId = TopologyId(1);

/// Cases match replies field by field, so they must not be cut.
const WHOLE: MaxDocumentLength = MaxDocumentLength(usize::MAX);

/// Commands whose events may hold secrets (LOG-15), and the hellos that do when they authenticate.
const SENSITIVE: [&str; 9] = [
    "authenticate",
    "saslStart",
    "saslContinue",
    "getnonce",
    "createUser",
    "updateUser",
    "copydbgetnonce",
    "copydbsaslstart",
    "copydb",
];

impl Journal {
    /// An empty journal for what `wanted` observes.
    pub fn new(wanted: &ClientEntity) -> Self {
        Self { wanted: Arc::new(wanted.clone()), notes: Arc::default() }
    }

    /// Whether the client has spans, and what they show.
    pub fn spans(&self) -> SpanOptions {
        let mut options = SpanOptions::default();
        let wanted = self.wanted.observe_tracing_messages.as_ref();
        options.enabled = Some(wanted.is_some());
        let shows_commands = wanted.is_some_and(|wanted| wanted.enable_command_payload);
        options.query_text_max_length = Some(if shows_commands { usize::MAX } else { 0 });
        options
    }

    /// What was noted so far.
    pub fn read(&self) -> MutexGuard<'_, Notes> {
        // A writer that panicked has failed the test; its notes so far are still true.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.read() = Notes::default();
    }

    /// How many events are as `expected`.
    pub fn count(&self, expected: &ExpectedEvent, saved: Saved<'_>) -> usize {
        let is_one = |noted: &&Noted| noted.name == expected.name && expected.compare(&noted.fields, saved).is_ok();
        self.read().events.iter().filter(is_one).count()
    }

    /// Notes an event, if it is wanted.
    pub fn event(&self, name: EventName, fields: impl FnOnce() -> Document) {
        if self.wanted.observe_events.contains(&name) {
            self.read().events.push(Noted { name, fields: fields() });
        }
    }

    /// Notes an event of a command to the server at `address`, and its log message.
    pub fn command(&self, address: &ServerAddress, event: &CommandEvent) {
        let sent = event.sent();
        // Clients that set fail points log nothing that counts.
        if sent.name != "configureFailPoint" {
            self.message(log::COMMAND_COMPONENT, || Some(LogRecord::of_command(address, event, WHOLE)));
        }
        let (name, document) = match event {
            CommandEvent::CommandStarted { document, .. } => {
                (EventName::CommandStartedEvent, Some(("command", document)))
            }
            CommandEvent::CommandSucceeded { reply, .. } => (EventName::CommandSucceededEvent, Some(("reply", reply))),
            CommandEvent::CommandFailed { .. } | _ => (EventName::CommandFailedEvent, None),
        };
        if name == EventName::CommandStartedEvent && sent.name != "configureFailPoint" {
            let lsid = document.and_then(|(_, document)| document.get_document("lsid").ok());
            let lsid = lsid.and_then(|lsid| Document::try_from(lsid).ok());
            let mut notes = self.read();
            notes.lsids.rotate_right(1);
            notes.lsids[0] = lsid;
        }
        self.command_event(name, &sent.name, || {
            let mut fields = doc! { "commandName": sent.name.as_str(), "databaseName": sent.database.as_str() };
            if let Some(id) = sent.server_connection_id {
                fields.insert("serverConnectionId", id);
            }
            if let Some(id) = sent.service_id {
                fields.insert("serviceId", id.to_string());
            }
            let document = document.and_then(|(key, document)| Some((key, Document::try_from(&**document).ok()?)));
            fields.extend(document.map(|(key, document)| (key.to_owned(), Bson::from(document))));
            fields
        });
    }

    /// The sessions of the last two commands, the last one first.
    pub fn last_lsids(&self) -> [Option<Document>; 2] {
        self.read().lsids.clone()
    }

    /// Notes an event of a command, if it is wanted. Commands that set fail points are never noted; those that may hold
    /// secrets only if the client observes sensitive commands.
    fn command_event(&self, name: EventName, command: &str, fields: impl FnOnce() -> Document) {
        let ignored = self.wanted.ignore_command_monitoring_events.iter().any(|ignored| ignored == command);
        let sensitive = SENSITIVE.contains(&command) && !self.wanted.observe_sensitive_commands;
        if command != "configureFailPoint" && !ignored && !sensitive {
            self.event(name, fields);
        }
    }

    /// Notes an event of the pool of `address`, and its log message.
    pub fn pool_event(&self, address: &ServerAddress, event: &Event) {
        self.event(pool_event_name(event), || pool_event_fields(address, event));
        self.message(log::COMPONENT, || Some(LogRecord::new(address, event)));
    }

    /// Notes an event of the server at `address` or of its monitor, and its log message.
    pub fn server_event(&self, address: &ServerAddress, event: &ServerEvent) {
        if let Some(name) = server_event_name(event) {
            self.event(name, || server_event_fields(address, event));
        }
        self.message(log::TOPOLOGY_COMPONENT, || LogRecord::of_server(TOPOLOGY, address, event, WHOLE));
    }

    /// Notes an event of the topology, and its log message.
    pub fn topology_event(&self, event: &TopologyEvent) {
        let name = match event {
            TopologyEvent::TopologyOpening => EventName::TopologyOpeningEvent,
            TopologyEvent::TopologyDescriptionChanged { .. } => EventName::TopologyDescriptionChangedEvent,
            TopologyEvent::TopologyClosed | _ => EventName::TopologyClosedEvent,
        };
        self.event(name, || topology_event_fields(event));
        self.message(log::TOPOLOGY_COMPONENT, || Some(LogRecord::of_topology(TOPOLOGY, event)));
    }

    /// Notes the log message of a selection. That it waits is worth the level info (SEL-42).
    pub fn selection_event(&self, event: &SelectionEvent) {
        let waits = matches!(event.kind, SelectionEventKind::Waiting { .. });
        let level = if waits { Severity::Info } else { Severity::Debug };
        self.message_of(level, log::SELECTION_COMPONENT, || Some(LogRecord::of_selection(event)));
    }

    /// Notes a log message of the level debug, if it is wanted (LOG-10, LOG-14).
    fn message(&self, component: &'static str, record: impl FnOnce() -> Option<LogRecord>) {
        self.message_of(Severity::Debug, component, record);
    }

    fn message_of(&self, level: Severity, component: &'static str, record: impl FnOnce() -> Option<LogRecord>) {
        let is_wanted = self.wanted.observe_log_messages.get(component).is_some_and(|least| *least >= level);
        if let Some(record) = is_wanted.then(record).flatten() {
            let data = record.fields().iter().map(|(name, value)| ((*name).to_owned(), log_value(value))).collect();
            self.read().messages.push(Message { level, component, data });
        }
    }
}

fn log_value(value: &LogValue) -> Bson {
    match value {
        LogValue::Text(text) => Bson::from(&**text),
        LogValue::Integer(number) => i64::try_from(*number).map_or(Bson::Null, Bson::Int64),
        LogValue::Millis(millis) => Bson::Double(*millis),
        LogValue::Boolean(is) => Bson::Boolean(*is),
    }
}

fn pool_event_name(event: &Event) -> EventName {
    match event {
        Event::PoolCreated { .. } => EventName::PoolCreatedEvent,
        Event::PoolReady => EventName::PoolReadyEvent,
        Event::PoolCleared { .. } => EventName::PoolClearedEvent,
        Event::ConnectionCreated { .. } => EventName::ConnectionCreatedEvent,
        Event::ConnectionReady { .. } => EventName::ConnectionReadyEvent,
        Event::ConnectionClosed { .. } => EventName::ConnectionClosedEvent,
        Event::ConnectionCheckOutStarted { .. } => EventName::ConnectionCheckOutStartedEvent,
        Event::ConnectionCheckOutFailed { .. } => EventName::ConnectionCheckOutFailedEvent,
        Event::ConnectionCheckedOut { .. } => EventName::ConnectionCheckedOutEvent,
        Event::ConnectionCheckedIn { .. } => EventName::ConnectionCheckedInEvent,
        Event::PoolClosed | _ => EventName::PoolClosedEvent,
    }
}

fn pool_event_fields(address: &ServerAddress, event: &Event) -> Document {
    let fields = pool_event::fields(event, &address.to_string(), |_| None);
    // JSON of scalars and objects is Extended JSON.
    extended_json::document(fields.into()).unwrap_or_default()
}

/// The name of an event that a test can ask for; `None` for `ServerOpening` and `ServerClosed`, which have no name here.
fn server_event_name(event: &ServerEvent) -> Option<EventName> {
    Some(match event {
        ServerEvent::ServerDescriptionChanged { .. } => EventName::ServerDescriptionChangedEvent,
        ServerEvent::Heartbeat(HeartbeatEvent::Started { .. }) => EventName::ServerHeartbeatStartedEvent,
        ServerEvent::Heartbeat(HeartbeatEvent::Succeeded { .. }) => EventName::ServerHeartbeatSucceededEvent,
        ServerEvent::Heartbeat(HeartbeatEvent::Failed { .. }) => EventName::ServerHeartbeatFailedEvent,
        ServerEvent::ServerOpening | ServerEvent::ServerClosed | _ => return None,
    })
}

fn server_event_fields(address: &ServerAddress, event: &ServerEvent) -> Document {
    let mut fields = doc! { "address": address.to_string() };
    match event {
        ServerEvent::ServerDescriptionChanged { previous, new } => {
            fields.insert("previousDescription", doc! { "type": previous.server_type.name() });
            fields.insert("newDescription", doc! { "type": new.server_type.name() });
        }
        ServerEvent::Heartbeat(HeartbeatEvent::Started { awaited, .. })
        | ServerEvent::Heartbeat(HeartbeatEvent::Succeeded { awaited, .. })
        | ServerEvent::Heartbeat(HeartbeatEvent::Failed { awaited, .. }) => drop(fields.insert("awaited", *awaited)),
        ServerEvent::ServerOpening | ServerEvent::ServerClosed | _ => {}
    }
    fields
}

fn topology_event_fields(event: &TopologyEvent) -> Document {
    match event {
        TopologyEvent::TopologyDescriptionChanged { previous, new } => doc! {
            "previousDescription": { "type": previous.topology_type.name() },
            "newDescription": { "type": new.topology_type.name() },
        },
        TopologyEvent::TopologyOpening | TopologyEvent::TopologyClosed | _ => Document::new(),
    }
}

//! Log records, derived from events: exact messages, keys and reasons (LOG-10 to LOG-14).
//!
//! A record is made only when a logger reads it (LOG-9). Its component is [`COMPONENT`] for the pool (LOG-10),
//! [`TOPOLOGY_COMPONENT`] for a server and its monitor (LOG-14), [`SELECTION_COMPONENT`] for the selection of a server
//! (SEL-41). Its severity is debug, but for a selection that waits, which is info (SEL-42). Fields that do not apply are left
//! out, never null (LOG-6). [`LogRecord`] displays as the specification's unstructured form.

#[cfg(feature = "wire")]
mod command;
#[cfg(feature = "wire")]
mod extended_json;
mod selection;
mod server;
mod topology;

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use core::time::Duration;

use serde::{Serialize, Serializer};

use crate::address::ServerAddress;
use crate::pool::{Cause, ConnectionId};
use crate::pool::{CheckOutFailedReason, ConnectionClosedReason, Event};

#[cfg(feature = "wire")]
pub use self::command::COMMAND_COMPONENT;
#[cfg(feature = "wire")]
pub use self::extended_json::extended_json;
pub use self::server::MaxDocumentLength;
pub use self::topology::TopologyId;

/// The component of every pool message (LOG-10).
pub const COMPONENT: &str = "connection";

/// The component of every message about a topology, its servers and their heartbeats (LOG-14).
pub const TOPOLOGY_COMPONENT: &str = "topology";

/// The component of every message about the selection of a server (SEL-41).
pub const SELECTION_COMPONENT: &str = "serverSelection";

/// One log message: its fields in the specification's order, `message` first.
#[derive(Clone, Debug, PartialEq)]
pub struct LogRecord {
    fields: Vec<(&'static str, LogValue)>,
    unstructured: String,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum LogValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Integer(u64),
    /// Milliseconds with their fraction.
    Millis(f64),
    /// True or false.
    Boolean(bool),
}

impl LogRecord {
    /// The record of `event`, which happened in the pool of `address`.
    pub fn new(address: &ServerAddress, event: &Event) -> Self {
        let mut record = Fields::new(address);
        let at = address_text(address);
        let unstructured = match event {
            Event::PoolCreated { options } => {
                record.message("Connection pool created");
                let mut listed = String::new();
                for (name, value) in options.set_by_user() {
                    record.add(name, LogValue::Integer(value));
                    let separator = if listed.is_empty() { " using options " } else { ", " };
                    listed += &alloc::format!("{separator}{name}={value}");
                }
                alloc::format!("Connection pool created for {at}{listed}")
            }
            Event::PoolReady => {
                record.message("Connection pool ready");
                alloc::format!("Connection pool ready for {at}")
            }
            Event::PoolCleared { service_id, .. } => {
                record.message("Connection pool cleared");
                match service_id {
                    None => alloc::format!("Connection pool for {at} cleared"),
                    Some(id) => {
                        record.text("serviceId", id.to_string());
                        alloc::format!("Connection pool for {at} cleared for serviceId {id}")
                    }
                }
            }
            Event::PoolClosed => {
                record.message("Connection pool closed");
                alloc::format!("Connection pool closed for {at}")
            }
            Event::ConnectionCreated { connection_id } => {
                record.message("Connection created");
                let connection = record.connection(&at, *connection_id);
                alloc::format!("Connection created: {connection}")
            }
            Event::ConnectionReady { connection_id, duration } => {
                record.message("Connection ready");
                let connection = record.connection(&at, *connection_id);
                let millis = record.duration(*duration);
                alloc::format!("Connection ready: {connection}, established in={millis} ms")
            }
            Event::ConnectionClosed { connection_id, reason, error } => {
                record.message("Connection closed");
                let connection = record.connection(&at, *connection_id);
                let reason = closed_reason(*reason);
                record.text("reason", reason);
                let error = record.error(error.as_deref().map(|error| error as &dyn Error));
                alloc::format!("Connection closed: {connection}. Reason: {reason}{error}")
            }
            Event::ConnectionCheckOutStarted { .. } => {
                record.message("Connection checkout started");
                alloc::format!("Checkout started for connection to {at}")
            }
            Event::ConnectionCheckOutFailed { reason, error, duration, .. } => {
                record.message("Connection checkout failed");
                let explained = *reason == CheckOutFailedReason::ConnectionError;
                let reason = failed_reason(*reason);
                record.text("reason", reason);
                let error = record.error(explained.then_some(&**error));
                let millis = record.duration(*duration);
                alloc::format!("Checkout failed for connection to {at}. Reason: {reason}{error}. Duration: {millis} ms")
            }
            Event::ConnectionCheckedOut { connection_id, duration, .. } => {
                record.message("Connection checked out");
                let connection = record.connection(&at, *connection_id);
                let millis = record.duration(*duration);
                alloc::format!("Connection checked out: {connection}, duration={millis} ms")
            }
            Event::ConnectionCheckedIn { connection_id } => {
                record.message("Connection checked in");
                let connection = record.connection(&at, *connection_id);
                alloc::format!("Connection checked in: {connection}")
            }
        };
        Self { fields: record.0, unstructured }
    }

    /// The fields, in the specification's order.
    pub fn fields(&self) -> &[(&'static str, LogValue)] {
        &self.fields
    }

    /// The value of a field, if the record has it.
    pub fn field(&self, name: &str) -> Option<&LogValue> {
        self.fields.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }
}

impl fmt::Display for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.unstructured)
    }
}

impl Serialize for LogRecord {
    /// The structured form: a map.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.fields.iter().map(|(name, value)| (name, value)))
    }
}

impl Serialize for LogValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Integer(number) => serializer.serialize_u64(*number),
            Self::Millis(millis) => serializer.serialize_f64(*millis),
            Self::Boolean(is) => serializer.serialize_bool(*is),
        }
    }
}

/// LOG-12.
fn closed_reason(reason: ConnectionClosedReason) -> &'static str {
    match reason {
        ConnectionClosedReason::Stale => "Connection became stale because the pool was cleared",
        ConnectionClosedReason::Idle => {
            "Connection has been available but unused for longer than the configured max idle time"
        }
        ConnectionClosedReason::Error => "An error occurred while using the connection",
        ConnectionClosedReason::PoolClosed => "Connection pool was closed",
        ConnectionClosedReason::Surplus => "There were more connections than the pool's limits allow",
    }
}

/// LOG-13.
fn failed_reason(reason: CheckOutFailedReason) -> &'static str {
    match reason {
        CheckOutFailedReason::Timeout => "Wait queue timeout elapsed without a connection becoming available",
        CheckOutFailedReason::ConnectionError => "An error occurred while trying to establish a new connection",
        CheckOutFailedReason::PoolClosed => "Connection pool was closed",
    }
}

fn address_text(address: &ServerAddress) -> String {
    match address {
        ServerAddress::Tcp { host, port } => alloc::format!("{host}:{port}"),
        ServerAddress::Unix { path } => path.clone(),
    }
}

/// The fields of a record while it is put together.
struct Fields(Vec<(&'static str, LogValue)>);

impl Fields {
    fn new(address: &ServerAddress) -> Self {
        let mut fields = Self(Vec::with_capacity(8));
        fields.message("");
        fields.address(address);
        fields
    }

    fn address(&mut self, address: &ServerAddress) {
        match address {
            ServerAddress::Tcp { host, port } => {
                self.text("serverHost", host.clone());
                self.add("serverPort", LogValue::Integer((*port).into()));
            }
            ServerAddress::Unix { path } => self.text("serverHost", path.clone()),
        }
    }

    fn message(&mut self, text: &'static str) {
        let message = ("message", LogValue::Text(text.into()));
        match self.0.first_mut() {
            Some(first) => *first = message,
            None => self.0.push(message),
        }
    }

    fn add(&mut self, name: &'static str, value: LogValue) {
        self.0.push((name, value));
    }

    fn text(&mut self, name: &'static str, text: impl Into<Cow<'static, str>>) {
        self.add(name, LogValue::Text(text.into()));
    }

    fn connection(&mut self, at: &str, id: ConnectionId) -> String {
        self.add("driverConnectionId", LogValue::Integer(id.get()));
        alloc::format!("address={at}, driver-generated ID={id}")
    }

    #[expect(clippy::cast_precision_loss, reason = "a duration of 104 days still has microseconds")]
    fn duration(&mut self, duration: Duration) -> f64 {
        let millis = duration.as_nanos() as f64 / 1e6;
        self.add("durationMS", LogValue::Millis(millis));
        millis
    }

    /// Adds the error with its sources; returns the end of the unstructured form.
    fn error(&mut self, error: Option<&dyn Error>) -> String {
        let Some(error) = error else { return String::new() };
        let text = Cause::of(error).to_string();
        let end = alloc::format!(". Error: {text}");
        self.text("error", text);
        end
    }
}

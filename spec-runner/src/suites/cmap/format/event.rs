//! The events of a pool, as test files expect them.

use core::fmt::Write;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::PoolOptions;
use crate::suites::matching::is_anything;
use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// The eleven events (CMAP-52, CMAP-53).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum EventType {
    /// The pool was created.
    ConnectionPoolCreated,
    /// The pool became ready.
    ConnectionPoolReady,
    /// The pool was cleared.
    ConnectionPoolCleared,
    /// The pool was closed.
    ConnectionPoolClosed,
    /// A connection was created.
    ConnectionCreated,
    /// A connection was established.
    ConnectionReady,
    /// A connection was closed.
    ConnectionClosed,
    /// A check-out began.
    ConnectionCheckOutStarted,
    /// A check-out ended without a connection.
    ConnectionCheckOutFailed,
    /// A check-out ended with a connection.
    ConnectionCheckedOut,
    /// A connection was checked in.
    ConnectionCheckedIn,
}

/// An expected event: a JSON object with a known type, known fields, and values that such a field can have.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedEvent {
    event_type: EventType,
    fields: Map<String, Value>,
}

/// One line on an event, expected or actual: its type, then its fields in a fixed order.
pub fn describe(event: &Map<String, Value>) -> String {
    let mut line = match event.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(other) => other.to_string(),
        None => "(no type)".into(),
    };
    let known = FIELDS.iter().filter_map(|&field| event.get_key_value(field));
    let others = event.iter().filter(|(key, _)| key.as_str() != "type" && !FIELDS.contains(&key.as_str()));
    for (key, value) in known.chain(others) {
        // Writing to a string cannot fail.
        let _ = write!(line, " {key}={value}");
    }
    line
}

/// The fields of an event apart from its type, the most telling first.
const FIELDS: [&str; 8] =
    ["connectionId", "reason", "error", "serviceId", "interruptInUseConnections", "options", "duration", "address"];

impl EventType {
    /// As files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConnectionPoolCreated => "ConnectionPoolCreated",
            Self::ConnectionPoolReady => "ConnectionPoolReady",
            Self::ConnectionPoolCleared => "ConnectionPoolCleared",
            Self::ConnectionPoolClosed => "ConnectionPoolClosed",
            Self::ConnectionCreated => "ConnectionCreated",
            Self::ConnectionReady => "ConnectionReady",
            Self::ConnectionClosed => "ConnectionClosed",
            Self::ConnectionCheckOutStarted => "ConnectionCheckOutStarted",
            Self::ConnectionCheckOutFailed => "ConnectionCheckOutFailed",
            Self::ConnectionCheckedOut => "ConnectionCheckedOut",
            Self::ConnectionCheckedIn => "ConnectionCheckedIn",
        }
    }

    /// Whether `event`, a JSON object, is of this type.
    pub fn is_of(self, event: &Value) -> bool {
        event.get("type").and_then(Value::as_str) == Some(self.name())
    }

    /// The reasons that an event of this type can give.
    fn reasons(self) -> &'static [&'static str] {
        match self {
            Self::ConnectionClosed => &["stale", "idle", "error", "poolClosed", "surplus"],
            Self::ConnectionCheckOutFailed => &["poolClosed", "timeout", "connectionError"],
            Self::ConnectionPoolCreated
            | Self::ConnectionPoolReady
            | Self::ConnectionPoolCleared
            | Self::ConnectionPoolClosed
            | Self::ConnectionCreated
            | Self::ConnectionReady
            | Self::ConnectionCheckOutStarted
            | Self::ConnectionCheckedOut
            | Self::ConnectionCheckedIn => &[],
        }
    }
}

impl ExpectedEvent {
    /// Reads the event that stands at `place`.
    pub(super) fn read(place: &Place, value: Value) -> Result<Self, Problem> {
        let fields: Map<String, Value> = read(place, value)?;
        let Some(name) = fields.get("type") else {
            return Err(Problem::at(place, "missing field `type`"));
        };
        let event_type = read(&place.key("type"), name.clone())?;
        for (field, value) in fields.iter().filter(|(field, _)| field.as_str() != "type") {
            check_field(&place.key(field), event_type, field, value)?;
        }
        Ok(Self { event_type, fields })
    }

    /// Its type.
    pub fn event_type(&self) -> EventType {
        self.event_type
    }

    /// The event as it is written.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// A field in use that only style "scenario" has.
    pub(super) fn extension(&self) -> Option<&'static str> {
        ["serviceId", "error"].into_iter().find(|&field| self.fields.contains_key(field))
    }
}

fn check_field(place: &Place, event_type: EventType, field: &str, value: &Value) -> Result<(), Problem> {
    if !FIELDS.contains(&field) {
        let known = FIELDS.join(", ");
        return Err(Problem::at(place, format!("unknown field of an event, expected one of {known}")));
    }
    if is_anything(value) {
        return Ok(());
    }
    let (fits, expected) = match field {
        "connectionId" => (value.as_u64().is_some_and(|id| id > 0), "a connection's number, from 1"),
        "duration" => (value.as_f64().is_some_and(|millis| millis >= 0.0), "a number of milliseconds"),
        "interruptInUseConnections" => (value.is_boolean(), "a boolean"),
        "options" => return check_options(place, value),
        "reason" => return check_reason(place, event_type, value),
        _ => (value.is_string(), "a string"),
    };
    if fits { Ok(()) } else { Err(Problem::at(place, format!("expected {expected} or 42, not {value}"))) }
}

fn check_reason(place: &Place, event_type: EventType, reason: &Value) -> Result<(), Problem> {
    let known = event_type.reasons();
    if reason.as_str().is_some_and(|reason| known.contains(&reason)) {
        return Ok(());
    }
    let name = event_type.name();
    Err(Problem::at(
        place,
        if known.is_empty() {
            format!("{name} has no reason")
        } else {
            format!("unknown reason {reason} of {name}, expected one of {}", known.join(", "))
        },
    ))
}

fn check_options(place: &Place, options: &Value) -> Result<(), Problem> {
    let Value::Object(options) = options else {
        return Err(Problem::at(place, format!("expected an object or 42, not {options}")));
    };
    for (option, value) in options {
        let place = place.key(option);
        if !PoolOptions::NAMES.contains(&option.as_str()) {
            let known = PoolOptions::NAMES.join(", ");
            return Err(Problem::at(&place, format!("unknown option, expected one of {known}")));
        }
        if value.is_array() || value.is_object() {
            return Err(Problem::at(&place, format!("expected an option's value, not {value}")));
        }
    }
    Ok(())
}

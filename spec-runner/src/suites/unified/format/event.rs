//! Events of a client, as tests name and expect them.

use serde::Deserialize;
use serde_json::{Map, Value};

use bson::{Bson, Document};

use crate::suites::mismatch::Mismatch;
use crate::suites::unified::matching::{Pattern, Saved};

/// The families of events, each of which is compared separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// Commands and their ends.
    #[default]
    Command,
    /// The pool.
    Cmap,
    /// Servers, topologies and heartbeats.
    Sdam,
}

/// The types of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each is the specification's event of this name")]
pub enum EventName {
    CommandStartedEvent,
    CommandSucceededEvent,
    CommandFailedEvent,
    PoolCreatedEvent,
    PoolReadyEvent,
    PoolClearedEvent,
    PoolClosedEvent,
    ConnectionCreatedEvent,
    ConnectionReadyEvent,
    ConnectionClosedEvent,
    ConnectionCheckOutStartedEvent,
    ConnectionCheckOutFailedEvent,
    ConnectionCheckedOutEvent,
    ConnectionCheckedInEvent,
    ServerDescriptionChangedEvent,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
    ServerHeartbeatFailedEvent,
    TopologyOpeningEvent,
    TopologyDescriptionChangedEvent,
    TopologyClosedEvent,
}

/// An event that a test expects: its type, and what must hold for its fields.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct ExpectedEvent {
    /// Its type.
    pub name: EventName,
    fields: Vec<(String, Pattern)>,
}

impl EventName {
    /// The family.
    pub fn kind(self) -> EventKind {
        match self {
            Self::CommandStartedEvent | Self::CommandSucceededEvent | Self::CommandFailedEvent => EventKind::Command,
            Self::PoolCreatedEvent
            | Self::PoolReadyEvent
            | Self::PoolClearedEvent
            | Self::PoolClosedEvent
            | Self::ConnectionCreatedEvent
            | Self::ConnectionReadyEvent
            | Self::ConnectionClosedEvent
            | Self::ConnectionCheckOutStartedEvent
            | Self::ConnectionCheckOutFailedEvent
            | Self::ConnectionCheckedOutEvent
            | Self::ConnectionCheckedInEvent => EventKind::Cmap,
            Self::ServerDescriptionChangedEvent
            | Self::ServerHeartbeatStartedEvent
            | Self::ServerHeartbeatSucceededEvent
            | Self::ServerHeartbeatFailedEvent
            | Self::TopologyOpeningEvent
            | Self::TopologyDescriptionChangedEvent
            | Self::TopologyClosedEvent => EventKind::Sdam,
        }
    }

    /// The fields that a test can expect something of.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::CommandStartedEvent => {
                &["command", "commandName", "databaseName", "hasServiceId", "hasServerConnectionId"]
            }
            Self::CommandSucceededEvent => {
                &["reply", "commandName", "databaseName", "hasServiceId", "hasServerConnectionId"]
            }
            Self::CommandFailedEvent => &["commandName", "databaseName", "hasServiceId", "hasServerConnectionId"],
            Self::PoolClearedEvent => &["hasServiceId", "interruptInUseConnections"],
            Self::ConnectionClosedEvent | Self::ConnectionCheckOutFailedEvent => &["reason"],
            Self::ServerDescriptionChangedEvent | Self::TopologyDescriptionChangedEvent => {
                &["previousDescription", "newDescription"]
            }
            Self::ServerHeartbeatStartedEvent
            | Self::ServerHeartbeatSucceededEvent
            | Self::ServerHeartbeatFailedEvent => &["awaited"],
            Self::PoolCreatedEvent
            | Self::PoolReadyEvent
            | Self::PoolClosedEvent
            | Self::ConnectionCreatedEvent
            | Self::ConnectionReadyEvent
            | Self::ConnectionCheckOutStartedEvent
            | Self::ConnectionCheckedOutEvent
            | Self::ConnectionCheckedInEvent
            | Self::TopologyOpeningEvent
            | Self::TopologyClosedEvent => &[],
        }
    }
}

impl TryFrom<Map<String, Value>> for ExpectedEvent {
    type Error = String;

    fn try_from(event: Map<String, Value>) -> Result<Self, String> {
        let mut entries = event.into_iter();
        let (Some((name, Value::Object(fields))), None) = (entries.next(), entries.next()) else {
            return Err("expected an object whose only key is the type of an event".into());
        };
        let name = EventName::deserialize(Value::from(name)).map_err(|error| format!("unknown event: {error}"))?;
        let fields = fields.into_iter().map(|(key, value)| {
            if !name.fields().contains(&key.as_str()) {
                return Err(format!("unknown field `{key}` of {name:?}"));
            }
            Pattern::try_from(value).map(|pattern| (key, pattern))
        });
        Ok(Self { name, fields: fields.collect::<Result<_, _>>()? })
    }
}

impl ExpectedEvent {
    /// Whether `fields`, of an event of this type, are as expected. Documents in them may have more keys than expected.
    pub fn compare(&self, fields: &Document, saved: Saved<'_>) -> Result<(), Mismatch> {
        self.fields.iter().try_for_each(|(key, pattern)| {
            let presence;
            let actual = match key.as_str() {
                "hasServiceId" => {
                    presence = Bson::Boolean(fields.contains_key("serviceId"));
                    Some(&presence)
                }
                "hasServerConnectionId" => {
                    presence = Bson::Boolean(fields.contains_key("serverConnectionId"));
                    Some(&presence)
                }
                key => fields.get(key),
            };
            pattern.compare(actual, saved).map_err(|mismatch| mismatch.below(key))
        })
    }
}

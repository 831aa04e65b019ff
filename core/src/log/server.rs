//! Log records of a server and its monitor, derived from their events (LOG-14).

use alloc::string::{String, ToString};
use core::time::Duration;

use super::topology::{TopologyId, of_topology};
use super::{Fields, LogRecord, LogValue, address_text};
use crate::address::ServerAddress;
use crate::monitor::{HeartbeatEvent, MonitorConnection};
use crate::server::ServerEvent;

/// How many bytes of a document a record shows before it is cut, at the end of a character, and ends in `...` (LOG-5).
/// Default 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaxDocumentLength(pub usize);

impl Default for MaxDocumentLength {
    fn default() -> Self {
        Self(1000)
    }
}

impl MaxDocumentLength {
    /// `text`, cut to this length (LOG-5). It may not be valid JSON any more.
    pub fn cut(self, mut text: String) -> String {
        let Self(most) = self;
        if text.len() > most {
            let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
            text.truncate(end);
            text.push_str("...");
        }
        text
    }
}

impl LogRecord {
    /// The record of `event`, which happened to the server at `address`; of a reply it shows at most `most`. A new
    /// description of a server has no record of its own: the change of its topology reports it.
    pub fn of_server(
        topology: TopologyId,
        address: &ServerAddress,
        event: &ServerEvent,
        most: MaxDocumentLength,
    ) -> Option<Self> {
        let TopologyId(id) = topology;
        let at = address_text(address);
        let (mut record, unstructured) = match event {
            ServerEvent::ServerOpening => {
                let record = of_server("Starting server monitoring", topology, address);
                (record, alloc::format!("Starting monitoring for server {at} in topology with ID {id}"))
            }
            ServerEvent::ServerClosed => {
                let record = of_server("Stopped server monitoring", topology, address);
                (record, alloc::format!("Stopped monitoring for server {at} in topology with ID {id}"))
            }
            ServerEvent::Heartbeat(HeartbeatEvent::Started { connection, awaited }) => {
                let (record, on) = heartbeat("Server heartbeat started", topology, address, *connection, *awaited);
                (record, alloc::format!("Heartbeat started for {on}"))
            }
            ServerEvent::Heartbeat(HeartbeatEvent::Succeeded { connection, duration, reply, awaited }) => {
                let (mut record, on) =
                    heartbeat("Server heartbeat succeeded", topology, address, *connection, *awaited);
                let took = took(&mut record, *duration);
                let reply = reply_text(reply, most);
                let unstructured = alloc::format!("Heartbeat succeeded {took} for {on}. Reply: {reply}");
                record.text("reply", reply);
                (record, unstructured)
            }
            ServerEvent::Heartbeat(HeartbeatEvent::Failed { connection, duration, failure, awaited }) => {
                let (mut record, on) = heartbeat("Server heartbeat failed", topology, address, *connection, *awaited);
                let took = took(&mut record, *duration);
                let failure = failure.to_string();
                let unstructured = alloc::format!("Heartbeat failed {took} for {on}. Failure: {failure}");
                record.text("failure", failure);
                (record, unstructured)
            }
            ServerEvent::ServerDescriptionChanged { .. } => return None,
        };
        record.0.shrink_to_fit();
        Some(Self { fields: record.0, unstructured })
    }
}

fn of_server(message: &'static str, topology: TopologyId, address: &ServerAddress) -> Fields {
    let mut record = of_topology(message, topology);
    record.address(address);
    record
}

/// The fields that all records of heartbeats have, and the end of their unstructured forms.
fn heartbeat(
    message: &'static str,
    topology: TopologyId,
    address: &ServerAddress,
    connection: MonitorConnection,
    awaited: bool,
) -> (Fields, String) {
    let mut record = of_server(message, topology, address);
    record.add("awaited", LogValue::Boolean(awaited));
    record.add("driverConnectionId", LogValue::Integer(connection.id));
    let server_id = connection.server_id.and_then(|id| u64::try_from(id).ok());
    let mut known = String::new();
    if let Some(server_id) = server_id {
        record.add("serverConnectionId", LogValue::Integer(server_id));
        known = alloc::format!(" and server-generated ID {server_id}");
    }
    let on = alloc::format!(
        "{} on connection with driver-generated ID {}{known} in topology with ID {}. Awaited: {awaited}",
        address_text(address),
        connection.id,
        topology.0
    );
    (record, on)
}

fn took(record: &mut Fields, duration: Duration) -> String {
    let millis = record.duration(duration);
    alloc::format!("in {millis} ms")
}

#[cfg(feature = "wire")]
fn reply_text(reply: &[u8], most: MaxDocumentLength) -> String {
    bson::RawDocument::from_bytes(reply).map(|reply| most.extended_json(reply)).unwrap_or_default()
}

/// Without these features there is no monitor that could have got a reply.
#[cfg(not(feature = "wire"))]
fn reply_text(_: &[u8], _: MaxDocumentLength) -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_cut_between_two_characters_log_5() {
        for (text, most, expected) in [
            ("{\"ok\":1}", 8, "{\"ok\":1}"),
            ("{\"ok\":1}", 7, "{\"ok\":1..."),
            ("aä€", 6, "aä€"),
            ("aä€", 5, "aä..."),
            ("aä€", 3, "aä..."),
            ("aä€", 2, "a..."),
            ("ä", 0, "..."),
        ] {
            assert_eq!(MaxDocumentLength(most).cut(text.into()), expected, "{text} at {most}");
        }
    }
}

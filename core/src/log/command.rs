//! Log records of commands, derived from their events (LOG-16).

use alloc::format;
use alloc::string::ToString;

use super::{Fields, LogRecord, LogValue, MaxDocumentLength, address_text};
use crate::address::ServerAddress;
use crate::server::{CommandEvent, SentCommand};

/// The component of every message about a command (LOG-16).
pub const COMMAND_COMPONENT: &str = "command";

impl LogRecord {
    /// The record of `event`, which happened to a command at the server of `address`; of documents it shows at most `most`.
    pub fn of_command(address: &ServerAddress, event: &CommandEvent, most: MaxDocumentLength) -> Self {
        let mut record = Fields::new(address);
        let sent = event.sent();
        add_identity(&mut record, sent);
        let name = &sent.name;
        let on = on(address, sent);
        let unstructured = match event {
            CommandEvent::CommandStarted { document, .. } => {
                record.message("Command started");
                let document = most.extended_json(document);
                let unstructured =
                    format!("Command \"{name}\" started on database {:?} {on}. Command: {document}", sent.database);
                record.text("command", document);
                unstructured
            }
            CommandEvent::CommandSucceeded { duration, reply, .. } => {
                record.message("Command succeeded");
                let millis = record.duration(*duration);
                let reply = most.extended_json(reply);
                let unstructured = format!(
                    "Command \"{name}\" succeeded on database {:?} in {millis} ms {on}. Command reply: {reply}",
                    sent.database
                );
                record.text("reply", reply);
                unstructured
            }
            CommandEvent::CommandFailed { duration, failure, .. } => {
                record.message("Command failed");
                let millis = record.duration(*duration);
                let failure = failure.to_string();
                let unstructured = format!(
                    "Command \"{name}\" failed on database {:?} in {millis} ms {on}. Error: {failure}",
                    sent.database
                );
                record.text("failure", failure);
                unstructured
            }
        };
        Self { fields: record.0, unstructured }
    }
}

fn add_identity(record: &mut Fields, sent: &SentCommand) {
    record.text("commandName", sent.name.clone());
    record.text("databaseName", sent.database.clone());
    record.add("requestId", LogValue::Integer(u64::try_from(sent.request_id).unwrap_or_default()));
    if let Some(operation) = sent.operation_id {
        record.add("operationId", LogValue::Integer(operation));
    }
    record.add("driverConnectionId", LogValue::Integer(sent.connection_id.get()));
    if let Some(id) = sent.server_connection_id.and_then(|id| u64::try_from(id).ok()) {
        record.add("serverConnectionId", LogValue::Integer(id));
    }
    if let Some(id) = sent.service_id {
        record.text("serviceId", id.to_string());
    }
}

fn on(address: &ServerAddress, sent: &SentCommand) -> alloc::string::String {
    let server_id =
        sent.server_connection_id.map_or_else(Default::default, |id| format!(" and server-generated ID {id}"));
    let service = sent.service_id.map_or_else(Default::default, |id| format!(" with service ID {id}"));
    let operation = sent.operation_id.map_or_else(Default::default, |id| format!(" and the operation ID is {id}"));
    format!(
        "using a connection with driver-generated ID {}{server_id} to {}{service}. The requestID is {}{operation}",
        sent.connection_id,
        address_text(address),
        sent.request_id
    )
}

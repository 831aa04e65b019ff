//! Log records of server selection, derived from its events (SEL-41 to SEL-43).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::topology::description_text;
use super::{Fields, LogRecord, LogValue, address_text};
use crate::topology::{SelectionEvent, SelectionEventKind};

impl LogRecord {
    /// The record of `event`. Its severity is info if the selection waits, and debug otherwise.
    pub fn of_selection(event: &SelectionEvent) -> Self {
        let selector = event.selector.to_string();
        let topology = description_text(&event.topology);
        let mut record = Fields(Vec::with_capacity(8));
        record.message(message(&event.kind));
        record.text("selector", selector.clone());
        let mut named = String::new();
        if let Some(operation) = &event.operation {
            record.text("operation", operation.name.clone());
            record.add("operationId", LogValue::Integer(operation.id.unsigned_abs()));
            named = alloc::format!("for operation {} with ID {} ", operation.name, operation.id);
        }
        record.text("topologyDescription", topology.clone());
        let begin = alloc::format!("{named}using selector \"{selector}\"");
        let unstructured = match &event.kind {
            SelectionEventKind::Started => {
                alloc::format!("Server selection started {begin}. Topology description: {topology}")
            }
            SelectionEventKind::Succeeded { server } => {
                record.address(server);
                let at = address_text(server);
                alloc::format!("Server selection succeeded {begin}. Selected {at}. Topology description: {topology}")
            }
            SelectionEventKind::Failed { error } => {
                let failure = error.without_description().to_string();
                record.text("failure", failure.clone());
                alloc::format!("Server selection failed {begin}. Failure: {failure}. Topology description: {topology}")
            }
            SelectionEventKind::Waiting { remaining } => {
                let remaining = remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
                if let Some(millis) = remaining {
                    record.add("remainingTimeMS", LogValue::Integer(millis));
                }
                let left = remaining.map_or_else(|| "unlimited".to_string(), |millis| alloc::format!("{millis} ms"));
                alloc::format!(
                    "Waiting for server to become available {begin}. Remaining time: {left}. Topology description: {topology}"
                )
            }
        };
        record.0.shrink_to_fit();
        Self { fields: record.0, unstructured }
    }
}

fn message(kind: &SelectionEventKind) -> &'static str {
    match kind {
        SelectionEventKind::Started => "Server selection started",
        SelectionEventKind::Succeeded { .. } => "Server selection succeeded",
        SelectionEventKind::Failed { .. } => "Server selection failed",
        SelectionEventKind::Waiting { .. } => "Waiting for suitable server to become available",
    }
}

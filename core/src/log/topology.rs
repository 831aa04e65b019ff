//! Log records of a topology, derived from its events (LOG-14).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Fields, LogRecord, LogValue, address_text};
use crate::topology::{TopologyDescription, TopologyEvent};

/// A topology's number in the log, by which the caller tells its clients apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyId(pub u64);

impl LogRecord {
    /// The record of `event`, which happened to the topology with this number.
    pub fn of_topology(topology: TopologyId, event: &TopologyEvent) -> Self {
        let TopologyId(id) = topology;
        let (mut record, unstructured) = match event {
            TopologyEvent::TopologyOpening => {
                let record = of_topology("Starting topology monitoring", topology);
                (record, alloc::format!("Starting monitoring for topology with ID {id}"))
            }
            TopologyEvent::TopologyClosed => {
                let record = of_topology("Stopped topology monitoring", topology);
                (record, alloc::format!("Stopped monitoring for topology with ID {id}"))
            }
            TopologyEvent::TopologyDescriptionChanged { previous, new } => {
                let (previous, new) = (description_text(previous), description_text(new));
                let unstructured = alloc::format!(
                    "Description changed for topology with ID {id}. Previous description: {previous}. New description: {new}"
                );
                let mut record = of_topology("Topology description changed", topology);
                record.text("previousDescription", previous);
                record.text("newDescription", new);
                (record, unstructured)
            }
            TopologyEvent::ServersMissing => {
                let record = of_topology("Topology has no servers", topology);
                let why = "see whether its hosts belong to one deployment, and to the set that replicaSet names";
                (record, alloc::format!("The topology with ID {id} has no servers: {why}"))
            }
            TopologyEvent::SrvRecordsIgnored { count, cause } => {
                let mut record = of_topology("SRV records ignored", topology);
                record.add("ignoredRecords", LogValue::Integer(u64::try_from(*count).unwrap_or(u64::MAX)));
                record.text("failure", cause.to_string());
                (record, alloc::format!("Ignored {count} SRV records for topology with ID {id}: {cause}"))
            }
            TopologyEvent::SrvPollingFailed { cause } => {
                let mut record = of_topology("SRV polling failed", topology);
                record.text("failure", cause.to_string());
                (record, alloc::format!("Could not poll the SRV records for topology with ID {id}. Failure: {cause}"))
            }
        };
        record.0.shrink_to_fit();
        Self { fields: record.0, unstructured }
    }
}

pub(super) fn of_topology(message: &'static str, TopologyId(id): TopologyId) -> Fields {
    let mut record = Fields(Vec::with_capacity(8));
    record.message(message);
    record.add("topologyId", LogValue::Integer(id));
    record
}

/// A topology in a few words: its type, and its servers.
pub(super) fn description_text(description: &TopologyDescription) -> String {
    let mut text = description.topology_type.to_string();
    for server in &description.servers {
        let at = address_text(&server.address);
        text.push_str(&alloc::format!(", {at} {}", server.server_type));
        if let Some(error) = &server.error {
            text.push_str(&alloc::format!(" ({error})"));
        }
    }
    text
}

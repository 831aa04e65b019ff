//! What is known of a topology and its servers, and their events, in the words of test files.

use cmap_core::address::ServerAddress;
use cmap_core::server::{ServerDescription, ServerEvent, TopologyVersion};
use cmap_core::topology::{TopologyDescription, TopologyEvent};
use serde_json::{Map, Value, json};

/// What is known of the topology, with the generations of its servers' pools.
pub(super) fn topology(
    topology: &TopologyDescription,
    generation: impl Fn(&ServerAddress) -> Option<u64>,
) -> Map<String, Value> {
    let server = |server: &ServerDescription| {
        let version = |of: fn((i32, i32)) -> i32| server.wire_versions.map(of);
        let known = json!({
            "type": server.server_type.name(),
            "setName": server.set_name,
            "setVersion": server.set_version,
            "electionId": server.election_id.map(|id| json!({ "$oid": hex(id) })),
            "logicalSessionTimeoutMinutes": server.logical_session_timeout_minutes,
            "minWireVersion": version(|(oldest, _)| oldest),
            "maxWireVersion": version(|(_, newest)| newest),
            "topologyVersion": server.topology_version.map(topology_version),
            "error": server.error.as_ref().map(ToString::to_string),
            "pool": { "generation": generation(&server.address) },
        });
        (server.address.to_string(), known)
    };
    let servers: Map<String, Value> = topology.servers.iter().map(|known| server(known)).collect();
    let known = json!({
        "topologyType": topology.topology_type.name(),
        "setName": topology.set_name,
        "logicalSessionTimeoutMinutes": topology.logical_session_timeout_minutes(),
        "compatible": topology.is_compatible(),
        "maxSetVersion": topology.max_set_version,
        "maxElectionId": topology.max_election_id.map(|id| json!({ "$oid": hex(id) })),
        "servers": servers,
    });
    if let Value::Object(known) = known { known } else { Map::new() }
}

const TOPOLOGY_ID: &str = "the only one";

/// An event of the topology; `None` for one that the specification has not.
pub(super) fn topology_event(event: &TopologyEvent) -> Option<Value> {
    Some(match event {
        TopologyEvent::TopologyOpening => json!({ "topology_opening_event": { "topologyId": TOPOLOGY_ID } }),
        TopologyEvent::TopologyDescriptionChanged { previous, new } => json!({ "topology_description_changed_event": {
            "topologyId": TOPOLOGY_ID,
            "previousDescription": described_topology(previous),
            "newDescription": described_topology(new),
        } }),
        TopologyEvent::TopologyClosed => json!({ "topology_closed_event": { "topologyId": TOPOLOGY_ID } }),
        TopologyEvent::SrvRecordsIgnored { .. } | TopologyEvent::SrvPollingFailed { .. } | _ => return None,
    })
}

/// An event of the server at `address`; `None` for heartbeats, which these tests do not look at.
pub(super) fn server_event(address: &str, event: &ServerEvent) -> Option<Value> {
    Some(match event {
        ServerEvent::ServerOpening => {
            json!({ "server_opening_event": { "topologyId": TOPOLOGY_ID, "address": address } })
        }
        ServerEvent::ServerDescriptionChanged { previous, new } => json!({ "server_description_changed_event": {
            "topologyId": TOPOLOGY_ID,
            "address": address,
            "previousDescription": described(previous),
            "newDescription": described(new),
        } }),
        ServerEvent::ServerClosed => {
            json!({ "server_closed_event": { "topologyId": TOPOLOGY_ID, "address": address } })
        }
        ServerEvent::Heartbeat(_) | _ => return None,
    })
}

fn described_topology(topology: &TopologyDescription) -> Value {
    let servers: Vec<Value> = topology.servers.iter().map(|server| described(server)).collect();
    json!({ "topologyType": topology.topology_type.name(), "setName": topology.set_name, "servers": servers })
}

fn described(server: &ServerDescription) -> Value {
    json!({
        "address": server.address.to_string(),
        "type": server.server_type.name(),
        "hosts": server.hosts,
        "passives": server.passives,
        "arbiters": server.arbiters,
        "primary": server.primary,
        "setName": server.set_name,
    })
}

fn topology_version(TopologyVersion { process_id, counter }: TopologyVersion) -> Value {
    json!({ "processId": { "$oid": hex(process_id) }, "counter": { "$numberLong": counter.to_string() } })
}

fn hex(id: [u8; 12]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

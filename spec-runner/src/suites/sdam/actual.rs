//! What a server is known to be, and its events, in the words of test files.

use cmap_core::server::{ServerDescription, ServerEvent, TopologyDescription, TopologyVersion};
use serde_json::{Map, Value, json};

/// What is known of the topology, with the generation of the pool of its server.
pub(super) fn topology(topology: &TopologyDescription, generation: u64) -> Map<String, Value> {
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
            "pool": { "generation": generation },
        });
        (server.address.to_string(), known)
    };
    let servers: Map<String, Value> = topology.servers.iter().map(|known| server(known)).collect();
    let known = json!({
        "topologyType": topology.topology_type.name(),
        "setName": topology.set_name,
        "logicalSessionTimeoutMinutes": topology.logical_session_timeout_minutes(),
        "compatible": topology.is_compatible(),
        // They decide between several members of a set.
        "maxSetVersion": null,
        "maxElectionId": null,
        "servers": servers,
    });
    if let Value::Object(known) = known { known } else { Map::new() }
}

/// An event of the topology or the server; `None` for heartbeats, which these tests do not look at.
pub(super) fn event(address: &str, event: &ServerEvent) -> Option<Value> {
    let topology_id = "the only one";
    Some(match event {
        ServerEvent::TopologyOpening => json!({ "topology_opening_event": { "topologyId": topology_id } }),
        ServerEvent::TopologyDescriptionChanged { previous, new } => json!({ "topology_description_changed_event": {
            "topologyId": topology_id,
            "previousDescription": described_topology(previous),
            "newDescription": described_topology(new),
        } }),
        ServerEvent::TopologyClosed => json!({ "topology_closed_event": { "topologyId": topology_id } }),
        ServerEvent::ServerOpening => {
            json!({ "server_opening_event": { "topologyId": topology_id, "address": address } })
        }
        ServerEvent::ServerDescriptionChanged { previous, new } => json!({ "server_description_changed_event": {
            "topologyId": topology_id,
            "address": address,
            "previousDescription": described(previous),
            "newDescription": described(new),
        } }),
        ServerEvent::ServerClosed => {
            json!({ "server_closed_event": { "topologyId": topology_id, "address": address } })
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

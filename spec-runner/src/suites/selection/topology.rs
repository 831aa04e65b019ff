//! From what a file says of a topology to the core's description of it.

use core::time::Duration;
use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{TopologyDescription, TopologyType};

use super::format::{Server, Topology};

/// The description of `topology`; an error names what the core does not know.
pub(super) fn description(topology: &Topology) -> Result<TopologyDescription, String> {
    let topology_type = match topology.topology_type.as_str() {
        "Unknown" => TopologyType::Unknown,
        "Single" => TopologyType::Single,
        "ReplicaSetNoPrimary" => TopologyType::ReplicaSetNoPrimary,
        "ReplicaSetWithPrimary" => TopologyType::ReplicaSetWithPrimary,
        "Sharded" => TopologyType::Sharded,
        "LoadBalanced" => TopologyType::LoadBalanced,
        other => return Err(format!("topology_description.type: there is no type {other}")),
    };
    let servers = topology.servers.iter().map(|written| server(written).map(Arc::new)).collect::<Result<_, _>>()?;
    Ok(TopologyDescription::of_servers(topology_type, servers))
}

/// The address that `text` says.
pub(super) fn address(text: &str) -> Result<ServerAddress, String> {
    text.parse::<ServerAddress>().map_err(|error| error.to_string())
}

fn server(written: &Server) -> Result<ServerDescription, String> {
    let server_type = match written.server_type.as_str() {
        // The core does not tell the one that others take for the primary from the rest.
        "Unknown" | "PossiblePrimary" => ServerType::Unknown,
        "Standalone" => ServerType::Standalone,
        "Mongos" => ServerType::Mongos,
        "RSPrimary" => ServerType::RsPrimary,
        "RSSecondary" => ServerType::RsSecondary,
        "RSArbiter" => ServerType::RsArbiter,
        "RSOther" => ServerType::RsOther,
        "RSGhost" => ServerType::RsGhost,
        "LoadBalancer" => ServerType::LoadBalancer,
        other => return Err(format!("{}: there is no type {other}", written.address)),
    };
    let mut server = ServerDescription::new(Arc::new(address(&written.address)?), server_type);
    server.round_trip_time = written.avg_rtt_ms.map(Duration::from_millis);
    server.tags = written.tags.clone();
    server.wire_versions = written.max_wire_version.map(|newest| (0, newest));
    server.last_update_time = written.last_update_time.map(Instant::from_millis);
    if let Some(last_write) = &written.last_write {
        let digits = &last_write.last_write_date.digits;
        let millis = digits.parse().map_err(|_| format!("{}: {digits:?} is no $numberLong", written.address))?;
        server.last_write_date = Some(millis);
    }
    Ok(server)
}

//! Topologies for the tests of this room.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::server_selector::ServerSelector;
use crate::address::ServerAddress;
use crate::monitor::{ServerDescription, ServerType};
use crate::topology::{TopologyDescription, TopologyType};

pub(super) const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);

pub(super) fn address(name: &str) -> ServerAddress {
    ServerAddress::tcp(name, 27017)
}

pub(super) fn server(name: &str, server_type: ServerType) -> ServerDescription {
    ServerDescription::new(Arc::new(address(name)), server_type)
}

pub(super) fn topology<const N: usize>(
    topology_type: TopologyType,
    servers: [ServerDescription; N],
) -> TopologyDescription {
    TopologyDescription::of_servers(topology_type, servers.map(Arc::new).into())
}

/// The primary "p" and the secondaries "a" and "b".
pub(super) fn set_of_three() -> TopologyDescription {
    let secondary = |name| server(name, ServerType::RsSecondary);
    topology(TopologyType::ReplicaSetWithPrimary, [server("p", ServerType::RsPrimary), secondary("a"), secondary("b")])
}

/// The servers that suit an operation, none deprioritized.
pub(super) fn suitable(topology: &TopologyDescription, selector: &ServerSelector) -> Vec<usize> {
    topology.suitable_servers(selector, &[], HEARTBEAT_FREQUENCY).unwrap()
}

/// The names of the servers at these positions.
pub(super) fn names<'a>(topology: &'a TopologyDescription, positions: &[usize]) -> Vec<&'a str> {
    let name = |position: &usize| match &*topology.servers[*position].address {
        ServerAddress::Tcp { host, .. } => host.as_str(),
        ServerAddress::Unix { path } => path.as_str(),
    };
    positions.iter().map(name).collect()
}

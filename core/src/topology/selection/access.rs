//! Whether a topology has a server to read from, or to write to.

use core::time::Duration;

use super::server_selector::ServerSelector;
use super::staleness::MaxStalenessError;
use crate::options::ReadPreference;
use crate::topology::TopologyDescription;

impl TopologyDescription {
    /// Whether a write would find a server now.
    pub fn has_writable_server(&self) -> bool {
        // Writes have no maxStalenessSeconds.
        let suitable = self.suitable_servers(&ServerSelector::Writable, &[], Duration::ZERO);
        suitable.is_ok_and(|suitable| !suitable.is_empty())
    }

    /// Whether a read with this preference would find a server now, with the client's heartbeatFrequencyMS.
    ///
    /// # Errors
    /// maxStalenessSeconds is too small for a replica set (SEL-24).
    pub fn has_readable_server(
        &self,
        preference: ReadPreference,
        heartbeat_frequency: Duration,
    ) -> Result<bool, MaxStalenessError> {
        Ok(!self.suitable_servers(&preference.into(), &[], heartbeat_frequency)?.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::super::topologies::{HEARTBEAT_FREQUENCY, server, topology};
    use super::*;
    use crate::monitor::ServerType;
    use crate::options::ReadMode;
    use crate::topology::TopologyType;

    #[test]
    fn a_topology_is_readable_and_writable_by_its_type_and_its_servers() {
        use ServerType::{LoadBalancer, Mongos, RsPrimary, RsSecondary, Standalone, Unknown};
        for (topology_type, server_type, is_readable, is_writable) in [
            (TopologyType::Unknown, Unknown, false, false),
            (TopologyType::Single, Unknown, false, false),
            (TopologyType::Single, Standalone, true, true),
            (TopologyType::Sharded, Unknown, false, false),
            (TopologyType::Sharded, Mongos, true, true),
            (TopologyType::LoadBalanced, LoadBalancer, true, true),
            (TopologyType::ReplicaSetNoPrimary, RsSecondary, false, false),
            (TopologyType::ReplicaSetWithPrimary, RsPrimary, true, true),
        ] {
            let topology = topology(topology_type, [server("a", server_type)]);

            let readable = topology.has_readable_server(ReadPreference::default(), HEARTBEAT_FREQUENCY);
            assert_eq!(readable, Ok(is_readable), "{topology_type}, {server_type}");
            assert_eq!(topology.has_writable_server(), is_writable, "{topology_type}, {server_type}");
        }
    }

    #[test]
    fn a_set_without_a_primary_is_readable_by_a_preference_for_secondaries() {
        let set = topology(TopologyType::ReplicaSetNoPrimary, [server("a", ServerType::RsSecondary)]);

        let readable = set.has_readable_server(ReadPreference::new(ReadMode::PrimaryPreferred), HEARTBEAT_FREQUENCY);

        assert_eq!(readable, Ok(true));
    }
}

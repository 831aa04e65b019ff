//! What a topology offers as a whole: whether there is a server to read from or to write to, and whether secondaries write the
//! result of an aggregation.

use core::time::Duration;

use super::server_selector::ServerSelector;
use super::staleness::MaxStalenessError;
use crate::monitor::ServerType;
use crate::options::{ReadMode, ReadPreference};
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

    /// The read preference of an aggregation that writes its result (`$out`, `$merge`): `preference`, unless a server that is
    /// known is older than MongoDB 5.0, whose secondaries do not do that; then the primary (SEL-38).
    pub fn preference_for_output(&self, preference: ReadPreference) -> ReadPreference {
        let is_too_old = |(_, newest): (i32, i32)| newest < OUTPUT_ON_SECONDARIES;
        let known = self.servers.iter().filter(|server| server.server_type != ServerType::Unknown);
        if known.filter_map(|server| server.wire_versions).any(is_too_old) {
            ReadPreference::new(ReadMode::Primary)
        } else {
            preference
        }
    }
}

/// The wire version of MongoDB 5.0.
const OUTPUT_ON_SECONDARIES: i32 = 13;

#[cfg(test)]
mod tests {
    use super::super::topologies::{HEARTBEAT_FREQUENCY, server, topology};
    use super::*;
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

    #[test]
    fn one_old_server_keeps_aggregations_that_write_on_the_primary_sel_38() {
        let nearest = || ReadPreference::new(ReadMode::Nearest);
        let set_of = |wire_versions: [i32; 2]| {
            let member = |newest| {
                let mut member = server("a", ServerType::RsSecondary);
                member.wire_versions = Some((0, newest));
                member
            };
            topology(TopologyType::ReplicaSetNoPrimary, wire_versions.map(member))
        };

        assert_eq!(set_of([13, 21]).preference_for_output(nearest()), nearest());
        assert_eq!(set_of([12, 21]).preference_for_output(nearest()).mode(), ReadMode::Primary);
    }
}

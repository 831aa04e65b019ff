//! The servers that suit an operation (SEL-8, SEL-32), and what a topology offers as a whole: whether there is a server to read from or
//! to write to, and whether secondaries write the result of an aggregation.

use alloc::vec::Vec;
use core::time::Duration;

use super::server_selector::ServerSelector;
use super::staleness::{MaxStalenessError, StalenessLimit};
use crate::address::ServerAddress;
use crate::monitor::{ServerDescription, ServerType};
use crate::options::{ReadMode, ReadPreference};
use crate::topology::{TopologyDescription, TopologyType};

/// The wire version of MongoDB 5.0.
const OUTPUT_ON_SECONDARIES: i32 = 13;

impl TopologyDescription {
    /// The servers that suit an operation, as positions in [`servers`](Self::servers), in their order.
    ///
    /// `deprioritized` are the servers on which the operation has failed: they are taken only if no other server is suitable
    /// (SEL-5, SEL-10). `heartbeat_frequency` is the client's heartbeatFrequencyMS.
    ///
    /// # Errors
    /// maxStalenessSeconds is too small for a replica set (SEL-24).
    pub fn suitable_servers(
        &self,
        selector: &ServerSelector,
        deprioritized: &[ServerAddress],
        heartbeat_frequency: Duration,
    ) -> Result<Vec<usize>, MaxStalenessError> {
        if let ServerSelector::Among { selector, servers } = selector {
            // Servers on which the operation has failed are left out before the custom choice, never after it.
            let mut suitable = self.suitable_servers(selector, deprioritized, heartbeat_frequency)?;
            let is_left = |at: usize| self.servers.get(at).is_some_and(|server| servers.contains(&server.address));
            suitable.retain(|&at| is_left(at));
            return Ok(suitable);
        }
        let limit_of = |preference| StalenessLimit::of(preference, self, heartbeat_frequency);
        let limit = selector.read_preference().map(limit_of).transpose()?.flatten();
        let all = || self.servers.iter().map(|server| &**server).enumerate();
        if !deprioritized.is_empty() {
            let others = all().filter(|(_, server)| !deprioritized.contains(&server.address));
            let suitable = self.suitable_among(others, selector, limit.as_ref());
            if !suitable.is_empty() {
                return Ok(suitable);
            }
        }
        Ok(self.suitable_among(all(), selector, limit.as_ref()))
    }

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

    fn suitable_among<'a>(
        &self,
        servers: impl Iterator<Item = (usize, &'a ServerDescription)> + Clone,
        selector: &ServerSelector,
        limit: Option<&StalenessLimit>,
    ) -> Vec<usize> {
        let of_types = |types: &[ServerType]| select(servers.clone(), |server| types.contains(&server.server_type));
        if let Some(named) = selector.named() {
            return select(servers, |server| named.contains(&server.address) && self.may_use(server.server_type));
        }
        match (self.topology_type, selector.read_preference()) {
            (TopologyType::Unknown, _) => Vec::new(),
            (TopologyType::Single, _) => select(servers, |server| server.server_type != ServerType::Unknown),
            (TopologyType::LoadBalanced, _) => of_types(&[ServerType::LoadBalancer]),
            (TopologyType::Sharded, _) => of_types(&[ServerType::Mongos]),
            (TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary, Some(preference)) => {
                members(servers, preference, limit)
            }
            (TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary, None) => {
                of_types(&[ServerType::RsPrimary])
            }
        }
    }
}

/// The members of a replica set that suit a read (SEL-19, SEL-20).
fn members<'a>(
    servers: impl Iterator<Item = (usize, &'a ServerDescription)> + Clone,
    preference: &ReadPreference,
    limit: Option<&StalenessLimit>,
) -> Vec<usize> {
    // Those of these types that do not lag too far behind, and of those the ones that the first matching tag set matches (SEL-22, SEL-29).
    let eligible = |types: &[ServerType]| {
        let is_fresh = |server: &ServerDescription| limit.is_none_or(|limit| limit.admits(server));
        let candidates = servers.clone().filter(|(_, server)| types.contains(&server.server_type) && is_fresh(server));
        if preference.tag_sets().is_empty() {
            return select(candidates, |_| true);
        }
        let sets = preference.tag_sets().iter();
        let mut matching = sets.map(|set| select(candidates.clone(), |server| server.has_tags(set)));
        matching.find(|matching| !matching.is_empty()).unwrap_or_default()
    };
    // The primary never lags, and is taken whatever its tags are (SEL-21).
    let primary = || select(servers.clone(), |server| server.server_type == ServerType::RsPrimary);
    let or = |first: Vec<usize>, second: &dyn Fn() -> Vec<usize>| if first.is_empty() { second() } else { first };
    match preference.mode() {
        ReadMode::Primary => primary(),
        ReadMode::PrimaryPreferred => or(primary(), &|| eligible(&[ServerType::RsSecondary])),
        ReadMode::Secondary => eligible(&[ServerType::RsSecondary]),
        ReadMode::SecondaryPreferred => or(eligible(&[ServerType::RsSecondary]), &primary),
        ReadMode::Nearest => eligible(&[ServerType::RsPrimary, ServerType::RsSecondary]),
    }
}

fn select<'a>(
    servers: impl Iterator<Item = (usize, &'a ServerDescription)>,
    suits: impl Fn(&ServerDescription) -> bool,
) -> Vec<usize> {
    servers.filter(|(_, server)| suits(server)).map(|(position, _)| position).collect()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::topologies::{HEARTBEAT_FREQUENCY, address, names, server, set_of_three, suitable, topology};
    use super::*;
    use crate::options::{MaxStaleness, TagSet};
    use crate::time::Instant;

    fn reads(mode: ReadMode) -> ServerSelector {
        ReadPreference::new(mode).into()
    }

    fn avoiding<'a>(topology: &'a TopologyDescription, selector: &ServerSelector, avoided: &[&str]) -> Vec<&'a str> {
        let avoided: Vec<ServerAddress> = avoided.iter().map(|name| address(name)).collect();
        names(topology, &topology.suitable_servers(selector, &avoided, HEARTBEAT_FREQUENCY).unwrap())
    }

    #[test]
    fn an_unknown_server_in_single_is_not_suitable_sel_32() {
        let single = topology(TopologyType::Single, [server("a", ServerType::Unknown)]);

        assert_eq!(suitable(&single, &ServerSelector::Writable), [0; 0]);
        assert_eq!(suitable(&single, &reads(ReadMode::Nearest)), [0; 0]);
        assert_eq!(suitable(&single, &ServerSelector::AnyOf([address("a")].into())), [0; 0]);
    }

    #[test]
    fn any_known_server_in_single_is_suitable_for_everything_sel_32() {
        for server_type in [ServerType::RsArbiter, ServerType::RsGhost, ServerType::RsSecondary, ServerType::Standalone]
        {
            let single = topology(TopologyType::Single, [server("a", server_type)]);

            assert_eq!(suitable(&single, &ServerSelector::Writable), [0], "{server_type}");
            assert_eq!(suitable(&single, &reads(ReadMode::Primary)), [0], "{server_type}");
        }
    }

    #[test]
    fn a_named_server_has_to_have_data() {
        let set = topology(
            TopologyType::ReplicaSetNoPrimary,
            [
                server("a", ServerType::RsSecondary),
                server("b", ServerType::RsArbiter),
                server("c", ServerType::RsSecondary),
            ],
        );

        let any_of = ServerSelector::AnyOf([address("b"), address("c"), address("x")].into());

        assert_eq!(names(&set, &suitable(&set, &any_of)), ["c"]);
    }

    #[test]
    fn a_deprioritized_server_is_taken_only_if_no_other_is_suitable_sel_5() {
        let set = set_of_three();

        assert_eq!(avoiding(&set, &reads(ReadMode::Nearest), &["p", "a"]), ["b"]);
        assert_eq!(avoiding(&set, &reads(ReadMode::SecondaryPreferred), &["a", "b"]), ["p"]);
        assert_eq!(avoiding(&set, &reads(ReadMode::PrimaryPreferred), &["p"]), ["a", "b"]);
        assert_eq!(avoiding(&set, &ServerSelector::Writable, &["p"]), ["p"]);
        assert_eq!(avoiding(&set, &reads(ReadMode::Secondary), &["a", "b"]), ["a", "b"]);
    }

    #[test]
    fn a_deprioritized_primary_still_measures_the_lag_x_38() {
        let mut set = set_of_three();
        for (server, write) in set.servers.iter_mut().zip([1000, 1000, 800]) {
            let server = alloc::sync::Arc::make_mut(server);
            server.last_update_time = Some(Instant::ORIGIN);
            server.last_write_date = Some(write * 1000);
        }
        let limited = |seconds| {
            let limit = MaxStaleness::AtMost(Duration::from_secs(seconds));
            ReadPreference::new(ReadMode::Secondary).with_max_staleness(limit).unwrap().into()
        };

        // Without the avoided servers "b" would be measured by itself, and not lag at all.
        assert_eq!(avoiding(&set, &limited(100), &["p", "a"]), ["a"]);
        assert_eq!(avoiding(&set, &limited(300), &["p", "a"]), ["b"]);
    }

    #[test]
    fn falling_back_to_the_primary_ignores_tags_sel_21() {
        let tags = TagSet::from([("dc".into(), "ny".into())]);
        let tagged = |mode| ReadPreference::new(mode).with_tag_sets([tags.clone()].into()).unwrap().into();
        let set = set_of_three();

        assert_eq!(names(&set, &suitable(&set, &tagged(ReadMode::SecondaryPreferred))), ["p"]);
        assert_eq!(names(&set, &suitable(&set, &tagged(ReadMode::Secondary))), [""; 0]);
    }

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

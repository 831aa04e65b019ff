//! Laws of server selection and of seed lists, under any topology, any wish and any answer of DNS.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::{ServerDescription, ServerType};
use cmap_core::options::{ClientOptions, MaxStaleness, ReadMode, ReadPreference, TagSet};
use cmap_core::random::Random;
use cmap_core::time::Instant;
use cmap_core::topology::seed_list::{SeedList, SrvRecord, TxtRecord};
use cmap_core::topology::selection::{LatencyWindow, ServerSelector};
use cmap_core::topology::{TopologyDescription, TopologyType};
use proptest::prelude::*;

const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);

const SERVER_TYPES: [ServerType; 9] = [
    ServerType::Unknown,
    ServerType::Standalone,
    ServerType::Mongos,
    ServerType::RsPrimary,
    ServerType::RsSecondary,
    ServerType::RsArbiter,
    ServerType::RsOther,
    ServerType::RsGhost,
    ServerType::LoadBalancer,
];

const TOPOLOGY_TYPES: [TopologyType; 6] = [
    TopologyType::Unknown,
    TopologyType::Single,
    TopologyType::ReplicaSetNoPrimary,
    TopologyType::ReplicaSetWithPrimary,
    TopologyType::Sharded,
    TopologyType::LoadBalanced,
];

const MODES: [ReadMode; 4] =
    [ReadMode::PrimaryPreferred, ReadMode::Secondary, ReadMode::SecondaryPreferred, ReadMode::Nearest];

fn address(number: usize) -> ServerAddress {
    ServerAddress::tcp("s", u16::try_from(number + 1).unwrap())
}

fn tags() -> impl Strategy<Value = TagSet> {
    prop::collection::btree_map("[ab]", "[xy]", 0..3)
}

prop_compose! {
    fn server()(
        server_type in prop::sample::select(&SERVER_TYPES),
        millis in prop::option::of(0_u64..60),
        tags in tags(),
        update in prop::option::of(any::<u64>()),
        write in prop::option::of(any::<i64>()),
    ) -> ServerDescription {
        let mut server = ServerDescription::new(Arc::new(address(0)), server_type);
        server.round_trip_time = millis.map(Duration::from_millis);
        server.tags = tags;
        server.last_update_time = update.map(Instant::from_nanos);
        server.last_write_date = write;
        server
    }
}

prop_compose! {
    fn topology()(
        topology_type in prop::sample::select(&TOPOLOGY_TYPES),
        servers in prop::collection::vec(server(), 0..8),
    ) -> TopologyDescription {
        let numbered = servers.into_iter().enumerate().map(|(number, mut server)| {
            server.address = Arc::new(address(number));
            Arc::new(server)
        });
        TopologyDescription::of_servers(topology_type, numbered.collect())
    }
}

fn selector() -> impl Strategy<Value = ServerSelector> {
    let staleness = prop::option::of(prop::sample::select(vec![90_u64, 1000, u64::MAX]));
    let preference = (prop::sample::select(&MODES), prop::collection::vec(tags(), 0..3), staleness);
    let preference = preference.prop_map(|(mode, tag_sets, staleness)| {
        let preference = ReadPreference::new(mode).with_tag_sets(tag_sets).unwrap();
        let limit =
            staleness.map_or(MaxStaleness::Unlimited, |seconds| MaxStaleness::AtMost(Duration::from_secs(seconds)));
        ServerSelector::from(preference.with_max_staleness(limit).unwrap())
    });
    let any_of = prop::collection::vec(0_usize..10, 0..4);
    let any_of = any_of.prop_map(|numbers| ServerSelector::AnyOf(numbers.into_iter().map(address).collect()));
    prop_oneof![Just(ServerSelector::Writable), preference, any_of]
}

/// The name in an SRV record: below the domain more often than not.
fn record_name() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-c]{1,3}(\\.[ab])?\\.[bB]\\.c\\.?", 1 => "[a-c.:/ ]{0,6}(\\.b\\.c|\\.evil)?"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_server_is_chosen_from_the_window_of_the_suitable_ones(
        topology in topology(), selector in selector(), seed in any::<u64>(), threshold in 0_u64..30,
    ) {
        let suitable = topology.suitable_servers(&selector, &[], HEARTBEAT_FREQUENCY).unwrap();
        let window = LatencyWindow::new(&topology, &suitable, Duration::from_millis(threshold));
        let chosen = window.choose(&mut Random::new(seed), |server| u64::try_from(server % 3).unwrap());

        prop_assert!(suitable.is_sorted_by(|left, right| left < right));
        prop_assert!(suitable.iter().all(|server| topology.servers[*server].server_type != ServerType::Unknown));
        prop_assert!(window.servers().iter().all(|server| suitable.contains(server)));
        prop_assert_eq!(window.servers().is_empty(), suitable.is_empty());
        prop_assert_eq!(chosen.is_none(), suitable.is_empty());
        prop_assert!(chosen.is_none_or(|chosen| window.servers().contains(&chosen)));
    }

    #[test]
    fn avoided_servers_are_left_out_or_nothing_changes(
        topology in topology(), selector in selector(), avoided in prop::collection::vec(0_usize..8, 0..5),
    ) {
        let avoided: Vec<ServerAddress> = avoided.into_iter().map(address).collect();

        let all = topology.suitable_servers(&selector, &[], HEARTBEAT_FREQUENCY).unwrap();
        let others = topology.suitable_servers(&selector, &avoided, HEARTBEAT_FREQUENCY).unwrap();

        let is_avoided = |server: &usize| avoided.contains(&topology.servers[*server].address);
        prop_assert!(others == all || !others.iter().any(is_avoided));
        prop_assert!(all.is_empty() || !others.is_empty());
    }

    #[test]
    fn a_seed_list_never_leaves_its_domain(
        names in prop::collection::vec(record_name(), 0..4),
        port in prop::sample::select(vec![0_u16, 1, 27017, 27018]),
        text in prop_oneof!["(authSource|replicaSet|tls|=|&|x|%|@){0,6}", Just(String::new()), Just("authSource=x".into())],
        most in 0_u32..4, seed in any::<u64>(),
    ) {
        let (options, _) = ClientOptions::parse(&format!("mongodb+srv://a.b.c/?srvMaxHosts={most}")).unwrap();
        let records = names.iter().map(|name| SrvRecord::new(name.as_str(), port, Duration::ZERO)).collect();
        let text = Ok(vec![TxtRecord::new(text)]);

        let resolved = SeedList::of(&options).unwrap().resolve(options, Ok(records), text, &mut Random::new(seed));

        if let Ok(resolved) = resolved {
            let hosts = &resolved.options.hosts;
            prop_assert!(!hosts.is_empty() && (most == 0 || hosts.len() <= usize::try_from(most).unwrap()));
            prop_assert!(hosts.iter().all(|host| host.to_string().contains(".b.c:")));
            prop_assert_eq!(resolved.options.check(), Ok(()));
            prop_assert!(resolved.options.tls.is_enabled());
        }
    }
}

//! Discovery against a naive reference: after every answer of a server the topology is what the specification's prose says,
//! its pools too, and the events have come in its order (TOP-14 to TOP-41, X-21 to X-35).

mod reference;

use std::sync::Arc;

use cmap_core::connection::Fault;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Cause, Event, Output as PoolOutput, PoolState};
use cmap_core::server::{ServerDescription, ServerEvent, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Output, Topology, TopologyEvent, TopologyOptions};
use proptest::prelude::*;
use reference::{Known, Outcome, Pool, Reference, Reply};

const NOW: Instant = Instant::from_millis(1);
const NAMES: [&str; 5] = ["a:27017", "b:27017", "c:27017", "d:27017", "e:27017"];
const KINDS: [(&str, ServerType); 7] = [
    ("Standalone", ServerType::Standalone),
    ("Mongos", ServerType::Mongos),
    ("RSPrimary", ServerType::RsPrimary),
    ("RSSecondary", ServerType::RsSecondary),
    ("RSArbiter", ServerType::RsArbiter),
    ("RSOther", ServerType::RsOther),
    ("RSGhost", ServerType::RsGhost),
];

fn outcome() -> impl Strategy<Value = Outcome> {
    // Members of sets are what most of the rules are about.
    let kind = prop::sample::select(vec![0, 1, 2, 2, 2, 2, 3, 3, 3, 4, 5, 6]);
    let names = |range| prop::collection::vec(prop::sample::select(NAMES.to_vec()), range);
    let lists = (names(0..4), names(0..2), names(0..2));
    let set_name = prop::sample::select(vec![Some("rs"), Some("rs"), Some("rs"), Some("rs"), Some("other"), None]);
    let me = prop::option::weighted(0.3, prop::sample::select(NAMES.to_vec()));
    let tuple = (prop::option::weighted(0.8, 0..4_u8), prop::option::weighted(0.8, 0..3_i64));
    let reply = (kind, set_name, me, lists, tuple, prop::sample::select(vec![16, 17]));
    let reply = reply.prop_map(|(kind, set_name, me, (hosts, passives, arbiters), (election, version), newest)| {
        let is_member = matches!(kind, 2..=5);
        let own = |list: Vec<&str>| list.into_iter().filter(|_| is_member).map(str::to_owned).collect();
        Outcome::Reply(Reply {
            kind: KINDS[kind].0,
            set_name: set_name.filter(|_| is_member),
            me: me.map(str::to_owned).filter(|_| is_member),
            hosts: own(hosts),
            passives: own(passives),
            arbiters: own(arbiters),
            election: election.filter(|_| kind == 2),
            version: version.filter(|_| is_member),
            newest_wire_version: newest,
        })
    });
    prop_oneof![5 => reply, 1 => Just(Outcome::Failure)]
}

fn finding(address: &str, outcome: &Outcome) -> Finding {
    let Outcome::Reply(reply) = outcome else {
        return Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
    };
    let server_type = KINDS.iter().find(|(kind, _)| *kind == reply.kind).unwrap().1;
    let mut description = ServerDescription::new(Arc::new(address.parse().unwrap()), server_type);
    description.wire_versions = Some((0, reply.newest_wire_version));
    description.set_name = reply.set_name.map(str::to_owned);
    description.me.clone_from(&reply.me);
    description.hosts.clone_from(&reply.hosts);
    description.passives.clone_from(&reply.passives);
    description.arbiters.clone_from(&reply.arbiters);
    description.election_id = reply.election.map(|election| [election; 12]);
    description.set_version = reply.version;
    Finding::Description(Box::new(description))
}

/// The machine, and the names of its servers.
struct Machine {
    topology: Topology<()>,
    names: Vec<(ServerId, String)>,
}

impl Machine {
    fn new(seeds: &[String], direct: bool, set_name: Option<&str>) -> Self {
        let mut options = TopologyOptions::of_seeds(seeds.iter().map(|seed| seed.parse().unwrap()).collect());
        options.direct_connection = direct;
        options.replica_set = set_name.map(str::to_owned);
        let mut topology = Topology::new(options, PoolOptions::default()).unwrap();
        topology.open(NOW);
        let mut machine = Self { topology, names: Vec::new() };
        machine.events();
        machine
    }

    fn take(&mut self, address: &str, outcome: &Outcome) -> Vec<String> {
        let server = self
            .topology
            .servers()
            .find(|(_, server)| !server.has_left() && server.description().address.to_string() == address);
        if let Some((server, _)) = server {
            self.topology.handle_check(NOW, server, finding(address, outcome)).unwrap();
        }
        self.events()
    }

    fn events(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        while let Some(output) = self.topology.poll_output() {
            if let Output::Server { server, .. } = &output
                && let Some(known) = self.topology.server(*server)
            {
                self.names.push((*server, known.description().address.to_string()));
            }
            let name = |server| &self.names.iter().rfind(|(id, _)| *id == server).unwrap().1;
            events.extend(match output {
                Output::Server { server, event: ServerEvent::ServerOpening } => {
                    Some(format!("opening {}", name(server)))
                }
                Output::Server { server, event: ServerEvent::ServerClosed } => Some(format!("closed {}", name(server))),
                Output::Server { server, .. } => Some(format!("described {}", name(server))),
                Output::Topology(TopologyEvent::TopologyDescriptionChanged { previous, new }) => {
                    Some(format!("topology {} -> {}", previous.topology_type, new.topology_type))
                }
                Output::Pool { server, output: PoolOutput::Event(event) } => {
                    let what = match event {
                        Event::PoolCreated { .. } => "created",
                        Event::PoolReady => "ready",
                        Event::PoolCleared { .. } => "cleared",
                        Event::PoolClosed => "pool closed",
                        other => panic!("nobody checks out: {other:?}"),
                    };
                    Some(format!("{what} {}", name(server)))
                }
                _ => None,
            });
        }
        events
    }

    /// The pools that exist: of servers that were told to have one.
    fn pool(&self, address: &str) -> Option<PoolState> {
        let mut servers = self.topology.servers().filter(|(_, server)| !server.has_left());
        let server = servers.find(|(_, server)| server.description().address.to_string() == address)?;
        Some(server.1.pool().state())
    }
}

fn compare(machine: &Machine, reference: &Reference) {
    let description = machine.topology.description();
    assert_eq!(description.topology_type.to_string(), reference.kind);
    assert_eq!(description.set_name.as_deref(), reference.set_name);
    let max = (description.max_election_id.map(|id| id[0]), description.max_set_version);
    assert_eq!(max, reference.max, "maxElectionId, maxSetVersion");
    let servers: Vec<_> =
        description.servers.iter().map(|it| (it.address.to_string(), it.server_type.name())).collect();
    let expected: Vec<_> = reference.servers.iter().map(|(name, known)| (name.clone(), known.kind())).collect();
    assert_eq!(servers, expected);
    for (name, _) in &reference.servers {
        let expected = match reference.pools.get(name) {
            Some(Pool::Ready) => PoolState::Ready,
            Some(Pool::Paused) | None => PoolState::Paused,
        };
        assert_eq!(machine.pool(name), Some(expected), "the pool of {name}");
    }
    for (server, (_, known)) in description.servers.iter().zip(&reference.servers) {
        let error = server.error.as_ref().map(ToString::to_string).unwrap_or_default();
        let part = match known {
            Known::Unknown(why) if why.starts_with("stale") => {
                "primary marked stale due to electionId/setVersion mismatch"
            }
            Known::Unknown(why) if why == "replaced" => "primary marked stale due to discovery of newer primary",
            Known::Unknown(why) if why.starts_with("wrong set") => "correct replicaSet or the host",
            Known::Unknown(why) if why == "gone" => "gone",
            Known::Unknown(_) | Known::Reply(_) => "",
        };
        assert!(error.contains(part) && error.is_empty() == part.is_empty(), "{error:?} for {known:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_topology_is_what_the_specification_makes_of_each_answer(
        seeds in 1..4_usize,
        direct in any::<bool>(),
        set_name in prop::sample::select(vec![None, Some("rs")]),
        answers in prop::collection::vec((prop::sample::select(NAMES.to_vec()), outcome()), 0..40),
    ) {
        let seeds: Vec<String> = NAMES.iter().take(seeds).map(|&name| name.to_owned()).collect();
        let direct = direct && seeds.len() == 1;
        let mut reference = Reference::new(&seeds, direct, set_name);
        let mut machine = Machine::new(&seeds, direct, set_name);
        for (address, outcome) in answers {
            reference.take(address, &outcome);
            let events = machine.take(address, &outcome);
            prop_assert_eq!(&events, &std::mem::take(&mut reference.events), "after {} of {}", format!("{outcome:?}"), address);
            compare(&machine, &reference);
        }
    }
}

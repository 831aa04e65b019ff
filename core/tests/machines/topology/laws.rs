//! Laws of a topology, whatever happens to its servers and check-outs: each check-out ends once.

use cmap_core::pool::CheckOutId;
use proptest::prelude::*;

use super::*;

/// What may happen to a topology.
#[derive(Clone, Debug)]
enum Happening {
    CheckOut {
        waits: bool,
    },
    Cancel,
    CheckIn,
    Found {
        server: usize,
        server_type: ServerType,
        hosts: Vec<usize>,
        election: u8,
    },
    Failed {
        server: usize,
    },
    Established,
    EstablishFailed {
        fault: Fault,
    },
    OperationFailed {
        change: Option<StateChange>,
    },
    TimePasses,
    /// Another topology goes on where this one stood.
    Snapshot,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn happening() -> impl Strategy<Value = Happening> {
    use ServerType::{Mongos, RsArbiter, RsGhost, RsOther, RsPrimary, RsSecondary, Standalone};
    let server_type = prop::sample::select(vec![
        RsPrimary,
        RsPrimary,
        RsPrimary,
        RsSecondary,
        RsSecondary,
        Mongos,
        RsArbiter,
        RsOther,
        RsGhost,
        Standalone,
    ]);
    let found = (0..5_usize, server_type, prop::collection::vec(0..5_usize, 1..5), 0..4_u8);
    prop_oneof![
        4 => any::<bool>().prop_map(|waits| Happening::CheckOut { waits }),
        1 => Just(Happening::Cancel),
        2 => Just(Happening::CheckIn),
        4 => found.prop_map(|(server, server_type, hosts, election)| Happening::Found { server, server_type, hosts, election }),
        1 => (0..5_usize).prop_map(|server| Happening::Failed { server }),
        3 => Just(Happening::Established),
        1 => prop::sample::select(vec![Fault::Network, Fault::Timeout, Fault::Other])
            .prop_map(|fault| Happening::EstablishFailed { fault }),
        1 => prop::option::of(prop::sample::select(vec![StateChange::NotWritablePrimary, StateChange::ShuttingDown]))
            .prop_map(|change| Happening::OperationFailed { change }),
        1 => Just(Happening::TimePasses),
        1 => Just(Happening::Snapshot),
    ]
}

/// What the callers of a topology know.
#[derive(Default)]
struct Callers {
    waiting: Vec<CheckOut>,
    pending: Vec<Handle>,
    in_use: Vec<(CheckOutId, Handle)>,
}

impl Callers {
    /// Takes the outputs in, and checks that each check-out ends once, and goes from one wait to the next without a gap.
    fn take(&mut self, topology: &mut Topology<()>) {
        while let Some(output) = topology.poll_output() {
            match output {
                Output::Selected { selection, check_out } => {
                    self.go_on(CheckOut::Selecting(selection), CheckOut::Started(check_out));
                }
                Output::Reselecting { check_out, selection } => {
                    self.go_on(CheckOut::Started(check_out), CheckOut::Selecting(selection));
                }
                Output::SelectionFailed { selection, .. } => self.end(CheckOut::Selecting(selection)),
                Output::Pool { output: PoolOutput::Action(action), .. } => match action {
                    Action::Deliver { check_out, connection, .. } => {
                        self.end(CheckOut::Started(check_out));
                        self.in_use.push((check_out, connection));
                    }
                    Action::Fail { check_out, .. } => self.end(CheckOut::Started(check_out)),
                    Action::Connect { connection } => self.pending.push(connection),
                    Action::Check { connection } => topology.handle_checked(NOW, connection, true).unwrap(),
                    Action::Close { .. }
                    | Action::Interrupt { .. }
                    | Action::Refresh { .. }
                    | Action::WarmedUp { .. } => {}
                },
                _ => {}
            }
        }
    }

    fn go_on(&mut self, from: CheckOut, to: CheckOut) {
        let own = self.waiting.iter_mut().find(|own| **own == from);
        *own.unwrap_or_else(|| panic!("{from:?} does not wait")) = to;
    }

    fn end(&mut self, check_out: CheckOut) {
        let at = self.waiting.iter().position(|own| *own == check_out);
        self.waiting.remove(at.unwrap_or_else(|| panic!("{check_out:?} does not wait")));
    }
}

fn check_laws(topology: &Topology<()>, callers: &Callers) {
    let description = topology.description();
    let members = topology.servers().filter(|(_, server)| !server.has_left()).count();
    assert_eq!(members, description.servers.len(), "a server for each description");
    let primaries = description.servers.iter().filter(|server| server.server_type == ServerType::RsPrimary).count();
    assert_eq!(primaries, usize::from(description.topology_type == TopologyType::ReplicaSetWithPrimary), "TOP-21");
    for (_, server) in topology.servers().filter(|(_, server)| !server.has_left()) {
        let described = description.server(&server.description().address).unwrap();
        assert_eq!(described, server.description(), "one truth");
    }
    let selecting = callers.waiting.iter().filter(|check_out| matches!(check_out, CheckOut::Selecting(_))).count();
    assert_eq!(selecting, topology.selecting());
    if selecting > 0 {
        assert!(!description.has_writable_server(), "a check-out waits though a server suits it");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_check_out_ends_once_whatever_the_servers_say(
        replica_set in any::<bool>(),
        depth in prop::option::of(1..4_u32),
        happenings in prop::collection::vec(happening(), 0..60),
    ) {
        let mut options = options(&["a", "b", "c"]);
        options.replica_set = replica_set.then(|| "rs".into());
        let mut pool_options = PoolOptions::default();
        pool_options.max_pool_size = Some(2);
        pool_options.max_wait_queue_depth = depth.map(QueueDepth::Waiters);
        let mut topology = Topology::<()>::new(options, pool_options).unwrap();
        let mut now = NOW;
        topology.open(now);
        let mut callers = Callers::default();
        callers.take(&mut topology);
        for happening in happenings {
            match happening {
                Happening::CheckOut { waits } => {
                    let request = if waits { CheckOutRequest::default() } else { CheckOutRequest::until(now + Duration::from_millis(50)) };
                    let (check_out, delivery) = topology.check_out(now, Criteria::WRITABLE, request);
                    match delivery {
                        Some(delivery) => callers.in_use.push((delivery.check_out, delivery.connection)),
                        None => callers.waiting.push(check_out),
                    }
                }
                Happening::Cancel => if let Some(check_out) = callers.waiting.pop() {
                    let _ = topology.cancel_check_out(now, check_out);
                },
                Happening::CheckIn => if let Some((check_out, connection)) = callers.in_use.pop() {
                    let checked_in = topology.check_in(now, check_out, connection, (), Condition::Usable).unwrap();
                    if let Some(delivery) = checked_in.delivery() {
                        callers.end(CheckOut::Started(delivery.check_out));
                        callers.in_use.push((delivery.check_out, delivery.connection));
                    }
                },
                Happening::Found { server, server_type, hosts, election } => {
                    let mut description = describe(NAMES[server], server_type);
                    description.hosts = hosts.into_iter().map(|host| format!("{}:27017", NAMES[host])).collect();
                    description.election_id = Some([election; 12]);
                    let found = topology.servers().find(|(_, known)| {
                        !known.has_left() && *known.description().address == *description.address
                    });
                    if let Some((id, _)) = found {
                        topology.handle_check(now, id, Finding::Description(Box::new(description))).unwrap();
                    }
                }
                Happening::Failed { server } => {
                    let address = address(NAMES[server]);
                    let found = topology.servers().find(|(_, known)| !known.has_left() && *known.description().address == address);
                    if let Some((id, _)) = found {
                        let failure = Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
                        topology.handle_check(now, id, failure).unwrap();
                    }
                }
                Happening::Established => if let Some(connection) = callers.pending.pop() {
                    // One of a server that was drained is of no more use.
                    let _ = topology.handle_established(now, connection, ());
                },
                Happening::EstablishFailed { fault } => if let Some(connection) = callers.pending.pop() {
                    let _ = topology.handle_establish_failed(now, connection, EstablishError::new(Phase::Hello, fault, "no"));
                },
                Happening::OperationFailed { change } => if let Some(&(_, connection)) = callers.in_use.last() {
                    let mut error = OperationError::new(Fault::Server { code: None }, Cause::new("no"));
                    error.state_change = change;
                    topology.handle_operation_failed(now, connection, error).unwrap();
                },
                Happening::Snapshot => topology = topology.snapshot(),
                Happening::TimePasses => {
                    now = now + Duration::from_millis(100);
                    topology.handle_timeout(now);
                }
            }
            callers.take(&mut topology);
            check_laws(&topology, &callers);
        }
        topology.close(now);
        callers.take(&mut topology);
        prop_assert!(callers.waiting.is_empty(), "{:?} wait for ever", callers.waiting);
    }
}

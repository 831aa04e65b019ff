//! A topology of several servers: where check-outs go, what becomes of those that wait, and what lies in hellos cannot do.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::Finding;
use cmap_core::options::{Affinity, ClientOptions, PoolOptions, Profile, QueueDepth};
use cmap_core::pool::{Action, AffinityKey, Cause, CheckOutRequest, Condition, Handle, Output as PoolOutput};
use cmap_core::server::{OperationError, ServerDescription, ServerId, ServerType, StateChange};
use cmap_core::time::Instant;
use cmap_core::topology::{
    CheckOut, Criteria, MonitorCall, Output, SelectionErrorKind, ServerSelector, Topology, TopologyEvent,
    TopologyOptions, TopologyType,
};

mod laws;

const NOW: Instant = Instant::from_millis(1);

fn address(name: &str) -> ServerAddress {
    ServerAddress::tcp(name, 27017)
}

fn options(names: &[&str]) -> TopologyOptions {
    TopologyOptions::of_seeds(names.iter().map(|name| address(name)).collect())
}

/// An open topology of these seeds.
fn open(options: TopologyOptions) -> Topology<()> {
    open_with(options, |_| {})
}

fn open_with(options: TopologyOptions, change: impl FnOnce(&mut PoolOptions)) -> Topology<()> {
    let mut pool_options = PoolOptions::default();
    change(&mut pool_options);
    let mut topology = Topology::new(options, pool_options).unwrap();
    topology.open(NOW);
    drain(&mut topology);
    topology
}

fn drain(topology: &mut Topology<()>) -> Vec<Output<()>> {
    std::iter::from_fn(|| topology.poll_output()).collect()
}

fn id(topology: &Topology<()>, name: &str) -> ServerId {
    let address = address(name);
    let found = topology.servers().find(|(_, server)| !server.has_left() && *server.description().address == address);
    found.unwrap().0
}

fn describe(name: &str, server_type: ServerType) -> ServerDescription {
    let mut description = ServerDescription::new(address(name).into(), server_type);
    description.wire_versions = Some((0, 21));
    if matches!(server_type, ServerType::RsPrimary | ServerType::RsSecondary) {
        description.set_name = Some("rs".into());
        description.hosts = ["a:27017", "b:27017", "c:27017"].map(Into::into).into();
    }
    description
}

fn learn(topology: &mut Topology<()>, description: ServerDescription) -> Vec<Output<()>> {
    let found = topology.servers().find(|(_, server)| *server.description().address == *description.address);
    let server = found.unwrap().0;
    topology.handle_check(NOW, server, Finding::Description(Box::new(description))).unwrap();
    drain(topology)
}

/// A set of three members, whose primary is "a".
fn set() -> Topology<()> {
    let mut topology = open(options(&["a", "b", "c"]));
    learn(&mut topology, describe("a", ServerType::RsPrimary));
    learn(&mut topology, describe("b", ServerType::RsSecondary));
    learn(&mut topology, describe("c", ServerType::RsSecondary));
    topology
}

/// The connections that are to be established, with their servers.
fn connects(outputs: &[Output<()>]) -> Vec<(ServerId, Handle)> {
    let connect = |output: &Output<()>| match output {
        Output::Pool { server, output: PoolOutput::Action(Action::Connect { connection }) } => {
            Some((*server, *connection))
        }
        _ => None,
    };
    outputs.iter().filter_map(connect).collect()
}

/// Begins a check-out, and returns the server that it went to.
fn goes_to(topology: &mut Topology<()>, selector: ServerSelector) -> ServerId {
    let criteria = Criteria { selector, ..Criteria::default() };
    let (check_out, _) = topology.check_out(NOW, &criteria, CheckOutRequest::default());
    let CheckOut::Started(check_out) = check_out else { panic!("no server suits") };
    drain(topology);
    topology.server_of_check_out(check_out).unwrap()
}

#[test]
fn a_repeated_seed_is_one_server() {
    let seeds = ["a", "A", "b"].map(|host| ServerAddress::Tcp { host: host.into(), port: 27017 });
    let topology = open(TopologyOptions::of_seeds(seeds.into()));

    assert_eq!((topology.servers().count(), topology.description().servers.len()), (2, 2));
}

#[test]
fn a_standalone_that_is_named_twice_is_found() {
    let (client_options, _) = ClientOptions::parse("mongodb://a,a:27017/").unwrap();
    let mut topology = open(TopologyOptions::of_client(&client_options));

    learn(&mut topology, describe("a", ServerType::Standalone));

    assert_eq!(topology.description().topology_type, TopologyType::Single);
}

#[test]
fn writes_go_to_the_primary_and_operations_for_a_server_to_that_one() {
    let mut set = set();

    let (a, b) = (id(&set, "a"), id(&set, "b"));

    assert_eq!(goes_to(&mut set, ServerSelector::Writable), a);
    assert_eq!(goes_to(&mut set, ServerSelector::AnyOf([address("b")].into())), b);
}

#[test]
fn a_check_out_whose_pool_is_cleared_waits_for_a_server_again_and_ends_with_a_connection() {
    let mut set = set();
    let (check_out, _) = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let primary = id(&set, "a");
    drain(&mut set);

    let failure = Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
    set.handle_check(NOW, primary, failure).unwrap();
    let outputs = drain(&mut set);

    let reselected = outputs.iter().find_map(|output| match output {
        Output::Reselecting { check_out, selection } => Some((CheckOut::Started(*check_out), *selection)),
        _ => None,
    });
    assert_eq!(reselected.map(|(own, _)| own), Some(check_out));
    assert!(
        !outputs
            .iter()
            .any(|output| matches!(output, Output::Pool { output: PoolOutput::Action(Action::Fail { .. }), .. }))
    );

    let outputs = learn(&mut set, describe("b", ServerType::RsPrimary));

    let (server, connection) = connects(&outputs)[0];
    assert_eq!(server, id(&set, "b"));
    set.handle_established(NOW, connection, ()).unwrap();
    assert!(
        drain(&mut set)
            .iter()
            .any(|output| matches!(output, Output::Pool { output: PoolOutput::Action(Action::Deliver { .. }), .. }))
    );
}

#[test]
fn a_check_out_that_waits_on_a_primary_that_steps_down_goes_to_the_next_one() {
    let mut set = open_with(options(&["a", "b", "c"]), |options| options.max_pool_size = Some(1));
    learn(&mut set, describe("a", ServerType::RsPrimary));
    let _ = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let (_, connection) = connects(&drain(&mut set))[0];
    set.handle_established(NOW, connection, ()).unwrap();
    drain(&mut set);
    let (waits, _) = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    drain(&mut set);

    let mut error = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    error.state_change = Some(StateChange::NotWritablePrimary);
    set.handle_operation_failed(NOW, connection, error).unwrap();

    let outputs = drain(&mut set);
    let reselects = |output: &Output<()>| matches!(output, Output::Reselecting { check_out, .. } if CheckOut::Started(*check_out) == waits);
    assert!(outputs.iter().any(reselects), "{outputs:?}");
    let outputs = learn(&mut set, describe("b", ServerType::RsPrimary));
    assert_eq!(connects(&outputs)[0].0, id(&set, "b"));
    assert_eq!(set.stats().cancelled, 0, "no caller has cancelled one");
}

#[test]
fn check_outs_that_wait_on_a_primary_that_steps_down_go_on_in_the_order_of_their_arrival() {
    let mut set = open_with(options(&["a", "b", "c"]), |options| options.max_pool_size = Some(1));
    learn(&mut set, describe("a", ServerType::RsPrimary));
    let begin = |set: &mut Topology<()>| set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).0;
    begin(&mut set);
    let (_, connection) = connects(&drain(&mut set))[0];
    set.handle_established(NOW, connection, ()).unwrap();
    // Places in the pool are used again, the last one first.
    for earlier in [begin(&mut set), begin(&mut set)] {
        let _ = set.cancel_check_out(NOW, earlier);
    }
    let waiting = [begin(&mut set), begin(&mut set)];
    drain(&mut set);

    let mut error = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    error.state_change = Some(StateChange::NotWritablePrimary);
    set.handle_operation_failed(NOW, connection, error).unwrap();

    let outputs = drain(&mut set);
    let reselecting = outputs.iter().filter_map(|output| match output {
        Output::Reselecting { check_out, .. } => Some(CheckOut::Started(*check_out)),
        _ => None,
    });
    assert_eq!(reselecting.collect::<Vec<_>>(), waiting);
}

#[test]
fn a_pool_that_nobody_may_use_yet_creates_no_connections_x_30() {
    let mut set = Topology::<()>::new(options(&["a"]), {
        let mut options = PoolOptions::default();
        (options.profile, options.min_pool_size) = (Profile::Cmap1_1, Some(2));
        options
    })
    .unwrap();
    set.open(NOW);

    set.handle_timeout(NOW);

    assert_eq!(set.connections(), 0);
}

#[test]
fn a_wrong_password_is_not_tried_again() {
    let mut set = set();
    let _ = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let (_, connection) = connects(&drain(&mut set))[0];

    let error = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(18) }, "authentication failed");
    set.handle_establish_failed(NOW, connection, error).unwrap();

    let outputs = drain(&mut set);
    assert!(
        outputs
            .iter()
            .any(|output| matches!(output, Output::Pool { output: PoolOutput::Action(Action::Fail { .. }), .. }))
    );
    assert_eq!(set.selecting(), 0);
}

#[test]
fn a_check_out_that_comes_back_ends_when_its_time_is_up() {
    let mut set = set();
    let deadline = NOW + Duration::from_secs(1);
    let _ = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::until(deadline));
    let primary = id(&set, "a");
    let failure = Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
    set.handle_check(NOW, primary, failure).unwrap();
    drain(&mut set);

    set.handle_timeout(deadline);

    let failed = drain(&mut set).into_iter().find_map(|output| match output {
        Output::SelectionFailed { error, .. } => Some(error),
        _ => None,
    });
    let failed = failed.unwrap();
    assert_eq!(failed.kind, SelectionErrorKind::Timeout);
    assert!(failed.to_string().contains("a:27017 is Unknown (gone)"), "{failed}");
}

/// A topology that lets two check-outs wait for a server, and two that do.
fn two_that_may_wait() -> (Topology<()>, [CheckOut; 2]) {
    let depth = Some(QueueDepth::Waiters(2));
    let mut topology = open_with(options(&["a", "b", "c"]), |options| options.max_wait_queue_depth = depth);
    let waiting = [(); 2].map(|()| topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).0);
    drain(&mut topology);
    (topology, waiting)
}

/// The selections that failed because too many check-outs wait.
fn refused(outputs: &[Output<()>]) -> Vec<CheckOut> {
    let refused = |output: &Output<()>| match output {
        Output::SelectionFailed { selection, error } => {
            assert_eq!(error.kind, SelectionErrorKind::WaitQueueFull { max_wait_queue_depth: 2 });
            assert!(["SystemOverloadedError", "RetryableError"].iter().all(|label| error.has_label(label)));
            Some(CheckOut::Selecting(*selection))
        }
        _ => None,
    };
    outputs.iter().filter_map(refused).collect()
}

#[test]
fn one_check_out_more_than_may_wait_for_a_server_fails_at_once_x_80() {
    let (mut topology, _) = two_that_may_wait();

    let criteria = Criteria { selector: ServerSelector::AnyOf([address("c")].into()), ..Criteria::default() };
    let (one_more, _) = topology.check_out(NOW, &criteria, CheckOutRequest::default());

    assert_eq!(refused(&drain(&mut topology)), [one_more]);
    assert_eq!(topology.selecting(), 2);
}

#[test]
fn all_who_may_wait_for_a_server_go_on_when_there_is_one_x_80() {
    let (mut topology, _) = two_that_may_wait();

    let outputs = learn(&mut topology, describe("a", ServerType::RsPrimary));

    assert_eq!(connects(&outputs).len(), 2);
    assert_eq!((topology.selecting(), topology.stats().counts.waiting), (0, 2));
}

#[test]
fn a_check_out_that_is_given_up_lets_another_one_wait_for_a_server_x_80() {
    let (mut topology, [first, _]) = two_that_may_wait();
    let _ = topology.cancel_check_out(NOW, first);

    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());

    assert!(refused(&drain(&mut topology)).is_empty());
}

#[test]
fn check_outs_that_come_back_from_a_pool_are_not_refused_but_newcomers_are_x_80() {
    let (mut topology, _) = two_that_may_wait();
    learn(&mut topology, describe("a", ServerType::RsPrimary));
    let criteria = Criteria { selector: ServerSelector::AnyOf([address("c")].into()), ..Criteria::default() };
    let _ = topology.check_out(NOW, &criteria, CheckOutRequest::default());

    let failure = Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
    let primary = id(&topology, "a");
    topology.handle_check(NOW, primary, failure).unwrap();
    assert_eq!((refused(&drain(&mut topology)), topology.selecting()), (vec![], 3));
    let (newcomer, _) = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());

    assert_eq!(refused(&drain(&mut topology)), [newcomer]);
}

#[test]
fn a_removed_server_is_drained_and_then_forgotten_top_35() {
    let mut set = set();
    let _ = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let (primary, connection) = connects(&drain(&mut set))[0];
    set.handle_established(NOW, connection, ()).unwrap();
    drain(&mut set);
    let mut without_a = describe("b", ServerType::RsPrimary);
    without_a.hosts = ["b:27017", "c:27017"].map(Into::into).into();
    learn(&mut set, without_a);
    assert!(set.server(primary).unwrap().has_left(), "its connection is in use");

    let user = set.server(primary).unwrap().pool().use_of(connection).unwrap().check_out;
    let _ = set.check_in(NOW, user, connection, (), Condition::Usable).unwrap();

    assert_eq!((set.stats().created, set.stats().counts.total()), (1, 0), "its totals stay");
    let forgets = |output: &Output<()>| *output == Output::Monitor { server: primary, call: MonitorCall::Forget };
    assert!(drain(&mut set).iter().any(forgets));
    assert!(set.server(primary).is_none());
}

#[test]
fn a_fork_ends_what_a_server_that_has_left_still_has_fork_2() {
    let mut options = options(&["a", "b", "c"]);
    options.max_connections = 1;
    let mut set = open(options);
    learn(&mut set, describe("a", ServerType::RsPrimary));
    let _ = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let (primary, connection) = connects(&drain(&mut set))[0];
    set.handle_established(NOW, connection, ()).unwrap();
    drain(&mut set);
    let mut without_a = describe("b", ServerType::RsPrimary);
    without_a.hosts = ["b:27017", "c:27017"].map(Into::into).into();
    learn(&mut set, without_a.clone());

    set.reset_after_fork(NOW);
    drain(&mut set);

    assert!(set.server(primary).is_none(), "nobody gives its connection back");
    learn(&mut set, without_a);
    let _ = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    assert_eq!(connects(&drain(&mut set)).len(), 1, "its permit is free");
}

#[test]
fn a_fork_ends_what_a_closed_client_still_has_fork_2() {
    let mut set = set();
    let _ = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    set.close(NOW);

    set.reset_after_fork(NOW);

    assert_eq!(set.connections(), 0);
}

#[test]
fn of_two_primaries_the_newer_one_counts_top_31() {
    let mut set = set();
    let mut newer = describe("b", ServerType::RsPrimary);
    newer.election_id = Some([2; 12]);
    learn(&mut set, newer);

    let mut stale = describe("a", ServerType::RsPrimary);
    stale.election_id = Some([1; 12]);
    learn(&mut set, stale);

    let b = id(&set, "b");
    assert_eq!(goes_to(&mut set, ServerSelector::Writable), b);
    let why = set.description().server(&address("a")).unwrap().error.clone().unwrap().to_string();
    assert!(why.contains("primary marked stale due to electionId/setVersion mismatch"), "{why}");
}

#[test]
fn a_list_of_a_million_members_adds_none_of_them() {
    let mut set = set();
    let mut liar = describe("a", ServerType::RsPrimary);
    liar.hosts = (0..1_000_000).map(|number| format!("h{number}:27017")).collect();

    learn(&mut set, liar);

    assert_eq!(set.description().servers.len(), 3);
    let why = set.description().server(&address("a")).unwrap().error.clone().unwrap().to_string();
    assert!(why.contains("the topology would have 1000000 servers"), "{why}");
}

#[test]
fn a_seed_list_that_mixes_kinds_keeps_the_kind_that_answered_first() {
    let mut topology = open(options(&["a", "b", "c"]));
    learn(&mut topology, describe("a", ServerType::Mongos));

    learn(&mut topology, describe("b", ServerType::RsPrimary));
    learn(&mut topology, describe("c", ServerType::Standalone));

    let description = topology.description();
    assert_eq!((description.topology_type, description.servers.len()), (TopologyType::Sharded, 1));
}

#[test]
fn a_standalone_among_several_seeds_leaves_also_when_it_is_the_last_one_x_35() {
    let mut topology = open(options(&["a", "b"]));
    learn(&mut topology, describe("a", ServerType::Standalone));

    let outputs = learn(&mut topology, describe("b", ServerType::Standalone));

    assert!(outputs.contains(&Output::Topology(TopologyEvent::ServersMissing)), "TOP-36");
    assert_eq!(topology.description().topology_type, TopologyType::Unknown);
    let (check_out, _) = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::until(NOW));
    assert!(matches!(check_out, CheckOut::Selecting(_)));
    let failed = drain(&mut topology).into_iter().find_map(|output| match output {
        Output::SelectionFailed { error, .. } => Some(error.to_string()),
        _ => None,
    });
    let failed = failed.unwrap();
    assert!(failed.contains("a:27017 was left out (") && failed.contains("b:27017 was left out ("), "{failed}");
}

#[test]
fn operations_go_to_the_less_busy_router_sel_3() {
    let mut topology = open(options(&["a", "b"]));
    learn(&mut topology, describe("a", ServerType::Mongos));
    learn(&mut topology, describe("b", ServerType::Mongos));

    let mut counts = [0; 2];
    for _ in 0..20 {
        let server = goes_to(&mut topology, ServerSelector::Writable);
        counts[usize::from(server == id(&topology, "b"))] += 1;
    }

    assert_eq!(counts, [10, 10]);
}

#[test]
fn a_key_goes_to_the_server_that_has_its_connection_however_busy_x_88() {
    let mut topology = open_with(options(&["a", "b"]), |options| options.affinity = Some(Affinity::Prefer));
    learn(&mut topology, describe("a", ServerType::Mongos));
    learn(&mut topology, describe("b", ServerType::Mongos));
    let mut request = CheckOutRequest::default();
    request.affinity = Some(AffinityKey(7));
    let goes_to = |topology: &mut Topology<()>| {
        let (CheckOut::Started(check_out), delivery) = topology.check_out(NOW, Criteria::WRITABLE, request) else {
            panic!("both suit")
        };
        (topology.server_of_check_out(check_out).unwrap(), delivery)
    };
    let (home, _) = goes_to(&mut topology);
    let (_, connection) = connects(&drain(&mut topology))[0];
    topology.handle_established(NOW, connection, ()).unwrap();
    drain(&mut topology);

    // Each one that goes there makes the server busier than the other one, which has nothing to do.
    let others: Vec<_> = (0..10).map(|_| goes_to(&mut topology).0).collect();

    assert_eq!(others, [home; 10]);
}

#[test]
fn who_stands_behind_one_that_goes_to_another_server_is_served_at_once() {
    let mut set = open_with(options(&["a", "b", "c"]), |options| {
        options.max_pool_size = Some(1);
        options.affinity = Some(Affinity::Hold { time: Duration::from_secs(60), lend: false });
    });
    learn(&mut set, describe("a", ServerType::RsPrimary));
    let at_a = Criteria { selector: ServerSelector::AnyOf([address("a")].into()), ..Criteria::default() };
    let of_key = CheckOutRequest::default().affinity(AffinityKey(7));
    let _ = set.check_out(NOW, &at_a, CheckOutRequest::default());
    let (_, connection) = connects(&drain(&mut set))[0];
    set.handle_established(NOW, connection, ()).unwrap();
    let _ = set.check_out(NOW, &at_a, of_key);
    let _ = set.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let (behind, _) = set.check_out(NOW, &at_a, of_key);
    for _ in 0..2 {
        let server = id(&set, "a");
        let user = set.server(server).unwrap().pool().use_of(connection).unwrap().check_out;
        let _ = set.check_in(NOW, user, connection, (), Condition::Usable).unwrap();
    }
    drain(&mut set);

    let outputs = learn(&mut set, describe("a", ServerType::RsSecondary));

    let is_served = |output: &Output<()>| matches!(output, Output::Pool { output: PoolOutput::Action(Action::Deliver { check_out, .. }), .. } if CheckOut::Started(*check_out) == behind);
    assert!(outputs.iter().any(is_served), "{outputs:?}");
}

#[test]
fn a_snapshot_has_no_sockets_and_goes_on_where_the_topology_stood() {
    #[derive(Debug)]
    struct Socket;
    let mut topology = Topology::new(options(&["a"]), PoolOptions::default()).unwrap();
    topology.open(NOW);
    let server = topology.servers().next().unwrap().0;
    let known = Finding::Description(Box::new(describe("a", ServerType::Standalone)));
    topology.handle_check(NOW, server, known).unwrap();
    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let connect = std::iter::from_fn(|| topology.poll_output()).find_map(|output| match output {
        Output::Pool { output: PoolOutput::Action(Action::Connect { connection }), .. } => Some(connection),
        _ => None,
    });
    topology.handle_established(NOW, connect.unwrap(), Socket).unwrap();

    let written = serde_json::to_string(&topology.snapshot()).unwrap();
    let mut read: Topology<()> = serde_json::from_str(&written).unwrap();

    let outputs = std::iter::from_fn(|| topology.poll_output()).map(|output| output.snapshot());
    assert_eq!(drain(&mut read), outputs.collect::<Vec<_>>());
    assert_eq!(read.poll_timeout(), topology.poll_timeout());
}

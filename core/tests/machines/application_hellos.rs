//! What the hello of an application's connection says of a server's round-trip time.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::monitor::Finding;
use cmap_core::options::{PoolOptions, ReadMode, ReadPreference};
use cmap_core::pool::{Action, Cause, CheckOutRequest, Handle, Output as PoolOutput};
use cmap_core::server::{OperationError, ServerDescription, ServerId, ServerType, StateChange};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Output, ServerSelector, Topology, TopologyOptions};

const NOW: Instant = Instant::from_millis(1);

fn address(name: &str) -> ServerAddress {
    ServerAddress::tcp(name, 27017)
}

fn describe(name: &str, server_type: ServerType, round_trip: u64) -> ServerDescription {
    let mut description = ServerDescription::new(address(name).into(), server_type);
    description.wire_versions = Some((0, 21));
    description.set_name = Some("rs".into());
    description.hosts = ["a:27017", "b:27017", "c:27017"].map(Into::into).into();
    description.round_trip_time = Some(Duration::from_millis(round_trip));
    description
}

/// A set whose members are 5 ms away, but for "c", which is 200 ms away.
fn set() -> Topology<()> {
    let options = TopologyOptions::of_seeds(["a", "b", "c"].map(address).into());
    let mut set = Topology::new(options, PoolOptions::default()).unwrap();
    set.open(NOW);
    for (name, server_type, round_trip) in
        [("a", ServerType::RsPrimary, 5), ("b", ServerType::RsSecondary, 5), ("c", ServerType::RsSecondary, 200)]
    {
        let server = id(&set, name);
        let found = Finding::Description(Box::new(describe(name, server_type, round_trip)));
        set.handle_check(NOW, server, found).unwrap();
    }
    while set.poll_output().is_some() {}
    set
}

fn id(set: &Topology<()>, name: &str) -> ServerId {
    let address = address(name);
    set.servers().find(|(_, server)| *server.description().address == address).unwrap().0
}

/// Begins a check-out at a server; returns the connection that is to be established for it.
fn connect(set: &mut Topology<()>, name: &str) -> Handle {
    let criteria = Criteria { selector: ServerSelector::AnyOf([address(name)].into()), ..Criteria::default() };
    let _ = set.check_out(NOW, &criteria, CheckOutRequest::default());
    let outputs = std::iter::from_fn(|| set.poll_output());
    let connect = |output: Output<()>| match output {
        Output::Pool { output: PoolOutput::Action(Action::Connect { connection }), .. } => Some(connection),
        _ => None,
    };
    outputs.filter_map(connect).last().unwrap()
}

/// How many of a hundred reads of the nearest servers go to "c".
fn reads_at_c(set: &mut Topology<()>) -> usize {
    let nearest = ReadPreference::new(ReadMode::Nearest);
    let criteria = Criteria { selector: ServerSelector::ReadPreference(nearest.into()), ..Criteria::default() };
    let c = id(set, "c");
    let read = |_: &i32| {
        let (check_out, _) = set.check_out(NOW, &criteria, CheckOutRequest::default());
        let CheckOut::Started(check_out) = check_out else { panic!("no server suits") };
        while set.poll_output().is_some() {}
        set.server_of_check_out(check_out) == Some(c)
    };
    (0..100).filter(read).count()
}

/// "c" says that it is recovering, and then a new connection to it is greeted, whose hello took `round_trip`.
fn greeted_after_an_error(round_trip: u64) -> Topology<()> {
    let mut set = set();
    let (failed, greeted) = (connect(&mut set, "c"), connect(&mut set, "c"));
    set.handle_established(NOW, failed, ()).unwrap();
    let mut error = OperationError::new(Fault::Server { code: Some(13436) }, Cause::new("not primary or secondary"));
    error.state_change = Some(StateChange::Recovering);
    set.handle_operation_failed(NOW, failed, error).unwrap();
    let c = id(&set, "c");
    assert_eq!(set.server(c).unwrap().description().round_trip_time, None);

    set.handle_hello(NOW, greeted, None, describe("c", ServerType::RsSecondary, round_trip)).unwrap();

    let description = set.server(c).unwrap().description();
    assert_eq!(description.server_type, ServerType::RsSecondary);
    assert_eq!(description.round_trip_time, Some(Duration::from_millis(round_trip)));
    set
}

#[test]
fn a_server_that_a_hello_makes_known_is_as_far_away_as_the_hello_took_sel_2() {
    assert_eq!(reads_at_c(&mut greeted_after_an_error(200)), 0);
    assert!(reads_at_c(&mut greeted_after_an_error(5)) > 0);
}

#[test]
fn the_round_trip_times_of_the_checks_count_more_than_that_of_a_hello_sdam_22() {
    let mut set = set();
    let connection = connect(&mut set, "c");

    set.handle_hello(NOW, connection, None, describe("c", ServerType::RsSecondary, 1)).unwrap();

    let c = id(&set, "c");
    assert_eq!(set.server(c).unwrap().description().round_trip_time, Some(Duration::from_millis(200)));
}

#[test]
fn a_hello_that_leaves_a_server_unknown_has_no_round_trip_time_sdam_22() {
    let mut set = set();
    let connection = connect(&mut set, "c");

    set.handle_hello(NOW, connection, None, describe("c", ServerType::Unknown, 1)).unwrap();

    let c = id(&set, "c");
    assert_eq!(set.server(c).unwrap().description().round_trip_time, None);
}

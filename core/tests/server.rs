//! What errors mean for the server they come from, and in which order that can be seen (CMAP-49, SDAM-3).

#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::event::Event;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, Cause, CheckOutRequest, Condition, Handle, Output, Pool, PoolState};
use cmap_core::server::{
    CheckOut, MonitorCall, OperationError, Output as ServerOutput, Server, ServerDescription, ServerOptions,
    ServerType, StateChange, TopologyType, TopologyVersion,
};
use cmap_core::time::Instant;

const NOW: Instant = Instant::ORIGIN;

/// A server that a check has found answering.
fn server() -> Server<()> {
    let pool = Pool::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), NOW).unwrap();
    let mut server = Server::new(pool, ServerOptions::default());
    server.open(NOW);
    check(&mut server);
    drain(&mut server);
    server
}

/// A check finds a standalone server.
fn check(server: &mut Server<()>) {
    let address = server.description().address.clone();
    server.handle_check_succeeded(NOW, ServerDescription::new(address, ServerType::Standalone));
}

/// Drains; returns the names of the events, and the last connection that was to be established.
fn drain(server: &mut Server<()>) -> (Vec<&'static str>, Option<Handle>) {
    let (mut events, mut connection) = (Vec::new(), None);
    for output in pool_outputs(server) {
        match output {
            Output::Event(event) => events.push(Event::name(&event)),
            Output::Action(Action::Connect { connection: pending }) => connection = Some(pending),
            Output::Action(_) => {}
        }
    }
    (events, connection)
}

fn outputs(server: &mut Server<()>) -> Vec<ServerOutput<()>> {
    std::iter::from_fn(|| server.poll_output()).collect()
}

fn pool_outputs(server: &mut Server<()>) -> Vec<Output<()>> {
    let of_pool = |output| match output {
        ServerOutput::Pool(output) => Some(output),
        ServerOutput::Event(_) | ServerOutput::Monitor(_) => None,
        ServerOutput::Selected { .. } | ServerOutput::SelectionFailed { .. } => None,
    };
    outputs(server).into_iter().filter_map(of_pool).collect()
}

fn name(output: &ServerOutput<()>) -> Option<&'static str> {
    match output {
        ServerOutput::Pool(Output::Event(event)) => Some(event.name()),
        ServerOutput::Event(event) => Some(event.name()),
        ServerOutput::Pool(Output::Action(_)) | ServerOutput::Monitor(_) => None,
        ServerOutput::Selected { .. } | ServerOutput::SelectionFailed { .. } => None,
    }
}

fn pending(server: &mut Server<()>) -> Handle {
    server.pool_mut().check_out(NOW, CheckOutRequest::default());
    drain(server).1.unwrap()
}

fn in_use(server: &mut Server<()>) -> Handle {
    let connection = pending(server);
    server.pool_mut().handle_established(NOW, connection, ()).unwrap();
    drain(server);
    connection
}

fn network_error() -> OperationError {
    OperationError::new(Fault::Network, Cause::new("connection reset"))
}

#[test]
fn a_failed_login_clears_the_pool_before_the_connection_is_closed_and_the_check_out_fails() {
    let mut server = server();
    let connection = pending(&mut server);
    let error = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(18) }, "authentication failed");

    server.handle_establish_failed(NOW, connection, error).unwrap();

    assert_eq!(server.description().server_type, ServerType::Unknown);
    let outputs = outputs(&mut server);
    let names: Vec<_> = outputs.iter().filter_map(name).collect();
    assert_eq!(
        names,
        [
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
            "ConnectionPoolCleared",
            "ConnectionClosed",
            "ConnectionCheckOutFailed",
        ]
    );
    assert_eq!(outputs.last(), Some(&ServerOutput::Monitor(MonitorCall::CancelCheck)));
}

#[test]
fn a_failed_operation_clears_the_pool_before_its_connection_is_checked_in_and_closed() {
    let mut server = server();
    let connection = in_use(&mut server);

    server.handle_operation_failed(NOW, connection, network_error()).unwrap();
    server.pool_mut().check_in(NOW, connection, (), Condition::Errored).unwrap();

    assert_eq!(drain(&mut server).0, ["ConnectionPoolCleared", "ConnectionCheckedIn", "ConnectionClosed"]);
    assert!(!server.is_usable());
}

#[test]
fn an_overloaded_server_keeps_its_pool_sdam_7() {
    let mut server = server();
    let connection = pending(&mut server);
    let error = EstablishError::new(Phase::Hello, Fault::Network, "the server hung up");

    server.handle_establish_failed(NOW, connection, error).unwrap();

    assert_eq!(drain(&mut server).0, ["ConnectionClosed", "ConnectionCheckOutFailed"]);
    assert_eq!((server.is_usable(), server.pool().state()), (true, PoolState::Ready));
}

#[test]
fn an_error_of_a_stale_connection_is_old_news_sdam_4() {
    let mut server = server();
    let (first, second) = (in_use(&mut server), in_use(&mut server));
    server.handle_operation_failed(NOW, first, network_error()).unwrap();
    check(&mut server);
    drain(&mut server);

    server.handle_operation_failed(NOW, second, network_error()).unwrap();

    assert_eq!(drain(&mut server).0, [""; 0]);
    assert!(server.is_usable());
}

#[test]
fn a_check_that_timed_out_interrupts_connections_in_use_mon_9() {
    let mut server = server();
    in_use(&mut server);

    server.handle_check_failed(NOW, Fault::Timeout, Cause::new("no answer")).unwrap();

    let outputs = pool_outputs(&mut server);
    assert!(matches!(
        outputs.as_slice(),
        [
            Output::Event(Event::PoolCleared { interrupt_in_use_connections: true, .. }),
            Output::Action(Action::Interrupt { .. })
        ]
    ));
}

#[test]
fn a_check_that_failed_otherwise_interrupts_nothing_mon_9() {
    let mut server = server();
    in_use(&mut server);

    server.handle_check_failed(NOW, Fault::Network, Cause::new("connection reset")).unwrap();

    assert_eq!(drain(&mut server).0, ["ConnectionPoolCleared"]);
    assert_eq!(server.pool().counts().in_use, 1);
}

/// A server that nobody checks, whose owner has made the pool ready.
fn unchecked() -> Server<()> {
    let pool = Pool::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), NOW).unwrap();
    let mut server = Server::unchecked(pool);
    server.pool_mut().ready(NOW);
    drain(&mut server);
    server
}

#[test]
fn a_check_out_of_a_server_that_nobody_checks_goes_to_the_pool_at_once_cmap_28() {
    let pool = Pool::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), NOW).unwrap();
    let mut server = Server::unchecked(pool);

    let check_out = server.check_out(NOW, CheckOutRequest::until(NOW + Duration::from_secs(3600)));

    assert!(matches!(check_out, CheckOut::Started(_)));
    assert_eq!(
        drain(&mut server).0,
        ["ConnectionPoolCreated", "ConnectionCheckOutStarted", "ConnectionCheckOutFailed"]
    );
}

#[test]
fn a_deadline_is_the_callers_alone_where_no_server_is_selected() {
    let mut server = unchecked();

    server.check_out(NOW, CheckOutRequest::until(NOW + Duration::from_secs(3600)));
    drain(&mut server);

    assert_eq!(server.poll_timeout().map(|timeout| timeout.at), Some(NOW + Duration::from_secs(3600)));
}

#[test]
fn an_error_clears_a_pool_whose_server_nobody_checks_and_says_nothing_else() {
    let mut server = unchecked();
    let connection = in_use(&mut server);

    server.handle_operation_failed(NOW, connection, network_error()).unwrap();

    let names: Vec<_> = outputs(&mut server).iter().filter_map(name).collect();
    assert_eq!(names, ["ConnectionPoolCleared"]);
    assert_eq!(server.pool().state(), PoolState::Paused);
    assert!(matches!(server.check_out(NOW, CheckOutRequest::default()), CheckOut::Started(_)));
}

/// What an application's hello says of a server that speaks the protocol up to `newest`.
fn hello(server: &Server<()>, newest: i32) -> ServerDescription {
    let address = server.description().address.clone();
    let mut description = ServerDescription::new(address, ServerType::Standalone);
    description.wire_versions = Some((0, newest));
    description
}

#[test]
fn the_hello_of_a_connection_says_what_a_check_would_mon_5() {
    let mut server = server();
    let connection = pending(&mut server);
    let new = hello(&server, 25);

    server.handle_application_hello(NOW, connection, new);

    let events: Vec<_> = outputs(&mut server).iter().filter_map(name).collect();
    assert_eq!(events, ["ServerDescriptionChanged", "TopologyDescriptionChanged"]);
    assert_eq!(server.description().wire_versions, Some((0, 25)));
}

#[test]
fn the_hello_of_a_connection_keeps_the_round_trip_times_sdam_22() {
    let mut server = server();
    let measured = Some(core::time::Duration::from_millis(5));
    let mut checked = hello(&server, 21);
    checked.round_trip_time = measured;
    server.handle_check_succeeded(NOW, checked);
    drain(&mut server);
    let connection = pending(&mut server);
    let new = hello(&server, 21);

    server.handle_application_hello(NOW, connection, new);

    assert_eq!(server.description().round_trip_time, measured);
    assert!(outputs(&mut server).is_empty(), "nothing has changed");
}

#[test]
fn the_hello_of_a_stale_connection_does_not_make_a_server_known() {
    let mut server = server();
    let connection = pending(&mut server);
    server.handle_check_failed(NOW, Fault::Network, Cause::new("gone")).unwrap();
    let old = hello(&server, 21);

    server.handle_application_hello(NOW, connection, old);

    assert_eq!(server.description().server_type, ServerType::Unknown);
    assert_eq!(server.pool().state(), PoolState::Paused);
}

#[test]
fn the_hello_of_a_connection_makes_a_server_known_again_that_an_error_made_unknown_mon_5() {
    let mut server = server();
    let greeted = pending(&mut server);
    let connection = in_use(&mut server);
    // It says that it is no primary any more, and clears nothing (SDAM-15).
    let mut error = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    error.state_change = Some(StateChange::NotWritablePrimary);
    server.handle_operation_failed(NOW, connection, error).unwrap();
    assert_eq!(server.description().server_type, ServerType::Unknown);
    let new = hello(&server, 21);

    server.handle_application_hello(NOW, greeted, new);

    assert_eq!(server.description().server_type, ServerType::Standalone);
}

#[test]
fn the_hello_of_a_connection_that_is_older_than_what_is_known_is_ignored_sdam_6() {
    let mut server = server();
    let version = |counter| Some(TopologyVersion { process_id: [7; 12], counter });
    let mut known = hello(&server, 21);
    known.topology_version = version(5);
    server.handle_check_succeeded(NOW, known);
    let connection = pending(&mut server);
    let mut old = hello(&server, 25);
    old.topology_version = version(4);

    server.handle_application_hello(NOW, connection, old);

    assert_eq!(server.description().wire_versions, Some((0, 21)));
}

#[test]
fn the_hello_of_a_connection_says_nothing_of_a_server_that_nobody_checks() {
    let mut server = unchecked();
    let connection = pending(&mut server);
    let new = hello(&server, 21);

    server.handle_application_hello(NOW, connection, new);

    assert!(outputs(&mut server).is_empty());
    assert_eq!(server.description().server_type, ServerType::Unknown);
}

/// A check's finding: a member of `set`, at this version of the topology.
fn member(server: &Server<()>, set: &str, counter: Option<i64>) -> ServerDescription {
    let address = server.description().address.clone();
    let mut description = ServerDescription::new(address, ServerType::RsPrimary);
    description.set_name = Some(set.into());
    description.topology_version = counter.map(|counter| TopologyVersion { process_id: [7; 12], counter });
    description
}

/// A server that was not checked yet, of a client that asks for `set` or for none.
fn asking_for(set: Option<&str>) -> Server<()> {
    let pool = Pool::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), NOW).unwrap();
    let mut options = ServerOptions::default();
    options.replica_set = set.map(Into::into);
    let mut server = Server::new(pool, options);
    server.open(NOW);
    drain(&mut server);
    server
}

#[test]
fn a_set_that_was_merely_found_is_not_held_against_the_server() {
    let mut server = asking_for(None);
    let (nonsense, truth) = (member(&server, "nonsense", None), member(&server, "rs0", None));
    server.handle_check_succeeded(NOW, nonsense);
    assert_eq!(server.topology().set_name.as_deref(), Some("nonsense"));

    server.handle_check_succeeded(NOW, truth);

    assert!(server.is_usable());
    assert_eq!(server.topology().set_name.as_deref(), Some("rs0"));
    assert_eq!(server.topology().topology_type, TopologyType::ReplicaSetWithPrimary);
}

#[test]
fn a_kind_of_topology_that_was_merely_found_is_not_held_against_the_server() {
    use ServerType::{Mongos, RsPrimary, Standalone};
    use TopologyType::{ReplicaSetWithPrimary, Sharded, Single};
    for (first, then, topology_type) in [
        (Mongos, Standalone, Single),
        (Mongos, RsPrimary, ReplicaSetWithPrimary),
        (RsPrimary, Mongos, Sharded),
        (RsPrimary, Standalone, Single),
    ] {
        let mut server = asking_for(None);
        for server_type in [first, then] {
            let mut found = member(&server, "rs0", None);
            found.server_type = server_type;
            found.set_name = found.set_name.filter(|_| server_type == RsPrimary);
            server.handle_check_succeeded(NOW, found);
        }

        assert!(server.is_usable(), "{first}, then {then}");
        let topology = server.topology();
        let set_name = Some("rs0").filter(|_| then == RsPrimary);
        assert_eq!((topology.topology_type, topology.set_name.as_deref()), (topology_type, set_name));
    }
}

#[test]
fn a_server_of_another_set_than_was_asked_for_is_usable_as_soon_as_it_is_of_that_one() {
    let mut server = asking_for(Some("rs0"));
    let (truth, nonsense) = (member(&server, "rs0", None), member(&server, "nonsense", None));
    server.handle_check_succeeded(NOW, truth.clone());
    server.handle_check_succeeded(NOW, nonsense);
    assert!(!server.is_usable());
    let why = server.description().error.clone().unwrap().to_string();
    assert!(why.contains(r#"the server belongs to the set "nonsense", not to "rs0""#), "{why}");

    server.handle_check_succeeded(NOW, truth);

    assert!(server.is_usable());
    assert_eq!(server.topology().set_name.as_deref(), Some("rs0"));
}

#[test]
fn a_server_that_is_in_no_set_is_unknown_where_one_was_asked_for() {
    for server_type in [ServerType::Standalone, ServerType::Mongos] {
        let mut server = asking_for(Some("rs0"));
        let address = server.description().address.clone();

        server.handle_check_succeeded(NOW, ServerDescription::new(address, server_type));

        assert!(!server.is_usable(), "{server_type}");
        assert_eq!(server.topology().topology_type, TopologyType::ReplicaSetNoPrimary);
    }
}

#[test]
fn a_server_whose_counter_was_a_lie_is_believed_at_the_third_check_sdam_6() {
    for lie in [i64::MAX, 6] {
        let mut server = asking_for(None);
        let (nonsense, truth) = (member(&server, "nonsense", Some(lie)), member(&server, "rs0", Some(5)));
        server.handle_check_succeeded(NOW, nonsense);

        for _ in 0..2 {
            server.handle_check_succeeded(NOW, truth.clone());
            assert_eq!(server.description().set_name.as_deref(), Some("nonsense"), "it may have been overtaken");
        }
        server.handle_check_succeeded(NOW, truth);

        assert_eq!(server.description().set_name.as_deref(), Some("rs0"));
        assert!(server.is_usable());
    }
}

#[test]
fn an_error_whose_counter_was_a_lie_makes_a_server_unknown_for_three_checks_at_most() {
    let mut server = asking_for(None);
    let truth = member(&server, "rs0", Some(5));
    server.handle_check_succeeded(NOW, truth.clone());
    drain(&mut server);
    let connection = in_use(&mut server);
    let mut error = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    error.state_change = Some(StateChange::NotWritablePrimary);
    error.topology_version = Some(TopologyVersion { process_id: [7; 12], counter: i64::MAX });
    server.handle_operation_failed(NOW, connection, error).unwrap();

    for is_usable in [false, false, true] {
        server.handle_check_succeeded(NOW, truth.clone());
        assert_eq!(server.is_usable(), is_usable);
    }
}

#[test]
fn checks_that_find_what_is_known_make_disbelief_begin_anew() {
    let mut server = asking_for(None);
    let (new, old) = (member(&server, "new", Some(6)), member(&server, "old", Some(5)));
    server.handle_check_succeeded(NOW, new.clone());

    for found in [&old, &old, &new, &old, &old] {
        server.handle_check_succeeded(NOW, found.clone());
    }

    assert_eq!(server.description().set_name.as_deref(), Some("new"));
}

#[test]
fn hellos_of_connections_that_are_older_are_never_believed_sdam_6() {
    let mut server = asking_for(None);
    let (new, old) = (member(&server, "new", Some(6)), member(&server, "old", Some(5)));
    server.handle_check_succeeded(NOW, new);
    let connection = pending(&mut server);

    for _ in 0..10 {
        server.handle_application_hello(NOW, connection, old.clone());
    }

    assert_eq!(server.description().set_name.as_deref(), Some("new"));
}

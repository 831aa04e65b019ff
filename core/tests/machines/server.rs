//! The meaning of errors for the server they come from, and the order of their effects (CMAP-49, SDAM-3).

use std::time::Duration;

use crate::one_server::OneServer;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::{Call, Finding, HeartbeatEvent, MonitorConnection};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{
    Action, ApiMisuse, Cause, CheckOutRequest, CheckedIn, Clear, Condition, Event, Handle, Output, PoolState,
};
use cmap_core::server::{OperationError, ServerDescription, ServerType, StateChange, TopologyVersion};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, MonitorCall, Output as TopologyOutput, TopologyType};

const NOW: Instant = Instant::ORIGIN;

/// A server that a check has found answering.
fn server() -> OneServer<()> {
    let mut server = OneServer::new(NOW, PoolOptions::default(), |_| {});
    check(&mut server);
    drain(&mut server);
    server
}

/// A check finds a standalone server.
fn check(server: &mut OneServer<()>) {
    let address = server.description().address.clone();
    learn(server, ServerDescription::new(address, ServerType::Standalone));
}

/// A check succeeds.
fn learn(server: &mut OneServer<()>, description: ServerDescription) {
    server.handle_check(NOW, Finding::Description(Box::new(description))).unwrap();
}

/// A check fails.
fn fail_check(server: &mut OneServer<()>, fault: Fault, cause: &str) {
    server.handle_check(NOW, Finding::Failure { fault, cause: Cause::new(cause) }).unwrap();
}

/// Drains the outputs; returns the names of the events, and the last connection to establish.
fn drain(server: &mut OneServer<()>) -> (Vec<&'static str>, Option<Handle>) {
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

fn outputs(server: &mut OneServer<()>) -> Vec<TopologyOutput<()>> {
    std::iter::from_fn(|| server.poll_output()).collect()
}

fn pool_outputs(server: &mut OneServer<()>) -> Vec<Output<()>> {
    let of_pool = |output| match output {
        TopologyOutput::Pool { output, .. } => Some(output),
        _ => None,
    };
    outputs(server).into_iter().filter_map(of_pool).collect()
}

fn name(output: &TopologyOutput<()>) -> Option<&'static str> {
    match output {
        TopologyOutput::Pool { output: Output::Event(event), .. } => Some(event.name()),
        TopologyOutput::Server { event, .. } => Some(event.name()),
        TopologyOutput::Topology(event) => Some(event.name()),
        _ => None,
    }
}

fn pending(server: &mut OneServer<()>) -> Handle {
    let _ = server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    drain(server).1.unwrap()
}

fn in_use(server: &mut OneServer<()>) -> Handle {
    let connection = pending(server);
    server.handle_established(NOW, connection, ()).unwrap();
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
    let cancels = MonitorCall::Call(Call::CancelCheck);
    assert_eq!(outputs.last(), Some(&TopologyOutput::Monitor { server: server.id(), call: cancels }));
}

#[test]
fn a_new_credential_has_a_server_checked_that_refused_the_old_one_x_90() {
    let mut server = server();
    let connection = pending(&mut server);
    let error = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(18) }, "authentication failed");
    server.handle_establish_failed(NOW, connection, error).unwrap();
    drain(&mut server);

    server.renew_credential(NOW, None);

    let check = TopologyOutput::Monitor { server: server.id(), call: MonitorCall::Call(Call::RequestCheck) };
    assert_eq!(outputs(&mut server), [check]);
}

#[test]
fn a_server_that_shuts_down_is_unknown_also_to_a_connection_with_a_replaced_credential_x_8() {
    let mut server = server();
    let connection = pending(&mut server);
    server.renew_credential(NOW, None);
    let error = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(91) }, "shutting down");

    server.handle_establish_failed(NOW, connection, error).unwrap();

    assert_eq!(server.description().server_type, ServerType::Unknown);
    assert_eq!(drain(&mut server).0, ["ConnectionPoolCleared", "ConnectionClosed", "ConnectionCheckOutFailed"]);
}

#[test]
fn a_new_credential_has_no_server_checked_that_is_known_x_90() {
    let mut server = server();

    server.renew_credential(NOW, None);

    assert!(outputs(&mut server).is_empty());
}

#[test]
fn a_failed_operation_clears_the_pool_before_its_connection_is_checked_in_and_closed() {
    let mut server = server();
    let connection = in_use(&mut server);

    server.handle_operation_failed(NOW, connection, network_error()).unwrap();
    let user = server.pool().use_of(connection).unwrap().check_out;
    assert_eq!(server.check_in(NOW, user, connection, (), Condition::Errored), Ok(CheckedIn::Done));

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

    fail_check(&mut server, Fault::Timeout, "no answer");

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

    fail_check(&mut server, Fault::Network, "connection reset");

    assert_eq!(drain(&mut server).0, ["ConnectionPoolCleared"]);
    assert_eq!(server.pool().counts().in_use, 1);
}

/// A server without a monitor, whose owner has made the pool ready.
fn unmonitored() -> OneServer<()> {
    let mut server = OneServer::unmonitored(NOW);
    server.ready(NOW).unwrap();
    drain(&mut server);
    server
}

#[test]
fn a_check_out_of_a_server_that_nobody_checks_goes_to_the_pool_at_once_cmap_28() {
    let mut server = OneServer::unmonitored(NOW);

    let (check_out, _) =
        server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::until(NOW + Duration::from_secs(3600)));

    assert!(matches!(check_out, CheckOut::Started(_)));
    assert_eq!(
        drain(&mut server).0,
        ["ConnectionPoolCreated", "ConnectionCheckOutStarted", "ConnectionCheckOutFailed"]
    );
}

#[test]
fn a_deadline_is_the_callers_alone_where_no_server_is_selected() {
    let mut server = unmonitored();

    let _ = server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::until(NOW + Duration::from_secs(3600)));
    drain(&mut server);

    assert_eq!(server.poll_timeout().map(|timeout| timeout.at), Some(NOW + Duration::from_secs(3600)));
}

#[test]
fn an_error_clears_a_pool_whose_server_nobody_checks_and_says_nothing_else() {
    let mut server = unmonitored();
    let connection = in_use(&mut server);

    server.handle_operation_failed(NOW, connection, network_error()).unwrap();

    let names: Vec<_> = outputs(&mut server).iter().filter_map(name).collect();
    assert_eq!(names, ["ConnectionPoolCleared"]);
    assert_eq!(server.pool().state(), PoolState::Paused);
    assert!(matches!(
        server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()),
        (CheckOut::Started(_), None)
    ));
}

/// The description in an application's hello of a server that speaks the protocol up to `newest`.
fn hello(server: &OneServer<()>, newest: i32) -> ServerDescription {
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

    server.handle_hello(NOW, connection, None, new).unwrap();

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
    learn(&mut server, checked);
    drain(&mut server);
    let connection = pending(&mut server);
    let new = hello(&server, 21);

    server.handle_hello(NOW, connection, None, new).unwrap();

    assert_eq!(server.description().round_trip_time, measured);
    assert!(outputs(&mut server).is_empty(), "nothing has changed");
}

#[test]
fn the_hello_of_a_stale_connection_does_not_make_a_server_known() {
    let mut server = server();
    let connection = pending(&mut server);
    fail_check(&mut server, Fault::Network, "gone");
    let old = hello(&server, 21);

    server.handle_hello(NOW, connection, None, old).unwrap();

    assert_eq!(server.description().server_type, ServerType::Unknown);
    assert_eq!(server.pool().state(), PoolState::Paused);
}

#[test]
fn the_hello_of_a_connection_makes_a_server_known_again_that_an_error_made_unknown_mon_5() {
    let mut server = server();
    let greeted = pending(&mut server);
    let connection = in_use(&mut server);
    // It reports that it is not a primary any more, and clears nothing (SDAM-15).
    let mut error = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    error.state_change = Some(StateChange::NotWritablePrimary);
    server.handle_operation_failed(NOW, connection, error).unwrap();
    assert_eq!(server.description().server_type, ServerType::Unknown);
    let new = hello(&server, 21);

    server.handle_hello(NOW, greeted, None, new).unwrap();

    assert_eq!(server.description().server_type, ServerType::Standalone);
}

#[test]
fn the_hello_of_a_connection_that_is_older_than_what_is_known_is_ignored_sdam_6() {
    let mut server = server();
    let version = |counter| Some(TopologyVersion { process_id: [7; 12], counter });
    let mut known = hello(&server, 21);
    known.topology_version = version(5);
    learn(&mut server, known);
    let connection = pending(&mut server);
    let mut old = hello(&server, 25);
    old.topology_version = version(4);

    server.handle_hello(NOW, connection, None, old).unwrap();

    assert_eq!(server.description().wire_versions, Some((0, 21)));
}

#[test]
fn the_hello_of_a_connection_says_nothing_of_a_server_that_nobody_checks() {
    let mut server = unmonitored();
    let connection = pending(&mut server);
    let new = hello(&server, 21);

    server.handle_hello(NOW, connection, None, new).unwrap();

    assert!(outputs(&mut server).is_empty());
    assert_eq!(server.description().server_type, ServerType::Unknown);
}

/// A check's finding: a member of `set`, at this version of the topology.
fn member(server: &OneServer<()>, set: &str, counter: Option<i64>) -> ServerDescription {
    let address = server.description().address.clone();
    let mut description = ServerDescription::new(address, ServerType::RsPrimary);
    description.set_name = Some(set.into());
    description.hosts = vec![description.address.to_string()];
    description.topology_version = counter.map(|counter| TopologyVersion { process_id: [7; 12], counter });
    description
}

/// A server that was not checked yet, of a client that asks for `set` or for none.
fn asking_for(set: Option<&str>) -> OneServer<()> {
    let mut server = OneServer::new(NOW, PoolOptions::default(), |options| options.replica_set = set.map(Into::into));
    drain(&mut server);
    server
}

#[test]
fn a_member_of_another_set_than_was_asked_for_leaves_and_says_why_top_22() {
    let mut server = asking_for(Some("rs0"));
    let other = member(&server, "other", None);

    learn(&mut server, other);

    let description = server.topology().description();
    assert_eq!((description.topology_type, description.servers.len()), (TopologyType::ReplicaSetNoPrimary, 0));
}

#[test]
fn a_server_that_is_in_no_set_leaves_where_one_was_asked_for_top_20() {
    for server_type in [ServerType::Standalone, ServerType::Mongos] {
        let mut server = asking_for(Some("rs0"));
        let address = server.description().address.clone();

        learn(&mut server, ServerDescription::new(address, server_type));

        assert_eq!(server.topology().description().servers.len(), 0, "{server_type}");
    }
}

#[test]
fn a_direct_connection_keeps_a_server_of_another_set_and_does_not_use_it_top_19() {
    let mut server = OneServer::new(NOW, PoolOptions::default(), |options| {
        options.replica_set = Some("rs0".into());
        options.direct_connection = true;
    });
    let (other, truth) = (member(&server, "other", None), member(&server, "rs0", None));
    learn(&mut server, other);
    assert!(!server.is_usable());
    let why = server.description().error.clone().unwrap().to_string();
    assert!(why.contains(r#"the server belongs to the set "other", not to "rs0""#), "{why}");

    learn(&mut server, truth);

    assert!(server.is_usable());
}

/// A check's finding: a primary with this tag, at this version of the topology.
fn tagged(server: &OneServer<()>, tag: &str, counter: Option<i64>) -> ServerDescription {
    let mut description = member(server, "rs0", counter);
    description.tags.insert("found".into(), tag.into());
    description
}

fn tag(server: &OneServer<()>) -> Option<&str> {
    server.description().tags.get("found").map(String::as_str)
}

#[test]
fn a_server_whose_counter_was_a_lie_is_believed_at_the_third_check_sdam_6() {
    for lie in [i64::MAX, 6] {
        let mut server = asking_for(None);
        let (nonsense, truth) = (tagged(&server, "nonsense", Some(lie)), tagged(&server, "rs0", Some(5)));
        learn(&mut server, nonsense);

        for _ in 0..2 {
            learn(&mut server, truth.clone());
            assert_eq!(tag(&server), Some("nonsense"), "it may have been overtaken");
        }
        learn(&mut server, truth);

        assert_eq!(tag(&server), Some("rs0"));
        assert!(server.is_usable());
    }
}

#[test]
fn an_error_whose_counter_was_a_lie_makes_a_server_unknown_for_three_checks_at_most() {
    let mut server = asking_for(None);
    let truth = tagged(&server, "rs0", Some(5));
    learn(&mut server, truth.clone());
    drain(&mut server);
    let connection = in_use(&mut server);
    let mut error = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    error.state_change = Some(StateChange::NotWritablePrimary);
    error.topology_version = Some(TopologyVersion { process_id: [7; 12], counter: i64::MAX });
    server.handle_operation_failed(NOW, connection, error).unwrap();

    for is_usable in [false, false, true] {
        learn(&mut server, truth.clone());
        assert_eq!(server.is_usable(), is_usable);
    }
}

#[test]
fn checks_that_find_what_is_known_make_disbelief_begin_anew() {
    let mut server = asking_for(None);
    let (new, old) = (tagged(&server, "new", Some(6)), tagged(&server, "old", Some(5)));
    learn(&mut server, new.clone());

    for found in [&old, &old, &new, &old, &old] {
        learn(&mut server, found.clone());
    }

    assert_eq!(tag(&server), Some("new"));
}

#[test]
fn hellos_of_connections_that_are_older_are_never_believed_sdam_6() {
    let mut server = asking_for(None);
    let (new, old) = (tagged(&server, "new", Some(6)), tagged(&server, "old", Some(5)));
    learn(&mut server, new);
    let connection = pending(&mut server);

    for _ in 0..10 {
        server.handle_hello(NOW, connection, None, old.clone()).unwrap();
    }

    assert_eq!(tag(&server), Some("new"));
}

#[test]
fn a_monitored_server_refuses_ready_and_clear() {
    for mut server in [asking_for(None), server()] {
        let state = server.pool().state();

        assert_eq!(server.ready(NOW), Err(ApiMisuse::Monitored));
        assert_eq!(server.clear(NOW, Clear::pool(Cause::new("gone"))), Err(ApiMisuse::Monitored));

        assert_eq!((server.pool().state(), server.pool().generation().get()), (state, 0));
        assert!(server.is_drained());
    }
}

#[test]
fn the_owner_of_a_server_without_a_monitor_makes_its_pool_ready_and_clears_it() {
    let mut server = unmonitored();

    server.clear(NOW, Clear::pool(Cause::new("gone"))).unwrap();
    assert_eq!(server.pool().state(), PoolState::Paused);
    server.ready(NOW).unwrap();

    assert_eq!(drain(&mut server).0, ["ConnectionPoolCleared", "ConnectionPoolReady"]);
}

fn heartbeat_failed() -> HeartbeatEvent {
    let connection = MonitorConnection { id: 1, server_id: None };
    HeartbeatEvent::Failed { connection, duration: Duration::ZERO, failure: Cause::new("gone"), awaited: false }
}

fn heartbeat_started() -> HeartbeatEvent {
    HeartbeatEvent::Started { connection: MonitorConnection { id: 1, server_id: None }, awaited: false }
}

#[test]
fn heartbeats_are_told_among_the_other_events_in_order_mon_13() {
    let mut server = server();

    server.handle_heartbeat(NOW, heartbeat_started());
    let _ = server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    server.handle_heartbeat(NOW, heartbeat_failed());
    fail_check(&mut server, Fault::Network, "gone");
    server.handle_heartbeat(NOW, heartbeat_started());

    let names: Vec<_> = outputs(&mut server).iter().filter_map(name).collect();
    assert_eq!(
        names,
        [
            "ServerHeartbeatStarted",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "ServerHeartbeatFailed",
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
            "ConnectionPoolCleared",
            "ConnectionCheckOutFailed",
            "ServerHeartbeatStarted",
        ]
    );
}

#[test]
fn a_heartbeat_after_the_end_is_not_told_mon_14() {
    let mut server = server();
    server.handle_heartbeat(NOW, heartbeat_started());
    server.handle_heartbeat(NOW, heartbeat_failed());
    server.close(NOW);

    server.handle_heartbeat(NOW, heartbeat_started());

    let names: Vec<_> = outputs(&mut server).iter().filter_map(name).collect();
    assert_eq!(names[..2], ["ServerHeartbeatStarted", "ServerHeartbeatFailed"]);
    assert_eq!(names.last(), Some(&"TopologyClosed"));
}

#[test]
fn outputs_of_the_pool_and_of_the_server_come_in_one_order() {
    let mut server = asking_for(None);
    let (check_out, _) = server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let CheckOut::Selecting(waits) = check_out else { panic!("the server is unknown") };
    check(&mut server);
    fail_check(&mut server, Fault::Network, "gone");

    let outputs = outputs(&mut server);

    let of = |output: &TopologyOutput<()>| match output {
        TopologyOutput::Selected { selection, .. } => {
            assert_eq!(*selection, waits);
            "Selected"
        }
        TopologyOutput::Monitor { .. } => "Monitor",
        TopologyOutput::Pool { output: Output::Action(Action::Connect { .. }), .. } => "Connect",
        TopologyOutput::Pool { output: Output::Action(Action::Fail { .. }), .. } => "Fail",
        output => name(output).unwrap(),
    };
    assert_eq!(
        outputs.iter().map(of).collect::<Vec<_>>(),
        [
            "Monitor",
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
            "ConnectionPoolCreated",
            "ConnectionPoolReady",
            "Selected",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "Connect",
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
            "ConnectionPoolCleared",
            "ConnectionCheckOutFailed",
            "Fail",
        ]
    );
}

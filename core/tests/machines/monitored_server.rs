//! A server and its monitor side by side: check-outs wait for the server, checks and errors act on pool and monitor together.

use std::time::Duration;

use crate::monitored::server::Bench;
use crate::one_server::OneServer;
use bson::oid::ObjectId;
use bson::{RawDocumentBuf, cstr, rawdoc};
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Cancellation, Cause, CheckOutId, CheckOutRequest, CheckedIn, Delivery, Handle, PoolState};
use cmap_core::server::{OperationError, ServerType, StateChange};
use cmap_core::topology::{CheckOut, Criteria, Output, SelectionErrorKind, Topology};

fn bench(pool: PoolOptions) -> Bench {
    Bench::new(pool)
}

/// A server whose first check has found a standalone one.
fn known() -> Bench {
    let mut bench = bench(PoolOptions::default());
    bench.answer(&hello(21));
    bench.log.clear();
    bench
}

fn hello(max_wire_version: i32) -> RawDocumentBuf {
    rawdoc! { "ok": 1, "helloOk": true, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": max_wire_version }
}

fn reset() -> OperationError {
    OperationError::new(Fault::Network, Cause::new("connection reset"))
}

#[test]
fn everything_opens_in_order_mon_14() {
    let bench = bench(PoolOptions::default());

    assert_eq!(bench.log, ["TopologyOpening", "TopologyDescriptionChanged", "ServerOpening", "ServerHeartbeatStarted"]);
}

#[test]
fn a_first_success_makes_the_pool_ready_sdam_1_sdam_3() {
    let mut bench = bench(PoolOptions::default());
    bench.log.clear();

    bench.answer(&hello(21));

    assert_eq!(
        bench.log,
        [
            "ServerHeartbeatSucceeded",
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
            "ConnectionPoolCreated",
            "ConnectionPoolReady"
        ]
    );
    assert!(bench.server.is_usable());
}

#[test]
fn check_outs_wait_for_the_server_and_go_on_in_the_order_of_their_arrival_csot_4() {
    let mut bench = bench(PoolOptions::default());
    let first = bench.selecting(CheckOutRequest::default());
    let second = bench.selecting(CheckOutRequest::default());
    bench.log.clear();

    bench.answer(&hello(21));

    assert_eq!(bench.selected.iter().map(|(selection, _)| *selection).collect::<Vec<_>>(), [first, second]);
    let from_ready: Vec<_> = bench.log.iter().skip_while(|name| *name != "ConnectionPoolReady").skip(1).collect();
    assert_eq!(
        from_ready,
        [
            "Selected",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "Selected",
            "ConnectionCheckOutStarted",
            "ConnectionCreated"
        ]
    );
}

#[test]
fn a_server_that_does_not_come_fails_the_wait_with_its_last_error_csot_4() {
    let mut bench = bench(PoolOptions::default());
    let selection = bench.selecting(CheckOutRequest::default());
    bench.fail_check(Fault::Network);

    bench.pass(29_999);
    assert_eq!(bench.failed, []);
    bench.pass(1);

    let [(failed, text)] = bench.failed.as_slice() else { panic!("{:?}", bench.failed) };
    assert_eq!(*failed, selection);
    assert!(text.contains("db.example:27017") && text.contains("30s") && text.contains(": "), "{text}");
    assert_eq!(bench.server.selecting(), 0);
}

#[test]
fn a_requests_own_deadline_ends_the_wait_sooner() {
    let mut bench = bench(PoolOptions::default());
    let deadline = bench.now + Duration::from_millis(50);
    bench.selecting(CheckOutRequest::until(deadline));

    bench.pass(50);

    assert_eq!(bench.failed.len(), 1);
}

#[test]
fn a_request_whose_time_is_up_fails_at_once_and_asks_for_no_check() {
    let mut bench = bench(PoolOptions::default());
    bench.fail_check(Fault::Network);
    bench.log.clear();

    bench.selecting(CheckOutRequest::until(bench.now));
    bench.pass(500);

    assert_eq!(bench.failed.len(), 1);
    assert_eq!(bench.log, [""; 0]);
}

#[test]
fn an_arrival_asks_for_a_check_at_the_pace_of_mon_3() {
    let mut bench = bench(PoolOptions::default());
    bench.fail_check(Fault::Network);
    bench.log.clear();

    bench.selecting(CheckOutRequest::default());
    bench.pass(499);
    assert_eq!(bench.log, [""; 0]);
    bench.pass(1);
    assert_eq!(bench.log, ["ServerHeartbeatStarted"]);
}

#[test]
fn while_somebody_waits_a_failed_check_is_repeated_soon_mon_3() {
    let mut bench = bench(PoolOptions::default());
    bench.selecting(CheckOutRequest::default());
    bench.fail_check(Fault::Network);

    bench.pass(500);
    bench.answer(&hello(21));

    assert_eq!(bench.selected.len(), 1, "not after heartbeatFrequencyMS");
}

#[test]
fn while_somebody_waits_a_server_that_cannot_be_used_yet_is_checked_again_soon_mon_3() {
    let mut bench = bench(PoolOptions::default());
    bench.selecting(CheckOutRequest::default());
    bench.answer(&rawdoc! { "ok": 1, "isreplicaset": true, "minWireVersion": 0, "maxWireVersion": 21 });
    assert_eq!(bench.selected.len(), 0);

    bench.pass(500);
    bench.answer(&hello(21));

    assert_eq!(bench.selected.len(), 1, "not after heartbeatFrequencyMS");
}

#[test]
fn while_somebody_waits_a_cancelled_check_is_followed_by_another_soon_mon_3_mon_12() {
    let mut bench = bench(PoolOptions::default());
    let topology_version = rawdoc! { "processId": ObjectId::from_bytes([1; 12]), "counter": 1_i64 };
    let mut streaming = hello(21);
    streaming.append(cstr!("topologyVersion"), topology_version);
    bench.answer(&streaming);
    let (stepped_down, gone) = (bench.in_use(), bench.in_use());
    let mut not_primary = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    not_primary.state_change = Some(StateChange::NotWritablePrimary);
    bench.call(|server, now| server.handle_operation_failed(now, stepped_down, not_primary).unwrap());
    bench.selecting(CheckOutRequest::default());
    bench.call(|server, now| server.handle_operation_failed(now, gone, reset()).unwrap());
    bench.log.clear();

    bench.pass(499);
    assert_eq!(bench.log, [""; 0]);
    bench.pass(1);
    assert_eq!(bench.log, ["ServerHeartbeatStarted"]);
}

#[test]
fn a_wait_that_is_cancelled_leaves_nothing_behind() {
    let mut bench = bench(PoolOptions::default());
    let check_out = bench.check_out(CheckOutRequest::default());

    let met = bench.call(|server, now| server.cancel_check_out(now, check_out));
    bench.answer(&hello(21));

    assert_eq!((met, bench.selected.len(), bench.pending.len()), (Cancellation::Cancelled, 0, 0));
    let met = bench.call(|server, now| server.cancel_check_out(now, check_out));
    assert_eq!(met, Cancellation::Finished);
}

#[test]
fn a_server_too_old_says_so_at_once_sdam_19() {
    let mut bench = bench(PoolOptions::default());
    bench.selecting(CheckOutRequest::default());

    bench.answer(&hello(6));
    bench.selecting(CheckOutRequest::default());

    assert_eq!(bench.failed.len(), 2);
    assert!(bench.failed.iter().all(|(_, text)| text.contains("update the server")), "{:?}", bench.failed);
    assert_eq!(bench.server.pool().state(), PoolState::Paused);
}

#[test]
fn a_network_error_of_an_operation_cancels_the_check_and_clears_sdam_10_mon_12() {
    let mut bench = known();
    let connection = bench.in_use();
    bench.pass(9_999);
    bench.pass(1);
    bench.log.clear();

    bench.call(|server, now| server.handle_operation_failed(now, connection, reset()).unwrap());

    assert_eq!(
        bench.log,
        ["ServerDescriptionChanged", "TopologyDescriptionChanged", "ConnectionPoolCleared", "ServerHeartbeatFailed"]
    );
    bench.pass(9_999);
    assert_eq!(bench.check, None, "no immediate check");
}

#[test]
fn a_state_change_is_looked_into_at_once_and_keeps_the_pool_sdam_14_sdam_15() {
    let mut bench = known();
    let connection = bench.in_use();
    bench.pass(1_000);
    bench.log.clear();
    let mut error = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    error.state_change = Some(StateChange::NotWritablePrimary);

    bench.call(|server, now| server.handle_operation_failed(now, connection, error).unwrap());

    assert_eq!(bench.log, ["ServerDescriptionChanged", "TopologyDescriptionChanged", "ServerHeartbeatStarted"]);
    assert_eq!(bench.server.pool().state(), PoolState::Ready);
    assert!(matches!(bench.check_out(CheckOutRequest::default()), CheckOut::Selecting(_)));
}

#[test]
fn a_check_that_fails_makes_the_server_unknown_and_is_repeated_after_that_mon_9() {
    let mut bench = known();
    bench.pass(10_000);
    bench.log.clear();

    bench.fail_check(Fault::Network);

    assert_eq!(
        bench.log,
        [
            "ServerHeartbeatFailed",
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
            "ConnectionPoolCleared",
            "ServerHeartbeatStarted"
        ]
    );
}

#[test]
fn only_a_check_that_timed_out_interrupts_mon_9() {
    for (fault, interrupts) in [(Fault::Timeout, true), (Fault::Network, false)] {
        let mut bench = known();
        bench.in_use();
        bench.pass(10_000);

        bench.fail_check(fault);

        assert_eq!(bench.log.iter().any(|name| name == "Interrupt"), interrupts, "{fault:?}");
    }
}

#[test]
fn an_overloaded_server_stays_known_sdam_7() {
    let mut bench = known();
    bench.check_out(CheckOutRequest::default());
    let connection = bench.pending.pop().unwrap();
    let error = EstablishError::new(Phase::Hello, Fault::Timeout, "no answer");

    bench.call(|server, now| server.handle_establish_failed(now, connection, error).unwrap());

    assert!(bench.server.is_usable());
}

#[test]
fn a_misuse_leaves_the_server_as_it_is() {
    let mut bench = known();
    let connection = bench.in_use();
    let error = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(18) }, "no");

    let misuse = bench.call(|server, now| server.handle_establish_failed(now, connection, error));

    assert!(misuse.is_err() && bench.server.is_usable());
}

#[test]
fn equal_descriptions_make_no_event_sdam_17() {
    let mut bench = known();
    bench.pass(10_000);
    bench.log.clear();

    bench.answer(&hello(21));

    assert_eq!(bench.log, ["ServerHeartbeatSucceeded"]);
}

#[test]
fn a_load_balancer_is_known_at_once_and_never_checked_lb_3_lb_4() {
    let mut options = PoolOptions::default();
    options.load_balanced = true;
    let mut bench = bench(options);

    assert_eq!(
        bench.log,
        [
            "TopologyOpening",
            "TopologyDescriptionChanged",
            "ServerOpening",
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
            "ConnectionPoolCreated",
            "ConnectionPoolReady"
        ]
    );
    assert!(bench.monitor.is_none());
    assert_eq!(bench.server.description().server_type, ServerType::LoadBalancer);
    assert!(matches!(bench.check_out(CheckOutRequest::default()), CheckOut::Started(_)));
}

#[test]
fn closing_ends_the_check_first_and_the_topology_last_mon_14() {
    let mut bench = bench(PoolOptions::default());
    bench.selecting(CheckOutRequest::default());
    bench.log.clear();

    bench.close();

    assert_eq!(bench.log, ["ServerHeartbeatFailed", "ServerClosed", "TopologyDescriptionChanged", "TopologyClosed"]);
    assert_eq!((bench.failed.len(), bench.check, bench.poll_timeout()), (1, None, None));
    assert!(matches!(bench.check_out(CheckOutRequest::default()), CheckOut::Selecting(_)));
    assert_eq!(bench.failed.last().map(|(_, error)| error.as_str()), Some("the client was closed: make a new one"));
}

#[test]
fn a_closed_client_says_so_to_who_waited() {
    let mut bench = bench(PoolOptions::default());
    let (waits, _) = bench.server.check_out(bench.now, Criteria::WRITABLE, CheckOutRequest::default());
    assert!(matches!(waits, CheckOut::Selecting(_)));
    bench.server.close(bench.now);

    let kinds: Vec<_> = std::iter::from_fn(|| bench.server.poll_output())
        .filter_map(
            |output| if let Output::SelectionFailed { error, .. } = output { Some(error.kind.clone()) } else { None },
        )
        .collect();
    assert_eq!(kinds, [SelectionErrorKind::Closed]);
}

#[test]
fn a_server_copied_as_data_goes_on_as_the_original() {
    let mut bench = known();
    bench.in_use();
    let text = serde_json::to_string(bench.server.topology()).unwrap();

    let mut copy: Topology<()> = serde_json::from_str(&text).unwrap();

    assert_eq!(copy.description(), bench.server.topology().description());
    assert_eq!(copy.poll_timeout(), bench.server.poll_timeout());
    assert!(matches!(
        copy.check_out(bench.now, Criteria::WRITABLE, CheckOutRequest::default()),
        (CheckOut::Started(_), None)
    ));
}

#[test]
fn nobody_listening_saves_the_events() {
    let mut bench = known();
    bench.server.observe(false);
    bench.pass(10_000);
    bench.fail_check(Fault::Network);

    assert_eq!(bench.log, [""; 0]);
}

#[test]
fn a_warm_pair_allocates_nothing_through_a_server_that_is_monitored() {
    let mut bench = known();
    let connection = bench.in_use();
    let now = bench.now;
    let mut server = bench.server;
    let pair = |server: &mut OneServer<()>, (user, connection): (CheckOutId, Handle)| {
        let checked_in = server.check_in(now, user, connection, (), pool::Condition::Usable);
        assert_eq!(checked_in, Ok(CheckedIn::Done));
        while server.poll_output().is_some() {}
        let (_, delivery) = server.check_out(now, Criteria::WRITABLE, CheckOutRequest::default());
        while server.poll_output().is_some() {}
        let Delivery { check_out, connection, .. } = delivery.unwrap();
        (check_out, connection)
    };
    let user = server.pool().use_of(connection).unwrap().check_out;
    let mut held = pair(&mut server, (user, connection));

    let allocations = allocation_counter::measure(|| {
        for _ in 0..1000 {
            held = pair(&mut server, held);
        }
    });

    assert_eq!(allocations.count_total, 0);
}

#[test]
fn a_forked_process_begins_anew_fork_2() {
    let mut bench = known();
    bench.in_use();
    let parents_socket = bench.check.unwrap();

    bench.reset_after_fork();

    assert_eq!(bench.server.description().server_type, ServerType::Unknown);
    assert_eq!(bench.server.pool().counts().total(), 0);
    assert_ne!(bench.check.unwrap(), parents_socket, "a socket of its own asks the server");
    bench.answer(&hello(21));
    bench.in_use();
}

#[test]
fn who_waited_for_the_server_when_the_process_was_forked_waits_no_more_fork_2() {
    let mut bench = bench(PoolOptions::default());
    let selection = bench.selecting(CheckOutRequest::default());

    bench.reset_after_fork();

    let [(failed, error)] = bench.failed.as_slice() else { panic!("{:?}", bench.failed) };
    assert_eq!((*failed, bench.server.selecting()), (selection, 0));
    assert!(error.contains("forked"), "{error}");
    bench.answer(&hello(21));
    bench.in_use();
}

#[test]
fn a_fork_behind_a_load_balancer_leaves_it_usable_fork_2() {
    let mut options = PoolOptions::default();
    options.load_balanced = true;
    let mut bench = bench(options);

    bench.reset_after_fork();

    assert!(bench.server.is_usable());
    assert_eq!(bench.server.pool().state(), PoolState::Ready);
}

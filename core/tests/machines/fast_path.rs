//! Check-outs and check-ins where nobody waits: what the fast path does, and what closes it.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Action, ApiMisuse, CheckOutId, CheckOutRequest, CheckedIn, Condition, Handle, Purpose};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Output, Topology, TopologyOptions};
use cmap_core::trace::{Header, Recorded, RecorderOptions, Replay, Trace};

const NOW: Instant = Instant::from_millis(1);

const SOCKET: u64 = 7;

/// A topology of one server that was checked, whose one connection is in use.
fn in_use() -> (Topology<u64>, CheckOutId, Handle) {
    let mut options = PoolOptions::default();
    options.max_idle_time = Some(Duration::from_millis(500));
    let seeds = vec![ServerAddress::tcp("localhost", 27017)];
    let mut topology = Topology::new(TopologyOptions::of_seeds(seeds), options).unwrap();
    topology.observe(false);
    topology.open(NOW);
    let (id, server) = topology.servers().next().unwrap();
    let found = ServerDescription::new(server.description().address.clone(), ServerType::Standalone);
    topology.handle_check(NOW, id, Finding::Description(Box::new(found))).unwrap();
    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let mut delivered = None;
    while let Some(output) = topology.poll_output() {
        let Output::Pool { output: pool::Output::Action(action), .. } = output else { continue };
        if let Action::Connect { connection } = action {
            topology.handle_established(NOW, connection, SOCKET).unwrap();
        } else if let Action::Deliver { check_out, connection, .. } = action {
            delivered = Some((check_out, connection));
        }
    }
    let (user, connection) = delivered.unwrap();
    (topology, user, connection)
}

#[test]
fn a_connection_goes_back_and_is_delivered_again_without_outputs() {
    let (mut topology, user, connection) = in_use();

    let checked_in = topology.check_in(NOW, user, connection, SOCKET, Condition::Usable);
    let until = topology.idle_until(connection, NOW);
    let delivery = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).1;

    assert!(matches!(checked_in, Ok(CheckedIn::Done)));
    assert_eq!(until, Some(NOW + Duration::from_millis(500)));
    assert_eq!(delivery.map(|delivery| (delivery.connection, delivery.socket)), Some((connection, SOCKET)));
    assert!(topology.is_drained());
}

#[test]
fn durations_are_recorded_at_once() {
    let (mut topology, user, connection) = in_use();
    topology.record_durations(true);
    let (returned, taken) = (NOW + Duration::from_millis(2), NOW + Duration::from_millis(5));

    assert!(matches!(topology.check_in(returned, user, connection, SOCKET, Condition::Usable), Ok(CheckedIn::Done)));
    assert!(topology.check_out(taken, Criteria::WRITABLE, CheckOutRequest::default()).1.is_some());

    let durations = topology.statistics(taken).durations.unwrap();
    assert_eq!((durations.in_use.count(), durations.in_use.longest()), (1, Duration::from_millis(2)));
    assert_eq!((durations.idle.count(), durations.idle.longest()), (1, Duration::from_millis(3)));
    assert_eq!((durations.wait.count(), durations.wait.longest()), (1, Duration::ZERO));
    assert!(topology.is_drained());
}

#[test]
fn a_delivery_comes_behind_outputs_that_are_queued() {
    let (mut topology, user, connection) = in_use();
    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    assert!(!topology.is_drained(), "another connection is to be established");

    let checked_in = topology.check_in(NOW, user, connection, SOCKET, Condition::Usable);

    assert!(matches!(checked_in, Ok(CheckedIn::Done)));
    let outputs: Vec<_> = std::iter::from_fn(|| topology.poll_output()).collect();
    assert!(matches!(
        &outputs[..],
        [
            Output::Pool { output: pool::Output::Action(Action::Connect { .. }), .. },
            Output::Pool { output: pool::Output::Action(Action::Deliver { connection: delivered, .. }), .. }
        ] if *delivered == connection
    ));
}

#[test]
fn a_check_out_whose_time_is_up_fails_beside_an_available_connection() {
    let (mut topology, user, connection) = in_use();
    assert!(topology.check_in(NOW, user, connection, SOCKET, Condition::Usable).is_ok());
    let mut request = CheckOutRequest::default();
    request.deadline = Some(NOW);

    assert!(topology.check_out(NOW, Criteria::WRITABLE, request).1.is_none());
    assert_eq!(topology.stats().check_outs_failed.timeout, 1);
}

#[test]
fn a_connection_that_was_idle_for_too_long_is_not_delivered() {
    let (mut topology, user, connection) = in_use();
    assert!(topology.check_in(NOW, user, connection, SOCKET, Condition::Usable).is_ok());
    let (in_time, too_late) = (NOW + Duration::from_millis(500), NOW + Duration::from_millis(501));

    assert!(topology.clone().check_out(in_time, Criteria::WRITABLE, CheckOutRequest::default()).1.is_some());
    assert!(topology.check_out(too_late, Criteria::WRITABLE, CheckOutRequest::default()).1.is_none());
}

#[test]
fn a_connection_of_an_earlier_generation_is_closed() {
    let (mut topology, user, connection) = in_use();
    let server = topology.servers().next().unwrap().0;
    let failure = Finding::Failure { fault: Fault::Network, cause: pool::Cause::new("the server is gone") };
    topology.handle_check(NOW, server, failure).unwrap();
    while topology.poll_output().is_some() {}

    assert!(topology.check_in(NOW, user, connection, SOCKET, Condition::Usable).is_ok());

    assert_eq!(topology.stats().closed.stale, 1);
    assert!(topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).1.is_none());
}

#[test]
fn a_connection_that_comes_back_broken_is_closed() {
    let (mut topology, user, connection) = in_use();

    assert!(topology.check_in(NOW, user, connection, SOCKET, Condition::Errored).is_ok());

    assert_eq!(topology.stats().closed.error, 1);
}

#[test]
fn a_connection_that_comes_back_twice_is_refused() {
    let (mut topology, user, connection) = in_use();
    assert!(topology.check_in(NOW, user, connection, SOCKET, Condition::Usable).is_ok());

    let refused = topology.check_in(NOW, user, connection, SOCKET, Condition::Usable).unwrap_err();

    assert_eq!((refused.misuse, refused.socket), (ApiMisuse::NotInUse, SOCKET));
}

#[test]
fn a_former_user_gives_nothing_back_that_another_one_uses() {
    let (mut topology, former, connection) = in_use();
    assert!(topology.check_in(NOW, former, connection, SOCKET, Condition::Usable).is_ok());
    let present = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).1.unwrap();
    assert_eq!(present.connection, connection);

    for condition in [Condition::Usable, Condition::Errored] {
        let refused = topology.check_in(NOW, former, connection, 8, condition).unwrap_err();
        assert_eq!((refused.misuse, refused.socket), (ApiMisuse::OtherUse, 8));
    }

    assert_eq!(topology.set_purpose(former, connection, Purpose::Cursor), Err(ApiMisuse::OtherUse));
    assert!(topology.is_drained());
    assert_eq!((topology.stats().counts.in_use, topology.stats().checked_in), (1, 1));
    let checked_in = topology.check_in(NOW, present.check_out, connection, SOCKET, Condition::Usable);
    assert!(matches!(checked_in, Ok(CheckedIn::Done)));
}

#[test]
fn what_is_done_at_once_is_in_the_record() {
    let (topology, user, connection) = in_use();
    let mut topology = Recorded::from(topology);
    topology.start_recording(RecorderOptions::default());

    assert!(topology.check_in(NOW, user, connection, SOCKET, Condition::Usable).is_ok());
    assert!(topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).1.is_some());

    let trace = Trace::read(&topology.stop_recording().unwrap().encode(&Header::default())).unwrap();
    let mut replay = Replay::new(&trace).unwrap();
    let mut calls = 0;
    while replay.step().unwrap().is_some() {
        calls += 1;
    }
    assert_eq!(calls, 2);
}

//! The fast path of check-outs and check-ins, which drivers may ask for alone: it does all of its work, or changes nothing.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Action, CheckOutRequest, CheckedIn, Condition, Handle};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Output, Topology, TopologyOptions};

const NOW: Instant = Instant::from_millis(1);

const SOCKET: u64 = 7;

/// A topology of one server that was checked, whose one connection is in use.
fn in_use() -> (Topology<u64>, Handle) {
    let mut options = PoolOptions::default();
    options.max_idle_time = Some(Duration::from_millis(500));
    let seeds = vec![ServerAddress::tcp("localhost", 27017)];
    let mut topology = Topology::new(TopologyOptions::of_seeds(seeds), options).unwrap();
    topology.observe(false);
    topology.open(NOW);
    let (id, server) = topology.servers().next().unwrap();
    let found = ServerDescription::new(server.description().address.clone(), ServerType::Standalone);
    topology.handle_check(NOW, id, Finding::Description(Box::new(found))).unwrap();
    let _ = topology.check_out(NOW, CheckOutRequest::default());
    let mut delivered = None;
    while let Some(output) = topology.poll_output() {
        let Output::Pool { output: pool::Output::Action(action), .. } = output else { continue };
        if let Action::Connect { connection } = action {
            topology.handle_established(NOW, connection, SOCKET).unwrap();
        } else if let Action::Deliver { connection, .. } = action {
            delivered = Some(connection);
        }
    }
    (topology, delivered.unwrap())
}

#[test]
fn a_connection_goes_back_and_is_delivered_again_without_outputs() {
    let (mut topology, connection) = in_use();

    let until = topology.check_in_available(NOW, connection, SOCKET, Condition::Usable);
    let delivery = topology.check_out_available(NOW, CheckOutRequest::default());

    assert_eq!(until, Ok(Some(NOW + Duration::from_millis(500))));
    assert_eq!(delivery.map(|delivery| (delivery.connection, delivery.socket)), Some((connection, SOCKET)));
    assert!(topology.is_drained());
}

#[test]
fn where_durations_are_recorded_it_delivers_as_a_check_out_does() {
    let (mut topology, connection) = in_use();
    topology.record_durations(true);
    topology.check_in_at_once(NOW, connection, SOCKET, Condition::Usable).unwrap();
    let (mut other, later) = (topology.clone(), NOW + Duration::from_millis(3));

    let hottest = topology.check_out_hottest(later, &CheckOutRequest::default()).unwrap();

    let delivery = other.check_out(later, CheckOutRequest::default()).1.unwrap();
    assert_eq!((hottest.check_out, hottest.connection), (delivery.check_out, delivery.connection));
    assert_eq!(topology.statistics(later), other.statistics(later));
    let idle = topology.statistics(later).durations.unwrap().idle;
    assert_eq!((idle.count(), idle.longest()), (1, Duration::from_millis(3)));
}

#[test]
fn a_driver_may_close_it_for_good() {
    let (mut topology, connection) = in_use();
    topology.close_fast_path();

    let refused = topology.check_in_available(NOW, connection, SOCKET, Condition::Usable);

    assert_eq!(refused, Err(SOCKET));
    assert!(matches!(topology.check_in(NOW, connection, SOCKET, Condition::Usable), Ok(CheckedIn::Done)));
    assert!(topology.check_out_available(NOW, CheckOutRequest::default()).is_none());
    assert!(topology.check_out(NOW, CheckOutRequest::default()).1.is_some());
}

#[test]
fn it_is_closed_while_outputs_are_queued() {
    let (mut topology, connection) = in_use();
    let _ = topology.check_out(NOW, CheckOutRequest::default());
    assert!(!topology.is_drained());

    assert_eq!(topology.check_in_available(NOW, connection, SOCKET, Condition::Usable), Err(SOCKET));
    assert!(topology.check_out_available(NOW, CheckOutRequest::default()).is_none());

    while topology.poll_output().is_some() {}
    // The check-out waits for the connection.
    assert_eq!(topology.check_in_available(NOW, connection, SOCKET, Condition::Usable), Err(SOCKET));
    assert!(matches!(
        topology.check_in(NOW, connection, SOCKET, Condition::Usable),
        Ok(CheckedIn::Delivered(delivery)) if delivery.connection == connection
    ));
}

#[test]
fn a_connection_whose_use_is_recorded_goes_back_by_another_way() {
    let (mut topology, connection) = in_use();
    topology.record_durations(true);
    assert_eq!(topology.check_in_available(NOW, connection, SOCKET, Condition::Usable), Err(SOCKET));

    assert!(matches!(topology.check_in(NOW, connection, SOCKET, Condition::Usable), Ok(CheckedIn::Done)));

    assert!(topology.is_drained());
    assert_eq!(topology.statistics(NOW).durations.map(|durations| durations.in_use.count()), Some(1));
}

#[test]
fn a_check_out_whose_time_is_up_does_not_take_it() {
    let (mut topology, connection) = in_use();
    assert!(topology.check_in_available(NOW, connection, SOCKET, Condition::Usable).is_ok());
    let mut request = CheckOutRequest::default();
    request.deadline = Some(NOW);

    assert!(topology.check_out_available(NOW, request).is_none());
}

#[test]
fn a_connection_that_was_idle_for_too_long_does_not_take_it() {
    let (mut topology, connection) = in_use();
    assert!(topology.check_in_available(NOW, connection, SOCKET, Condition::Usable).is_ok());
    let (in_time, too_late) = (NOW + Duration::from_millis(500), NOW + Duration::from_millis(501));

    assert!(topology.clone().check_out_available(in_time, CheckOutRequest::default()).is_some());
    assert!(topology.check_out_available(too_late, CheckOutRequest::default()).is_none());
}

#[test]
fn a_connection_of_an_earlier_generation_does_not_take_it() {
    let (mut topology, connection) = in_use();
    let server = topology.servers().next().unwrap().0;
    let failure = Finding::Failure { fault: Fault::Network, cause: pool::Cause::new("the server is gone") };

    topology.handle_check(NOW, server, failure).unwrap();
    while topology.poll_output().is_some() {}

    assert_eq!(topology.check_in_available(NOW, connection, SOCKET, Condition::Usable), Err(SOCKET));
    assert!(topology.check_out_available(NOW, CheckOutRequest::default()).is_none());
}

#[test]
fn a_connection_that_comes_back_broken_or_twice_does_not_take_it() {
    let (mut topology, connection) = in_use();

    assert_eq!(topology.check_in_available(NOW, connection, SOCKET, Condition::Errored), Err(SOCKET));
    assert!(topology.check_in_available(NOW, connection, SOCKET, Condition::Usable).is_ok());
    assert_eq!(topology.check_in_available(NOW, connection, SOCKET, Condition::Usable), Err(SOCKET));
}

mod recorded {
    use cmap_core::trace::{Header, Recorded, RecorderOptions, Replay, Trace};

    use super::*;

    #[test]
    fn it_is_closed_while_calls_are_recorded() {
        let (topology, connection) = in_use();
        let mut topology = Recorded::from(topology);

        topology.start_recording(RecorderOptions::default());
        assert_eq!(topology.check_in_available(NOW, connection, SOCKET, Condition::Usable), Err(SOCKET));
        assert!(topology.check_in(NOW, connection, SOCKET, Condition::Usable).is_ok());
        assert!(topology.check_out_available(NOW, CheckOutRequest::default()).is_none());
        let mut copy = Recorded::from(Topology::clone(&topology));
        topology.stop_recording();

        assert!(topology.check_out_available(NOW, CheckOutRequest::default()).is_some());
        assert!(copy.check_out_available(NOW, CheckOutRequest::default()).is_some(), "a copy has no recorder");
    }

    #[test]
    fn what_is_done_at_once_is_in_the_record() {
        let (topology, connection) = in_use();
        let mut topology = Recorded::from(topology);
        topology.start_recording(RecorderOptions::default());

        assert!(topology.check_in(NOW, connection, SOCKET, Condition::Usable).is_ok());
        assert!(topology.check_out_at_once(NOW, &CheckOutRequest::default()).is_some());

        let trace = Trace::read(&topology.stop_recording().unwrap().encode(&Header::default())).unwrap();
        let mut replay = Replay::new(&trace).unwrap();
        let mut calls = 0;
        while replay.step().unwrap().is_some() {
            calls += 1;
        }
        assert_eq!(calls, 2);
    }
}

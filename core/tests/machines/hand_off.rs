//! The short way of a check-out that waits and of the check-in that serves it, which drivers may ask for alone: it does all of its work, or
//! changes nothing.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Action, CheckOutRequest, CheckedIn, Condition, Handle};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Output, Topology, TopologyOptions};

const NOW: Instant = Instant::from_millis(1);

const SOCKET: u64 = 7;

/// A topology of one server that was checked, and of the connections that it may have one, which is in use.
fn in_use(max_pool_size: u32) -> (Topology<u64>, Handle) {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(max_pool_size);
    options.wait_queue_timeout = Some(Duration::from_millis(100));
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
fn a_check_out_waits_and_is_served_without_outputs() {
    let (mut topology, connection) = in_use(1);

    let waiting = topology.check_out_waiting(NOW, CheckOutRequest::default());
    let delivery = topology.check_in_to_waiter(NOW, connection, SOCKET, Condition::Usable);

    let (check_out, timeout) = waiting.unwrap();
    assert_eq!(timeout, Some(NOW + Duration::from_millis(100)));
    assert_eq!(delivery.map(|it| (it.check_out, it.connection, it.socket)), Ok((check_out, connection, SOCKET)));
    assert!(topology.is_drained());
    assert_eq!(topology.stats().counts.in_use, 1);
}

#[test]
fn a_wait_leads_to_the_same_state_as_by_the_long_way() {
    let (mut short, _) = in_use(1);
    let mut long = short.clone();

    let waiting = short.check_out_waiting(NOW, CheckOutRequest::default()).map(|(check_out, _)| check_out);
    let (begun, _) = long.check_out_for(NOW, &Criteria::default(), CheckOutRequest::default());

    assert_eq!(waiting.map(CheckOut::Started), Some(begun));
    assert_eq!(format!("{short:?}"), format!("{long:?}"));
}

#[test]
fn a_check_out_for_which_a_connection_may_be_created_does_not_take_it() {
    let (mut topology, _) = in_use(2);

    assert!(topology.check_out_waiting(NOW, CheckOutRequest::default()).is_none());

    assert!(topology.is_drained());
    let _ = topology.check_out(NOW, CheckOutRequest::default());
    assert!(!topology.is_drained());
}

#[test]
fn a_check_out_for_which_a_connection_is_available_does_not_take_it() {
    let (mut topology, connection) = in_use(1);
    let _ = topology.check_in(NOW, connection, SOCKET, Condition::Usable);

    assert!(topology.check_out_waiting(NOW, CheckOutRequest::default()).is_none());
}

#[test]
fn events_are_told_by_the_long_way() {
    let (mut topology, connection) = in_use(1);
    topology.observe(true);

    assert!(topology.check_out_waiting(NOW, CheckOutRequest::default()).is_none());
    let _ = topology.check_out(NOW, CheckOutRequest::default());
    while topology.poll_output().is_some() {}

    assert!(topology.check_in_to_waiter(NOW, connection, SOCKET, Condition::Usable).is_err());
}

#[test]
fn a_connection_that_failed_does_not_go_to_a_waiter() {
    let (mut topology, connection) = in_use(1);
    assert!(topology.check_out_waiting(NOW, CheckOutRequest::default()).is_some());

    assert!(topology.check_in_to_waiter(NOW, connection, SOCKET, Condition::Errored).is_err());

    assert!(matches!(topology.check_in(NOW, connection, SOCKET, Condition::Errored), Ok(CheckedIn::Done)));
}

#[test]
fn a_waiter_whose_time_is_up_fails_before_the_next_is_served_cmap_15() {
    let (mut topology, connection) = in_use(1);
    assert!(topology.check_out_waiting(NOW, CheckOutRequest::default()).is_some());
    let too_late = NOW + Duration::from_millis(100);

    assert!(topology.check_out_waiting(too_late, CheckOutRequest::default()).is_none());
    assert!(topology.check_in_to_waiter(too_late, connection, SOCKET, Condition::Usable).is_err());

    assert!(matches!(topology.check_in(too_late, connection, SOCKET, Condition::Usable), Ok(CheckedIn::Done)));
    assert_eq!(topology.stats().check_outs_failed.timeout, 1);
}

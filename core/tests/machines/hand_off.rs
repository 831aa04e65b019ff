//! A check-out that waits, and the check-in that serves it.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Action, CheckOutId, CheckOutRequest, CheckedIn, Condition, Handle};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Output, Topology, TopologyOptions};

const NOW: Instant = Instant::from_millis(1);

const SOCKET: u64 = 7;

/// A topology of one server that was checked, and of the connections that it may have one, which is in use.
fn in_use(max_pool_size: u32) -> (Topology<u64>, CheckOutId, Handle) {
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
fn a_check_out_waits_and_is_served_without_outputs() {
    let (mut topology, user, connection) = in_use(1);

    let (waiting, none) = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let timeout = topology.next_check_out_timeout(waiting);
    let checked_in = topology.check_in(NOW, user, connection, SOCKET, Condition::Usable);

    assert!(none.is_none());
    assert_eq!(timeout, Some(NOW + Duration::from_millis(100)));
    let Ok(CheckedIn::Delivered(delivery)) = checked_in else { panic!("nothing is delivered") };
    assert_eq!((CheckOut::Started(delivery.check_out), delivery.connection), (waiting, connection));
    assert!(topology.is_drained());
    assert_eq!(topology.stats().counts.in_use, 1);
}

#[test]
fn a_connection_that_failed_does_not_go_to_a_waiter() {
    let (mut topology, user, connection) = in_use(1);
    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());

    assert!(matches!(topology.check_in(NOW, user, connection, SOCKET, Condition::Errored), Ok(CheckedIn::Done)));

    let counts = topology.stats().counts;
    assert_eq!((counts.in_use, counts.pending, counts.waiting), (0, 1, 1), "it waits for another connection");
}

#[test]
fn a_waiter_whose_time_is_up_fails_before_the_next_is_served_cmap_15() {
    let (mut topology, user, connection) = in_use(1);
    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let too_late = NOW + Duration::from_millis(100);

    assert!(matches!(topology.check_in(too_late, user, connection, SOCKET, Condition::Usable), Ok(CheckedIn::Done)));

    assert_eq!(topology.stats().check_outs_failed.timeout, 1);
    assert_eq!(topology.stats().counts.available, 1);
}

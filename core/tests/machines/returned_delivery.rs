//! When a call returns a delivery at once, and when it comes through the queue. The property test `model` proves that the pool
//! is the same after both.

use std::time::Duration;

use crate::one_server::OneServer;
use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{
    Action, Cause, CheckOutErrorKind, CheckOutRequest, CheckedIn, Clear, Condition, Delivery, Output, Pool, ServiceId,
    WaitLimit,
};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Output as TopologyOutput, Topology, TopologyOptions};

const NOW: Instant = Instant::from_millis(1000);

/// A server found answering, without listeners, with one available connection, which is the only one allowed.
fn server(change: impl FnOnce(&mut TopologyOptions)) -> OneServer<&'static str> {
    let mut pool_options = PoolOptions::default();
    pool_options.max_pool_size = Some(1);
    let mut server = OneServer::new(NOW, pool_options, change);
    server.observe(false);
    let address = server.description().address.clone();
    let found = ServerDescription::new(address, ServerType::Standalone);
    server.handle_check(NOW, Finding::Description(Box::new(found))).unwrap();
    outputs(&mut server);
    assert_eq!(server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).1, None);
    let Delivery { check_out, connection, socket } = established(&mut server);
    assert_eq!(server.check_in(NOW, check_out, connection, socket, Condition::Usable), Ok(CheckedIn::Done));
    assert!(server.is_drained());
    server
}

/// Its connection is in use, and a check-out waits for it.
fn contended() -> (OneServer<&'static str>, Delivery<&'static str>, CheckOut) {
    let mut server = server(|_| {});
    let in_use = taken(&mut server);
    let (waiting, delivery) = server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    assert!(delivery.is_none() && server.is_drained(), "nothing is established for it");
    (server, in_use, waiting)
}

/// Checks out the available connection.
fn taken(server: &mut OneServer<&'static str>) -> Delivery<&'static str> {
    server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).1.unwrap()
}

/// Establishes connections; returns the delivery.
fn established(server: &mut OneServer<&'static str>) -> Delivery<&'static str> {
    while let Some(output) = server.poll_output() {
        match output {
            TopologyOutput::Pool { output: Output::Action(Action::Connect { connection }), .. } => {
                server.handle_established(NOW, connection, "socket").unwrap();
            }
            TopologyOutput::Pool {
                output: Output::Action(Action::Deliver { check_out, connection, socket }), ..
            } => {
                return Delivery { check_out, connection, socket };
            }
            _ => {}
        }
    }
    panic!("nothing was delivered")
}

fn outputs(server: &mut OneServer<&'static str>) -> Vec<TopologyOutput<&'static str>> {
    std::iter::from_fn(|| server.poll_output()).collect()
}

/// The check-out ends at once, because its deadline has passed.
fn assert_timed_out(server: &mut OneServer<&'static str>, request: CheckOutRequest) {
    let (check_out, delivery) = server.check_out(NOW, Criteria::WRITABLE, request);

    assert_eq!(delivery, None);
    let [TopologyOutput::Pool { output: Output::Action(Action::Fail { check_out: failed, error }), .. }] =
        &outputs(server)[..]
    else {
        panic!("it does not fail");
    };
    assert_eq!(CheckOut::Started(*failed), check_out);
    assert_eq!(error.kind, CheckOutErrorKind::Timeout(WaitLimit::Deadline));
}

#[test]
fn an_available_connection_is_handed_over_with_nothing_to_drain() {
    let mut server = server(|_| {});

    let (check_out, delivery) = server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());

    let Delivery { check_out: id, connection, socket } = delivery.unwrap();
    assert_eq!((check_out, socket), (CheckOut::Started(id), "socket"));
    assert!(server.is_drained());
    assert_eq!(server.pool().counts().in_use, 1);
    assert_eq!(server.check_in(NOW, id, connection, socket, Condition::Usable), Ok(CheckedIn::Done));
}

#[test]
fn whoever_listens_is_told_of_a_connection_that_is_handed_over() {
    let mut server = server(|_| {});
    server.observe(true);

    let (_, delivery) = server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());

    assert!(delivery.is_some());
    let names = outputs(&mut server).into_iter().map(|output| match output {
        TopologyOutput::Pool { output: Output::Event(event), .. } => event.name(),
        other => panic!("not an event: {other:?}"),
    });
    assert_eq!(names.collect::<Vec<_>>(), ["ConnectionCheckOutStarted", "ConnectionCheckedOut"]);
}

#[test]
fn a_connection_that_lay_idle_is_looked_at_first() {
    let mut server = server(|_| {});
    let later = NOW + Duration::from_secs(2);

    let (_, delivery) = server.check_out(later, Criteria::WRITABLE, CheckOutRequest::default());

    assert_eq!(delivery, None);
    let Some(TopologyOutput::Pool { output: Output::Action(Action::Check { .. }), .. }) = server.poll_output() else {
        panic!("the connection is not looked at");
    };
}

#[test]
fn what_was_not_drained_comes_first() {
    let mut server = server(|_| {});
    let Delivery { check_out: user, connection, socket } = taken(&mut server);
    server.observe(true);
    assert_eq!(server.check_in(NOW, user, connection, socket, Condition::Usable), Ok(CheckedIn::Done));

    let (check_out, delivery) = server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());

    assert_eq!(delivery, None, "the event of the check-in waits");
    let outputs = outputs(&mut server);
    let [
        TopologyOutput::Pool { output: Output::Event(back), .. },
        _,
        _,
        TopologyOutput::Pool { output: Output::Action(Action::Deliver { check_out: id, .. }), .. },
    ] = outputs.as_slice()
    else {
        panic!("not told in order: {outputs:?}");
    };
    assert_eq!((back.name(), CheckOut::Started(*id)), ("ConnectionCheckedIn", check_out));
}

#[test]
fn a_server_that_is_unknown_is_waited_for() {
    let mut server = server(|_| {});
    let gone = Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
    server.handle_check(NOW, gone).unwrap();
    outputs(&mut server);

    assert!(matches!(
        server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()),
        (CheckOut::Selecting(_), None)
    ));
}

#[test]
fn a_deadline_that_has_passed_fails_and_takes_no_connection() {
    let mut server = server(|_| {});

    assert_timed_out(&mut server, CheckOutRequest::until(NOW));

    let (_, delivery) =
        server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::until(NOW + Duration::from_millis(1)));
    assert!(delivery.is_some());
}

#[test]
fn the_server_selection_timeout_bounds_a_deadline_csot_4() {
    let mut server = server(|options| options.server_selection_timeout = Duration::ZERO);

    assert_timed_out(&mut server, CheckOutRequest::until(NOW + Duration::from_secs(1)));
}

#[test]
fn what_comes_back_is_handed_over_to_who_waits_longest() {
    let (mut server, in_use, first) = contended();
    assert_eq!(server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).1, None);

    let checked_in =
        server.check_in(NOW, in_use.check_out, in_use.connection, in_use.socket, Condition::Usable).unwrap();

    let CheckedIn::Delivered(delivery) = checked_in else { panic!("it is handed to nobody") };
    assert_eq!((CheckOut::Started(delivery.check_out), delivery.connection), (first, in_use.connection));
    assert!(server.is_drained());
    assert_eq!((server.pool().counts().in_use, server.pool().counts().waiting), (1, 1));
}

#[test]
fn what_comes_back_becomes_available_where_nobody_waits() {
    let mut server = server(|_| {});
    let Delivery { check_out: user, connection, socket } = taken(&mut server);

    assert_eq!(server.check_in(NOW, user, connection, socket, Condition::Usable), Ok(CheckedIn::Done));

    assert_eq!(server.pool().counts().available, 1);
}

#[test]
fn a_hand_over_comes_after_what_was_not_drained() {
    let (mut server, in_use, first) = contended();
    server.observe(true);
    assert_eq!(server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default()).1, None);

    let checked_in = server.check_in(NOW, in_use.check_out, in_use.connection, in_use.socket, Condition::Usable);

    assert_eq!(checked_in, Ok(CheckedIn::Done));
    let outputs = outputs(&mut server);
    let [
        TopologyOutput::Pool { output: Output::Event(started), .. },
        TopologyOutput::Pool { output: Output::Event(back), .. },
        _,
        TopologyOutput::Pool { output: Output::Action(Action::Deliver { check_out, .. }), .. },
    ] = outputs.as_slice()
    else {
        panic!("not told in order: {outputs:?}");
    };
    assert_eq!((started.name(), back.name()), ("ConnectionCheckOutStarted", "ConnectionCheckedIn"));
    assert_eq!(CheckOut::Started(*check_out), first);
}

#[test]
fn a_connection_that_failed_is_handed_to_nobody() {
    let (mut server, in_use, _) = contended();

    let checked_in = server.check_in(NOW, in_use.check_out, in_use.connection, in_use.socket, Condition::Errored);

    assert_eq!(checked_in, Ok(CheckedIn::Done));
    assert_eq!(server.pool().counts().waiting, 1);
    assert!(!server.is_drained(), "it is closed, and another one is established");
}

#[test]
fn a_connection_that_a_stale_one_lies_upon_is_handed_over_lb_8() {
    let mut options = PoolOptions::default();
    options.load_balanced = true;
    let mut pool = Pool::new(ServerAddress::tcp("lb.example", 27017), options, NOW).unwrap();
    pool.ready(NOW);
    let (kept, cleared) = (ServiceId([1; 12]), ServiceId([2; 12]));
    let in_use = [kept, cleared].map(|service| {
        let _ = pool.check_out(NOW, CheckOutRequest::default());
        let outputs: Vec<_> = std::iter::from_fn(|| pool.poll_output()).collect();
        let Some(&Output::Action(Action::Connect { connection })) = outputs.last() else { panic!("{outputs:?}") };
        pool.handle_hello(NOW, connection, service).unwrap();
        pool.handle_established(NOW, connection, "socket").unwrap();
        connection
    });
    for connection in in_use {
        let user = pool.use_of(connection).unwrap().check_out;
        assert_eq!(pool.check_in(NOW, user, connection, "socket", Condition::Usable), Ok(CheckedIn::Done));
    }
    pool.clear(NOW, Clear::service(cleared, Cause::new("gone"))).unwrap();
    while pool.poll_output().is_some() {}

    let (_, delivery) = pool.check_out(NOW, CheckOutRequest::default());

    assert_eq!(delivery.map(|delivery| delivery.connection), Some(in_use[0]));
    let outputs: Vec<_> = std::iter::from_fn(|| pool.poll_output()).collect();
    let closed = |output: &Output<_>| matches!(output, Output::Action(Action::Close { connection, .. }) if *connection == in_use[1]);
    assert!(outputs.iter().any(closed), "{outputs:?}");
}

#[test]
fn what_a_refused_check_in_led_to_comes_out() {
    let mut server = server(|_| {});
    let in_use = taken(&mut server);
    let deadline = NOW + Duration::from_secs(1);
    let (waiting, _) = server.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::until(deadline));
    let other = Pool::new(ServerAddress::tcp("other.example", 27017), PoolOptions::default(), NOW).unwrap();
    let mut stranger = OneServer::of(Topology::unmonitored(other));
    stranger.ready(NOW).unwrap();
    let _ = stranger.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let foreign = established(&mut stranger);

    let refused = server.check_in(deadline, foreign.check_out, foreign.connection, foreign.socket, Condition::Usable);

    assert!(refused.is_err());
    let [TopologyOutput::Pool { output: Output::Action(Action::Fail { check_out, .. }), .. }] =
        outputs(&mut server)[..]
    else {
        panic!("the deadline has passed")
    };
    assert_eq!((CheckOut::Started(check_out), in_use.socket), (waiting, "socket"));
}

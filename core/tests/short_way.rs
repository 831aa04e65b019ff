//! When a check-out or a check-in takes the short way past the outputs, and when it does not. The property test `model` proves that
//! both ways lead to the same state.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at what it is about")]

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, Cause, CheckOutRequest, Condition, Delivery, Handle, Output, Pool};
use cmap_core::server::{CheckOut, Output as ServerOutput, Server, ServerDescription, ServerOptions, ServerType};
use cmap_core::time::Instant;

const NOW: Instant = Instant::from_millis(1000);

/// A server that was found answering, with one available connection, the only one there may be, and nobody who listens.
fn server(options: ServerOptions) -> Server<&'static str> {
    let mut pool_options = PoolOptions::default();
    pool_options.max_pool_size = Some(1);
    let pool = Pool::new(ServerAddress::tcp("db.example", 27017), pool_options, NOW).unwrap();
    let mut server = Server::new(pool, options);
    server.observe(false);
    server.open(NOW);
    let address = server.description().address.clone();
    server.handle_check_succeeded(NOW, ServerDescription::new(address, ServerType::Standalone));
    server.check_out(NOW, CheckOutRequest::default());
    let (connection, socket) = delivered(&mut server);
    server.pool_mut().check_in(NOW, connection, socket, Condition::Usable).unwrap();
    while server.poll_output().is_some() {}
    server
}

/// Its connection is in use, and a check-out waits for it.
fn contended() -> (Server<&'static str>, Delivery<&'static str>, CheckOut) {
    let mut server = server(ServerOptions::default());
    let in_use = server.try_check_out(NOW, CheckOutRequest::default()).unwrap();
    let waiting = server.check_out(NOW, CheckOutRequest::default());
    assert!(server.is_drained(), "nothing is established for it");
    (server, in_use, waiting)
}

/// Establishes what is to be established; returns what is delivered.
fn delivered(server: &mut Server<&'static str>) -> (Handle, &'static str) {
    while let Some(output) = server.poll_output() {
        match output {
            ServerOutput::Pool(Output::Action(Action::Connect { connection })) => {
                server.pool_mut().handle_established(NOW, connection, "socket").unwrap();
            }
            ServerOutput::Pool(Output::Action(Action::Deliver { connection, socket, .. })) => {
                return (connection, socket);
            }
            _ => {}
        }
    }
    panic!("nothing was delivered")
}

#[test]
fn an_available_connection_is_handed_over_with_nothing_to_drain() {
    let mut server = server(ServerOptions::default());

    let Delivery { connection, socket, .. } = server.try_check_out(NOW, CheckOutRequest::default()).unwrap();

    assert_eq!(socket, "socket");
    assert!(server.is_drained());
    assert_eq!(server.pool().counts().in_use, 1);
    assert!(server.pool_mut().check_in(NOW, connection, socket, Condition::Usable).is_ok());
}

#[test]
fn whoever_listens_is_told_by_the_long_way() {
    let mut server = server(ServerOptions::default());
    server.observe(true);

    assert_eq!(server.try_check_out(NOW, CheckOutRequest::default()), None);

    assert_eq!(server.pool().stats().check_outs_started, 1, "the one of before");
}

#[test]
fn a_connection_that_lay_idle_is_looked_at_first() {
    let mut server = server(ServerOptions::default());
    let later = NOW + Duration::from_secs(2);

    assert_eq!(server.try_check_out(later, CheckOutRequest::default()), None);

    server.check_out(later, CheckOutRequest::default());
    let Some(ServerOutput::Pool(Output::Action(Action::Check { .. }))) = server.poll_output() else {
        panic!("the connection is not looked at");
    };
}

#[test]
fn what_was_not_drained_comes_first() {
    let mut server = server(ServerOptions::default());
    let Delivery { connection, socket, .. } = server.try_check_out(NOW, CheckOutRequest::default()).unwrap();
    server.check_out(NOW, CheckOutRequest::default());
    server.pool_mut().check_in(NOW, connection, socket, Condition::Usable).unwrap();

    assert_eq!(server.try_check_out(NOW, CheckOutRequest::default()), None, "the second check-out's delivery waits");
}

#[test]
fn a_server_that_is_unknown_is_waited_for() {
    let mut server = server(ServerOptions::default());
    server.handle_check_failed(NOW, Fault::Network, Cause::new("gone")).unwrap();
    while server.poll_output().is_some() {}

    assert_eq!(server.try_check_out(NOW, CheckOutRequest::default()), None);

    assert!(matches!(server.check_out(NOW, CheckOutRequest::default()), CheckOut::Selecting(_)));
}

#[test]
fn a_deadline_that_has_passed_fails_the_long_way() {
    let mut server = server(ServerOptions::default());

    assert_eq!(server.try_check_out(NOW, CheckOutRequest::until(NOW)), None);
    assert!(server.try_check_out(NOW, CheckOutRequest::until(NOW + Duration::from_millis(1))).is_some());
}

#[test]
fn the_server_selection_timeout_bounds_a_deadline_csot_4() {
    let mut options = ServerOptions::default();
    options.server_selection_timeout = Duration::ZERO;
    let mut server = server(options);
    let request = CheckOutRequest::until(NOW + Duration::from_secs(1));

    assert_eq!(server.try_check_out(NOW, request), None, "as the long way, which fails");
}

#[test]
fn what_comes_back_is_handed_over_to_who_waits_longest() {
    let (mut server, in_use, first) = contended();
    server.check_out(NOW, CheckOutRequest::default());

    let delivery = server.hand_over(NOW, in_use.connection, in_use.socket, Condition::Usable).unwrap().unwrap();

    assert_eq!((CheckOut::Started(delivery.check_out), delivery.connection), (first, in_use.connection));
    assert!(server.is_drained());
    assert_eq!((server.pool().counts().in_use, server.pool().counts().waiting), (1, 1));
}

#[test]
fn what_comes_back_becomes_available_where_nobody_waits() {
    let mut server = server(ServerOptions::default());
    let Delivery { connection, socket, .. } = server.try_check_out(NOW, CheckOutRequest::default()).unwrap();

    assert_eq!(server.hand_over(NOW, connection, socket, Condition::Usable), Ok(None));

    assert_eq!(server.pool().counts().available, 1);
}

#[test]
fn a_hand_over_comes_after_what_was_not_drained() {
    let (mut server, in_use, first) = contended();
    server.observe(true);

    assert_eq!(server.hand_over(NOW, in_use.connection, in_use.socket, Condition::Usable), Ok(None));

    let outputs: Vec<_> = std::iter::from_fn(|| server.poll_output()).collect();
    let [
        ServerOutput::Pool(Output::Event(back)),
        _,
        ServerOutput::Pool(Output::Action(Action::Deliver { check_out, .. })),
    ] = outputs.as_slice()
    else {
        panic!("not told in order: {outputs:?}");
    };
    assert_eq!(back.name(), "ConnectionCheckedIn");
    assert_eq!(CheckOut::Started(*check_out), first);
}

#[test]
fn a_connection_that_failed_is_handed_to_nobody() {
    let (mut server, in_use, _) = contended();

    assert_eq!(server.hand_over(NOW, in_use.connection, in_use.socket, Condition::Errored), Ok(None));

    assert_eq!(server.pool().counts().waiting, 1);
    assert!(!server.is_drained(), "it is closed, and another one is established");
}

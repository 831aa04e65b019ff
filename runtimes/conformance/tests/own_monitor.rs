//! The example `own-monitor`, with a server that goes away and comes back.

#![allow(dead_code, clippy::unwrap_used, reason = "the example is a program, whose main function is not called here")]

#[path = "../examples/own-monitor.rs"]
mod own_monitor;

use std::thread;
use std::time::Duration;

use cmap_conformance::{LocalServer, Setup};

#[test]
fn pings_share_few_connections() {
    let server = LocalServer::start();

    let (stats, failed) = own_monitor::run(&server.uri("maxPoolSize=3"), 500).unwrap();

    assert_eq!((stats.checked_out, stats.checked_in, failed), (500, 500, 0));
    assert!(stats.created <= 3 && stats.created == stats.closed.total(), "{stats:?}");
}

#[test]
fn connections_log_in_and_the_monitor_does_not() {
    let server = LocalServer::start_as(Setup { authorization: true, ..Setup::default() });

    let (stats, failed) = own_monitor::run(&server.uri_as("app:secret", "maxPoolSize=2"), 10).unwrap();

    assert_eq!((stats.checked_out, failed), (10, 0));
}

#[test]
fn the_pool_recovers_when_the_server_does() {
    let mut server = LocalServer::start();
    let uri = server.uri("maxPoolSize=2");
    let pinging = thread::spawn(move || own_monitor::run(&uri, 40_000).unwrap());
    thread::sleep(Duration::from_millis(200));

    server.kill();
    thread::sleep(Duration::from_millis(700));
    server.restart();

    let (stats, _) = pinging.join().unwrap();
    assert!(stats.cleared > 0, "the pings ended before the server went away: {stats:?}");
    assert_eq!(stats.checked_out, stats.checked_in);
    assert_eq!(stats.created, stats.closed.total());
}

//! A process that has no descriptors left for sockets. The limit is the whole process's, so an adapter's test of this
//! case is in a file of its own.
//!
//! Being unable to open a socket says nothing about the server: the error is one of connecting, whose labels keep the
//! pool as it is (CMAP-50, SDAM-7), so that open connections stay in use.

use std::fs::File;

use bson::rawdoc;
use cmap_core::connection::{Fault, Phase, RETRYABLE_ERROR};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::recovery::recovered;
use super::{Harness, LocalServer, assert_nothing_lost, establish_error, outspoken, run, told, wait_for};

/// The number of descriptors that the process may have.
const LIMIT: u64 = 256;

pub fn a_process_without_descriptors_is_told_so_and_recovers<H: Harness>() {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..before }).unwrap();
    run::<H>(async {
        let server = LocalServer::start();
        let client = outspoken::<H>(&server.uri("heartbeatFrequencyMS=500")).await;
        let mut connection = client.check_out().await.unwrap();
        let mut events = client.subscribe(1000);
        let mut hoard = Vec::new();

        for attempt in 1..=10 {
            // Descriptors that the runtime has given back meanwhile are taken, too.
            hoard.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
            let outcome = client.check_out().await;

            let Err(error) = &outcome else { panic!("it got a connection") };
            let text = told(error);
            assert!(text.contains("os error 24") || text.contains("Too many open files"), "{text}");
            assert!(text.contains("(ulimit -n)"), "{text}");
            let error = establish_error(outcome);
            assert_eq!((error.phase, error.fault), (Phase::Connect, Fault::Network));
            assert!(error.has_label(RETRYABLE_ERROR));
            // One attempt for each check-out: nothing spins.
            assert_eq!(client.stats().created, 1 + attempt);
        }

        // The server is still known, its checks go on, and open connections can be used.
        wait_for(&mut events, "ServerHeartbeatSucceeded").await;
        assert_eq!(client.stats().cleared, 0);
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(hoard);
        recovered("a process without descriptors", &client).await;
        let second = client.check_out().await.unwrap();
        drop((connection, second));
        assert_nothing_lost(&client);
    });
    setrlimit(Resource::Nofile, before).unwrap();
}

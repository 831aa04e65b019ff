//! Hosts of several addresses: one that hangs, one that refuses, and none that answers.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use cmap_core::connection::{EstablishError, Fault, Phase};

use super::{Harness, TestServer, run};
use crate::clock::Clock;
use crate::connect::{LastAddress, connect};
use crate::runtime::{Runtime, Target};

/// An address at which nothing ever answers.
const HANGS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 27017);

/// Longer than any address is waited for here.
const LONG: Duration = Duration::from_secs(30);

/// Connects as a client does, but that attempts to reach [`HANGS`] hang without a packet being sent.
async fn reach<R: Runtime>(
    runtime: &R,
    last: &LastAddress,
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<R::Stream, EstablishError> {
    let clock = Clock::new(runtime.clone());
    let targets = addresses.iter().copied().map(Target::Tcp).collect();
    let until = clock.deadline(Some(limit));
    connect(&clock, last, targets, until, |target| {
        let runtime = runtime.clone();
        async move { if target == Target::Tcp(HANGS) { pending().await } else { runtime.connect(target).await } }
    })
    .await
}

fn address(server: &TestServer) -> SocketAddr {
    server.uri("").trim_start_matches("mongodb://").trim_end_matches("/?").parse().unwrap()
}

pub fn an_address_that_hangs_costs_a_quarter_of_a_second_once<H: Harness>() {
    run::<H>(async {
        let (server, runtime, last) = (TestServer::start(), H::Runtime::current().unwrap(), LastAddress::default());
        let addresses = [HANGS, address(&server)];

        let start = runtime.now();
        reach(&runtime, &last, &addresses, LONG).await.unwrap();
        let first = runtime.now() - start;
        reach(&runtime, &last, &addresses, LONG).await.unwrap();
        let second = runtime.now() - start - first;

        println!("an address that hangs costs {first:?}, and {second:?} once another one has worked");
        assert!(first >= Duration::from_millis(250) && first < Duration::from_secs(5), "{first:?}");
        assert!(second < first, "the address that worked comes first: {second:?} after {first:?}");
    });
}

pub fn an_address_that_refuses_costs_no_time<H: Harness>() {
    run::<H>(async {
        let (server, runtime, last) = (TestServer::start(), H::Runtime::current().unwrap(), LastAddress::default());
        let mut gone = TestServer::start();
        gone.kill();

        reach(&runtime, &last, &[address(&gone), address(&server)], LONG).await.unwrap();
    });
}

pub fn an_error_names_every_address_and_what_was_wrong_with_it<H: Harness>() {
    run::<H>(async {
        let (runtime, last) = (H::Runtime::current().unwrap(), LastAddress::default());
        let mut gone = TestServer::start();
        gone.kill();

        let outcome = reach(&runtime, &last, &[HANGS, address(&gone)], Duration::from_millis(500)).await;

        let Err(error) = outcome else { panic!("nobody listens") };
        assert_eq!((error.phase, error.fault), (Phase::Connect, Fault::Timeout));
        assert!(error.message.contains("192.0.2.1:27017: no answer in time"), "{error}");
        assert!(error.message.contains(&format!("{}: ", address(&gone))), "{error}");
    });
}

pub fn an_address_that_there_was_no_time_for_is_named_as_well<H: Harness>() {
    run::<H>(async {
        let (server, runtime, last) = (TestServer::start(), H::Runtime::current().unwrap(), LastAddress::default());

        let outcome = reach(&runtime, &last, &[HANGS, address(&server)], Duration::from_millis(50)).await;

        let Err(error) = outcome else { panic!("there was no time for the second") };
        assert!(error.message.contains("there was no time to try it"), "{error}");
    });
}

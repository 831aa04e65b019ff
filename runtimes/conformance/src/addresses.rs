//! Hosts of several addresses: one that hangs, one that refuses, and none that answers.
//!
//! The host is localhost, which is 127.0.0.1 and ::1 in this order; a lab decides where attempts to reach either lead.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::ClientOptions;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{Connection, Pool};

use super::lab::{Lab, Route};
use super::{Harness, LocalServer, establish_error, run};

/// A pool of localhost, whose first and second address lead where the routes say. `query` are its options.
async fn pool<R: Runtime>(first: Route, second: Route, query: &str) -> Pool<Lab<R>> {
    pool_in(Lab::new(), first, second, query).await
}

async fn pool_in<R: Runtime>(lab: Lab<R>, first: Route, second: Route, query: &str) -> Pool<Lab<R>> {
    lab.route(Ipv4Addr::LOCALHOST, first);
    lab.route(Ipv6Addr::LOCALHOST, second);
    let (options, _) = ClientOptions::parse(&format!("mongodb://localhost/?{query}")).unwrap();
    let pool = Pool::builder(options).runtime(lab).build().await.unwrap();
    pool.ready();
    pool
}

/// Establishes one more connection, and returns how long that took.
async fn connect<R: Runtime>(pool: &Pool<Lab<R>>) -> (Connection<Lab<R>>, Duration) {
    let runtime = R::current().unwrap();
    let start = runtime.now();
    let connection = pool.check_out().await.unwrap();
    (connection, runtime.now() - start)
}

/// Why no connection can be established.
async fn failure<R: Runtime>(pool: &Pool<Lab<R>>) -> EstablishError {
    establish_error(pool.check_out().await)
}

fn to(server: &LocalServer) -> Route {
    let address: SocketAddr = server.uri("").trim_start_matches("mongodb://").trim_end_matches("/?").parse().unwrap();
    Route::To(address)
}

pub fn an_address_that_hangs_costs_a_quarter_of_a_second_once<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let lab = Lab::<H::Runtime>::new();
        let pool = pool_in(lab.clone(), Route::Nowhere, to(&server), "").await;

        let (_one, first) = connect(&pool).await;
        let (_other, second) = connect(&pool).await;

        println!("an address that hangs costs {first:?}, and {second:?} once another one has worked");
        assert!(first >= Duration::from_millis(250) && first < Duration::from_secs(5), "{first:?}");
        // The address that worked comes first: the one that hangs was tried once.
        assert_eq!(lab.hanging(), 1);
    });
}

pub fn an_address_that_refuses_costs_no_time<H: Harness>() {
    run::<H>(async {
        let (server, mut gone) = (LocalServer::start(), LocalServer::start());
        gone.kill();

        let mut fastest = Duration::MAX;
        for _ in 0..10 {
            let (_connection, took) = connect(&pool::<H::Runtime>(to(&gone), to(&server), "").await).await;
            fastest = fastest.min(took);
        }

        // On a busy machine some take longer; none would be as fast if the next address had to wait.
        assert!(fastest < Duration::from_millis(250), "{fastest:?}");
    });
}

pub fn an_error_names_every_address_and_what_was_wrong_with_it<H: Harness>() {
    run::<H>(async {
        let mut gone = LocalServer::start();
        gone.kill();

        let error = failure(&pool::<H::Runtime>(Route::Nowhere, to(&gone), "connectTimeoutMS=500").await).await;

        assert_eq!((error.phase, error.fault), (Phase::Connect, Fault::Timeout));
        assert!(error.message.contains("127.0.0.1:27017: no answer within connectTimeoutMS"), "{error}");
        assert!(error.message.contains("[::1]:27017: "), "{error}");
    });
}

pub fn an_address_that_there_was_no_time_for_is_named_as_well<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();

        let error = failure(&pool::<H::Runtime>(Route::Nowhere, to(&server), "connectTimeoutMS=50").await).await;

        assert!(error.message.contains("there was no time to try it"), "{error}");
    });
}

//! A machine that was suspended: the monotonic clock stood still, so idle connections look fresh.

use std::time::Duration;

use bson::rawdoc;
use cmap_core::options::ClientOptions;
use cmap_runtime::Client;
use cmap_runtime::runtime::Runtime;

use super::lab::Lab;
use super::{Harness, LocalServer, Setup, assert_nothing_lost, options, run};

pub fn after_a_call_of_resume_idle_connections_are_checked_before_use<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let client = Client::<H::Runtime>::with_options(trusting(&server)).await.unwrap();
        drop(client.check_out().await.unwrap());
        replace::<H>(&mut server).await;

        client.resume();

        let mut connection = client.check_out().await.unwrap();
        assert_eq!(connection.id().get(), 2);
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(connection);
        assert_nothing_lost(&client);
    });
}

pub fn a_wall_clock_that_went_on_alone_has_idle_connections_checked<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let lab = Lab::<H::Runtime>::new();
        let client = Client::builder(trusting(&server)).runtime(lab.clone()).build().await.unwrap();
        let mut in_use = client.check_out().await.unwrap();
        drop(client.check_out().await.unwrap());

        lab.set_wall_ahead(3600);
        wake_driver(&mut in_use, &lab).await;
        replace::<H>(&mut server).await;

        assert_eq!(client.check_out().await.unwrap().id().get(), 3);
    });
}

pub fn a_wall_clock_that_is_set_by_a_little_is_no_suspension<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let lab = Lab::<H::Runtime>::new();
        let client = Client::builder(trusting(&server)).runtime(lab.clone()).build().await.unwrap();
        let mut in_use = client.check_out().await.unwrap();
        drop(client.check_out().await.unwrap());

        lab.set_wall_ahead(2);
        wake_driver(&mut in_use, &lab).await;

        assert_eq!(client.check_out().await.unwrap().id().get(), 2);
        drop(in_use);
        assert_nothing_lost(&client);
    });
}

/// Options by which the pool trusts idle connections.
fn trusting(server: &LocalServer) -> ClientOptions {
    let mut options = options(server, "loadBalanced=true");
    options.pool.check_after_idle = Some(Duration::MAX);
    options
}

/// Ends the server's connections, and waits until the client could know.
async fn replace<H: Harness>(server: &mut LocalServer) {
    server.kill();
    server.restart();
    let runtime = H::Runtime::current().unwrap();
    runtime.sleep_until(runtime.now() + Duration::from_millis(50)).await;
}

/// Gives the client's driver something to do, a time limit to wait for, until it has done it: a command that is answered before
/// the driver's task runs leaves it nothing to wait for.
async fn wake_driver<R: Runtime>(in_use: &mut cmap_runtime::Connection<Lab<R>>, lab: &Lab<R>) {
    let before = lab.sleeps();
    while lab.sleeps() == before {
        in_use.run_command_within("admin", rawdoc! { "ping": 1 }, Duration::from_secs(50)).await.unwrap();
    }
}

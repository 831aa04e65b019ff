//! Connections that are kept alive between their uses, on sockets.

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use cmap_core::options::ClientOptions;
use cmap_runtime::Client;
use cmap_runtime::runtime::Runtime;

use super::{ClientOf, Harness, LocalServer, assert_nothing_lost, options, roomy, run, until};

const REQUIREMENT: Duration = Duration::from_millis(40);

pub fn an_idle_connection_is_pinged_again_and_again_though_nothing_else_is_due<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = refreshing::<H>(&server, |_| {}).await;

        // The third ping is the first that fails.
        let data = rawdoc! { "failCommands": ["ping"], "closeConnection": true };
        fail_pings(&client, rawdoc! { "skip": 2 }, data).await;

        until(|| client.stats().closed.error == 1).await;
        let stats = client.stats();
        assert_eq!((stats.created, stats.closed.total()), (1, 1), "{stats:?}");
        assert_nothing_lost(&client);
    });
}

pub fn a_ping_that_loses_its_connection_clears_the_pool_sdam_10<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = refreshing::<H>(&server, |_| {}).await;

        fail_pings(&client, rawdoc! { "times": 1 }, rawdoc! { "failCommands": ["ping"], "closeConnection": true })
            .await;

        until(|| client.stats().cleared == 1).await;
        drop(client.check_out().await.unwrap());
        assert_nothing_lost(&client);
    });
}

pub fn a_ping_that_takes_too_long_costs_its_connection_alone_sdam_9<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = refreshing::<H>(&server, |options| {
            options.pool.refresh_timeout = Some(REQUIREMENT / 2);
        })
        .await;

        let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 60_000 };
        fail_pings(&client, rawdoc! { "times": 1 }, data).await;

        until(|| client.stats().closed.error == 1).await;
        assert_eq!(client.stats().cleared, 0);
        drop(client.check_out().await.unwrap());
        assert_nothing_lost(&client);
    });
}

pub fn a_closed_client_gives_up_its_pings<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = refreshing::<H>(&server, |options| {
            options.pool.refresh_requirement = Some(Duration::from_secs(2));
            options.pool.refresh_timeout = Some(Duration::from_millis(1_999));
        })
        .await;
        let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 60_000 };
        fail_pings(&client, rawdoc! { "times": 1 }, data).await;
        let runtime = H::Runtime::current().unwrap();
        runtime.sleep_until(runtime.now() + Duration::from_millis(2_500)).await;

        let left = client.close(roomy::<H>(Duration::from_millis(500))).await;

        assert_eq!(left.unwrap(), 0, "nobody uses it");
        assert_eq!(client.stats().closed.pool_closed, 1);
    });
}

/// A client whose connections are refreshed soon.
async fn refreshing<H: Harness>(server: &LocalServer, change: impl FnOnce(&mut ClientOptions)) -> ClientOf<H> {
    let mut options = options(server, "");
    options.pool.refresh_requirement = Some(REQUIREMENT);
    change(&mut options);
    super::builder::<H>(options).build().await.unwrap()
}

/// Sets a fail point for pings, and leaves the connection idle.
async fn fail_pings<R: Runtime>(client: &Client<R>, mode: RawDocumentBuf, data: RawDocumentBuf) {
    let fail_point = rawdoc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
    client.check_out().await.unwrap().run_command("admin", fail_point).await.unwrap();
}

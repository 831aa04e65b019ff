//! Connections whose life is over, on sockets.

use std::time::Duration;

use cmap_core::options::ClientOptions;
use cmap_runtime::Client;

use super::{Harness, LocalServer, assert_nothing_lost, client, options, run, until};

pub fn a_connection_is_retired_at_its_age_though_nothing_else_is_due<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client =
            limited::<H>(&server, |options| options.pool.max_lifetime = Some(Duration::from_millis(100))).await;

        drop(client.check_out().await.unwrap());

        until(|| client.stats().closed.idle == 1).await;
        assert_nothing_lost(&client);
    });
}

pub fn a_connection_is_retired_after_its_last_use<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = limited::<H>(&server, |options| options.pool.max_uses = Some(2)).await;

        let mut used = Vec::new();
        for _ in 0..4 {
            used.push(client.check_out().await.unwrap().id().get());
        }

        assert_eq!(used, [1, 1, 2, 2]);
        assert_nothing_lost(&client);
    });
}

pub fn all_connections_are_replaced_and_none_in_use_is_cut_off<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "minPoolSize=2").await;
        let in_use = client.check_out().await.unwrap();
        until(|| client.stats().established >= 2).await;

        client.replace_connections(Duration::from_millis(20));

        until(|| client.stats().closed.idle == 1).await;
        assert_eq!(client.stats().counts.in_use, 1);
        drop(in_use);
        until(|| client.stats().closed.idle == 2 && client.stats().counts.available >= 2).await;
        assert_nothing_lost(&client);
    });
}

async fn limited<H: Harness>(server: &LocalServer, limit: impl FnOnce(&mut ClientOptions)) -> Client<H::Runtime> {
    let mut options = options(server, "");
    limit(&mut options);
    super::builder::<H>(options).build().await.unwrap()
}

//! Keys that keep their connections, on sockets.

use std::time::Duration;

use cmap_core::options::Affinity;
use cmap_core::pool::AffinityKey;
use cmap_runtime::{CheckOutError, Client};

use super::{Harness, LocalServer, assert_nothing_lost, client, options, poll_once, run, until};

const ONE: AffinityKey = AffinityKey(1);
const TWO: AffinityKey = AffinityKey(2);

pub fn a_key_keeps_its_connection<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = with::<H>(&server, Affinity::Prefer, 2).await;
        let one = client.check_out().affinity(ONE).await.unwrap();
        let two = client.check_out().affinity(TWO).await.unwrap();
        let numbers = (one.id(), two.id());
        drop(one);
        drop(two);

        assert_eq!(client.check_out().affinity(ONE).await.unwrap().id(), numbers.0);
        assert_eq!(client.check_out().affinity(TWO).await.unwrap().id(), numbers.1);
        assert_nothing_lost(&client);
    });
}

pub fn a_key_waits_for_the_connection_that_it_requires<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = with::<H>(&server, Affinity::Require, 2).await;
        let one = client.check_out().affinity(ONE).await.unwrap();
        let number = one.id();

        let limit = Duration::from_millis(5);
        assert!(client.check_out_within(limit).affinity(ONE).await.unwrap_err().is_timeout());
        drop(one);

        assert_eq!(client.check_out().affinity(ONE).await.unwrap().id(), number);
        assert_nothing_lost(&client);
    });
}

pub fn a_held_connection_is_for_others_when_its_time_is_over_or_its_key_ends<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let hold = Affinity::Hold { time: Duration::from_millis(50), lend: false };
        let client = with::<H>(&server, hold, 1).await;
        drop(client.check_out().affinity(ONE).await.unwrap());

        // Nothing but the end of the hold is due.
        drop(client.check_out().affinity(TWO).await.unwrap());
        client.end_affinity(TWO);
        drop(client.check_out_within(Duration::from_millis(40)).await.unwrap());

        until(|| client.stats().counts.available == 1).await;
        assert_nothing_lost(&client);
    });
}

pub fn a_held_connection_is_lent_to_one_that_nothing_else_serves_and_goes_back_to_its_key<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let hold = Affinity::Hold { time: Duration::from_secs(3600), lend: true };
        let client = with::<H>(&server, hold, 1).await;
        drop(client.check_out().affinity(ONE).await.unwrap());

        let borrowed = client.check_out().await.unwrap();
        let mut stranger = Box::pin(client.check_out());
        assert!(poll_once(&mut stranger).await.is_none());
        let mut key = Box::pin(client.check_out().affinity(ONE));
        assert!(poll_once(&mut key).await.is_none());
        drop(borrowed);

        drop(poll_once(&mut key).await.expect("it is held for its key").unwrap());
        drop(stranger.await.unwrap());
        assert_eq!(client.stats().created, 1);
        assert_nothing_lost(&client);
    });
}

pub fn a_key_without_the_option_is_refused<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;

        let refused = client.check_out().affinity(ONE).await;

        let Err(error @ CheckOutError::NoAffinity) = refused else { panic!("no key has a connection") };
        assert!(error.to_string().contains("affinity"), "{error}");
        assert_nothing_lost(&client);
    });
}

async fn with<H: Harness>(server: &LocalServer, affinity: Affinity, max_pool_size: u32) -> Client<H::Runtime> {
    let mut options = options(server, "");
    options.pool.affinity = Some(affinity);
    options.pool.max_pool_size = Some(max_pool_size);
    super::builder::<H>(options).build().await.unwrap()
}

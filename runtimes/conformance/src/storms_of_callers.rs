//! The pool's options for storms, on sockets: a bounded queue, the rate of new connections, reuse.

use std::time::Duration;

use cmap_core::options::{ClientOptions, PoolLimits, QueueDepth, Reuse};
use cmap_core::pool::CheckOutErrorKind;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{CheckOutError, Client};

use super::{Harness, LocalServer, assert_nothing_lost, poll_once, run};

pub fn a_full_wait_queue_refuses_with_the_labels_of_an_overload<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = with_options::<H>(&server, "maxPoolSize=1", |options| {
            options.pool.max_wait_queue_depth = Some(QueueDepth::TimesMaxPoolSize(2));
        })
        .await;
        let first = client.check_out().await.unwrap();
        let mut waiters: Vec<_> = (0..2).map(|_| Box::pin(client.check_out())).collect();
        for waiter in &mut waiters {
            assert!(poll_once(waiter).await.is_none());
        }

        let error = client.check_out().await.unwrap_err();

        assert!(error.has_label("SystemOverloadedError") && !error.has_label("NoSuchLabel"));
        let CheckOutError::Pool(error) = error else { panic!("{error}") };
        assert_eq!(error.kind, CheckOutErrorKind::WaitQueueFull { max_wait_queue_depth: 2 });
        assert!(error.has_label("SystemOverloadedError") && error.has_label("RetryableError") && error.is_retryable());
        assert!(error.to_string().contains("maxWaitQueueDepth allows 2"), "{error}");
        drop(first);
        for waiter in waiters {
            drop(waiter.await.unwrap());
        }
        assert_nothing_lost(&client);
    });
}

pub fn a_wait_queue_that_becomes_shorter_refuses_only_newcomers_x_70<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = with_options::<H>(&server, "maxPoolSize=1", |_| {}).await;
        let first = client.check_out().await.unwrap();
        let mut waiters: Vec<_> = (0..2).map(|_| Box::pin(client.check_out())).collect();
        for waiter in &mut waiters {
            assert!(poll_once(waiter).await.is_none());
        }

        client.resize(PoolLimits::default().max_wait_queue_depth(QueueDepth::Waiters(1))).unwrap();

        let CheckOutError::Pool(error) = client.check_out().await.unwrap_err() else { panic!("another error") };
        assert_eq!(error.kind, CheckOutErrorKind::WaitQueueFull { max_wait_queue_depth: 1 });
        drop(first);
        for waiter in waiters {
            drop(waiter.await.unwrap());
        }
        assert_nothing_lost(&client);
    });
}

pub fn connections_come_at_once_when_their_rate_is_lifted_x_70<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = with_options::<H>(&server, "maxPoolSize=11&maxConnecting=1", |options| {
            options.pool.max_new_connections_per_second = Some(1);
        })
        .await;
        let _first = client.check_out().await.unwrap();
        // At the old rate the last of them would come after ten seconds.
        let soon = Duration::from_millis(9900);
        let mut waiters: Vec<_> = (0..10).map(|_| Box::pin(client.check_out_within(soon))).collect();
        for waiter in &mut waiters {
            assert!(poll_once(waiter).await.is_none());
        }

        client.resize(PoolLimits::default().max_new_connections_per_second(None)).unwrap();

        let mut held = Vec::new();
        for waiter in waiters {
            held.push(waiter.await.unwrap());
        }
        assert_eq!((held.len(), client.stats().counts.total()), (10, 11));
    });
}

pub fn new_connections_keep_to_their_rate<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = with_options::<H>(&server, "maxConnecting=1", |options| {
            options.pool.max_new_connections_per_second = Some(20);
        })
        .await;
        let runtime = H::Runtime::current().unwrap();
        let began = runtime.now();

        let mut in_use = Vec::new();
        for _ in 0..5 {
            in_use.push(client.check_out().await.unwrap());
        }

        // The first at once, and one every 50 ms then.
        let took = runtime.now() - began;
        assert!(took >= Duration::from_millis(200), "{took:?}");
        drop(in_use);
        assert_nothing_lost(&client);
    });
}

pub fn connections_are_used_in_turn<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = with_options::<H>(&server, "", |options| options.pool.reuse = Some(Reuse::Fifo)).await;
        let (one, other) = (client.check_out().await.unwrap(), client.check_out().await.unwrap());
        let expected = [one.id(), other.id(), one.id(), other.id()];
        drop(one);
        drop(other);

        let mut used = Vec::new();
        for _ in 0..4 {
            used.push(client.check_out().await.unwrap().id());
        }

        assert_eq!(used, expected);
        assert_nothing_lost(&client);
    });
}

async fn with_options<H: Harness>(
    server: &LocalServer,
    query: &str,
    change: impl FnOnce(&mut ClientOptions),
) -> Client<H::Runtime> {
    let (mut options, _) = ClientOptions::parse(&server.uri(query)).unwrap();
    change(&mut options);
    super::builder::<H>(options).build().await.unwrap()
}

//! Connections that are established before anybody needs them, on sockets.

use std::time::Duration;

use cmap_core::options::{ReadMode, ReadPreference};
use cmap_core::pool::WarmUpErrorKind;
use cmap_core::topology::{self, SelectionErrorKind};
use cmap_runtime::WarmUpError;

use super::{Harness, LocalServer, Setup, assert_nothing_lost, client, outspoken, poll_once, run};

const LIMIT: Duration = Duration::from_secs(20);

pub fn a_client_waits_for_its_server_and_for_all_connections<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { replica_set: true, ..Setup::default() });
        let client = client::<H>(&server, "directConnection=true").await;

        client.warm_up(5, LIMIT).await.unwrap();

        let stats = client.stats();
        assert_eq!((stats.established, stats.created), (5, 5));
        drop(client.check_out().await.unwrap());
        assert_eq!(client.stats().created, 5, "the check-out needs no new one");
        assert_nothing_lost(&client);
    });
}

pub fn without_a_number_it_reaches_the_least_size<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "minPoolSize=3").await;

        client.warm_up_for(ReadPreference::new(ReadMode::Nearest), None, LIMIT).await.unwrap();

        assert!(client.stats().established >= 3, "{:?}", client.stats());
        assert_nothing_lost(&client);
    });
}

pub fn a_wrong_password_is_its_error<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { authorization: true, services: 1, ..Setup::default() });
        let client = outspoken::<H>(&server.uri_as("app:wrong", "loadBalanced=true")).await;

        let error = client.warm_up(2, LIMIT).await.unwrap_err();

        let WarmUpError::Unreached(topology::WarmUpError::Pool(failed)) = &error else { panic!("{error}") };
        assert!(matches!(failed.kind, WarmUpErrorKind::Establish(_)), "{error}");
        assert_eq!((failed.established, failed.wanted), (0, 2));
        assert_nothing_lost(&client);
    });
}

pub fn more_than_the_greatest_size_is_refused<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=2").await;

        let error = client.warm_up(3, LIMIT).await.unwrap_err();

        let WarmUpError::Unreached(topology::WarmUpError::Pool(refused)) = &error else { panic!("{error}") };
        assert_eq!(refused.kind, WarmUpErrorKind::BeyondMaxPoolSize { max_pool_size: 2 });
        assert_eq!((refused.established, refused.wanted), (0, 3));
        assert_nothing_lost(&client);
    });
}

pub fn it_waits_for_a_server_that_comes_late<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let client = client::<H>(&server, "heartbeatFrequencyMS=3600000").await;
        let mut warm_up = Box::pin(client.warm_up(2, LIMIT));
        assert!(poll_once(&mut warm_up).await.is_none());

        server.restart();

        warm_up.await.unwrap();
        assert_eq!(client.stats().established, 2);
        assert_nothing_lost(&client);
    });
}

pub fn without_a_server_it_ends_in_time_and_says_what_is_known<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let client = client::<H>(&server, "").await;

        let error = client.warm_up(1, Duration::from_millis(100)).await.unwrap_err();

        let WarmUpError::Unreached(topology::WarmUpError::Selection(none)) = &error else { panic!("{error}") };
        assert_eq!(none.kind, SelectionErrorKind::Timeout);
        assert_nothing_lost(&client);
    });
}

pub fn a_closed_client_ends_it<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let client = client::<H>(&server, "").await;
        let mut warm_up = Box::pin(client.warm_up(1, LIMIT));
        assert!(poll_once(&mut warm_up).await.is_none());

        client.close(Duration::ZERO).await.unwrap();

        let error = warm_up.await.unwrap_err();
        let WarmUpError::Unreached(topology::WarmUpError::Selection(none)) = &error else { panic!("{error}") };
        assert_eq!(none.kind, SelectionErrorKind::Closed);
    });
}

pub fn one_that_is_dropped_leaves_nothing<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let client = client::<H>(&server, "").await;
        let mut warm_up = Box::pin(client.warm_up(1, None));
        assert!(poll_once(&mut warm_up).await.is_none());

        drop(warm_up);

        assert_nothing_lost(&client);
    });
}

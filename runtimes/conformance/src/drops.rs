//! The handles of users, dropped in every state. Other cases are in `cancellation`, where futures are dropped, and in
//! `runtimes`, where it happens outside of a runtime.

use bson::rawdoc;
use cmap_core::pool::Purpose;
use cmap_runtime::runtime::Runtime;

use super::{Harness, LocalServer, Manners, assert_nothing_lost, client, poll_once, run, until, wait_for};

pub fn a_connection_is_dropped_unused<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;

        drop(client.check_out().await.unwrap());

        assert_eq!((client.stats().counts.available, client.stats().closed.total()), (1, 0));
        assert_nothing_lost(&client);
    });
}

pub fn a_connection_is_dropped_after_an_error<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        for (command, is_kept) in [(rawdoc! { "noSuchCommand": 1 }, true), (rawdoc! { "hangUp": 1 }, false)] {
            let mut connection = client.check_out().await.unwrap();
            connection.run_command("admin", command).await.unwrap_err();

            drop(connection);

            assert_eq!(client.stats().counts.available, u32::from(is_kept));
            assert_nothing_lost(&client);
        }
    });
}

pub fn a_pinned_connection_is_dropped_in_the_middle_of_a_command<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut pinned = client.check_out().await.unwrap().pin(Purpose::Cursor);
        let mut command = Box::pin(pinned.run_command("admin", rawdoc! { "neverAnswer": 1 }));
        assert!(poll_once(&mut command).await.is_none());

        drop(command);
        drop(pinned);

        assert_eq!((client.stats().counts.available, client.stats().closed.error), (0, 1));
        assert_nothing_lost(&client);
    });
}

pub fn a_client_is_dropped_while_others_wait<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let mut events = client.subscribe(1000);
        let connection = client.check_out().await.unwrap();
        let other = client.clone();
        let runtime = H::Runtime::current().unwrap();
        // Every waiter holds a clone, so the client is not closed before.
        runtime.spawn(async move { drop(other.check_out().await.unwrap()) });
        until(|| client.stats().counts.waiting > 0).await;

        drop(client);
        drop(connection);

        // The first connection's, and the waiter's.
        for _ in 0..2 {
            wait_for(&mut events, "ConnectionCheckedOut").await;
        }
        wait_for(&mut events, "ConnectionCheckedIn").await;
        wait_for(&mut events, "ConnectionPoolClosed").await;
    });
}

pub fn a_client_is_dropped_before_its_server_is_known<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        server.set_manners(Manners::NeverAnswer);
        let client = client::<H>(&server, "").await;
        let mut events = client.subscribe(100);

        drop(client);

        wait_for(&mut events, "TopologyClosed").await;
        assert_eq!(events.next().await, None);
    });
}

pub fn a_subscription_is_dropped_unread<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let (dropped, mut kept) = (client.subscribe(1), client.subscribe(100));
        drop(client.check_out().await.unwrap());

        drop(dropped);
        drop(client.check_out().await.unwrap());

        for _ in 0..2 {
            wait_for(&mut kept, "ConnectionCheckedIn").await;
        }
        assert_nothing_lost(&client);
    });
}

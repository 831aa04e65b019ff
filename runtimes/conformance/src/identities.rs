//! Several users of one client, on sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cmap_core::connection::Phase;
use cmap_core::pool::IdentityId;
use cmap_runtime::runtime::Runtime;

use super::rotation::{create_user, credential, logged_in, secure, user};
use super::{ClientOf, Harness, assert_nothing_lost, establish_error, poll_once, run, told, until};

pub fn users_share_the_limits_of_a_pool<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "maxPoolSize=2").await;
        let next = added::<H>(&client, "next").await;
        let (first, second) = (client.check_out().await.unwrap(), client.check_out().await.unwrap());
        let mut waiter = Box::pin(client.check_out().identity(next));
        assert!(poll_once(&mut waiter).await.is_none());

        drop(first);

        let mut of_next = waiter.await.unwrap();
        assert_eq!(user(&mut of_next).await, "next");
        assert_eq!(client.stats().counts.in_use, 2);
        drop((second, of_next));
        assert_nothing_lost(&client);
    });
}

pub fn the_least_recently_used_connection_of_another_user_makes_room<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "maxPoolSize=2").await;
        let next = added::<H>(&client, "next").await;
        let (first, second) = (client.check_out().await.unwrap(), client.check_out().await.unwrap());
        let (less_recent, more_recent) = (first.id(), second.id());
        drop(first);
        drop(second);

        drop(client.check_out().identity(next).await.unwrap());

        let kept = client.check_out().await.unwrap();
        assert!(kept.id() == more_recent && kept.id() != less_recent);
        assert_eq!(client.stats().closed.surplus, 1);
    });
}

pub fn a_users_wrong_password_is_nobody_elses_matter<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "").await;
        drop(client.check_out().await.unwrap());
        let mistyped = client.add_identity(credential("app", "mistyped").unwrap()).unwrap();

        let error = establish_error(client.check_out().identity(mistyped).await);

        assert_eq!(error.phase, Phase::Authenticate);
        assert_eq!(client.stats().cleared, 0);
        assert_eq!(client.check_out().await.unwrap().id().get(), 1);
    });
}

pub fn the_clients_own_wrong_password_is_nobody_elses_matter<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client: ClientOf<H> = super::connect::<H>(&server.uri_as("app:mistyped", "")).await.unwrap();
        let app = client.add_identity(credential("app", "secret").unwrap()).unwrap();
        drop(client.check_out().identity(app).await.unwrap());

        let error = establish_error(client.check_out().await);

        assert_eq!(error.phase, Phase::Authenticate);
        assert_eq!(client.stats().cleared, 0);
        assert_eq!(client.check_out().identity(app).await.unwrap().id().get(), 1);
    });
}

pub fn the_status_names_the_pool_of_each_user<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "maxPoolSize=5").await;
        let next = added::<H>(&client, "next").await;
        let of_next = client.check_out().identity(next).await.unwrap();

        let status = client.status();

        let users: Vec<_> =
            status.servers.iter().map(|line| (line.user.as_deref(), line.stats.counts.in_use)).collect();
        assert_eq!(users, [(None, 0), (Some("next"), 1)]);
        assert!(status.to_string().contains(" as next  ready "), "{status}");
        drop(of_next);
        client.remove_identity(next);
        assert_eq!(client.status().servers.len(), 1);
    });
}

pub fn a_user_who_was_removed_gets_no_connection<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "").await;
        let next = added::<H>(&client, "next").await;
        let mut in_use = client.check_out().identity(next).await.unwrap();

        client.remove_identity(next);

        let error = client.check_out().identity(next).await.unwrap_err();
        assert!(told(&error).contains("the client has no identity 1, or not any more"), "{error}");
        assert_eq!(user(&mut in_use).await, "next");
        drop(in_use);
        assert_nothing_lost(&client);
    });
}

pub fn a_close_counts_the_connections_of_further_users<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "").await;
        let next = added::<H>(&client, "next").await;
        let leaked = client.check_out().identity(next).await.unwrap();

        assert_eq!(client.close(Duration::from_millis(10)).await.unwrap(), 1);

        drop(leaked);
    });
}

pub fn users_are_served_again_after_their_server_was_gone<H: Harness>() {
    run::<H>(async {
        let mut server = secure();
        let client = logged_in::<H>(&server, "heartbeatFrequencyMS=500").await;
        let app = client.add_identity(credential("app", "secret").unwrap()).unwrap();
        drop(client.check_out().identity(app).await.unwrap());

        server.kill();
        until(|| client.stats().cleared == 2).await;
        server.restart();

        let mut again = client.check_out().identity(app).await.unwrap();
        assert_eq!((user(&mut again).await, again.id().get()), ("app".into(), 2));
        drop(again);
        assert_nothing_lost(&client);
    });
}

pub fn many_tasks_of_three_users_keep_to_one_limit<H: Harness>() {
    const TASKS: usize = 60;
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "maxPoolSize=4").await;
        let names = ["first", "second", "third"];
        let mut users = Vec::new();
        for name in names {
            users.push(added::<H>(&client, name).await);
        }
        let done = Arc::new(AtomicUsize::new(0));
        for task in 0..TASKS {
            let (client, done) = (client.clone(), Arc::clone(&done));
            let (identity, name) = (users[task % 3], names[task % 3]);
            H::Runtime::current().unwrap().spawn(async move {
                for _ in 0..3 {
                    let mut connection = client.check_out().identity(identity).await.unwrap();
                    assert_eq!(user(&mut connection).await, name);
                    assert!(client.stats().counts.total() <= 4);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }

        until(|| done.load(Ordering::SeqCst) == TASKS).await;

        assert_nothing_lost(&client);
    });
}

async fn added<H: Harness>(client: &ClientOf<H>, name: &str) -> IdentityId {
    create_user(client, name).await;
    client.add_identity(credential(name, "secret").unwrap()).unwrap()
}

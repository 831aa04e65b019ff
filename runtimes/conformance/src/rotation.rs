//! A new credential, on sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, doc, rawdoc};
use cmap_core::options::{Credential, Secret};
use cmap_core::pool::PoolState;
use cmap_core::topology::ServerSelector::Writable;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{Client, Connection, RotationError};

use super::rogue::Rogue;
use super::{
    ClientOf, Harness, LocalServer, Setup, assert_nothing_lost, poll_once, run, told, until, within, yield_now,
};

pub fn a_new_credential_is_for_connections_yet_to_come_and_retires_the_others<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "").await;
        create_user(&client, "next").await;
        let mut in_use = client.check_out().await.unwrap();
        drop(client.check_out().await.unwrap());

        client.set_credential(credential("next", "secret")).await.unwrap();

        let mut new = client.check_out().await.unwrap();
        assert_eq!((user(&mut new).await, user(&mut in_use).await), ("next".into(), "app".into()));
        assert_eq!(client.outdated_connections(), 1);
        drop(in_use);
        assert_eq!(client.outdated_connections(), 0);
        drop(new);
        assert_eq!(client.stats().cleared, 0);
        assert_nothing_lost(&client);
    });
}

pub fn a_credential_that_is_refused_changes_nothing<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "").await;
        drop(client.check_out().await.unwrap());
        let before = client.stats();

        let error = client.set_credential(credential("app", "mistyped")).await.unwrap_err();

        let text = told(&error);
        assert!(matches!(error, RotationError::Refused { .. }), "{text}");
        assert!(text.contains("the server refused the login of \"app\"") && text.contains("set it again"), "{text}");
        assert!(!text.contains("mistyped"), "{text}");
        assert_eq!((client.stats(), client.outdated_connections()), (before, 0));
        assert_eq!(user(&mut client.check_out().await.unwrap()).await, "app");
    });
}

pub fn a_credential_that_contradicts_itself_is_refused_at_once<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "").await;

        let error = client.set_credential(credential("", "secret")).await.unwrap_err();

        assert!(matches!(error, RotationError::Credential(_)), "{error}");
    });
}

pub fn no_credential_logs_out<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "").await;
        drop(client.check_out().await.unwrap());

        client.set_credential(None).await.unwrap();

        assert_eq!(user(&mut client.check_out().await.unwrap()).await, "");
    });
}

pub fn without_a_server_nothing_is_proven<H: Harness>() {
    run::<H>(async {
        let mut server = secure();
        server.kill();
        let client = logged_in::<H>(&server, "serverSelectionTimeoutMS=100").await;

        let error = client.set_credential(credential("app", "secret")).await.unwrap_err();

        let waited = matches!(error, RotationError::NoServer { patience } if patience == Duration::from_millis(100));
        assert!(waited, "{error}");
    });
}

pub fn a_server_that_comes_back_is_asked<H: Harness>() {
    run::<H>(async {
        let mut server = secure();
        let client = logged_in::<H>(&server, "serverSelectionTimeoutMS=20000").await;
        drop(client.check_out().await.unwrap());
        server.kill();
        until(|| client.state() == PoolState::Paused).await;
        let mut rotation = Box::pin(client.set_credential(credential("app", "secret")));
        assert!(poll_once(&mut rotation).await.is_none());

        server.restart();

        rotation.await.unwrap();
    });
}

pub fn a_password_that_the_server_changed_first_is_set_at_once<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "minPoolSize=2&heartbeatFrequencyMS=3600000").await;
        let operator = logged_in::<H>(&server, "").await;
        client.warm_up(2, Duration::from_secs(20)).await.unwrap();
        let in_use = [client.check_out().await.unwrap(), client.check_out().await.unwrap()];
        operator.run(("admin", doc! { "updateUser": "app", "pwd": "other" })).await.unwrap();
        let text = told(&client.check_out().await.unwrap_err());
        assert!(text.contains("the server refused the login of \"app\""), "{text}");
        let cleared = client.stats().cleared;
        assert_eq!(cleared, 1);

        within::<H, _>(Duration::from_secs(60), client.set_credential(credential("app", "other"))).await.unwrap();

        drop(in_use);
        until(|| client.stats().counts.available == 2).await;
        drop(client.check_out().await.unwrap());
        assert_eq!((client.stats().cleared, client.outdated_connections()), (cleared, 0));
        assert_nothing_lost(&client);
    });
}

pub fn a_closed_client_takes_no_credential<H: Harness>() {
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "").await;
        client.close(Duration::ZERO).await.unwrap();

        let error = client.set_credential(credential("app", "secret")).await.unwrap_err();

        assert!(matches!(error, RotationError::Closed), "{error}");
    });
}

pub fn a_close_ends_the_proof_of_a_new_credential<H: Harness>() {
    run::<H>(async {
        let asked = Arc::new(AtomicUsize::new(0));
        let asks = Arc::clone(&asked);
        let rogue = Rogue::start(move || {
            let asks = Arc::clone(&asks);
            move |name: &str, _: &RawDocument| {
                if name == "saslStart" {
                    asks.fetch_add(1, Ordering::SeqCst);
                    return RawDocumentBuf::new();
                }
                rawdoc! { "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25 }
            }
        });
        // No time limit ends the proof.
        let client = super::builder::<H>(rogue.options("connectTimeoutMS=0")).build().await.unwrap();
        let mut rotation = Box::pin(client.set_credential(credential("next", "secret")));
        while asked.load(Ordering::SeqCst) == 0 {
            assert!(poll_once(&mut rotation).await.is_none());
            yield_now().await;
        }

        client.close(Duration::ZERO).await.unwrap();

        let error = rotation.await.unwrap_err();
        assert!(matches!(error, RotationError::Closed), "{error}");
    });
}

pub fn two_hundred_tasks_do_not_notice_a_rotation<H: Harness>() {
    const TASKS: usize = 200;
    run::<H>(async {
        let server = secure();
        let client = logged_in::<H>(&server, "maxPoolSize=20&minPoolSize=4").await;
        create_user(&client, "next").await;
        let (done, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let keep_going = Arc::new(AtomicUsize::new(1));
        for _ in 0..TASKS {
            let (client, done, ended) = (client.clone(), Arc::clone(&done), Arc::clone(&ended));
            let keep_going = Arc::clone(&keep_going);
            H::Runtime::current().unwrap().spawn(async move {
                while keep_going.load(Ordering::SeqCst) == 1 {
                    client.operation(("db", doc! { "count": "things" })).on(Writable).run().await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        let more = |than: usize| done.load(Ordering::SeqCst) > than + 2 * TASKS;

        // Another user, and the first one is gone.
        until(|| more(0)).await;
        client.set_credential(credential("next", "secret")).await.unwrap();
        until(|| client.outdated_connections() == 0).await;
        client.run(("admin", doc! { "dropUser": "app" })).await.unwrap();
        let then = done.load(Ordering::SeqCst);
        until(|| more(then)).await;
        // Another password of the same user.
        client.run(("admin", doc! { "updateUser": "next", "pwd": "other" })).await.unwrap();
        client.set_credential(credential("next", "other")).await.unwrap();
        until(|| client.outdated_connections() == 0).await;
        let then = done.load(Ordering::SeqCst);
        until(|| more(then)).await;

        keep_going.store(0, Ordering::SeqCst);
        until(|| ended.load(Ordering::SeqCst) == TASKS).await;
        let stats = client.stats();
        assert_eq!((stats.cleared, stats.closed.error, stats.check_outs_failed.total()), (0, 0, 0));
        assert_nothing_lost(&client);
    });
}

pub(super) fn secure() -> LocalServer {
    LocalServer::start_as(Setup { authorization: true, ..Setup::default() })
}

pub(super) async fn logged_in<H: Harness>(server: &LocalServer, query: &str) -> ClientOf<H> {
    super::connect::<H>(&server.uri_as("app:secret", query)).await.unwrap()
}

pub(super) fn credential(user: &str, password: &str) -> Option<Credential> {
    Some(Credential::new(user, Secret::from(password), "admin"))
}

pub(super) async fn create_user<R: Runtime>(client: &Client<R>, name: &str) {
    let roles = ["root"];
    let command = doc! { "createUser": name, "pwd": "secret", "roles": roles.as_slice() };
    client.operation(("admin", command)).on(Writable).run().await.unwrap();
}

/// The name of the user of a connection; empty if there is none.
pub(super) async fn user<R: Runtime>(connection: &mut Connection<R>) -> String {
    let reply = connection.run_command("admin", rawdoc! { "connectionStatus": 1 }).await.unwrap();
    let users = reply.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    let user = users.get_document(0).ok().and_then(|user| user.get_str("user").ok().map(str::to_owned));
    user.unwrap_or_default()
}

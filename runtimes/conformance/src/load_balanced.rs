//! Behind a load balancer: no monitor, a generation for each service, and connections that cursors and transactions keep.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, rawdoc};
use cmap_core::connection::Phase;
use cmap_core::pool::Event as PoolEvent;
use cmap_core::pool::{CheckOutErrorKind, Purpose, ServiceId, WaitLimit};
use cmap_core::server::ServerType;
use cmap_runtime::{CheckOutError, Connection, Event, Notice};

use super::lab::Lab;
use super::recovery::recovered;
use super::rogue::Rogue;
use super::the_server;
use super::{
    Harness, LocalServer, Setup, assert_nothing_lost, client, establish_error, is_reset, options, poll_once, run, told,
    wait_for,
};

pub fn a_load_balancer_is_not_checked<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let client = client::<H>(&server, "loadBalanced=true").await;
        let mut events = client.subscribe(100);

        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();

        assert!(connection.description().unwrap().service_id.is_some());
        // LB-3.
        while let Some(notice) = events.try_next() {
            let Notice::Event { event, .. } = notice else { panic!("{notice:?}") };
            assert!(!event.name().starts_with("ServerHeartbeat"), "{event:?}");
        }
    });
}

pub fn a_load_balancer_may_be_named_in_code<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        for in_pool in [true, false] {
            let mut options = options(&server, "");
            match in_pool {
                true => options.pool.load_balanced = true,
                false => options.load_balanced = Some(true),
            }
            let client = super::builder::<H>(options).build().await.unwrap();

            let mut connection = client.check_out().await.unwrap();

            connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
            assert_eq!(the_server(&client).server_type, ServerType::LoadBalancer);
        }
    });
}

pub fn a_timeout_says_what_keeps_the_connections<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let (client, lab) =
            Lab::<H::Runtime>::client(&server, "loadBalanced=true&maxPoolSize=4&waitQueueTimeoutMS=600000").await;
        let cursors = [
            client.check_out().await.unwrap().pin(Purpose::Cursor),
            client.check_out().await.unwrap().pin(Purpose::Cursor),
        ];
        let mut transaction = client.check_out().await.unwrap().pin(Purpose::Transaction);
        let other = client.check_out().await.unwrap().pin(Purpose::Cursor).unpin();
        transaction.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();

        let mut waiting = Box::pin(client.check_out());
        assert!(poll_once(&mut waiting).await.is_none());
        lab.set_ahead(3600);
        let Err(CheckOutError::Pool(error)) = waiting.await else { panic!("there is no connection left") };

        assert_eq!(error.kind, CheckOutErrorKind::Timeout(WaitLimit::WaitQueueTimeout));
        assert_eq!(
            error.message(),
            "Timeout waiting for connection from the connection pool. maxPoolSize: 4, connections in use by cursors: 2, \
             connections in use by transactions: 1, connections in use by other operations: 1",
            "LB-16"
        );
        drop((cursors, transaction, other));
        // LB-12.
        assert_eq!((client.stats().checked_out, client.stats().checked_in), (4, 4));
        assert_nothing_lost(&client);
    });
}

pub fn an_error_clears_its_own_service_only<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 2, ..Setup::default() });
        let client = client::<H>(&server, "loadBalanced=true").await;
        let mut events = client.subscribe(100);
        let mut broken = client.check_out().await.unwrap();
        // The load balancer takes turns.
        let [other, same] = [client.check_out().await.unwrap(), client.check_out().await.unwrap()];
        let service = |connection: &Connection<_>| connection.description().unwrap().service_id.unwrap();
        let (failed, survivor) = (service(&broken), other.id());
        assert_eq!((service(&same) == failed, service(&other) == failed), (true, false));

        let error = broken.run_command("admin", rawdoc! { "reset": 1 }).await.unwrap_err();
        drop((broken, other, same));

        assert!(is_reset(&error), "{error}");
        let cleared = wait_for(&mut events, "ConnectionPoolCleared").await;
        let Event::Pool(PoolEvent::PoolCleared { service_id, .. }) = cleared else { panic!("{cleared:?}") };
        assert_eq!(service_id, Some(failed), "LB-8");
        assert_eq!(client.check_out().await.unwrap().id(), survivor, "the other service's connection is still good");
        assert_eq!(client.stats().closed.total(), 2);
        recovered("a reset behind a load balancer", &client).await;
    });
}

pub fn an_error_that_comes_with_the_hello_clears_its_service_lb_10<H: Harness>() {
    run::<H>(async {
        let service = ServiceId([7; 12]);
        // The answer to the first step of a login, which the client has not begun like this.
        let first = Binary { subtype: BinarySubtype::Generic, bytes: b"r=another,s=c2FsdA==,i=4096".to_vec() };
        let hello = rawdoc! {
            "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25,
            "serviceId": ObjectId::from_bytes(service.0), "saslSupportedMechs": ["SCRAM-SHA-256"],
            "speculativeAuthenticate": { "conversationId": 1, "done": false, "payload": first },
        };
        let rogue = Rogue::start(move || {
            let hello = hello.clone();
            move |_: &str, _: &RawDocument| hello.clone()
        });
        let client = super::builder::<H>(rogue.options("loadBalanced=true")).build().await.unwrap();
        let mut events = client.subscribe(100);

        let error = establish_error(client.check_out().await);

        assert_eq!(error.phase, Phase::Authenticate, "{error}");
        assert_eq!(client.stats().cleared, 1);
        let cleared = wait_for(&mut events, "ConnectionPoolCleared").await;
        let Event::Pool(PoolEvent::PoolCleared { service_id, .. }) = cleared else { panic!("{cleared:?}") };
        assert_eq!(service_id, Some(service));
    });
}

pub fn a_server_that_is_behind_no_load_balancer_is_said_so<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "loadBalanced=true").await;

        let error = client.check_out().await.unwrap_err();

        // LB-6.
        let expected =
            "Driver attempted to initialize in load balancing mode, but the server does not support this mode.";
        assert!(told(&error).contains(expected), "{}", told(&error));
        assert_eq!(client.stats().cleared, 0, "LB-9");
    });
}

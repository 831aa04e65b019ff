//! Spans of the crate `tracing`: commands that are told of, and check-outs that wait, are children of their caller's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use cmap_conformance::LocalServer;
use cmap_tokio::Client;
use cmap_tokio::ClientOptions;
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::doc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Metadata, Subscriber, info_span};

#[tokio::test]
async fn a_command_has_a_span_within_that_of_its_caller() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start();
    let options = ClientOptions::parse(&server.uri("")).unwrap().0;
    let client = Client::builder(options).observe_commands(true).build().await.unwrap();

    let request = async {
        client.operation(("shop", doc! { "count": "orders" })).on(Writable).run().await.unwrap();
        client.run(("shop", doc! { "noSuchCommand": 1 })).await.unwrap_err();
    };
    request.instrument(info_span!(target: "cmap::test", "request")).await;

    let [request, count, failed] = &listener.spans()[..] else { panic!("{:?}", listener.spans()) };
    assert_eq!((request.name, count.name, failed.name), ("request", "command", "command"));
    assert_eq!((count.parent, failed.parent), (Some(request.id), Some(request.id)));
    assert_eq!((count.get("commandName"), count.get("databaseName")), (Some("count"), Some("shop")));
    assert_eq!((count.get("operationId"), count.get("failure")), (Some("1"), None));
    assert!(failed.get("failure").unwrap().contains("noSuchCommand"), "{failed:?}");
}

#[tokio::test]
async fn a_client_that_tells_of_no_commands_has_no_spans() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start();
    let client = Client::connect(&server.uri("")).await.unwrap();

    client.operation(("shop", doc! { "count": "orders" })).on(Writable).run().await.unwrap();

    assert!(listener.spans().is_empty());
}

#[tokio::test]
async fn a_check_out_that_waits_has_a_span_within_that_of_its_caller() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start();
    let options = ClientOptions::parse(&server.uri("maxPoolSize=1&waitQueueTimeoutMS=20")).unwrap().0;
    let client = Client::builder(options).watch_holders(true).build().await.unwrap();

    let request = async {
        let held = client.check_out().label("first").await.unwrap();
        client.check_out().label("second").await.unwrap_err();
        drop(held);
        client.check_out().label("served at once").await.unwrap();
    };
    request.instrument(info_span!(target: "cmap::test", "request")).await;

    let [request, first, second] = &listener.spans()[..] else { panic!("{:?}", listener.spans()) };
    assert_eq!((first.name, first.parent, first.get("label")), ("check_out", Some(request.id), Some("first")));
    assert_eq!((first.get("driverConnectionId"), first.get("failure")), (Some("1"), None));
    assert!(first.get("place").unwrap().contains("spans.rs"), "{first:?}");
    assert_eq!((second.parent, second.get("label")), (Some(request.id), Some("second")));
    assert!(second.get("failure").unwrap().contains("maxPoolSize bound"), "{second:?}");
}

/// Keeps spans; those that are entered are on a stack.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<(Vec<Seen>, Vec<u64>)>>);

#[derive(Clone, Debug, Default)]
struct Seen {
    id: u64,
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
}

impl Seen {
    fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }
}

impl Listener {
    fn spans(&self) -> Vec<Seen> {
        self.0.lock().unwrap().0.clone()
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("cmap::")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().unwrap();
        let id = seen.0.len() as u64 + 1;
        let parent = seen.1.last().copied();
        let mut span = Seen { id, name: attributes.metadata().name(), parent, ..Seen::default() };
        attributes.record(&mut span);
        seen.0.push(span);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut seen = self.0.lock().unwrap();
        values.record(seen.0.iter_mut().find(|span| span.id == id.into_u64()).unwrap());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().1.push(id.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().1.pop();
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

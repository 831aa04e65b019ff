//! A subscriber of the crate `tracing` that is installed after a client was made gets the records from then on. The
//! subscriber is the process's, so this test runs alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_conformance::LocalServer;
use cmap_tokio::Client;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[tokio::test]
async fn a_reader_that_comes_later_hears_of_what_happens_then() {
    let server = LocalServer::start();
    let client = Client::connect(&server.uri("heartbeatFrequencyMS=500&serverMonitoringMode=poll")).await.unwrap();
    drop(client.check_out().await.unwrap());

    let names = Names::default();
    tracing::subscriber::set_global_default(names.clone()).unwrap();
    // The client asks again with each check of its server.
    tokio::time::timeout(Duration::from_secs(60), async {
        while !names.has("ServerHeartbeatStarted") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    drop(client.check_out().await.unwrap());

    assert!(names.has("ConnectionCheckedOut"), "{names:?}");
}

/// The names of the events that were logged.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<Vec<String>>>);

impl Names {
    fn has(&self, name: &str) -> bool {
        self.0.lock().unwrap().iter().any(|own| own == name)
    }
}

impl Subscriber for Names {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("cmap::")
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Names {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "event" {
            self.0.lock().unwrap().push(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

//! The log messages reach a subscriber of the crate `tracing`, in both forms (LOG-10, LOG-14), and so do warnings
//! (URI-5). The subscriber is the process's, so this test runs alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod listener;

use std::time::Duration;

use cmap_conformance::LocalServer;
use cmap_tokio::Client;

use self::listener::{Fields, Listener};

#[tokio::test]
async fn a_client_is_logged_from_beginning_to_end() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let server = LocalServer::start();
    let client = Client::connect(&server.uri("appNme=log&maxPoolSize=7&maxConnecting=1")).await.unwrap();

    drop(client.check_out().await.unwrap());
    client.close(Duration::ZERO).await.unwrap();

    let records = listener.records.lock().unwrap();
    let told = |event: &str| records.iter().find(|record| record.get("event").is_some_and(|own| own == event)).unwrap();
    let message = |event: &str| told(event)["message"].as_str();
    let place = server.uri("").replace("mongodb://", "").replace("/?", "");
    let (host, port) = place.split_once(':').unwrap();

    // The structured form has the specification's names (LOG-6, LOG-10, LOG-11); fields that do not apply are left out.
    let warning = "option \"appNme\" does not exist and is ignored; write appname if you meant that";
    assert_eq!(records[0], fields(&[("level", "WARN"), ("target", "cmap::connection"), ("message", warning)]));
    let pool = [("level", "DEBUG"), ("target", "cmap::connection"), ("serverHost", host), ("serverPort", port)];
    let created = format!("Connection pool created for {place} using options maxPoolSize=7, maxConnecting=1");
    let own = [("event", "ConnectionPoolCreated"), ("message", &created), ("maxPoolSize", "7"), ("maxConnecting", "1")];
    assert_eq!(*told("ConnectionPoolCreated"), fields(&[&pool[..], &own].concat()));
    let created = format!("Connection created: address={place}, driver-generated ID=1");
    let own = [("event", "ConnectionCreated"), ("message", &created), ("driverConnectionId", "1")];
    assert_eq!(*told("ConnectionCreated"), fields(&[&pool[..], &own].concat()));
    let mut ready = told("ConnectionReady").clone();
    let millis: f64 = ready.remove("durationMS").unwrap().parse().unwrap();
    let sentence = created.replace("created", "ready") + &format!(", established in={millis} ms");
    let own = [("event", "ConnectionReady"), ("message", &sentence), ("driverConnectionId", "1")];
    assert_eq!(ready, fields(&[&pool[..], &own].concat()));
    assert_eq!(told("ConnectionClosed")["reason"], "Connection pool was closed");

    // So have those of server and monitor (LOG-14).
    let heartbeat = told("ServerHeartbeatSucceeded");
    let topology = told("TopologyOpening")["topologyId"].as_str();
    assert_eq!((heartbeat["serverPort"].as_str(), heartbeat["topologyId"].as_str()), (port, topology));
    assert_eq!((heartbeat["awaited"].as_str(), heartbeat["driverConnectionId"].as_str()), ("false", "1"));
    assert!(heartbeat["durationMS"].parse::<f64>().unwrap() > 0.0, "{heartbeat:?}");
    assert!(heartbeat["reply"].starts_with("{\"") && heartbeat.contains_key("serverConnectionId"), "{heartbeat:?}");
    assert!(told("TopologyDescriptionChanged")["newDescription"].contains(&place), "{records:?}");

    // And those of the selection of a server (SEL-42).
    let selected = told("ServerSelectionSucceeded");
    assert_eq!((selected["target"].as_str(), selected["level"].as_str()), ("cmap::server_selection", "DEBUG"));
    assert_eq!((selected["selector"].as_str(), selected["serverPort"].as_str()), ("writes", port));
    assert!(selected["topologyDescription"].contains(&place), "{selected:?}");

    // The message is the unstructured sentence.
    assert_eq!(message("ConnectionCheckOutStarted"), format!("Checkout started for connection to {place}"));
    assert!(message("ConnectionCheckedOut").starts_with("Connection checked out: address="), "{records:?}");
    assert!(message("ConnectionCheckedIn").starts_with("Connection checked in: address="), "{records:?}");
    assert_eq!(message("ConnectionPoolClosed"), format!("Connection pool closed for {place}"));
    assert!(message("ServerHeartbeatSucceeded").starts_with("Heartbeat succeeded in"), "{records:?}");
    assert_eq!(message("TopologyClosed"), format!("Stopped monitoring for topology with ID {topology}"));
    assert!(records[1..].iter().all(|record| record["target"] == target_of(&record["event"])), "{records:?}");
}

fn target_of(event: &str) -> &'static str {
    if event.starts_with("Connection") {
        "cmap::connection"
    } else if event.starts_with("ServerSelection") {
        "cmap::server_selection"
    } else {
        "cmap::topology"
    }
}

fn fields(of: &[(&'static str, &str)]) -> Fields {
    of.iter().map(|&(name, value)| (name, value.to_owned())).collect()
}

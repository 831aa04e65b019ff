//! possible leaks, and what uses took at the end, are records of the crate `tracing`. The subscriber is the process's, so this
//! test runs alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod listener;

use std::time::Duration;

use cmap_conformance::LocalServer;
use cmap_tokio::Client;
use cmap_tokio::ClientOptions;
use cmap_tokio::bson::rawdoc;

use self::listener::{Fields, Listener};

const LIMIT: Duration = Duration::from_millis(20);

async fn client(server: &LocalServer) -> Client {
    let options = ClientOptions::parse(&server.uri("")).unwrap().0;
    Client::builder(options).leak_detection_threshold(LIMIT).build().await.unwrap()
}

#[tokio::test]
async fn a_possible_leak_is_a_warning_and_the_end_has_a_report() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let told = |event: &str| -> Vec<Fields> {
        let records = listener.records.lock().unwrap();
        records.iter().filter(|record| record.get("event").is_some_and(|own| own == event)).cloned().collect()
    };
    let server = LocalServer::start();
    let good = client(&server).await;

    let mut slow = good.check_out().label("slow report").await.unwrap();
    slow.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    while told("PossibleLeak").is_empty() {
        tokio::time::sleep(LIMIT / 4).await;
    }
    drop(slow);
    good.close(Duration::from_secs(5)).await.unwrap();

    let [warning] = &told("PossibleLeak")[..] else { panic!("told once: {:?}", told("PossibleLeak")) };
    assert_eq!((warning["level"].as_str(), warning["target"].as_str()), ("WARN", "cmap::connection"));
    let message = &warning["message"];
    assert!(
        message.starts_with("A connection has been used for longer than 20ms without a reply: 127.0.0.1:"),
        "{message}"
    );
    assert!(message.contains(&format!("by \"slow report\" at {}:", file!())), "{message}");
    assert!(message.contains("after ping"), "{message}");
    let [report] = &told("Uses")[..] else { panic!("one report: {:?}", told("Uses")) };
    assert_eq!(report["level"], "INFO");
    assert!(report["message"].contains("slow report") && report["message"].contains("the slowest:"), "{report:?}");
    assert!(told("Leaks").is_empty());

    let leaky = client(&server).await;
    let leaked = leaky.check_out().label("leak").await.unwrap();
    leaky.close(LIMIT).await.unwrap();

    let [report] = &told("Leaks")[..] else { panic!("one report: {:?}", told("Leaks")) };
    assert_eq!(report["level"], "WARN");
    let message = &report["message"];
    assert!(message.starts_with("connections were not given back in time\n"), "{message}");
    assert!(message.contains("still in use: 1") && message.contains("\"leak\""), "{message}");
    assert!(!message.contains("uses by"), "the report came before: {message}");
    drop(leaked);
}

//! The example `spans`, and what it has written.

#![allow(dead_code, clippy::unwrap_used, reason = "the example is a program, whose main function is not called here")]

#[path = "../examples/spans.rs"]
mod spans;

use cmap_conformance::LocalServer;
use serde_json::Value;

#[tokio::test]
async fn a_collector_s_file_has_the_spans_of_a_request() {
    let server = LocalServer::start();
    let file = std::env::temp_dir().join(format!("cmap-spans-{}.jsonl", std::process::id()));
    let provider = spans::exporting_to(&file).unwrap();
    let guard = tracing::subscriber::set_default(spans::subscriber(&provider));

    spans::place_order(&server.uri("")).await.unwrap();

    drop(guard);
    provider.shutdown().unwrap();
    let written = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let batches: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let spans: Vec<&Value> = batches
        .iter()
        .flat_map(|batch| batch.pointer("/resourceSpans/0/scopeSpans/0/spans"))
        .flat_map(|spans| spans.as_array().unwrap())
        .collect();
    let text = |span: &Value, field: &str| span[field].as_str().unwrap().to_owned();
    let parents: Vec<(String, Option<String>)> = spans
        .iter()
        .map(|span| {
            let parent = spans.iter().find(|other| other["spanId"] == span["parentSpanId"]);
            (text(span, "name"), parent.map(|parent| text(parent, "name")))
        })
        .collect();
    let within = |name: &str, parent: &str| (name.to_owned(), Some(parent.to_owned()));
    assert_eq!(
        parents,
        [
            within("insert", "insert shop.orders"),
            within("insert shop.orders", "POST /orders"),
            within("count", "count shop.orders"),
            within("count shop.orders", "POST /orders"),
            ("POST /orders".to_owned(), None),
        ]
    );
    // A client's span, by the number of its kind; and numbers are numbers.
    let insert = spans[0];
    assert_eq!(insert["kind"], 3);
    let attributes = insert["attributes"].as_array().unwrap();
    let port = attributes.iter().find(|attribute| attribute["key"] == "server.port").unwrap();
    assert!(port["value"]["intValue"].is_string(), "{port}");
}

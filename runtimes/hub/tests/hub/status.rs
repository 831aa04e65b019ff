//! What people and Prometheus see.

use std::time::Duration;

use cmap_tokio::bson::rawdoc;
use cmap_tokio::core::topology::ServerSelector;

use super::house::Plan;
use super::servers::Servers;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_says_who_runs_what_and_shows_no_contents() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("a<b>", "").status().start().await;
    let client = house.client_as("a%3Cb%3E", "").await;
    client
        .run(ServerSelector::Writable, ("test", rawdoc! { "insert": "c", "documents": [{ "pin": "4711" }] }))
        .await
        .unwrap();
    let slow = rawdoc! { "find": "c", "filter": { "$where": "sleep(2000) || true" } };
    let running = client.clone();
    let task = tokio::spawn(async move { running.run(ServerSelector::Writable, ("test", slow)).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(300)).await;

    let (status, text) = house.get("/status.json").await;
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status, 200);
    assert_eq!((&report["running"][0]["user"], &report["running"][0]["command"]), (&"a<b>".into(), &"find".into()));
    assert_eq!(report["counts"]["commands"], 2);
    assert_eq!(report["slowest"][0]["command"], "insert");
    let (status, page) = house.get("/status").await;
    assert!(status == 200 && page.contains("a&lt;b&gt;") && !page.contains("a<b>"), "{page}");
    assert!(!page.contains("4711") && !text.contains("4711"), "no contents");
    let (status, metrics) = house.get("/metrics").await;
    assert!(status == 200 && metrics.lines().any(|line| line == "cmap_hub_commands 2"), "{metrics}");
    assert_eq!(house.get("/healthz").await, (200, "ok\n".into()));
    task.await.unwrap().unwrap();
}

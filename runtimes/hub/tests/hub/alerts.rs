//! Each alert of `alerts.yml` is raised by what its page in the runbook is about, and by nothing on a calm day.

use std::collections::{BTreeMap, BTreeSet};

use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::rawdoc;
use cmap_tokio::{Client, CommandErrorKind, OperationError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::house::{House, Plan, ask, code, eventually, page};
use super::servers::Servers;

/// The alerts' expressions by their names.
fn alerts() -> BTreeMap<String, String> {
    let text = include_str!("../../alerts.yml");
    let (mut alerts, mut name) = (BTreeMap::new(), String::new());
    for line in text.lines() {
        match line.trim().trim_start_matches("- ").split_once(": ") {
            Some(("alert", value)) => name = value.to_owned(),
            Some(("expr", value)) => assert_eq!(alerts.insert(name.clone(), value.to_owned()), None),
            _ => {}
        }
    }
    alerts
}

/// The sum of the series that a selector such as `increase(name{label="value"}[5m])` means; the hub began with none.
fn sum(metrics: &str, selector: &str) -> f64 {
    let selector = selector.trim().trim_start_matches("ignoring(use) ");
    let selector = selector.strip_prefix("increase(").and_then(|rest| rest.strip_suffix("[5m])")).unwrap_or(selector);
    let (name, label) = selector.trim_end_matches('}').split_once('{').unwrap_or((selector, ""));
    let series = metrics
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| series.split('{').next() == Some(name) && series.contains(label));
    series.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
}

/// Whether an expression holds.
fn holds(metrics: &str, expression: &str) -> bool {
    let (value, is_beyond, limit): (_, fn(f64, f64) -> bool, _) = match expression.rsplit_once(" > ") {
        Some((value, limit)) => (value, |value, limit| value > limit, limit),
        None => {
            let (value, limit) = expression.rsplit_once(" == ").unwrap();
            (value, |value, limit| value == limit, limit)
        }
    };
    let value = match value.split_once(" / ") {
        Some((one, other)) => sum(metrics, one) / sum(metrics, other),
        None => sum(metrics, value),
    };
    is_beyond(value, limit.parse().unwrap())
}

/// The alerts that a hub raises.
async fn raised(house: &House) -> BTreeSet<String> {
    let metrics = house.get("/metrics").await.1;
    alerts().into_iter().filter(|(_, expression)| holds(&metrics, expression)).map(|(name, _)| name).collect()
}

/// Asserts that the counter of an alert is there before it counts: one that appears with its first value has not increased by it.
async fn is_at_zero(house: &House, alert: &str) {
    let metrics = house.get("/metrics").await.1;
    let selector = alerts()[alert].split_once("[5m]").unwrap().0.trim_start_matches("increase(").to_owned();
    let (name, label) = selector.trim_end_matches('}').split_once('{').unwrap();
    let is_there = metrics.lines().any(|line| line.starts_with(name) && line.contains(label) && line.ends_with("} 0"));
    assert!(is_there, "{selector} is not there");
}

/// Waits until a hub raises the alert.
async fn raises(house: &House, alert: &str) {
    assert!(alerts().contains_key(alert), "there is no alert {alert}");
    eventually(alert, async || raised(house).await.contains(alert)).await;
}

async fn count(client: &Client) {
    client.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.unwrap();
}

/// A client's command that is at a server until it is aborted.
async fn begin_slow(house: &House, client: &Client) -> JoinHandle<Result<(), OperationError>> {
    client.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    house.begin_slow(client).await
}

#[test]
fn every_alert_has_a_page_in_the_runbook_and_a_test() {
    let Some(runbook) = page("runbook.md") else { return };
    let tests = include_str!("alerts.rs");
    for alert in alerts().keys() {
        assert!(runbook.contains(&format!("\n## {alert}\n")), "{alert} is not in the runbook");
        assert!(tests.contains(&format!("raises(&house, \"{alert}\")")), "no test raises {alert}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_calm_hub_raises_none() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").status().start().await;
    for _ in 0..100 {
        count(&house.client().await).await;
    }

    assert_eq!(raised(&house).await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_server() {
    let house = Plan::at("mongodb://127.0.0.1:1/").status().start().await;

    raises(&house, "HubHasNoServer").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_a_long_wait_and_too_many_bytes() {
    let servers = Servers::single().await;
    for (limits, alert) in [
        ("waiting = 0", "HubQueueIsFull"),
        ("wait-ms = 100", "HubWaitsTooLong"),
        ("waiting-bytes = 10000", "HubQueueHasTooManyBytes"),
    ] {
        let limits = format!("[limits]\n{limits}");
        let house = Plan::before(&servers, "maxPoolSize=1").status().more(&limits).start().await;
        let slow = begin_slow(&house, &house.client().await).await;
        let other = house.client_with("maxAdaptiveRetries=0").await;
        is_at_zero(&house, alert).await;
        let large = rawdoc! { "insert": "c", "documents": [{ "x": "x".repeat(20_000) }] };

        let refused = ask(&mut other.check_out().await.unwrap(), "test", large).await;

        assert_eq!(code(&refused), Some(462), "{refused:?}");
        match alert {
            "HubQueueIsFull" => raises(&house, "HubQueueIsFull").await,
            "HubWaitsTooLong" => raises(&house, "HubWaitsTooLong").await,
            _ => raises(&house, "HubQueueHasTooManyBytes").await,
        }
        slow.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_at_its_limit() {
    let servers = Servers::single().await;
    let limits = "[limits]\nrunning-per-user = 1\nwait-ms = 100";
    let house = Plan::before(&servers, "").status().user("anna", "").more(limits).start().await;
    is_at_zero(&house, "HubUserIsAtItsLimit").await;
    let slow = begin_slow(&house, &house.client_as("anna", "").await).await;
    let other = house.client_as("anna", "").await;

    let refused = ask(&mut other.check_out().await.unwrap(), "test", rawdoc! { "count": "c" }).await;

    assert_eq!(code(&refused), Some(462), "{refused:?}");
    raises(&house, "HubUserIsAtItsLimit").await;
    slow.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_memory() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").status().more("[limits]\nmemory-bytes = 1000000").start().await;
    count(&house.client().await).await;
    let mut socket = TcpStream::connect(house.hub.addresses()[0]).await.unwrap();
    let hello = rawdoc! { "hello": 1, "loadBalanced": true, "$db": "admin" };
    let mut bytes = Vec::new();
    MessageWriter::begin(&mut bytes, MessageIds::request(1), Flags::NONE, &hello, &[], &Limits::DEFAULT)
        .unwrap()
        .finish();
    socket.write_all(&bytes).await.unwrap();
    assert!(socket.read(&mut [0; 1024]).await.unwrap() > 0);
    // The beginning of a message of 900,000 bytes.
    let header: Vec<u8> = [900_000, 1, 0, 2013].into_iter().flat_map(i32::to_le_bytes).collect();
    socket.write_all(&header).await.unwrap();

    raises(&house, "HubMemoryIsFull").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_rules_forbid() {
    let servers = Servers::single().await;
    let rules = "[[user.allow]]\ncommands = ['count']";
    let house = Plan::before(&servers, "").status().user("anna", rules).start().await;
    is_at_zero(&house, "HubRefusesByRule").await;
    let client = house.client_as("anna", "").await;
    for _ in 0..11 {
        client.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap_err();
    }

    raises(&house, "HubRefusesByRule").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_that_fail() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").status().user("anna", "").start().await;
    for _ in 0..6 {
        let eve = house.client_as("eve", "").await;
        eve.run(("test", rawdoc! { "count": "c" })).await.unwrap_err();
    }

    raises(&house, "HubLoginsFail").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_too_many() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").status().more("[limits]\nconnections = 1").start().await;
    let client = house.client().await;
    let _there = client.check_out().await.unwrap();
    let _another = TcpStream::connect(house.hub.addresses()[0]).await.unwrap();

    raises(&house, "HubTurnsClientsAway").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_fail_and_commands_that_are_cut_off() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").status().start().await;
    let client = house.client().await;
    let mut connection = client.check_out().await.unwrap();
    let error = connection.run_command("test", rawdoc! { "count": "c", "query": { "$no": 1 } }).await.unwrap_err();
    assert!(matches!(error.kind, CommandErrorKind::Server(_)), "{error}");

    raises(&house, "HubCommandsFail").await;

    let slow = begin_slow(&house, &client).await;
    slow.abort();

    raises(&house, "HubCutsCommandsOff").await;
}

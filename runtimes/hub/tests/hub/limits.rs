//! Queue, time and numbers of connections.

use std::time::Duration;

use cmap_core::wire::CommandReply;
use cmap_tokio::ServerSelector;
use cmap_tokio::bson::rawdoc;

use super::house::{Plan, ask, code};
use super::servers::Servers;

const SLOW: &str = "sleep(1500) || true";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_depth_drivers_are_asked_to_back_off_x_135() {
    let servers = Servers::single().await;
    let limits = "[limits]\nwaiting = 0\nbase-backoff-ms = 70";
    let house = Plan::before(&servers, "maxPoolSize=1").more(limits).start().await;
    let (busy, other) = (house.client().await, house.client().await);
    busy.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let task = tokio::spawn(async move {
        let slow = rawdoc! { "find": "c", "filter": { "$where": SLOW } };
        busy.operation(("test", slow)).on(ServerSelector::Writable).run().await.map(drop)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;

    let mut connection = other.check_out().await.unwrap();
    let reply = ask(&mut connection, "test", rawdoc! { "count": "c" }).await;

    let error = CommandReply::read(&reply).failure().unwrap();
    assert_eq!((error.code, error.base_backoff()), (Some(462), Some(Duration::from_millis(70))), "{reply:?}");
    assert_eq!(error.labels, ["SystemOverloadedError", "RetryableError"]);
    task.await.unwrap().unwrap();
    assert_eq!(code(&ask(&mut connection, "test", rawdoc! { "count": "c" }).await), None, "there is room again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_wait_have_so_many_bytes_at_most_x_141() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").more("[limits]\nwaiting-bytes = 10000").start().await;
    let (busy, other) = (house.client().await, house.client().await);
    busy.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let task = tokio::spawn(async move {
        let slow = rawdoc! { "find": "c", "filter": { "$where": SLOW } };
        busy.operation(("test", slow)).on(ServerSelector::Writable).run().await.map(drop)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;

    let mut connection = other.check_out().await.unwrap();
    let large = rawdoc! { "insert": "c", "documents": [{ "x": "x".repeat(20_000) }] };
    let reply = ask(&mut connection, "test", large.clone()).await;

    let error = CommandReply::read(&reply).failure().unwrap();
    assert!(error.message.contains("have too many bytes"), "{error}");
    assert_eq!((error.code, error.labels.len()), (Some(462), 2), "{reply:?}");
    assert_eq!(code(&ask(&mut connection, "test", rawdoc! { "count": "c" }).await), None, "a small one waits");
    task.await.unwrap().unwrap();
    assert_eq!(code(&ask(&mut connection, "test", large).await), None, "what need not wait has no such limit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_enlarged_in_the_file_lets_more_commands_run_at_once_x_135() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").more("[limits]\nwaiting = 0").start().await;
    let reloaded = house.reload(|text| text.replace("maxPoolSize=1", "maxPoolSize=50")).await;
    assert_eq!((reloaded.applied, reloaded.needs_restart), (vec!["upstream.uri".to_owned()], Vec::new()));
    let (busy, other) = (house.client().await, house.client().await);
    busy.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let task = tokio::spawn(async move {
        let slow = rawdoc! { "find": "c", "filter": { "$where": SLOW } };
        busy.operation(("test", slow)).on(ServerSelector::Writable).run().await.map(drop)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;

    let reply = ask(&mut other.check_out().await.unwrap(), "test", rawdoc! { "count": "c" }).await;

    assert_eq!(code(&reply), None, "{reply:?}");
    task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_in_the_queue_counts_x_131() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").start().await;
    let (busy, other) = (house.client().await, house.client().await);
    busy.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let task = tokio::spawn(async move {
        let slow = rawdoc! { "find": "c", "filter": { "$where": SLOW } };
        busy.operation(("test", slow)).on(ServerSelector::Writable).run().await.map(drop)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;

    let mut connection = other.check_out().await.unwrap();
    let begun = tokio::time::Instant::now();
    let reply = ask(&mut connection, "test", rawdoc! { "count": "c", "maxTimeMS": 200 }).await;

    assert_eq!(code(&reply), Some(50), "{reply:?}");
    assert!(begun.elapsed() < Duration::from_millis(1000), "after {:?}", begun.elapsed());
    task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_commands_of_one_user_leave_places_to_another_one_x_135() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=4").user("anna", "").user("ben", "").start().await;
    let (anna, ben) = (house.client_as("anna", "").await, house.client_as("ben", "").await);
    anna.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let slow = || ("test", rawdoc! { "find": "c", "filter": { "$where": SLOW } });
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let anna = anna.clone();
        tasks.spawn(async move { anna.operation(slow()).on(ServerSelector::Writable).run().await.map(drop) });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;

    let begun = tokio::time::Instant::now();
    ben.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();

    assert!(begun.elapsed() < Duration::from_secs(1), "after {:?}", begun.elapsed());
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
}

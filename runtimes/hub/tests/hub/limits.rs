//! Queue, time and numbers of connections.

use std::time::Duration;

use cmap_core::wire::CommandReply;
use cmap_tokio::ServerSelector;
use cmap_tokio::bson::rawdoc;

use super::house::{Plan, ask, code, eventually, slow};
use super::servers::Servers;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_depth_drivers_are_asked_to_back_off_x_135() {
    let servers = Servers::single().await;
    let limits = "[limits]\nwaiting = 0\nbase-backoff-ms = 70";
    let house = Plan::before(&servers, "maxPoolSize=1").status().more(limits).start().await;
    let (busy, other) = (house.client().await, house.client().await);
    busy.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let running = house.begin_slow(&busy).await;

    let mut connection = other.check_out().await.unwrap();
    let reply = ask(&mut connection, "test", rawdoc! { "count": "c" }).await;

    let error = CommandReply::read(&reply).failure().unwrap();
    assert_eq!((error.code, error.base_backoff()), (Some(462), Some(Duration::from_millis(70))), "{reply:?}");
    assert_eq!(error.labels, ["SystemOverloadedError", "RetryableError"]);
    servers.pass_until(running).await.unwrap().unwrap();
    assert_eq!(code(&ask(&mut connection, "test", rawdoc! { "count": "c" }).await), None, "there is room again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_wait_have_so_many_bytes_at_most_x_141() {
    let servers = Servers::single().await;
    let limits = "[limits]\nwaiting-bytes = 10000\nwait-ms = 60000";
    let house = Plan::before(&servers, "maxPoolSize=1").status().more(limits).start().await;
    let (busy, other) = (house.client().await, house.client().await);
    busy.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let running = house.begin_slow(&busy).await;

    let mut connection = other.check_out().await.unwrap();
    let large = rawdoc! { "insert": "c", "documents": [{ "x": "x".repeat(20_000) }] };
    let reply = ask(&mut connection, "test", large.clone()).await;

    let error = CommandReply::read(&reply).failure().unwrap();
    assert!(error.message.contains("have too many bytes"), "{error}");
    assert_eq!((error.code, error.labels.len()), (Some(462), 2), "{reply:?}");
    let (small, ended) = tokio::join!(ask(&mut connection, "test", rawdoc! { "count": "c" }), async {
        eventually("the small one waits", async || house.report().await["queue"]["waiting"] == 1).await;
        servers.pass_until(running).await
    });
    assert_eq!(code(&small), None, "a small one waits");
    ended.unwrap().unwrap();
    assert_eq!(code(&ask(&mut connection, "test", large).await), None, "what need not wait has no such limit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_enlarged_in_the_file_lets_more_commands_run_at_once_x_135() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").status().more("[limits]\nwaiting = 0").start().await;
    let reloaded = house.reload(|text| text.replace("maxPoolSize=1", "maxPoolSize=50")).await;
    assert_eq!((reloaded.applied, reloaded.needs_restart), (vec!["upstream.uri".to_owned()], Vec::new()));
    let (busy, other) = (house.client().await, house.client().await);
    busy.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let running = house.begin_slow(&busy).await;

    let reply = ask(&mut other.check_out().await.unwrap(), "test", rawdoc! { "count": "c" }).await;

    assert_eq!(code(&reply), None, "{reply:?}");
    servers.pass_until(running).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_in_the_queue_counts_x_131() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").status().start().await;
    let (busy, other) = (house.client().await, house.client().await);
    busy.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let running = house.begin_slow(&busy).await;

    let mut connection = other.check_out().await.unwrap();
    let reply = ask(&mut connection, "test", rawdoc! { "count": "c", "maxTimeMS": 200 }).await;

    assert_eq!(code(&reply), Some(50), "{reply:?}");
    assert!(!running.is_finished(), "it was in the queue all the time");
    servers.pass_until(running).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_commands_of_one_user_leave_places_to_another_one_x_135() {
    let servers = Servers::single().await;
    let plan = Plan::before(&servers, "maxPoolSize=4").user("anna", "").user("ben", "").status();
    let house = plan.more("[limits]\nwait-ms = 60000").start().await;
    let (anna, ben) = (house.client_as("anna", "").await, house.client_as("ben", "").await);
    anna.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let anna = anna.clone();
        tasks.spawn(async move { anna.operation(("test", slow())).on(ServerSelector::Writable).run().await.map(drop) });
    }
    eventually("as many run as may, and the others wait", async || {
        let report = house.report().await;
        let running = report["running"].as_array().unwrap().iter();
        let at_server = running.filter(|line| line["command"] == "find" && line["at"] == "server").count();
        let [running, waiting] = ["running", "waiting"].map(|key| report["queue"][key].as_u64().unwrap());
        at_server > 0 && at_server as u64 == running && running + waiting == 8
    })
    .await;

    // None of the slow ones ends before this one has.
    ben.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();

    for ended in servers.pass_until(tasks.join_all()).await {
        ended.unwrap();
    }
}

//! What people and Prometheus see.

use std::time::Duration;

use cmap_tokio::ServerSelector;
use cmap_tokio::bson::rawdoc;

use super::house::{Plan, ask, code, eventually};
use super::servers::Servers;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_says_who_runs_what_and_shows_no_contents() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("a<b>", "").status().start().await;
    let client = house.client_as("a%3Cb%3E", "").await;
    client.run(("test", rawdoc! { "insert": "c", "documents": [{ "pin": "4711" }] })).await.unwrap();
    let task = house.begin_slow(&client).await;

    let (mut status, mut text, mut report) = (0, String::new(), serde_json::Value::Null);
    eventually("the hub knows that the insert has ended", async || {
        (status, text) = house.get("/status.json").await;
        report = serde_json::from_str(&text).unwrap();
        report["running"].as_array().unwrap().len() == 1
    })
    .await;
    assert_eq!(status, 200);
    assert_eq!((&report["running"][0]["user"], &report["running"][0]["command"]), (&"a<b>".into(), &"find".into()));
    assert!(report["running"][0]["operation"].is_u64() && report["running"][0]["server"].is_string(), "{text}");
    assert_eq!(report["counts"]["commands"], 2);
    assert_eq!(report["slowest"][0]["command"], "insert");
    let (status, page) = house.get("/status").await;
    assert!(status == 200 && page.contains("a&lt;b&gt;") && !page.contains("a<b>"), "{page}");
    assert!(!page.contains("4711") && !text.contains("4711"), "no contents");
    let (status, metrics) = house.get("/metrics").await;
    assert!(status == 200 && metrics.lines().any(|line| line == "cmap_hub_commands 2"), "{metrics}");
    assert_eq!(house.get("/healthz").await, (200, "ok\n".into()));
    servers.pass_until(task).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_look_tells_what_has_changed_since_the_first_x_139() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("anna", "").user("ben", "").status().start().await;
    let (anna, ben) = (house.client_as("anna", "").await, house.client_as("ben", "").await);
    let count = || ("test", rawdoc! { "count": "c" });
    for client in [&anna, &ben] {
        client.operation(count()).on(ServerSelector::Writable).run().await.unwrap();
    }
    let look = async |path: &str| -> serde_json::Value { serde_json::from_str(&house.get(path).await.1).unwrap() };
    // A client has its reply a little before the hub knows that.
    let mut first = serde_json::Value::Null;
    eventually("both commands have ended", async || {
        first = look("/status.json").await;
        first["running"] == serde_json::json!([])
    })
    .await;
    let snapshot = first["snapshot"].as_str().unwrap();
    assert!(first.get("difference").is_none(), "nobody has asked for one");

    ben.operation(("test", rawdoc! { "distinct": "c", "key": "x" })).on(ServerSelector::Writable).run().await.unwrap();
    // These looks leave no snapshots.
    let is_over = async || look(&format!("/status.json?from={snapshot}")).await["running"] == serde_json::json!([]);
    eventually("it has ended, too", is_over).await;
    let second = look(&format!("/status.json?since={snapshot}")).await;

    let difference = &second["difference"];
    assert_eq!(difference["counts"]["commands"], 1, "{difference}");
    assert_eq!(difference["users"], serde_json::json!({ "ben": 1 }));
    assert_eq!(difference["most"]["running"], 1);
    assert_eq!(difference["slowest"].as_array().unwrap().len(), 1, "the earlier ones are not of this time");
    assert_eq!(difference["slowest"][0]["command"], "distinct");
    assert_eq!(second["counts"]["commands"], 3);
    let (status, page) = house.get(&format!("/status?since={snapshot}")).await;
    assert!(status == 200 && page.contains(&format!("Since {snapshot}")), "{page}");
    let (status, text) = house.get("/status.json?since=00000000-1").await;
    assert!(status == 410 && text.contains("look without `since`"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_looks_again_by_itself_and_leaves_one_snapshot_x_139() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").status().start().await;
    let again = |page: &str| -> String {
        let from = page.split_once("url=/status?from=").expect(page).1;
        from.split_once('"').unwrap().0.to_owned()
    };
    let first = again(&house.get("/status").await.1);

    let (_, page) = house.get(&format!("/status?from={first}")).await;

    assert_eq!(again(&page), first);
    assert!(page.contains(&format!("/status?since={first}")), "{page}");
    let (_, difference) = house.get(&format!("/status?since={first}")).await;
    assert!(!difference.contains("refresh"), "{difference}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_says_which_commands_have_failed_and_why() {
    let servers = Servers::single().await;
    let rules = "[[user.allow]]\ncommands = ['find', 'count', 'drop', 'endSessions']";
    let house = Plan::before(&servers, "").user("anna", rules).status().start().await;
    let client = house.client_as("anna", "").await;
    let mut connection = client.check_out().await.unwrap();
    for command in
        [rawdoc! { "find": "c", "filter": { "$pin": 4711 } }, rawdoc! { "insert": "c", "documents": [{ "pin": 4711 }] }]
    {
        assert!(code(&ask(&mut connection, "test", command).await).is_some());
    }

    let (mut text, mut report) = (String::new(), serde_json::Value::Null);
    eventually("both have failed", async || {
        text = house.get("/status.json").await.1;
        report = serde_json::from_str(&text).unwrap();
        report["failures"].as_array().unwrap().len() == 2
    })
    .await;

    let failures = report["failures"].as_array().unwrap();
    let commands: Vec<_> = failures.iter().map(|line| (&line["user"], &line["command"])).collect();
    assert_eq!(commands, [(&"anna".into(), &"insert".into()), (&"anna".into(), &"find".into())]);
    assert_eq!((&failures[0]["code"], &failures[0]["reason"]), (&13.into(), &"Unauthorized".into()));
    let page = house.get("/status").await.1;
    assert!(page.contains("<td>anna<td>insert<td>13<td>Unauthorized<td>1<td>"), "{page}");
    assert!(!page.contains("4711") && !text.contains("4711"), "no contents");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_in_the_queue_is_not_the_servers() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").user("anna", "").user("ben", "").status().start().await;
    let (anna, ben) = (house.client_as("anna", "").await, house.client_as("ben", "").await);
    anna.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let task = house.begin_slow(&anna).await;

    let begun = tokio::time::Instant::now();
    let (took, ended) = tokio::join!(
        async {
            ben.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
            begun.elapsed().as_secs_f64()
        },
        async {
            eventually("it waits", async || house.report().await["queue"]["waiting"] == 1).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            servers.pass_until(task).await
        },
    );
    ended.unwrap().unwrap();

    // A command is noted once its reply was taken.
    let (mut report, mut line) = (serde_json::Value::Null, serde_json::Value::Null);
    eventually("the count is noted", async || {
        report = serde_json::from_str(&house.get("/status.json").await.1).unwrap();
        let mut slowest = report["slowest"].as_array().unwrap().iter();
        slowest.find(|line| line["command"] == "count").inspect(|found| line = (*found).clone()).is_some()
    })
    .await;
    let seconds = |place: &str| line["seconds"][place].as_f64().unwrap();
    // In both places it would have been longer than it took.
    assert!(seconds("queue") > 0.4 && seconds("queue") + seconds("server") <= took, "{line} in {took} s");
    let of_ben = &report["users"]["ben"];
    assert!(of_ben["times"]["queue"].as_f64().unwrap() > 0.4, "{of_ben}");
    let metrics = house.get("/metrics").await.1;
    for line in [
        "cmap_hub_command_duration_seconds_count{user=\"ben\",command=\"count\"} 1",
        "cmap_hub_command_queue_seconds_bucket{user=\"ben\",le=\"0.1\"} 0",
        "cmap_hub_commands_total{user=\"ben\",outcome=\"ok\"} 1",
        "cmap_hub_connections{state=\"waiting\"} 0",
        "# HELP cmap_hub_connections Clients, by what they are at.",
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line}\n{metrics}");
    }
}

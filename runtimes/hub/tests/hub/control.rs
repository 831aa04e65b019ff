//! What an operator orders at the control socket.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cmap_hub::users::{self, NewUser};
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::rawdoc;
use serde_json::{Value, json};

use super::house::{Plan, ask, code, eventually, order};
use super::program::HubProgram;
use super::servers::Servers;

const CONTROL: &str = "[control]\npath = 'control.sock'";

/// The program as an operator calls it: whether it succeeded, and what it printed.
fn ctl(config: &Path, words: &[&str]) -> (bool, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cmap-hub"));
    let ended = command.arg("ctl").args(words).arg("--config").arg(config).stderr(Stdio::inherit()).output().unwrap();
    (ended.status.success(), serde_json::from_slice(&ended.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_socket_is_its_owners_and_tells_what_the_hub_and_its_users_are_at() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("anna", "").more(CONTROL).start().await;
    let client = house.client_as("anna", "").await;
    client.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.unwrap();

    let file = std::fs::metadata(house.folder.path().join("control.sock")).unwrap();
    let (status, users) = (order(house.folder.path(), "status").await, order(house.folder.path(), "users").await);

    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    assert_eq!((&status["counts"]["commands"], &status["queue"]["paused"]), (&json!(1), &json!(false)));
    assert_eq!((&users["anna"]["commands"], &users["anna"]["connections"]), (&json!(1), &json!(1)));
    let told = order(house.folder.path(), "stop").await;
    assert!(told["error"].as_str().unwrap().starts_with("\"stop\" is no order; write status, "), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_commands_up_and_says_when_none_runs() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").status().more(CONTROL).start().await;
    let client = house.client().await;
    client.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let slow = house.begin_slow(&client).await;

    let early = order(house.folder.path(), "pause 0").await;
    assert!(early["error"].as_str().unwrap().starts_with("1 commands still run after 0ns"), "{early}");
    let folder = house.folder.path().to_owned();
    let pausing = tokio::spawn(async move { order(&folder, "pause 60").await });
    // It says nothing while a command runs.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!pausing.is_finished());
    servers.pass_until(slow).await.unwrap().unwrap();
    assert_eq!(pausing.await.unwrap(), json!({ "paused": true }));
    let held_up =
        tokio::spawn(
            async move { client.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.map(drop) },
        );
    eventually("it waits", async || order(house.folder.path(), "status").await["queue"]["waiting"] == 1).await;

    assert!(!held_up.is_finished());
    assert_eq!(order(house.folder.path(), "resume").await, json!({ "paused": false }));
    held_up.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kick_ends_the_connections_that_are_meant_and_what_runs_on_them() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("anna", "").user("ben", "").more(CONTROL).start().await;
    let (anna, ben) = (house.client_as("anna", "").await, house.client_as("ben", "").await);
    let (mut first, mut second) = (anna.check_out().await.unwrap(), anna.check_out().await.unwrap());
    let mut other = ben.check_out().await.unwrap();
    assert_eq!(code(&ask(&mut first, "test", rawdoc! { "insert": "c", "documents": [{}] }).await), None);
    let slow = rawdoc! { "find": "c", "filter": { "$where": "sleep(30000) || true" } };
    let running = tokio::spawn(async move { first.run_command("test", slow).await.map(drop) });
    let mut number = None;
    eventually("it runs", async || {
        number = order(house.folder.path(), "status").await["running"][0]["connection"].as_i64();
        number.is_some()
    })
    .await;
    let number = number.unwrap();

    assert_eq!(order(house.folder.path(), &format!("kick connection {number}")).await, json!({ "kicked": 1 }));
    assert!(running.await.unwrap().is_err());
    assert_eq!(order(house.folder.path(), "kick user anna").await, json!({ "kicked": 1 }));
    let count = || rawdoc! { "count": "c" };
    eventually("the hub hangs up", async || second.run_command("test", count()).await.is_err()).await;
    assert_eq!(code(&ask(&mut other, "test", rawdoc! { "count": "c" }).await), None, "it is another user's");
    assert_eq!(order(house.folder.path(), "kick address 127.0.0.2").await, json!({ "kicked": 0 }));
    assert_eq!(order(house.folder.path(), "kick address 127.0.0.1").await, json!({ "kicked": 1 }));
    eventually("nobody is left", async || house.hub.connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_gives_orders_and_obeys_them() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let more = "control.path = 'control.sock'\n";
    let mut hub = HubProgram::start(folder.path(), &servers.uri(""), &["anna".into()], more);
    let config = folder.path().join("cmap-hub.toml");

    assert_eq!(ctl(&config, &["log-level", "debug"]), (true, json!({ "log-level": "debug" })));
    assert!(!ctl(&config, &["log-level", "cmap=loud"]).0);
    assert!(!ctl(&config, &["stop"]).0);
    let ben = NewUser { name: "ben".into(), password: "secret".into(), upstream: None };
    users::add(&folder.path().join("users.toml"), &ben).unwrap();
    let (reloaded, answer) = ctl(&config, &["reload"]);
    assert!(reloaded, "{answer}");
    assert_eq!(answer, json!({ "applied": ["users"], "needs-restart": [], "ended": 0 }));
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}no-such-key = 1\n")).unwrap();
    let (reloaded, answer) = ctl(&config, &["reload"]);
    let error = answer["error"].as_str().unwrap();
    assert!(
        !reloaded && error.starts_with("the old configuration stays: ") && error.contains("no-such-key"),
        "{error}"
    );

    let (_, answer) = ctl(&config, &["drain"]);

    assert_eq!(answer["draining"], true);
    let mut ended = None;
    eventually("the program ends", async || {
        ended = hub.process.0.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

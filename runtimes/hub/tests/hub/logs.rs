//! What the program writes down: its log, the audit log, and traces.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cmap_tokio::Client;
use cmap_tokio::bson::rawdoc;
use serde_json::Value;

use super::house::{eventually, order, slow};
use super::program::HubProgram;
use super::servers::Servers;

/// The objects of a log.
fn records(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap();
    // A line may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Whether such a client can run a command.
async fn is_served(uri: &str) -> bool {
    let client = Client::connect(uri).await.unwrap();
    client.run(("test", rawdoc! { "count": "c" })).await.is_ok()
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_has_who_logs_in_who_fails_to_what_is_refused_and_who_has_gone() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let log = folder.path().join("log");
    let (filter, users) = ("cmap::hub::audit=info", ["anna".to_owned()]);
    let hub = HubProgram::start_with_log(filter, &log, folder.path(), &servers.uri(""), &users, "");
    let uri = |login: &str| format!("mongodb://{login}@{}/?loadBalanced=true", hub.address);

    let client = Client::connect(&uri("anna:secret")).await.unwrap();
    client.run(("test", rawdoc! { "count": "c" })).await.unwrap();
    client.run(("admin", rawdoc! { "shutdown": 1 })).await.unwrap_err();
    client.close(Duration::from_secs(1)).await.unwrap();
    assert!(!is_served(&uri("eve:guess")).await);

    let has = |line: &str, text: &str| text.lines().any(|own| own.contains(line) && own.contains("127.0.0.1"));
    eventually("all is logged", async || {
        let text = fs::read_to_string(&log).unwrap();
        let lines = [
            "logged in user=\"anna\"",
            "refused: not authorized on admin to execute command { shutdown } user=\"anna\"",
            "failed to log in tried=eve",
            "gone: it has hung up user=\"anna\"",
        ];
        lines.iter().all(|line| has(line, &text))
    })
    .await;
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("secret") && !text.contains("guess"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_json_where_the_configuration_says_so_and_a_reload_sets_its_level() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let log = folder.path().join("log");
    let more = "[log]\nformat = 'json'\nlevel = 'info'\n";
    let users = ["anna".to_owned()];
    // The file is about the log, and not the environment.
    let hub = HubProgram::start_with_log("off", &log, folder.path(), &servers.uri(""), &users, more);
    let uri = |login: &str| format!("mongodb://{login}@{}/?loadBalanced=true", hub.address);

    assert!(is_served(&uri("anna:secret")).await);
    eventually("the login is logged", async || {
        records(&log).iter().any(|record| {
            record["target"] == "cmap::hub::audit" && record["message"] == "logged in" && record["user"] == "anna"
        })
    })
    .await;
    let config = folder.path().join("cmap-hub.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap().replace("'info'", "'cmap::hub::audit=off,info'")).unwrap();
    Command::new("kill").arg("-HUP").arg(hub.process.0.id().to_string()).status().unwrap();
    eventually("the configuration is read again", async || {
        records(&log).iter().any(|record| record["applied"] == r#"["log.level"]"#)
    })
    .await;
    let before = records(&log).len();
    assert!(!is_served(&uri("eve:guess")).await);

    eventually("the refusal is logged", async || records(&log).len() > before).await;
    assert!(records(&log)[before..].iter().all(|record| record["target"] != "cmap::hub::audit"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_waits_long_for_a_connection_leaves_a_trace_where_the_environment_names_a_folder() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let traces = folder.path().join("traces");
    fs::create_dir(&traces).unwrap();
    // Both commands have a turn, and there is one connection.
    let more = "control.path = 'control.sock'\n[limits]\nrunning = 4\nreserved = 1\n";
    let hub = HubProgram::start_with_traces(&traces, folder.path(), &servers.uri("maxPoolSize=1"), more);
    let client = Client::connect(&format!("mongodb://{}/?loadBalanced=true", hub.address)).await.unwrap();
    client.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let is_at = async |place: &str| {
        let report = order(folder.path(), "status").await;
        report["running"].as_array().unwrap().iter().any(|line| line["command"] == "find" && line["at"] == place)
    };
    let run = || {
        let client = client.clone();
        tokio::spawn(async move { client.run(("test", slow())).await.map(drop) })
    };

    let one = run();
    eventually("one has the connection", async || is_at("server").await).await;
    let other = run();
    eventually("the other one waits for it", async || is_at("pool").await).await;
    // A wait is long from two seconds on.
    tokio::time::sleep(Duration::from_millis(2_200)).await;

    for ended in [servers.pass_until(one).await, servers.pass_until(other).await] {
        ended.unwrap().unwrap();
    }
    eventually("a trace is written", async || fs::read_dir(&traces).unwrap().count() > 0).await;
}

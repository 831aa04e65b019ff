//! The command `soak` from outside: seconds instead of half an hour.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

use std::process::Command;
use std::thread;

use cmap_cli::serve::{Host, HostedServer};
use cmap_smol::Client;
use cmap_smol::bson::rawdoc;
use cmap_test_server::ServerConfig;

/// The output of the command, and its exit status.
struct Soak {
    text: String,
    errors: String,
    status: Option<i32>,
}

impl Soak {
    fn run(args: &[&str]) -> Self {
        let output = Command::new(env!("CARGO_BIN_EXE_cmap")).arg("soak").args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { text: text(output.stdout), errors: text(output.stderr), status: output.status.code() }
    }

    /// The cells of a row of the table.
    fn row(&self, name: &str) -> Vec<&str> {
        let line = self.text.lines().find_map(|line| line.trim_start().strip_prefix(name));
        line.unwrap_or_default().split_whitespace().collect()
    }
}

/// A server that a soak does not restart.
struct Server {
    uri: String,
    _server: HostedServer,
    _host: Host,
}

fn serve() -> Server {
    let host = Host::start().unwrap();
    let server = host.serve(|address| ServerConfig::new(address.to_string())).unwrap();
    Server { uri: format!("mongodb://{}/", server.address()), _server: server, _host: host }
}

#[test]
fn every_adapter_recovers_from_each_restart_and_leaves_nothing_over() {
    let soak = Soak::run(&["--seconds", "6", "--restart-every", "2", "--tasks", "20", "--seed", "1"]);

    assert_eq!(soak.status, Some(0), "{}{}", soak.text, soak.errors);
    assert!(soak.text.starts_with("seed 1: 20 tasks for 6 s, maxPoolSize 10, "), "{}", soak.text);
    let killed = soak.row("server killed");
    assert!(killed.len() == 3 && !killed.contains(&"0"), "{}", soak.text);
    assert_eq!(soak.row("recoveries"), killed, "{}", soak.text);
    assert!(soak.text.ends_with("\nnothing is left over\n"), "{}", soak.text);
}

#[test]
fn a_soak_without_a_server_has_failed() {
    // Nothing listens at port 1.
    let uri = "mongodb://127.0.0.1:1/?timeoutMS=200";
    let soak = Soak::run(&["--engine", "smol", "--seconds", "1", "--tasks", "2", "--uri", uri]);

    assert_eq!(soak.row("succeeded"), ["0"], "{}", soak.text);
    assert!(soak.text.contains("\nFAIL smol: no operation of this sort succeeded: ping\n"), "{}", soak.text);
    assert_eq!(soak.status, Some(1));
}

#[test]
fn the_server_is_known_before_operations_with_little_time_begin() {
    // Ten tasks share ten connections, so that no ping with little time waits for one, even on a slow machine.
    let soak = Soak::run(&["--seconds", "4", "--restart-every", "0", "--tasks", "10"]);

    assert_eq!(soak.status, Some(0), "{}{}", soak.text, soak.errors);
    assert_eq!(soak.row("server killed"), ["0"; 3], "{}", soak.text);
    assert!(!soak.text.contains("server not usable in time"), "{}", soak.text);
}

#[test]
#[cfg(target_os = "linux")]
fn descriptors_are_counted_when_the_runtime_has_opened_its_own() {
    let server = serve();
    thread::scope(|scope| {
        for engine in ["async-std", "smol", "async-std", "smol"] {
            scope.spawn(|| {
                let soak = Soak::run(&["--engine", engine, "--seconds", "1", "--tasks", "5", "--uri", &server.uri]);

                // On a machine that has much else to do there may be no operation of some sort in a second.
                let mut found = soak.text.lines().filter(|line| line.starts_with("FAIL "));
                let all_else_is_well = found.all(|line| line.contains(": no operation of this sort succeeded: "));
                assert!(all_else_is_well && matches!(soak.status, Some(0 | 1)), "{}{}", soak.text, soak.errors);
                let descriptors = soak.row("descriptors");
                assert!(matches!(descriptors[..], [start, "/", _, "/", end] if start == end), "{descriptors:?}");
            });
        }
    });
}

#[test]
fn a_server_that_is_not_ours_may_be_slow() {
    let server = serve();
    let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 4_000 };
    let slow = rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 10 }, "data": data };
    smol::block_on(async {
        let client = Client::connect(&server.uri).await.unwrap();
        client.check_out().await.unwrap().run_command("admin", slow).await.unwrap();
    });

    let uri = format!("{}?timeoutMS=2000", server.uri);
    let soak = Soak::run(&["--engine", "smol", "--seconds", "5", "--tasks", "20", "--uri", &uri]);

    assert_eq!(soak.status, Some(0), "{}{}", soak.text, soak.errors);
    // Pings that were to be dropped may be among the ten.
    assert!(!matches!(soak.row("command: timed out")[..], [] | ["0"]), "{}", soak.text);
}

#[test]
fn the_results_are_json_for_programs() {
    let soak = Soak::run(&["--engine", "smol", "--seconds", "1", "--tasks", "5", "--restart-every", "0", "--json"]);

    let told: serde_json::Value = serde_json::from_str(&soak.text).unwrap();
    let [smol] = &told["adapters"].as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!((&smol["adapter"], told["plan"]["tasks"].as_u64()), (&"smol".into(), Some(5)));
    assert_eq!(smol["findings"].as_array().unwrap().is_empty(), soak.status == Some(0), "{told}");
    assert!(smol["run"]["events"]["checkedOut"].as_u64().unwrap() > 0, "{told}");
}

#[test]
fn a_connection_string_that_cannot_be_used_is_told() {
    let soak = Soak::run(&["--engine", "tokio", "--seconds", "1", "--uri", "mysql://localhost"]);

    assert!(soak.errors.starts_with("error: tokio: the connection string cannot be used: "), "{}", soak.errors);
    assert_eq!(soak.status, Some(2));
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let restarted = ["--uri", "mongodb://localhost/", "--restart-every", "5"];
    for args in [&["--minutes", "1", "--seconds", "1"][..], &restarted, &["--engine", "core"]] {
        assert_eq!(Soak::run(args).status, Some(2), "{args:?}");
    }
}

#[test]
fn an_interval_that_no_clock_can_hold_is_refused() {
    let soak = Soak::run(&["--engine", "smol", "--seconds", "1", "--restart-every", &u64::MAX.to_string()]);

    assert!(soak.errors.contains("--restart-every <SECONDS>") && !soak.errors.contains("panicked"), "{}", soak.errors);
    assert_eq!(soak.status, Some(2));
}

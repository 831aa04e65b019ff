//! The command `demo` from outside, in a few seconds.

#![allow(clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

use std::process::Command;

use cmap_cli::serve::Host;
use cmap_test_server::ServerConfig;

/// The output of the command, and its exit status.
struct Demo {
    text: String,
    errors: String,
    status: Option<i32>,
}

impl Demo {
    fn run(args: &[&str]) -> Self {
        let output = Command::new(env!("CARGO_BIN_EXE_cmap")).arg("demo").args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { text: text(output.stdout), errors: text(output.stderr), status: output.status.code() }
    }

    /// The cells of a row of the table at the end.
    fn row(&self, name: &str) -> Vec<&str> {
        let line = self.text.lines().rev().find_map(|line| line.trim_start().strip_prefix(name));
        line.unwrap_or_default().split_whitespace().collect()
    }
}

#[test]
fn every_runtime_shows_its_scenes_and_nothing_is_missing() {
    let demo = Demo::run(&["--seconds", "1"]);

    let text = &demo.text;
    assert_eq!(demo.status, Some(0), "{text}{}", demo.errors);
    for runtime in ["tokio", "async-std", "smol"] {
        for scene in [
            "200 tasks ping over 10 connections: ",
            "one task keeps connection ",
            "the server is stopped for ",
            "the server is back: the first ping succeeds after ",
            "closed; nothing is missing: ",
        ] {
            assert!(text.contains(&format!("%] {runtime}: {scene}")), "{runtime}: {scene}: {text}");
        }
    }
    let names = |line: &str| line.contains("1 by \"kept\" at ") && line.contains("src/demo/callers.rs:");
    assert!(text.lines().any(names), "no status names it: {text}");
    assert!(!text.contains("× check-out:"), "a restart costs no check-out an error: {text}");
    assert!(demo.row("pings a second").iter().all(|figure| *figure != "0"), "{text}");
    assert_eq!(demo.row("missing"), ["nothing"; 3], "{text}");
    assert!(!text.contains('\x1b'), "a table is drawn again where there is no terminal: {text}");
}

#[test]
fn a_server_of_ones_own_is_not_stopped() {
    let host = Host::start().unwrap();
    let server = host.serve(|address| ServerConfig::new(address.to_string())).unwrap();
    let uri = format!("mongodb://{}/?maxPoolSize=3", server.address());

    let demo = Demo::run(&["--seconds", "1", "--uri", &uri]);

    let text = &demo.text;
    assert_eq!(demo.status, Some(0), "{text}{}", demo.errors);
    assert!(text.contains("The server is yours: it is only pinged, and not stopped."), "{text}");
    assert!(text.contains("smol: 200 tasks ping over 3 connections: "), "{text}");
    assert!(!text.contains("the server is stopped"), "{text}");
    assert_eq!(demo.row("errors that callers saw"), ["0"; 3], "{text}");
}

#[test]
fn a_server_that_does_not_answer_is_told() {
    // Nothing listens at port 1.
    let demo = Demo::run(&["--uri", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200"]);

    assert!(demo.errors.starts_with("error: no server became suitable for writes within "), "{}", demo.errors);
    assert_eq!(demo.status, Some(2));
}

//! The command `soak` from outside: seconds instead of half an hour.

#![allow(clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

use std::process::Command;

/// The output of the command, and its exit status.
struct Soak {
    text: String,
    errors: String,
    status: Option<i32>,
}

impl Soak {
    fn run(args: &[&str]) -> Self {
        let output = Command::new(env!("CARGO_BIN_EXE_spec-runner")).arg("soak").args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { text: text(output.stdout), errors: text(output.stderr), status: output.status.code() }
    }

    /// The cells of a row of the table.
    fn row(&self, name: &str) -> Vec<&str> {
        let line = self.text.lines().find_map(|line| line.trim_start().strip_prefix(name));
        line.unwrap_or_default().split_whitespace().collect()
    }
}

#[test]
fn every_adapter_recovers_from_each_restart_and_leaves_nothing_over() {
    let soak = Soak::run(&["--seconds", "6", "--restart-every", "2", "--tasks", "50", "--seed", "1"]);

    assert_eq!(soak.status, Some(0), "{}{}", soak.text, soak.errors);
    assert!(soak.text.starts_with("seed 1: 50 tasks for 6 s, maxPoolSize 10, "), "{}", soak.text);
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

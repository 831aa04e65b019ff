//! The command `interop` from outside, in the parts that need no drivers.

use std::process::Command;

use crate::program::{Folder, spec_runner, stderr, stdout};
use spec_runner::tools::interop::checks;

#[test]
fn the_list_names_every_check() {
    let output = spec_runner(&["interop", "--list"], &[]);

    assert!(stdout(&output).lines().eq(checks::names()));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_program_without_its_servers_could_not_be_run() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spec-runner"));
    let output = command.args(["interop", "--driver", "mongodb"]).env_remove("MONGODB_URI").output().unwrap();

    let expected = "ERROR mongodb: $MONGODB_URI is not set; set it to the connection string of a MongoDB to use\n";
    assert_eq!(stderr(&output), expected);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn no_check_passes_without_a_server() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spec-runner"));
    command.args(["interop", "--driver", "mongodb", "--check", "ping", "--check", "threads-32"]);
    // Nothing listens at port 1.
    let output = command.env("MONGODB_URI", "mongodb://127.0.0.1:1/").output().unwrap();

    let table = ["check       mongodb", "ping        FAIL", "threads-32  FAIL"];
    assert!(stdout(&output).contains(&table.join("\n")), "{}", stdout(&output));
    assert!(stdout(&output).ends_with("0 passed, 2 failed, 0 skipped\n"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_check_that_a_program_does_not_know_fails() {
    let folder = Folder::new("unknown-check");
    let input = folder.write("input.json", r#"{ "servers": {}, "checks": ["ping", "levitate"] }"#);
    let output = spec_runner(&["interop-client"], &[&input]);

    let expected = "FAIL ping: there is no server \"open\"\nFAIL levitate: this program has no such check\n";
    assert_eq!(stdout(&output), expected);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn our_client_passes_every_check_against_the_embedded_server() {
    let output = spec_runner(&["interop", "--driver", "cmap"], &[]);

    let expected = format!("{} passed, 0 failed, 0 skipped\n", checks::ALL.len());
    assert!(stdout(&output).ends_with(&expected), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0));
}

//! `cmap plan` from outside: its output, and its exit status.

use std::process::Output;

use crate::program::{cmap, stderr, stdout};

fn plan(uri: &str, more: &[&str]) -> Output {
    cmap(&[&["plan", uri, "--processes", "4", "--deploy", "blue-green"], more].concat(), &[])
}

#[test]
fn a_deployment_that_fits_is_a_table() {
    let output = plan("mongodb://a,b/?maxPoolSize=10", &["--limit", "96"]);

    assert!(
        stdout(&output).contains("b:27017         8        48               96                        40\n"),
        "{}",
        stdout(&output)
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_limit_that_is_passed_is_a_warning_and_an_exit_status() {
    let output = plan("mongodb://a,b/?maxPoolSize=10", &["--limit", "95"]);

    assert!(stdout(&output).contains("warning: while deploying, up to 96 connections"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn json_is_for_programs_and_has_no_password() {
    let output = plan("mongodb://app:hunter2@a/", &["--in-use", "2", "--json"]);

    let plan: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(plan["atEachServer"]["whileDeploying"], 8 * 102);
    assert_eq!(plan["needed"]["minPoolSize"], 2);
    assert!(!stdout(&output).contains("hunter2"));
}

#[test]
fn a_connection_string_that_is_wrong_is_told() {
    let output = plan("mongodb://a/?minPoolSize=5&maxPoolSize=2", &[]);

    assert!(stderr(&output).starts_with("error: ") && stderr(&output).contains("minPoolSize"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_connection_string_with_a_part_that_has_no_effect_is_a_warning_and_an_exit_status() {
    for more in [&[][..], &["--json"]] {
        let output = plan("mongodb://a/?maxPolSize=50", more);

        let told = stderr(&output);
        assert!(told.starts_with("warning: ") && told.contains("maxPolSize"), "{told}");
        assert_eq!(output.status.code(), Some(1), "{more:?}");
    }
}

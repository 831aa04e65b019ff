//! The main job itself: the default run passes, and what it runs in virtual time has the same results again.
//!
//! Each test has ten seeds here, and fifty in the README's command, which `.ci/full` runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};
use std::sync::LazyLock;

/// One run for all tests that only read its output: it is the whole job.
static DEFAULT_RUN: LazyLock<Output> = LazyLock::new(|| run(&["--seeds", "10"]));

/// The scenarios again, in virtual time, with the lines of those that are skipped.
static SCENARIOS: LazyLock<Output> = LazyLock::new(|| {
    let no_specs = concat!(env!("CARGO_TARGET_TMPDIR"), "/no-specs");
    std::fs::create_dir_all(format!("{no_specs}/connection-monitoring-and-pooling/tests")).unwrap();
    run(&["--verbose", "--engine", "core", "--engine", "sim", "--seeds", "10", "--specs", no_specs])
});

fn run(args: &[&str]) -> Output {
    // From the workspace's root, as the README's command runs.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    Command::new(env!("CARGO_BIN_EXE_spec-runner")).args(args).current_dir(root).output().unwrap()
}

#[test]
fn the_default_run_passes() {
    let text = String::from_utf8(DEFAULT_RUN.stdout.clone()).unwrap();

    assert_eq!(DEFAULT_RUN.status.code(), Some(0), "{text}");
    let closing = text.lines().last().unwrap();
    assert!(closing.contains(" passed, 0 failed, "), "{closing}");
}

#[test]
fn what_runs_in_virtual_time_has_the_same_results_again() {
    let (default, again) = [&DEFAULT_RUN, &SCENARIOS].map(|run| String::from_utf8(run.stdout.clone()).unwrap()).into();
    let in_virtual_time = |text| {
        let rows = rows(text).into_iter();
        rows.filter(|row| row.suite == "scenarios" && ["core", "sim"].contains(&row.engine)).collect::<Vec<_>>()
    };

    assert_eq!(in_virtual_time(&default).len(), 2, "{default}");
    assert_eq!(in_virtual_time(&default), in_virtual_time(&again));
}

/// Newer specifications may have more cases than those known here, and a partial folder may lack a suite; neither may
/// lose cases.
#[test]
fn the_official_suites_pass_wherever_they_are_found() {
    let text = String::from_utf8(DEFAULT_RUN.stdout.clone()).unwrap();
    let known = [
        ("cmap-format", 33),
        ("logging", 5),
        ("load-balancers", 20),
        ("sdam-unified", 41),
        ("selection-logs", 5),
        ("handshake", 1),
        ("operation-timeouts", 10),
        ("backpressure", 91),
        ("retryable-reads", 320),
        ("retryable-writes", 129),
        ("sessions", 10),
        ("run-command", 19),
        ("command-events", 30),
        ("command-logs", 26),
        ("connection-string", 200),
        ("uri-options", 160),
        ("auth", 31),
        ("sdam-errors", 72),
        ("sdam-monitoring", 4),
        ("sdam-single", 18),
        ("sdam-load-balanced", 1),
        ("rtt", 7),
        ("server-selection", 88),
        ("in-window", 8),
        ("max-staleness", 32),
        ("dns-seed-lists", 66),
        ("read-write-concern", 46),
        ("causal-consistency", 13),
        ("versioned-api", 40),
    ];

    let rows = rows(&text);
    let found: Vec<_> = rows.iter().filter(|row| known.iter().any(|(name, _)| *name == row.suite)).collect();

    assert!(!found.is_empty() || text.contains("git clone"), "no official suite, and not a word on how to get it");
    for Row { suite, engine, passed, failed } in found {
        let least = known.iter().find(|(name, _)| name == suite).map(|(_, least)| *least);
        assert!(*failed == 0, "{suite} on {engine}: {failed} failed\n{text}");
        // The CMAP format is run on every engine; other suites have none, or cases that only some engines have.
        assert!(*suite != "cmap-format" || Some(*passed) >= least, "{suite} on {engine}: {passed} passed\n{text}");
    }
    for (suite, least) in known {
        let of_suite = || rows.iter().filter(|row| row.suite == suite);
        let passed = of_suite().map(|row| row.passed).max();
        assert!(passed.is_none_or(|passed| passed >= least), "{suite}: {passed:?} passed\n{text}");
    }
}

#[test]
fn the_pool_of_every_runtime_passes_the_official_files_and_scenarios() {
    let text = String::from_utf8(DEFAULT_RUN.stdout.clone()).unwrap();
    let rows = rows(&text);

    for (suite, least) in [("cmap-format", 33), ("scenarios", 30)] {
        let engines: Vec<_> = rows.iter().filter(|row| row.suite == suite).collect();
        if suite == "cmap-format" && engines.is_empty() {
            // There are no official files here, as the run has said.
            continue;
        }
        assert_eq!(
            engines.iter().map(|row| row.engine).collect::<Vec<_>>(),
            ["core", "sim", "tokio", "async-std", "smol"]
        );
        assert!(engines.iter().all(|row| row.passed >= least && row.failed == 0), "{text}");
    }
}

/// A line of the table of results.
#[derive(Debug, PartialEq)]
struct Row<'t> {
    suite: &'t str,
    engine: &'t str,
    passed: u32,
    failed: u32,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let rows = text.lines().filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [suite, engine, passed, failed, _] => {
            Some(Row { suite, engine, passed: passed.parse().ok()?, failed: failed.parse().ok()? })
        }
        _ => None,
    });
    rows.collect()
}

#[test]
fn what_is_skipped_is_told_once_with_its_reason_and_count() {
    let text = String::from_utf8(DEFAULT_RUN.stdout.clone()).unwrap();

    for reason in ["the mechanism GSSAPI", "the mechanism MONGODB-AWS"] {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(reason)).collect();
        assert!(lines.len() <= 1 && lines.iter().all(|line| line.contains(" of ")), "{lines:?}");
    }
    assert!(!text.contains("SKIP "), "{text}");
    let skips =
        text.lines().skip_while(|line| !line.ends_with(" skipped:")).skip(1).take_while(|line| !line.is_empty());
    let counts = skips.map(|line| {
        let (count, reason) = line.trim().split_once(" of ").unwrap();
        assert!(reason.split_once(": ").is_some_and(|(_, reason)| !reason.is_empty()), "{line}");
        count.parse::<usize>().unwrap()
    });
    assert_eq!(counts.sum::<usize>(), skipped(&text));
}

#[test]
fn each_skipped_test_has_a_line_with_its_reason_when_asked_for() {
    let text = String::from_utf8(SCENARIOS.stdout.clone()).unwrap();

    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("SKIP ")).collect();
    assert!(!lines.is_empty(), "{text}");
    assert_eq!(lines.len(), skipped(&text), "{text}");
    for line in lines {
        assert!(line.ends_with(')') && line.contains(" (") && !line.contains("()"), "{line}");
    }
}

/// The number of skipped tests in the closing line.
fn skipped(text: &str) -> usize {
    let closing = text.lines().last().unwrap();
    closing.rsplit(", ").next().unwrap().strip_suffix(" skipped").unwrap().parse().unwrap()
}

#[test]
fn every_scenario_is_listed_with_its_rules() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let scenarios: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect();

    assert!(scenarios.len() >= 100, "only {} scenarios", scenarios.len());
    for path in scenarios {
        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let rules: Vec<_> = file["rules"].as_array().unwrap().iter().filter_map(serde_json::Value::as_str).collect();
        let row = format!("| `{}` | {} |", path.file_stem().unwrap().to_string_lossy(), rules.join(", "));
        assert!(index.contains(&row), "scenarios/README.md lacks the row {row}");
    }
}

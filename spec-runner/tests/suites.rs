//! The main job itself: the default run passes, and prints the same bytes every time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn default_run() -> Output {
    // From the workspace's root, as the README's command runs.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    Command::new(env!("CARGO_BIN_EXE_spec-runner")).current_dir(root).output().unwrap()
}

#[test]
fn the_default_run_passes_and_repeats_itself() {
    let (first, second) = (default_run(), default_run());
    let text = String::from_utf8(first.stdout.clone()).unwrap();

    assert_eq!(first.status.code(), Some(0), "{text}");
    assert_eq!(first.stdout, second.stdout);
    let closing = text.lines().last().unwrap();
    assert!(closing.contains(" passed, 0 failed, "), "{closing}");
}

#[test]
fn the_official_suite_passes_wherever_it_is_found() {
    let text = String::from_utf8(default_run().stdout).unwrap();
    let row = text.lines().find(|line| line.starts_with("cmap-format"));

    match row {
        Some(row) => assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["cmap-format", "33", "0", "0"]),
        None => assert!(text.contains("git clone"), "no official suite, and not a word on how to get it:\n{text}"),
    }
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

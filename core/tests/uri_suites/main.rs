//! The official cases about connection strings and URI options, all of them.
//!
//! They are read from `$MONGODB_SPECS`, or from a folder beside this repository; without one nothing is run. Shows the
//! counts with `cargo test --test uri_suites -- --nocapture`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

mod case;

use std::fs;
use std::path::{Path, PathBuf};

use case::Outcome;
use serde_json::Value;

/// How many cases of a suite passed, and which were skipped.
#[derive(Debug, Default)]
struct Count {
    passed: usize,
    skipped: Vec<String>,
}

#[test]
fn connection_string_suite() {
    let Some(count) = run("connection-string/tests", false) else { return };
    assert_eq!(count.skipped, [""; 0]);
}

#[test]
fn uri_options_suite() {
    let Some(count) = run("uri-options/tests", false) else { return };
    assert!(count.skipped.iter().all(|name| name.starts_with("srv-options.json")), "{:?}", count.skipped);
}

#[test]
fn auth_suite() {
    run("auth/tests/legacy", true);
}

/// Runs the cases of all files in `folder`, and fails with all that failed. None if there are no specifications.
fn run(folder: &str, auth: bool) -> Option<Count> {
    let Some(specs) = specs() else {
        println!(
            "{folder}: nothing is run, because the specifications are neither in $MONGODB_SPECS nor beside this project"
        );
        return None;
    };
    let mut count = Count::default();
    let mut failed = Vec::new();
    for (file, case) in cases(&specs.join(folder)) {
        let name = format!("{file}: {}", case["description"].as_str().unwrap_or_default());
        match case::run(&case, auth) {
            Outcome::Passed => count.passed += 1,
            Outcome::Skipped(why) => {
                println!("skipped {name}: {why}");
                count.skipped.push(name);
            }
            Outcome::Failed(problems) => failed.push(format!("{name}\n  {}\n  {}", case["uri"], problems.join("\n  "))),
        }
    }
    println!("{folder}: {} passed, {} skipped, {} failed", count.passed, count.skipped.len(), failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(count.passed > 0, "{folder} in {} holds no cases", specs.display());
    Some(count)
}

/// Every case in the files of `folder`, with the name of its file; files in order of their names.
fn cases(folder: &Path) -> Vec<(String, Value)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let of_file = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        let mut content: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let cases = content["tests"].as_array_mut().map(core::mem::take).unwrap_or_default();
        cases.into_iter().map(move |case| (name.clone(), case))
    };
    files.into_iter().flat_map(of_file).collect()
}

/// The folder of MongoDB's specifications.
fn specs() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("MONGODB_SPECS").filter(|folder| !folder.is_empty()) {
        return Some(named.into());
    }
    let beside = ["../../shared/specs", "../../specifications/source"].into_iter();
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    beside.map(|folder| package.join(folder)).find(|folder| folder.join("uri-options/tests").is_dir())
}

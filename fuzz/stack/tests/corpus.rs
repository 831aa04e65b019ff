//! Replays the corpus of each target: what reached new code once, and what broke something.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use cmap_fuzz_stack::{connection, embedded_server, hostile_server, hub_rules, topology};

/// Runs each input in the folder of `target`.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let input = fs::read(&path).unwrap();
        assert!(catch_unwind(|| run(&input)).is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count > 0, "nothing in {}", folder.display());
}

#[test]
fn connections() {
    replay("connection", connection::run);
}

#[test]
fn embedded_servers() {
    replay("embedded_server", embedded_server::run);
}

#[test]
fn hostile_servers() {
    replay("hostile_server", hostile_server::run);
}

#[test]
fn rules_of_hubs() {
    replay("hub_rules", hub_rules::run);
}

#[test]
fn topologies() {
    replay("topology", topology::run);
}

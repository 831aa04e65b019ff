//! Every `cargo test` runs the fuzzer's corpus, and every input that once broke something. These are the targets that
//! need a server; those of `cmap-core` alone are tested there.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use cmap_test_server::fuzz;

/// Runs each input in the folder of `target`.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let input = fs::read(&path).unwrap();
        assert!(std::panic::catch_unwind(|| run(&input)).is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count > 0, "nothing in {}", folder.display());
}

#[test]
fn authentication() {
    replay("auth", fuzz::auth::run);
}

#[test]
fn connections() {
    replay("connection", fuzz::connection::run);
}

#[test]
fn embedded_servers() {
    replay("embedded_server", fuzz::server::run);
}

#[test]
fn monitors() {
    replay("monitor", fuzz::monitor::run);
}

//! Every `cargo test` runs the fuzzer's corpus, and every input that once broke something. The targets that need a
//! server are tested beside the test server.

#![cfg(feature = "wire")]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the property test and its count of situations need more")]
#[path = "model/mod.rs"]
mod model;
#[path = "model/script.rs"]
mod script;

use std::fs;
use std::path::Path;

use cmap_core::{options, pool, reverse, trace, wire};

/// Runs each input in the folder of `target`.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
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
fn connection_strings() {
    replay("connection_string", |input| {
        options::fuzz::run(input);
        options::fuzz::run(&[b"mongodb://".as_slice(), input].concat());
        options::fuzz::run(&[b"mongodb://host/?".as_slice(), input].concat());
    });
}

#[test]
fn pools() {
    replay("pool", pool::fuzz::run);
}

#[test]
fn pools_beside_the_reference() {
    replay("reference", script::run);
}

#[test]
fn connections_the_other_way() {
    replay("reverse", reverse::fuzz::run);
}

#[test]
fn traces() {
    replay("trace", trace::fuzz::run);
}

#[test]
fn what_the_corpus_of_traces_holds_is_replayed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/trace");
    let files = fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());

    let replayed = files.filter(|file| trace::Trace::read(file).is_ok_and(|trace| trace.calls() > 0)).count();

    assert!(replayed >= 8, "{replayed} files are traces");
}

#[test]
fn wire_protocol() {
    replay("wire", wire::fuzz::run);
}

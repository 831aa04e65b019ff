//! Replays the corpus of each target: what reached new code once, and what broke something.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use cmap_core::trace::Trace;
use cmap_fuzz_core::{auth, connection_string, monitor, reference, reverse, trace, wire};

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn replay(target: &str, run: fn(&[u8])) {
    let inputs = corpus(target);
    assert!(!inputs.is_empty(), "nothing in the corpus of {target}");
    for (path, input) in inputs {
        assert!(catch_unwind(|| run(&input)).is_ok(), "{}", path.display());
    }
}

#[test]
fn authentications() {
    replay("auth", auth::run);
}

#[test]
fn connection_strings() {
    replay("connection_string", connection_string::run);
}

#[test]
fn monitors() {
    replay("monitor", monitor::run);
}

#[test]
fn pools_beside_the_reference() {
    replay("reference", reference::run);
}

#[test]
fn connections_the_other_way() {
    replay("reverse", reverse::run);
}

#[test]
fn traces() {
    replay("trace", trace::run);
}

#[test]
fn what_the_corpus_of_traces_holds_is_replayed() {
    let is_replayed = |file: &[u8]| Trace::read(file).is_ok_and(|trace| trace.calls() > 0);

    let replayed = corpus("trace").iter().filter(|(_, file)| is_replayed(file)).count();

    assert!(replayed >= 8, "{replayed} files are traces");
}

#[test]
fn a_trace_with_broken_checksums_gets_those_that_fit() {
    for (path, file) in corpus("trace") {
        if Trace::read(&file).is_err() {
            continue;
        }
        let mut broken = file.clone();
        *broken.last_mut().unwrap() ^= 1;

        assert!(Trace::read(&broken).is_err(), "{}", path.display());
        assert_eq!(trace::with_checksums(&broken), file, "{}", path.display());
    }
}

#[test]
fn wire_protocol() {
    replay("wire", wire::run);
}

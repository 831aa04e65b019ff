//! Replays the corpus of the target: what reached new code once, and what broke something.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use cmap_fuzz_c::abi;

#[test]
fn calls_through_the_abi() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/abi");
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let input = fs::read(&path).unwrap();
        assert!(catch_unwind(|| abi::run(&input)).is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count > 0, "nothing in {}", folder.display());
}

//! A script of calls for a pool, and for the naive reference of its property test.
#![no_main]

#[allow(dead_code, reason = "the property test needs more of it")]
#[path = "../../core/tests/model/mod.rs"]
mod model;
#[path = "../../core/tests/model/script.rs"]
mod script;

libfuzzer_sys::fuzz_target!(|data: &[u8]| script::run(data));

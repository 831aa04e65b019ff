//! A script of what happens to a client and its servers, under the oracle of `spec-runner simulate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spec_runner::tools::simulate::fuzz::run(data));

//! A script of what happens to a monitor, and of what its server answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_test_server::fuzz::monitor::run(data));

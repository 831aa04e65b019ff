//! What a client sends to the embedded server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_core::sim::embedded::fuzz::run(data));

//! The bytes that a socket gave.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_core::wire::fuzz::run(data));

//! The program of the target `connection_string`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_core::connection_string::run(data));

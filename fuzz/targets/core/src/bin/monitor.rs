//! The program of the target `monitor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_core::monitor::run(data));

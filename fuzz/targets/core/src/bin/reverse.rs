//! The program of the target `reverse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_core::reverse::run(data));

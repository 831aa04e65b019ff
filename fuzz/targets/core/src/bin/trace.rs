//! The program of the target `trace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_core::trace::run(data));

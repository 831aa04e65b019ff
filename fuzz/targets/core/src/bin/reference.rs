//! The program of the target `reference`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_core::reference::run(data));

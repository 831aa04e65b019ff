//! A script of calls for a pool.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_core::pool::fuzz::run(data));

//! The bytes of a trace.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_core::trace::fuzz::run(data));

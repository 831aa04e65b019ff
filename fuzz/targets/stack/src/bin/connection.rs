//! The program of the target `connection`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_stack::connection::run(data));

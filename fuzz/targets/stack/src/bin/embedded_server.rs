//! The program of the target `embedded_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_stack::embedded_server::run(data));

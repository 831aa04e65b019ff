//! The program of the target `hostile_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_stack::hostile_server::run(data));

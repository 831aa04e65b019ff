//! The program of the target `topology`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_stack::topology::run(data));

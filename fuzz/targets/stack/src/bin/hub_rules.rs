//! The program of the target `hub_rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_stack::hub_rules::run(data));

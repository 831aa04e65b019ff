//! The program of the target `abi`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_c::abi::run(data));

//! The program of the target `auth`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_fuzz_core::auth::run(data));

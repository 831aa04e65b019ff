//! A client in virtual time, and the lies of its server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_conformance::hostile::run_script(data));

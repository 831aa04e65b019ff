//! The bytes read from a socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_core::wire::fuzz::run(data));

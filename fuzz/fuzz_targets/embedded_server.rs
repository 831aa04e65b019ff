//! The bytes of a client to the test server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_test_server::fuzz::server::run(data));

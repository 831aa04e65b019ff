//! A connection is established with the test server and used; the input decides which bytes each side receives.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_test_server::fuzz::connection::run(data));

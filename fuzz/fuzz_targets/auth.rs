//! Both sides of an authentication; the input decides which messages each receives.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_test_server::fuzz::auth::run(data));

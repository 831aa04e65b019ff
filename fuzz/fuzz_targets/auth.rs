//! Both sides of an authentication; the input decides what each hears.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_core::connection::auth::fuzz::run(data));

//! A connection is established with the embedded server and used; the input decides what each side hears.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_core::connection::fuzz::run(data));

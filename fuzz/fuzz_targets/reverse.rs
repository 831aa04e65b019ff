//! Both sides of a connection that the database's side opens, and a stranger between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cmap_core::reverse::fuzz::run(data));

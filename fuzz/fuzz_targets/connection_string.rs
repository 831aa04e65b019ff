//! A connection string, as it is and behind the scheme, which a fuzzer cannot guess.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    cmap_core::options::fuzz::run(data);
    cmap_core::options::fuzz::run(&[b"mongodb://".as_slice(), data].concat());
    cmap_core::options::fuzz::run(&[b"mongodb://host/?".as_slice(), data].concat());
});

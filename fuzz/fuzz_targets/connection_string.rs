//! A connection string, as it is and behind the scheme, which no fuzzer guesses.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    cmap_core::options::fuzz::run(data);
    cmap_core::options::fuzz::run(&[b"mongodb://".as_slice(), data].concat());
    cmap_core::options::fuzz::run(&[b"mongodb://host/?".as_slice(), data].concat());
});

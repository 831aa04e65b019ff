//! The properties of the targets, for random bytes beside those of the corpora.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use cmap_fuzz_core::{auth, reverse, wire};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// The corpus of `wire`: nearly all kinds of messages and documents.
static MESSAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/wire");
    fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
});

/// The longest message within the target's limits, and the memory that decompressors keep, in bytes.
const MOST_ALLOCATED: u64 = 3 << 20;

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_either_side_hears_makes_it_panic_or_believe(data in vec(any::<u8>(), 0..200)) {
        auth::run(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_from_a_socket_cost_bounded_memory(bytes in vec(any::<u8>(), 0..300)) {
        let allocated = allocation_counter::measure(|| wire::run(&bytes));

        prop_assert!(allocated.bytes_max < MOST_ALLOCATED, "{allocated:?}");
    }

    #[test]
    fn messages_with_a_changed_byte_cost_bounded_memory(which in any::<Index>(), at in any::<Index>(), byte: u8) {
        let mut message = which.get(&MESSAGES).clone();
        let at = at.index(message.len() + 1);
        if at == message.len() { message.push(byte) } else { message[at] = byte }

        let allocated = allocation_counter::measure(|| wire::run(&message));

        prop_assert!(allocated.bytes_max < MOST_ALLOCATED, "{allocated:?}");
    }

    #[test]
    fn whatever_happens_two_sides_that_speak_the_protocol_understand_each_other_x_117(
        steps in vec((0_u8..10, any::<u8>()), 0..40),
    ) {
        let script: Vec<u8> = steps.into_iter().flat_map(|(step, number)| [step, number]).collect();

        reverse::run(&script);
    }
}

//! Both sides of an authentication against noise.

#![allow(missing_docs, reason = "a test fails by panicking")]

use cmap_test_server::fuzz;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn nothing_that_either_side_hears_makes_it_panic_or_believe(
        data in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        fuzz::auth::run(&data);
    }
}

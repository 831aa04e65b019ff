//! The property test of the connection pool: random calls, compared with a naive reference after every one of them.
//!
//! proptest draws a pool's options and up to 200 calls, nonsense included. `Pool<()>` and a reference written from the
//! rules alone make them side by side: answers, outputs in their order, counts and the next deadline must be the same.
//! In addition a ledger that does not know the reference checks the outputs against the laws, one named check each. A
//! failure prints the broken check and the calls that led there after shrinking, and its seed goes to
//! `tests/model.proptest-regressions`, whose cases run first from then on: commit it.
//!
//! `PROPTEST_CASES` overrides the number of cases of each of the two properties.
#![allow(clippy::expect_used, reason = "clippy's allow-expect-in-tests does not reach the helpers of a test")]

#[path = "model/drawn.rs"]
mod drawn;
#[path = "model/mod.rs"]
mod model;
#[path = "model/reach.rs"]
mod reach;

use proptest::test_runner::{Config, FailurePersistence, FileFailurePersistence};
use proptest_state_machine::prop_state_machine;

use drawn::PoolTest;
use reach::Reach;

/// Enough to meet every situation that `cases_reach_what_they_are_meant_to_test` names. `.ci/full` runs ten times as many.
const CASES: u32 = 2_500;

fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let persistence = FileFailurePersistence::Direct("tests/model.proptest-regressions");
    let failure_persistence: Option<Box<dyn FailurePersistence>> = Some(Box::new(persistence));
    Config { cases, failure_persistence, max_shrink_iters: 20_000, ..Config::default() }
}

prop_state_machine! {
    #![proptest_config(config())]

    #[test]
    fn a_pool_does_what_the_reference_says(sequential 1..=200 => PoolTest<false>);

    #[test]
    fn a_load_balanced_pool_does_what_the_reference_says(sequential 1..=200 => PoolTest<true>);
}

#[test]
fn cases_reach_what_they_are_meant_to_test() {
    for reach in [Reach::of::<false>(2500), Reach::of::<true>(2500)] {
        assert_eq!(reach.missed(), [], "each was met too rarely in 2,500 cases");
    }
}

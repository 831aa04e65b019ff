//! Carries out one test under many seeds.
//!
//! A pool is right only if it is right in whatever order things happen; each seed is another order. The first seed that
//! fails ends the test, for it is all that is needed to see the failure again.

use core::ops::RangeInclusive;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use crate::engine::{Engine, Run};
use crate::format::{Case, VirtualServer};
use crate::verdict::{self, Failure};

/// How a test went.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// As expected, under every seed.
    Passed {
        /// The first seed.
        seed: u64,
        /// What happened under it.
        run: Run,
    },
    /// Not as expected.
    Failed {
        /// The first seed that failed.
        seed: u64,
        /// What happened under it.
        run: Run,
        /// What was wrong with it.
        failure: Failure,
    },
    /// Not carried out.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// Carries out `case` on `engine` under each of `seeds`, of which there must be one at least.
pub fn run_case(engine: &dyn Engine, case: &Case, seeds: RangeInclusive<u64>) -> Outcome {
    let misfit = VirtualServer::DEFAULT.misfit(&case.run_on);
    if let Some(reason) = misfit.or_else(|| engine.unsupported(case)) {
        return Outcome::Skipped { reason };
    }
    let mut first = None;
    for seed in seeds {
        let run = run_once(engine, case, seed);
        if let Err(failure) = verdict::judge(case, &run) {
            return Outcome::Failed { seed, run, failure };
        }
        first.get_or_insert((seed, run));
    }
    match first {
        Some((seed, run)) => Outcome::Passed { seed, run },
        None => Outcome::Skipped { reason: "no seed to run it under".into() },
    }
}

/// A panic is a failure of the test that caused it; the others still run, and the seed is known.
fn run_once(engine: &dyn Engine, case: &Case, seed: u64) -> Run {
    catch_unwind(AssertUnwindSafe(|| engine.run(case, seed))).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
        let message = message.unwrap_or("without a message");
        Run { violations: vec![format!("the engine panicked: {message}")], ..Run::default() }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Outcome, run_case};
    use crate::engine::{Engine, Run};
    use crate::format::Case;

    /// Fails, in one of two ways, from a certain seed on.
    struct FailsFrom(u64);

    impl Engine for FailsFrom {
        fn name(&self) -> &'static str {
            "fails"
        }

        fn unsupported(&self, case: &Case) -> Option<String> {
            case.server.auth.then(|| "no authentication".into())
        }

        fn run(&self, _: &Case, seed: u64) -> Run {
            assert!(seed < 10, "seed {seed} is too much");
            Run { violations: (seed >= self.0).then(|| "bad".into()).into_iter().collect(), ..Run::default() }
        }
    }

    fn case(server: serde_json::Value) -> Case {
        let file = json!({
            "version": 1, "style": "scenario", "rules": ["X-1"], "description": "d", "operations": [],
            "server": server,
        });
        Case::from_json(file).unwrap()
    }

    #[test]
    fn the_first_seed_that_fails_is_reported() {
        assert!(matches!(run_case(&FailsFrom(5), &case(json!({})), 2..=4), Outcome::Passed { seed: 2, .. }));
        assert!(matches!(run_case(&FailsFrom(5), &case(json!({})), 2..=8), Outcome::Failed { seed: 5, .. }));
    }

    #[test]
    fn what_the_engine_cannot_do_is_skipped() {
        let outcome = run_case(&FailsFrom(0), &case(json!({ "auth": true })), 0..=0);
        assert_eq!(outcome, Outcome::Skipped { reason: "no authentication".into() });
    }

    #[test]
    fn a_panic_is_a_failure() {
        let outcome = run_case(&FailsFrom(99), &case(json!({})), 9..=49);
        let Outcome::Failed { seed: 10, failure, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.reasons, ["the engine panicked: seed 10 is too much"]);
    }
}

//! Carries out tests: in virtual time under many seeds, in real time once or as often as is asked for.
//!
//! A pool is right only if it is right in whatever order things happen; each seed is another order. The first seed that
//! fails ends the test, for it is all that is needed to see the failure again. Where the machine decides the order, a run
//! is mostly waiting, so many tests go on at a time.

use core::fmt;
use core::ops::RangeInclusive;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::mpsc;

use crate::engine::{Chance, Engine, Run};
use crate::format::Case;
use crate::verdict::{self, Failure};

/// How often each test is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seeds, of which there must be one at least, for engines whose chance is seeded.
    pub seeds: RangeInclusive<u64>,
    /// How many runs there are on the others.
    pub repeat: u64,
}

/// One of the runs of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// The run under this seed, which can be repeated exactly.
    Seed(u64),
    /// So many runs came before it; chance was the machine's.
    Run(u64),
}

/// How a test went.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// As expected, in every round.
    Passed {
        /// The first round.
        round: Round,
        /// What happened in it.
        run: Run,
    },
    /// Not as expected.
    Failed {
        /// The first round that failed.
        round: Round,
        /// What happened in it.
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

/// How many tests in real time go on at once. They wait most of the time; few enough that each gets its turn soon.
const AT_ONCE: usize = 16;

/// How much longer than it should a wait may take in a run whose failure counts: less than any margin of an official test.
const STANDSTILL: Duration = Duration::from_millis(100);

/// A machine that stands still every time is none to test on.
const MOST_RETAKEN: u32 = 3;

/// Carries out each of `cases` on each of `engines`. The outcomes are in the order of the cases, and those of a case in
/// that of the engines.
pub fn run_cases(engines: &[Box<dyn Engine>], cases: &[&Case], plan: &Plan) -> Vec<Vec<Outcome>> {
    let jobs = |chance| {
        let engines = move || engines.iter().enumerate().filter(move |(_, engine)| engine.chance() == chance);
        (0..cases.len()).flat_map(move |case| engines().map(move |(engine, _)| (case, engine)))
    };
    let carry_out = |(case, engine): (usize, usize)| run_case(&*engines[engine], cases[case], plan);
    let real: Vec<_> = jobs(Chance::Real).collect();
    let next = AtomicUsize::new(0);
    let (done, outcomes) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(real.len()) {
            let (next, real, done) = (&next, &real, done.clone());
            scope.spawn(move || {
                while let Some(&job) = real.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Nobody is left to be told only when all has panicked.
                    let _ = done.send((job, carry_out(job)));
                }
            });
        }
        for job in jobs(Chance::Seeded) {
            let _ = done.send((job, carry_out(job)));
        }
    });
    drop(done);
    let mut outcomes: Vec<_> = outcomes.into_iter().collect();
    outcomes.sort_by_key(|(job, _)| *job);
    let mut of_cases = vec![Vec::new(); cases.len()];
    for ((case, _), outcome) in outcomes {
        of_cases[case].push(outcome);
    }
    of_cases
}

/// Carries out `case` on `engine` as often as `plan` says.
pub fn run_case(engine: &dyn Engine, case: &Case, plan: &Plan) -> Outcome {
    let misfit = engine.deployment().misfit(&case.run_on);
    if let Some(reason) = misfit.or_else(|| engine.unsupported(case)) {
        return Outcome::Skipped { reason };
    }
    let rounds: Box<dyn Iterator<Item = Round>> = match engine.chance() {
        Chance::Seeded => Box::new(plan.seeds.clone().map(Round::Seed)),
        Chance::Real => Box::new((1..=plan.repeat).map(Round::Run)),
    };
    let mut first = None;
    let mut retaken = 0;
    for round in rounds {
        let (run, verdict) = run_in_time(engine, case, round);
        retaken += run.retaken;
        if let Err(failure) = verdict {
            return Outcome::Failed { round, run, failure };
        }
        first.get_or_insert((round, run));
    }
    match first {
        Some((round, run)) => Outcome::Passed { round, run: Run { retaken, ..run } },
        None => Outcome::Skipped { reason: "no round to run it in".into() },
    }
}

/// One run, and what is to be said of it. A test that waits for 400 ms while a server is silent for 800 ms has not been
/// carried out as it is written where its wait took 900 ms: if other events came then than are expected, that is the
/// machine's fault, and it is run again. What must never happen counts however late it was.
fn run_in_time(engine: &dyn Engine, case: &Case, round: Round) -> (Run, Result<(), Failure>) {
    let mut retaken = 0;
    loop {
        let run = run_once(engine, case, round);
        let verdict = verdict::judge(case, &run, engine.chance());
        let is_machines_fault = run.standstill > STANDSTILL && run.violations.is_empty();
        if verdict.is_ok() || !is_machines_fault || retaken == MOST_RETAKEN {
            return (Run { retaken, ..run }, verdict);
        }
        retaken += 1;
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed(seed) => write!(f, "seed {seed}"),
            Self::Run(number) => write!(f, "run {number}"),
        }
    }
}

/// A panic is a failure of the test that caused it; the others still run, and the round is known.
fn run_once(engine: &dyn Engine, case: &Case, round: Round) -> Run {
    let (Round::Seed(seed) | Round::Run(seed)) = round;
    catch_unwind(AssertUnwindSafe(|| engine.run(case, seed))).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
        let message = message.unwrap_or("without a message");
        Run { violations: vec![format!("the engine panicked: {message}")], ..Run::default() }
    })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};
    use core::time::Duration;

    use serde_json::json;

    use super::{Outcome, Plan, Round, run_case, run_cases};
    use crate::engine::{ActualError, Chance, Engine, Run};
    use crate::format::{Case, Deployment};

    /// Fails, in one of two ways, from a certain seed on.
    struct FailsFrom(u64, Chance);

    impl Engine for FailsFrom {
        fn name(&self) -> &'static str {
            "fails"
        }

        fn chance(&self) -> Chance {
            self.1
        }

        fn deployment(&self) -> Deployment {
            Deployment::VIRTUAL
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

    fn seeds(seeds: core::ops::RangeInclusive<u64>) -> Plan {
        Plan { seeds, repeat: 1 }
    }

    #[test]
    fn the_first_seed_that_fails_is_reported() {
        let (engine, case) = (FailsFrom(5, Chance::Seeded), case(json!({})));
        let passed = run_case(&engine, &case, &seeds(2..=4));
        assert!(matches!(passed, Outcome::Passed { round: Round::Seed(2), .. }));
        let failed = run_case(&engine, &case, &seeds(2..=8));
        assert!(matches!(failed, Outcome::Failed { round: Round::Seed(5), .. }));
    }

    #[test]
    fn where_chance_is_the_machines_there_are_as_many_runs_as_asked_for() {
        let (engine, case) = (FailsFrom(3, Chance::Real), case(json!({})));
        let plan = |repeat| Plan { seeds: 5..=9, repeat };
        assert!(matches!(run_case(&engine, &case, &plan(2)), Outcome::Passed { round: Round::Run(1), .. }));
        assert!(matches!(run_case(&engine, &case, &plan(4)), Outcome::Failed { round: Round::Run(3), .. }));
    }

    #[test]
    fn outcomes_are_in_the_order_of_cases_and_engines() {
        let engines: Vec<Box<dyn Engine>> =
            vec![Box::new(FailsFrom(9, Chance::Real)), Box::new(FailsFrom(0, Chance::Seeded))];
        let (good, skipped) = (case(json!({})), case(json!({ "auth": true })));
        let cases: Vec<&Case> = [&good, &skipped].into_iter().cycle().take(50).collect();

        let outcomes = run_cases(&engines, &cases, &seeds(0..=0));

        assert_eq!(outcomes.len(), 50);
        for (index, outcomes) in outcomes.iter().enumerate() {
            if index % 2 == 0 {
                assert!(matches!(outcomes[..], [Outcome::Passed { .. }, Outcome::Failed { .. }]), "{index}");
            } else {
                assert!(matches!(outcomes[..], [Outcome::Skipped { .. }, Outcome::Skipped { .. }]), "{index}");
            }
        }
    }

    #[test]
    fn what_the_engine_cannot_do_is_skipped() {
        let engine = FailsFrom(0, Chance::Seeded);
        let outcome = run_case(&engine, &case(json!({ "auth": true })), &seeds(0..=0));
        assert_eq!(outcome, Outcome::Skipped { reason: "no authentication".into() });
    }

    /// Fails while the machine stands still for this long, which it does in the first runs.
    struct Stalls(Duration, AtomicUsize);

    impl Engine for Stalls {
        fn name(&self) -> &'static str {
            "stalls"
        }

        fn chance(&self) -> Chance {
            Chance::Real
        }

        fn deployment(&self) -> Deployment {
            Deployment::VIRTUAL
        }

        fn unsupported(&self, _: &Case) -> Option<String> {
            None
        }

        fn run(&self, _: &Case, _: u64) -> Run {
            if self.1.fetch_add(1, Ordering::Relaxed) < 3 {
                Run { error: Some(late()), standstill: self.0, ..Run::default() }
            } else {
                Run::default()
            }
        }
    }

    fn late() -> ActualError {
        ActualError { type_name: "WaitQueueTimeoutError".into(), message: "late".into(), address: "a:1".into() }
    }

    #[test]
    fn a_failure_counts_only_where_the_machine_kept_time() {
        let outcome = |standstill| {
            let engine = Stalls(Duration::from_millis(standstill), AtomicUsize::new(0));
            run_case(&engine, &case(json!({})), &seeds(0..=0))
        };

        assert!(matches!(outcome(500), Outcome::Passed { run: Run { retaken: 3, .. }, .. }));
        assert!(matches!(outcome(50), Outcome::Failed { .. }));
    }

    #[test]
    fn a_panic_is_a_failure() {
        let outcome = run_case(&FailsFrom(99, Chance::Seeded), &case(json!({})), &seeds(9..=49));
        let Outcome::Failed { round: Round::Seed(10), failure, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.reasons, ["the engine panicked: seed 10 is too much"]);
    }
}

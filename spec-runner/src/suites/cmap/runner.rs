//! Carries out tests: in virtual time under many seeds, in real time once or as often as is asked for.
//!
//! A pool is right only if it is right in every order in which things can happen; each seed is another order. The first seed that
//! fails ends the test, for it is all that is needed to see the failure again. Where the machine decides the order, a run
//! is mostly waiting, and many tests run at a time.

use core::ops::RangeInclusive;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::mpsc;

use crate::suites::cmap::engine::{Chance, Engine, Run};
use crate::suites::cmap::format::Case;
use crate::suites::cmap::verdict::{self, Failure};
use crate::suites::outcome::{Outcome, Round};

/// How often each test is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seeds, of which there must be one at least, for engines whose chance is seeded.
    pub seeds: RangeInclusive<u64>,
    /// How many runs there are on the others.
    pub repeat: u64,
}

/// A case on one engine: how it went, and the run that shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// How it went.
    pub outcome: Outcome,
    /// The first round that failed, or else the first, and what happened in it; `None` for a case that was skipped.
    pub run: Option<(Round, Run)>,
}

/// How many tests in real time go on at once. They wait most of the time; few enough that each gets its turn soon.
const AT_ONCE: usize = 16;

/// How much longer than it should a wait may take in a run whose failure counts: less than any margin of an official test.
const STANDSTILL: Duration = Duration::from_millis(100);

/// How often a failure while the machine stood still is repeated. A machine that always stands still proves nothing.
const MOST_RETAKEN: u32 = 3;

/// Carries out each of `cases` on each of `engines`. The trials are in the order of the cases, and those of a case in
/// that of the engines.
pub fn run_cases(engines: &[Box<dyn Engine>], cases: &[&Case], plan: &Plan) -> Vec<Vec<Trial>> {
    let jobs = |chance| {
        let engines = move || engines.iter().enumerate().filter(move |(_, engine)| engine.chance() == chance);
        (0..cases.len()).flat_map(move |case| engines().map(move |(engine, _)| (case, engine)))
    };
    let carry_out = |(case, engine): (usize, usize)| run_case(&*engines[engine], cases[case], plan);
    let real: Vec<_> = jobs(Chance::Real).collect();
    let next = AtomicUsize::new(0);
    let (done, trials) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(real.len()) {
            let (next, real, done) = (&next, &real, done.clone());
            scope.spawn(move || {
                while let Some(&job) = real.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver is gone only if all has panicked.
                    let _ = done.send((job, carry_out(job)));
                }
            });
        }
        for job in jobs(Chance::Seeded) {
            let _ = done.send((job, carry_out(job)));
        }
    });
    drop(done);
    let mut trials: Vec<_> = trials.into_iter().collect();
    trials.sort_by_key(|(job, _)| *job);
    let mut of_cases = vec![Vec::new(); cases.len()];
    for ((case, _), trial) in trials {
        of_cases[case].push(trial);
    }
    of_cases
}

/// Carries out `case` on `engine` as often as `plan` says.
pub fn run_case(engine: &dyn Engine, case: &Case, plan: &Plan) -> Trial {
    let misfit = engine.deployment().misfit(&case.run_on);
    if let Some(reason) = misfit.or_else(|| engine.unsupported(case)) {
        return Trial::skipped(reason);
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
            let outcome = Outcome::Failed { round: Some(round), reasons: failure.lines() };
            return Trial { outcome, run: Some((round, run)) };
        }
        first.get_or_insert((round, run));
    }
    match first {
        Some((round, run)) => Trial { outcome: Outcome::Passed, run: Some((round, Run { retaken, ..run })) },
        None => Trial::skipped("no round to run it in".into()),
    }
}

/// One run, and its verdict. If a test waits for 400 ms while a server is silent for 800 ms, and its wait took 900 ms, it was
/// not carried out as it is written: unexpected events are then the machine's fault, and the test is run again. What must
/// never happen counts however late it was.
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

impl Trial {
    fn skipped(reason: String) -> Self {
        Self { outcome: Outcome::Skipped { reason }, run: None }
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

    use super::{Outcome, Plan, Round, Trial, run_case, run_cases};
    use crate::suites::cmap::engine::{ActualError, Chance, Engine, Run};
    use crate::suites::cmap::format::{Case, Deployment};

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

    fn failed_in(round: Round, reason: &str) -> Outcome {
        Outcome::Failed { round: Some(round), reasons: vec![reason.into()] }
    }

    #[test]
    fn the_first_seed_that_fails_is_reported() {
        let (engine, case) = (FailsFrom(5, Chance::Seeded), case(json!({})));
        let passed = run_case(&engine, &case, &seeds(2..=4));
        assert!(matches!(passed, Trial { outcome: Outcome::Passed, run: Some((Round::Seed(2), _)) }));
        let failed = run_case(&engine, &case, &seeds(2..=8));
        assert_eq!(failed.outcome, failed_in(Round::Seed(5), "bad"));
        assert!(matches!(failed.run, Some((Round::Seed(5), _))));
    }

    #[test]
    fn where_chance_is_the_machines_there_are_as_many_runs_as_asked_for() {
        let (engine, case) = (FailsFrom(3, Chance::Real), case(json!({})));
        let plan = |repeat| Plan { seeds: 5..=9, repeat };
        let passed = run_case(&engine, &case, &plan(2));
        assert!(matches!(passed, Trial { outcome: Outcome::Passed, run: Some((Round::Run(1), _)) }));
        assert_eq!(run_case(&engine, &case, &plan(4)).outcome, failed_in(Round::Run(3), "bad"));
    }

    #[test]
    fn outcomes_are_in_the_order_of_cases_and_engines() {
        let engines: Vec<Box<dyn Engine>> =
            vec![Box::new(FailsFrom(9, Chance::Real)), Box::new(FailsFrom(0, Chance::Seeded))];
        let (good, skipped) = (case(json!({})), case(json!({ "auth": true })));
        let cases: Vec<&Case> = [&good, &skipped].into_iter().cycle().take(50).collect();

        let trials = run_cases(&engines, &cases, &seeds(0..=0));

        assert_eq!(trials.len(), 50);
        for (index, trials) in trials.iter().enumerate() {
            let outcomes: Vec<_> = trials.iter().map(|trial| &trial.outcome).collect();
            if index % 2 == 0 {
                assert!(matches!(outcomes[..], [Outcome::Passed, Outcome::Failed { .. }]), "{index}");
            } else {
                assert!(matches!(outcomes[..], [Outcome::Skipped { .. }, Outcome::Skipped { .. }]), "{index}");
            }
        }
    }

    #[test]
    fn what_the_engine_cannot_do_is_skipped() {
        let engine = FailsFrom(0, Chance::Seeded);
        let trial = run_case(&engine, &case(json!({ "auth": true })), &seeds(0..=0));
        assert_eq!(trial, Trial::skipped("no authentication".into()));
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

        let passed = outcome(500);
        assert!(matches!(passed, Trial { outcome: Outcome::Passed, run: Some((_, Run { retaken: 3, .. })) }));
        assert!(matches!(outcome(50).outcome, Outcome::Failed { .. }));
    }

    #[test]
    fn a_panic_is_a_failure() {
        let trial = run_case(&FailsFrom(99, Chance::Seeded), &case(json!({})), &seeds(9..=49));
        assert_eq!(trial.outcome, failed_in(Round::Seed(10), "the engine panicked: seed 10 is too much"));
    }
}

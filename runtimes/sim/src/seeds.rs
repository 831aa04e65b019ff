//! One test under many seeds.

use std::any::Any;
use std::env;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, scope};

/// The variable that names the one seed to run.
const ONE: &str = "CMAP_SIM_SEED";

/// The variable that names the seeds to run: how many from 0, or `FIRST..END`.
const MANY: &str = "CMAP_SIM_SEEDS";

/// After how many seeds progress is printed.
const MILESTONE: u64 = 1000;

/// A seed that failed, and its panic.
type Failed = (u64, Box<dyn Any + Send>);

/// Runs `test` with every seed of `seeds`, one after the other, up to the first that fails. That one is printed, and
/// `CMAP_SIM_SEED=<seed>` runs it alone.
///
/// # Panics
/// `test` panics with one of the seeds.
pub fn for_seeds(seeds: Range<u64>, test: impl Fn(u64)) {
    let failed = one().map_or(seeds, of_one).find_map(|seed| failure(seed, &test));
    tell(failed);
}

/// Runs `test` with each of [`seeds_or(usual)`](seeds_or), on every processor at a time. The lowest seed that fails is printed.
///
/// # Panics
/// `test` panics with one of the seeds.
pub fn campaign(usual: u64, test: impl Fn(u64) + Sync) {
    tell(first_failure(one().map_or_else(|| seeds_or(usual), of_one), &test));
}

/// The first `usual` seeds, or those that `CMAP_SIM_SEEDS` names, as `<count>` or `<first>..<end>`.
pub fn seeds_or(usual: u64) -> Range<u64> {
    env::var(MANY).ok().and_then(|text| parse(&text)).unwrap_or(0..usual)
}

fn one() -> Option<u64> {
    env::var(ONE).ok()?.parse().ok()
}

fn of_one(seed: u64) -> Range<u64> {
    seed..seed.saturating_add(1)
}

fn failure(seed: u64, test: &impl Fn(u64)) -> Option<Failed> {
    catch_unwind(AssertUnwindSafe(|| test(seed))).err().map(|panic| (seed, panic))
}

fn tell(failed: Option<Failed>) {
    if let Some((seed, panic)) = failed {
        eprintln!("seed {seed} failed; run it alone with {ONE}={seed}");
        resume_unwind(panic);
    }
}

fn parse(text: &str) -> Option<Range<u64>> {
    match text.split_once("..") {
        Some((first, end)) => Some(first.parse().ok()?..end.parse().ok()?),
        None => Some(0..text.parse().ok()?),
    }
}

/// Seeds are begun in their order, and none after one has failed; so the lowest that fails is the same in every run.
fn first_failure(seeds: Range<u64>, test: &(impl Fn(u64) + Sync)) -> Option<Failed> {
    let (next, first) = (AtomicU64::new(seeds.start), Mutex::new(None::<Failed>));
    let found = || first.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        while found().is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Some(failed) = failure(seed, test) {
                let mut found = found();
                if found.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                    *found = Some(failed);
                }
            } else if seed > seeds.start && (seed - seeds.start).is_multiple_of(MILESTONE) {
                eprintln!("seed {seed} has passed");
            }
        }
    };
    let workers = available_parallelism().map_or(1, NonZero::get);
    scope(|scope| {
        for _ in 1..workers {
            scope.spawn(work);
        }
        work();
    });
    first.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_count_or_a_range() {
        assert_eq!(parse("40"), Some(0..40));
        assert_eq!(parse("3000..6000"), Some(3000..6000));
        assert_eq!(parse("many"), None);
    }

    #[test]
    fn every_seed_runs_once() {
        let run = Mutex::new(Vec::new());

        let failed = first_failure(5..100, &|seed| run.lock().unwrap().push(seed));

        let mut run = run.into_inner().unwrap();
        run.sort_unstable();
        assert!(failed.is_none());
        assert_eq!(run, (5..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_lowest_seed_that_fails_is_told() {
        let failed = first_failure(0..1000, &|seed| assert!(seed % 7 != 3, "a seed that fails on purpose"));

        assert_eq!(failed.map(|(seed, _)| seed), Some(3));
    }
}

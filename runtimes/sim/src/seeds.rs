//! One test under many seeds.

use std::env;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The variable that names the one seed to run.
const VARIABLE: &str = "CMAP_SIM_SEED";

/// Runs `test` with every seed of `seeds`, up to the first that fails. That one is printed, and `CMAP_SIM_SEED=<seed>` runs
/// it alone.
///
/// # Panics
/// `test` panics with one of the seeds.
pub fn for_seeds(seeds: Range<u64>, test: impl Fn(u64)) {
    let wanted = env::var(VARIABLE).ok().and_then(|seed| seed.parse().ok());
    let seeds = wanted.map_or(seeds, |seed: u64| seed..seed.saturating_add(1));
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("seed {seed} failed; run it alone with {VARIABLE}={seed}");
            resume_unwind(panic);
        }
    }
}

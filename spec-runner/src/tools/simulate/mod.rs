//! `spec-runner simulate`: clients in random simulations, each from one seed, until a law breaks.
//!
//! 1. `args` is the command line;
//! 2. `world` decides what happens, from a seed: callers, servers, their troubles, options;
//! 3. `step` is what happens, as data; `driver` carries it out on a `machine`, the core's own topology, in some seeds beside its `twins`;
//! 4. `oracle` judges after every call, without any code of the machine; at the end the faults stop, and everybody must be answered;
//! 5. `mark` counts what was met, and what was not;
//! 6. `panics` makes a panic of the machine a broken law;
//! 7. `shrink` makes a script small that breaks a law, and `finding` prints it and writes its trace, which `replay` reads;
//! 8. `fuzz` is the fuzzer's target, whose bytes are a script;
//! 9. `whole_stack` does the same with clients on a simulated network; `seeds` is the loop of both.

mod args;
mod driver;
mod finding;
pub mod fuzz;
mod ledger;
mod machine;
mod mark;
mod oracle;
mod panics;
mod seeds;
mod shrink;
mod step;
mod twins;
mod whole_stack;
mod world;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::Duration;

use cmap_core::time::Instant as Time;

pub use self::args::SimulateArgs;
use self::driver::{Driver, Looks};
use self::finding::Finding;
use self::machine::Machine;
use self::mark::Marks;
use self::oracle::Broken;
use self::panics::caught;
use self::seeds::{a_second, each_timed_seed};
use self::step::{ClientCase, Deployment, Script};
use self::world::{Weather, World};

/// What a number of seeds came to.
#[derive(Debug, Default)]
struct Tally {
    seeds: u64,
    calls: u64,
    check_outs: u64,
    simulated: Duration,
    marks: Marks,
    finding: Option<(u64, Broken, Script)>,
}

/// From this number of seeds on, every mark has to be met.
const SEEDS_FOR_MARKS: u64 = 1000;

/// How many steps a seed has, unless the command line says.
const STEPS: usize = 1000;

/// Simulates. The exit status: 0 if no law broke and every mark was met, 1 otherwise, 2 for a scenario that the whole stack lacks.
///
/// # Errors
/// Nothing more can be printed.
pub fn run(args: &SimulateArgs, out: &mut dyn Write, err: &mut dyn Write, is_terminal: bool) -> io::Result<u8> {
    if args.is_of_whole_stack() && args.scenario == Some(Deployment::SeedList) {
        writeln!(err, "error: --scenario seed-list is of the machine alone, without --whole-stack")?;
        return Ok(2);
    }
    if args.is_of_whole_stack() {
        return whole_stack::run(args, out, err, is_terminal);
    }
    let tally = Mutex::new(Tally::default());
    let simulated = || tally.lock().ok().map(|tally| tally.simulated);
    let cpu = each_timed_seed(args.seeds, out, is_terminal, simulated, |seed| work(args, seed, &tally))?;
    let tally = tally.into_inner().unwrap_or_default();
    print(args, &tally, cpu, out)?;
    if let Some((seed, broken, script)) = tally.finding {
        Finding::of(seed, broken, script).report(args, out, err)?;
        return Ok(1);
    }
    let missed = tally.marks.missed();
    let meets_all = args.scenario.is_none() && args.weather() == Weather::Drawn;
    if tally.seeds >= SEEDS_FOR_MARKS && meets_all && !missed.is_empty() {
        writeln!(out, "never met: {}", missed.join("; "))?;
        return Ok(1);
    }
    Ok(0)
}

fn print(args: &SimulateArgs, tally: &Tally, cpu: Duration, out: &mut dyn Write) -> io::Result<()> {
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    let check_outs = a_second(tally.check_outs as f64, cpu);
    writeln!(
        out,
        "{} seeds from {} on: {} calls, {} check-outs, {:.0?} simulated; {check_outs:.0} check-outs and {:.0} s simulated in a second of \
         CPU",
        tally.seeds,
        args.seeds.first,
        tally.calls,
        tally.check_outs,
        tally.simulated,
        a_second(tally.simulated.as_secs_f64(), cpu),
    )
}

/// Takes one seed. Breaks off if a law broke.
fn work(args: &SimulateArgs, seed: u64, tally: &Mutex<Tally>) -> ControlFlow<()> {
    let world = World::new(seed, args.scenario, args.weather());
    let done = simulate(world, args.steps.unwrap_or(STEPS), shrink::twins);
    let Ok(mut tally) = tally.lock() else { return ControlFlow::Break(()) };
    tally.seeds += 1;
    tally.calls += done.calls;
    tally.check_outs += done.check_outs;
    tally.simulated += done.simulated;
    tally.marks.add(&done.marks);
    let Err(broken) = done.result else { return ControlFlow::Continue(()) };
    // The first seed counts, whichever thread ends first.
    if tally.finding.as_ref().is_none_or(|(known, ..)| seed < *known) {
        tally.finding = Some((seed, broken, done.script));
    }
    ControlFlow::Break(())
}

/// The run of one seed.
struct Done {
    result: Result<(), Broken>,
    script: Script,
    calls: u64,
    check_outs: u64,
    simulated: Duration,
    marks: Marks,
}

/// Runs the world of one seed on the machine that `make` makes for its options.
fn simulate<M: Machine>(mut world: World, steps: usize, make: impl Fn(&ClientCase) -> Option<M>) -> Done {
    let mut done = Done {
        result: Err(shrink::unusable()),
        script: Script { client: world.client().clone(), steps: Vec::new(), until: Time::ORIGIN },
        calls: 0,
        check_outs: 0,
        simulated: Duration::ZERO,
        marks: Marks::default(),
    };
    let Some(machine) = make(world.client()) else { return done };
    let made = caught(|| Driver::new(world.client(), machine, Looks::Seldom));
    done.result = made.and_then(|mut driver| {
        let result = caught(|| world.run(&mut driver, steps));
        done.calls = driver.calls();
        done.check_outs = driver.check_outs;
        done.simulated = driver.now().saturating_since(Time::ORIGIN);
        done.marks = driver.oracle.marks.clone();
        result
    });
    done.script = world.into_script();
    done
}

//! `spec-runner simulate --whole-stack`: the client of production on a simulated network, against the test server.
//!
//! 1. `plan` is what happens, as data, from a seed: options, operations, faults;
//! 2. `fault` is what goes wrong, `suffering` carries it out at a `place` of the `servers`, `caller` carries out the operations;
//!    `run` is a run from its beginning to its end;
//! 3. `ledger` judges each event, `caller` each result, and `run` what is left at the end;
//! 4. `mark` says what a campaign has to have met;
//! 5. `shrink` makes a plan small that breaks a law, and `retold` has its trace name the law.

mod caller;
mod fault;
mod ledger;
mod mark;
mod place;
mod plan;
mod retold;
mod run;
mod servers;
mod shrink;
mod suffering;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::Duration;

use super::SEEDS_FOR_MARKS;
use super::args::SimulateArgs;
use super::oracle::Broken;
use super::seeds::{a_second, each_seed};
use mark::Mark;
use plan::Plan;
use retold::retold;
use run::run as carry_out;
use shrink::shrink;

/// How many operations a seed has, unless the command line says.
const OPERATIONS: usize = 60;

/// The sum over several seeds.
#[derive(Default)]
struct Tally {
    seeds: u64,
    commands: u64,
    simulated: Duration,
    marks: BTreeSet<Mark>,
    finding: Option<(u64, Broken, Plan)>,
}

/// Simulates. The exit status: 0 if no law broke and every mark was met, 1 otherwise.
///
/// # Errors
/// Nothing more can be printed.
pub(super) fn run(args: &SimulateArgs, out: &mut dyn Write, err: &mut dyn Write, is_terminal: bool) -> io::Result<u8> {
    let tally = Mutex::new(Tally::default());
    let cpu = each_seed(args.seeds, out, is_terminal, |seed| simulate(args, seed, &tally))?;
    let tally = tally.into_inner().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    let (commands, simulated) = (tally.commands as f64, tally.simulated.as_secs_f64());
    writeln!(
        out,
        "{} seeds from {} on: {} commands answered, {:.0?} simulated; {:.0} commands and {:.0} s simulated in a second of CPU",
        tally.seeds,
        args.seeds.first,
        tally.commands,
        tally.simulated,
        a_second(commands, cpu),
        a_second(simulated, cpu),
    )?;
    if let Some((seed, broken, plan)) = tally.finding {
        report(args, seed, broken, plan, out, err)?;
        return Ok(1);
    }
    let missed: Vec<_> = Mark::all().filter(|mark| !tally.marks.contains(mark)).map(Mark::name).collect();
    if tally.seeds >= SEEDS_FOR_MARKS && args.scenario.is_none() && !missed.is_empty() {
        writeln!(out, "never met: {}", missed.join("; "))?;
        return Ok(1);
    }
    Ok(0)
}

fn simulate(args: &SimulateArgs, seed: u64, tally: &Mutex<Tally>) -> ControlFlow<()> {
    let plan = Plan::of(seed, args.scenario, args.steps.unwrap_or(OPERATIONS));
    let outcome = carry_out(&plan, false);
    let Ok(mut tally) = tally.lock() else { return ControlFlow::Break(()) };
    tally.seeds += 1;
    tally.commands += outcome.commands;
    tally.simulated += outcome.simulated;
    tally.marks.extend(outcome.marks);
    let Err(broken) = outcome.result else { return ControlFlow::Continue(()) };
    // The first seed counts, whichever thread ends first.
    if tally.finding.as_ref().is_none_or(|(known, ..)| seed < *known) {
        tally.finding = Some((seed, broken, plan));
    }
    ControlFlow::Break(())
}

/// Makes the plan small, prints it, and writes its trace.
fn report(
    args: &SimulateArgs,
    seed: u64,
    broken: Broken,
    plan: Plan,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let all = plan.operations.len() + plan.faults.len();
    let plan = shrink(plan);
    let broken = carry_out(&plan, false).result.err().unwrap_or(broken);
    writeln!(out, "seed {seed} breaks a law: {}", broken.law)?;
    writeln!(out, "  {}", broken.detail)?;
    writeln!(out, "{} of its {all} steps are enough:", plan.operations.len() + plan.faults.len())?;
    write!(out, "{plan}")?;
    let trigger = format!("seed {seed} broke a law: {}: {}", broken.law, broken.detail);
    let Some(trace) = carry_out(&plan, true).trace.and_then(|trace| retold(&trace, trigger)) else {
        return writeln!(err, "error: there is no trace of it: the client was not made, or its calls do not repeat");
    };
    let file = args.out.join(format!("simulated-{seed}.trace"));
    match std::fs::write(&file, trace) {
        Ok(()) => writeln!(out, "its trace: cmap replay {} --explain slowest", file.display()),
        Err(error) => writeln!(err, "error: {}: {error}", file.display()),
    }
}

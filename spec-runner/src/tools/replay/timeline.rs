//! Prints the calls of a trace in their order, with what they returned and what followed.

use std::io::{self, Write};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::trace::{Divergence, Note, Replay, Step, Trace};

/// Prints a line for each call, and one for each answer that says something, each note and each output.
pub(super) fn print(
    trace: &Trace,
    until: Option<Duration>,
    out: &mut dyn Write,
) -> io::Result<Result<(), Box<Divergence>>> {
    let Some(mut replay) = Replay::new(trace) else { return Ok(Ok(())) };
    loop {
        match replay.step() {
            Ok(Some(step)) if until.is_some_and(|until| age(step.at) > until) => return Ok(Ok(())),
            Ok(Some(step)) => print_step(trace, &step, out)?,
            Ok(None) => return Ok(Ok(())),
            Err(divergence) => return Ok(Err(divergence)),
        }
    }
}

fn print_step(trace: &Trace, step: &Step<'_>, out: &mut dyn Write) -> io::Result<()> {
    let seconds = age(step.at).as_secs_f64();
    writeln!(out, "{:>7} {seconds:>14.6} s  {:?} -> {:?}", step.number, step.input, step.answer)?;
    for note in &step.notes {
        match note {
            Note::Holder(text) => writeln!(out, "{:26}by {}", "", trace.text(*text).unwrap_or("somebody"))?,
            Note::Taken(check_out, at) => writeln!(out, "{:26}{check_out:?} taken at {:?}", "", age(*at))?,
            other => writeln!(out, "{:26}{other:?}", "")?,
        }
    }
    step.outputs.iter().try_for_each(|output| writeln!(out, "{:26}{output:?}", ""))
}

fn age(at: Instant) -> Duration {
    at.saturating_since(Instant::ORIGIN)
}

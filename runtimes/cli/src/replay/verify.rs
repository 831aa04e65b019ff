//! Makes all calls of a trace again, and sums up what it holds.

use std::io::{self, Write};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::trace::{Divergence, Replay, Trace, WaitEnd, waits};

/// Prints what the trace holds, and that it repeats.
pub(super) fn print(
    trace: &Trace,
    until: Option<Duration>,
    out: &mut dyn Write,
) -> io::Result<Result<(), Box<Divergence>>> {
    let header = &trace.header;
    let producer = if header.producer.is_empty() { "an unnamed program" } else { &header.producer };
    let trigger = if header.trigger.is_empty() { "no reason given" } else { &header.trigger };
    writeln!(out, "recorded by {producer}, behaviour {}, written because of: {trigger}", header.behaviour)?;
    let Some(mut replay) = Replay::new(trace) else { return Ok(Ok(())) };
    let began = replay.now();
    let mut calls = 0_u64;
    let mut outputs = 0;
    let is_late = |at: Instant| until.is_some_and(|until| at.saturating_since(Instant::ORIGIN) > until);
    while !replay.next_at().is_some_and(is_late) {
        match replay.step() {
            Ok(Some(step)) => (calls, outputs) = (calls + 1, outputs + step.outputs.len()),
            Ok(None) => break,
            Err(divergence) => return Ok(Err(divergence)),
        }
    }
    let machine = replay.machine();
    let span = machine.now().saturating_since(began);
    writeln!(
        out,
        "{calls} calls in {span:.3?} repeated, in {} segments; {outputs} outputs, all as recorded",
        trace.segments.len()
    )?;
    let stats = machine.stats();
    writeln!(
        out,
        "at the end: {} in use, {} available, {} pending, {} waiting, {} selecting a server",
        stats.counts.in_use,
        stats.counts.available,
        stats.counts.pending,
        stats.counts.waiting,
        machine.selecting(),
    )?;
    if until.is_none() {
        match waits(trace) {
            Ok(waits) => {
                let failed = waits.iter().filter(|wait| matches!(wait.end, WaitEnd::Failed { .. })).count();
                let longest = waits.iter().map(cmap_core::trace::Wait::duration).max().unwrap_or_default();
                writeln!(out, "{} check-outs waited, the longest for {longest:.3?}; {failed} failed", waits.len())?;
            }
            Err(divergence) => return Ok(Err(divergence)),
        }
    }
    Ok(Ok(()))
}

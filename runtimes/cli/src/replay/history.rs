//! What a sparse recorder wrote: it is explained and told, and cannot be repeated.

use std::io::{self, Write};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::trace::{Divergence, History, Occurrence, Period, RecorderOptions, Trace, Wait, WaitEnd, waits};

use super::args::ReplayArgs;
use super::{explained_status, explanation, hosts, write_file};

/// The file of what a sparse recorder would have kept, in as much memory as it has by default.
pub(super) fn of(trace: &Trace) -> Result<Vec<u8>, Box<Divergence>> {
    let history = History::of(trace, RecorderOptions::default().bytes)?;
    Ok(history.encode(&trace.header, &trace.texts))
}

/// Does what is asked for, as far as it can be done without calls. The exit status is that of `replay`.
pub(super) fn run(
    trace: &Trace,
    history: &History,
    args: &ReplayArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    if let Some(option) = needs_calls(args) {
        return writeln!(
            err,
            "error: {option} needs the calls, and a sparse recorder keeps none: use --explain or --timeline, or record with `Recorder::new()`"
        )
        .map(|()| 2);
    }
    if let Some(copy) = &args.hash_hosts {
        return write_file(hosts::replaced_in(trace, history), copy, err);
    }
    if let Some(explained) = args.explain {
        return explained_status(explained, explanation::print(trace, explained, args.json, out)?, err);
    }
    if args.timeline {
        print_timeline(history, args.until, out)?;
    } else {
        print_summary(trace, history, out)?;
    }
    Ok(0)
}

/// An option that was given and makes the calls again.
fn needs_calls(args: &ReplayArgs) -> Option<&'static str> {
    [
        (args.verify, "--verify"),
        (!args.what_if.is_empty(), "--what-if"),
        (args.perfetto.is_some(), "--perfetto"),
        (args.html.is_some(), "--html"),
        (args.sparse.is_some(), "--sparse"),
        (args.json && args.explain.is_none(), "--json without --explain"),
        (args.until.is_some() && !args.timeline, "--until without --timeline"),
    ]
    .into_iter()
    .find_map(|(is_given, option)| is_given.then_some(option))
}

fn print_summary(trace: &Trace, history: &History, out: &mut dyn Write) -> io::Result<()> {
    let header = &trace.header;
    writeln!(
        out,
        "recorded sparsely by {}, behaviour {}, written because of: {}",
        header.producer, header.behaviour, header.trigger
    )?;
    let sum = |of: fn(&Period) -> u32| history.periods.iter().map(|period| u64::from(of(period))).sum::<u64>();
    writeln!(
        out,
        "{:.3?} with {} check-outs served at once and {} that waited; {} failed, {} were given up; {} connections established, {} not",
        history.to.saturating_since(history.from),
        sum(|period| period.served),
        sum(|period| period.waited),
        sum(|period| period.failed),
        sum(|period| period.cancelled),
        sum(|period| period.established),
        sum(|period| period.not_established),
    )?;
    // No calls are made again that could differ.
    let waits = waits(trace).unwrap_or_default();
    let failed = waits.iter().filter(|wait| matches!(wait.end, WaitEnd::Failed { .. })).count();
    let longest = waits.iter().map(Wait::duration).max().unwrap_or_default();
    writeln!(
        out,
        "{} waits are explained, the longest of {longest:.3?}; {failed} of them failed; {} longer than a millisecond are not",
        waits.len(),
        history.unknown
    )
}

/// Prints a line for each period, and one for each thing that happened, in the order of their times.
fn print_timeline(history: &History, until: Option<Duration>, out: &mut dyn Write) -> io::Result<()> {
    let is_shown = |at: Instant| until.is_none_or(|until| age(at) <= until);
    let mut occurrences = history.occurrences.iter().filter(|it| is_shown(it.at)).peekable();
    for period in history.periods.iter().filter(|period| is_shown(period.from)) {
        while let Some(occurrence) = occurrences.next_if(|it| it.at < period.from) {
            print_occurrence(occurrence, out)?;
        }
        print_period(period, out)?;
    }
    occurrences.try_for_each(|occurrence| print_occurrence(occurrence, out))
}

fn print_occurrence(occurrence: &Occurrence, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:>14.6} s  {}", age(occurrence.at).as_secs_f64(), occurrence.what)
}

fn print_period(period: &Period, out: &mut dyn Write) -> io::Result<()> {
    let Period { served, waited, failed, cancelled, checked_in, established, not_established, .. } = period;
    writeln!(
        out,
        "{:>14.6} s  for {:?}: {served} served at once, {waited} waited (longest {:?}), {failed} failed, {cancelled} given up, {checked_in} checked in, {established} established, {not_established} not; then {} in use, {} available, {} waiting",
        age(period.from).as_secs_f64(),
        period.to.saturating_since(period.from),
        period.longest_wait,
        period.in_use,
        period.available,
        period.waiting,
    )
}

fn age(at: Instant) -> Duration {
    at.saturating_since(Instant::ORIGIN)
}

//! Why check-outs waited, as text for people and as JSON for programs.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::trace::{Divergence, Establishment, Interval, Limit, Occurrence, Trace, Wait, WaitEnd, explain};
use serde::Serialize;

use super::args::Explained;
use super::rounding::{rounded, time};

/// Prints the waits that are asked for, the longest first, and returns them.
pub(super) fn print(
    trace: &Trace,
    explained: Explained,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<Result<Vec<Wait>, Box<Divergence>>> {
    let waits = match explain(trace, explained.0) {
        Ok(waits) => waits,
        Err(divergence) => return Ok(Err(divergence)),
    };
    if json {
        let told: Vec<Told<'_>> = waits.iter().map(Told::of).collect();
        serde_json::to_writer_pretty(&mut *out, &told)?;
        writeln!(out)?;
    } else {
        if !trace.header.trigger.is_empty() {
            writeln!(out, "written because of: {}", trace.header.trigger)?;
        }
        print_waits(&waits, out)?;
    }
    Ok(Ok(waits))
}

/// Prints explained waits.
pub(super) fn print_waits(waits: &[Wait], out: &mut dyn Write) -> io::Result<()> {
    if waits.is_empty() {
        writeln!(out, "no check-out of this kind waited")?;
    }
    waits.iter().try_for_each(|wait| print_wait(wait, out))?;
    if waits.iter().any(lacks_holders) { writeln!(out, "{NO_HOLDER}") } else { Ok(()) }
}

/// A wait with what follows from it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told<'a> {
    cause: Option<&'static str>,
    nanoseconds: u128,
    wait: &'a Wait,
}

impl<'a> Told<'a> {
    pub(super) fn of(wait: &'a Wait) -> Self {
        let cause = wait.cause().map(|cause| cause.limit.name());
        Self { cause, nanoseconds: wait.duration().as_nanos(), wait }
    }
}

fn print_wait(wait: &Wait, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", headline(wait))?;
    // What bound alone, bound all the time.
    for (name, limit) in wait.by_limit().into_iter().filter(|(_, limit)| *limit < wait.duration()) {
        writeln!(out, "  {:>10}  {name}", time(limit))?;
    }
    if let Some(cause) = wait.cause() {
        writeln!(out, "  cause: {}", told(cause))?;
    }
    let texts = told_once(wait);
    for (interval, text) in wait.intervals.iter().zip(texts).filter(|_| wait.intervals.len() > 1) {
        let text = text.unwrap_or_else(|| format!("{}, as above", interval.limit.name()));
        let from = interval.from.saturating_since(wait.began);
        writeln!(out, "    after {:>8}, for {:>8}: {text}", time(from), time(interval.duration()))?;
    }
    if !wait.occurrences.is_empty() {
        writeln!(out, "  what happened:")?;
    }
    wait.occurrences.iter().try_for_each(|occurrence| {
        let Occurrence { at, what, .. } = occurrence;
        let what = rounded(&what.to_string());
        match wait.began.saturating_since(*at) {
            Duration::ZERO => writeln!(out, "    after  {:>8}: {what}", time(at.saturating_since(wait.began))),
            before => writeln!(out, "    before {:>8}: {what}", time(before)),
        }
    })
}

/// A wait in one line.
pub(super) fn headline(wait: &Wait) -> String {
    let began = wait.began.saturating_since(Instant::ORIGIN).as_secs_f64();
    let call = wait.call.map_or_else(|| "a check-out before the trace".to_owned(), |call| format!("call {call}"));
    let by = by(wait.holder.as_deref());
    format!("{call}{by} at {began:.3} s waited for {}, and {}", time(wait.duration()), end(wait))
}

fn by(holder: Option<&str>) -> String {
    name(holder).map(|name| format!(" by {name}")).unwrap_or_default()
}

/// How a holder is called, where that was recorded: by its label, else by its place in the source.
pub(super) fn name(holder: Option<&str>) -> Option<&str> {
    let holder = holder.filter(|&holder| holder != "a caller")?;
    Some(holder.strip_prefix("a caller at ").unwrap_or(holder))
}

/// What stands once where a holder is missing.
pub(super) const NO_HOLDER: &str =
    "where no holder is named, none was recorded: Client::builder(..).watch_holders(true) records them";

/// Whether the holder of a check-out is missing that waited, or for which others did.
pub(super) fn lacks_holders(wait: &Wait) -> bool {
    let is_missing = |holder: &Option<String>| name(holder.as_deref()).is_none();
    let lacks = |limit: &Limit| {
        let Limit::MaxPoolSize { uses, .. } = limit else { return false };
        uses.iter().any(|held| is_missing(&held.holder))
    };
    is_missing(&wait.holder) || wait.intervals.iter().any(|interval| lacks(&interval.limit))
}

/// How a wait ended.
pub(super) fn end(wait: &Wait) -> String {
    match &wait.end {
        WaitEnd::Delivered { connection, .. } => format!("got connection {}", connection.id()),
        WaitEnd::Failed { error } => format!("failed: {}", rounded(error)),
        WaitEnd::Cancelled => "gave up".to_owned(),
        WaitEnd::Open => "had not ended when the trace did".to_owned(),
    }
}

/// What bound a wait in each interval; nothing where its cause, or an interval before, says the same.
pub(super) fn told_once(wait: &Wait) -> Vec<Option<String>> {
    let mut said: BTreeSet<String> = wait.cause().map(told).into_iter().collect();
    let told = wait.intervals.iter().map(told);
    told.map(|text| said.insert(text.clone()).then_some(text)).collect()
}

/// What bound a wait for a while.
pub(super) fn told(interval: &Interval) -> String {
    match &interval.limit {
        Limit::BeforeTheTrace => "it began before the trace does".to_owned(),
        Limit::Selection { servers } => format!("no server suited ({})", rounded(&servers.join("; "))),
        Limit::Paused { server, since, cause } => {
            let paused = time(interval.to.saturating_since(*since));
            format!("the pool of {server} had been paused for {paused}: {}", rounded(cause))
        }
        Limit::MaxPoolSize { uses, in_use, ended } => {
            let uses: Vec<String> = uses
                .iter()
                .map(|held| {
                    let by = by(held.holder.as_deref());
                    format!("connection {}{by} for {}", held.connection, time(held.held_for))
                })
                .collect();
            let meanwhile = match ended {
                0 => String::new(),
                1 => ", one use ended meanwhile".to_owned(),
                more => format!(", {more} uses ended meanwhile"),
            };
            format!("maxPoolSize: all {in_use} connections were in use{meanwhile}: {}", uses.join("; "))
        }
        Limit::Establishment(own) => format!("its own connection was being established: {}", establishing(own)),
        Limit::MaxConnecting { establishing: others, longest } => {
            format!("maxConnecting: {others} were being established, the longest: {}", establishing(longest))
        }
        Limit::Backoff => "the pool paused after the refusal of an overloaded server".to_owned(),
        Limit::CreationRate => "maxNewConnectionsPerSecond was used up".to_owned(),
        Limit::MaxConnections => "the limit of connections that pools share was reached".to_owned(),
        Limit::Turn => "others came first, or the driver came late".to_owned(),
        Limit::Affinity => "affinity: the connection of its key was in use, or being checked".to_owned(),
        Limit::LateWakeUp => {
            "it had its connection, and the executor did not run its task: look for tasks that block".to_owned()
        }
    }
}

fn establishing(own: &Establishment) -> String {
    let phase = own.phase.map(|phase| format!(", {phase}")).unwrap_or_default();
    format!("connection {}, under way for {}{phase}", own.connection, time(own.elapsed))
}

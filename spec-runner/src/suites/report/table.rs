//! The counts of a report, and their table: results by suite and engine, and the reasons of skips.

use alloc::collections::BTreeMap;
use core::cmp::Reverse;
use core::fmt;
use std::io::{self, Write};

use crate::suites::outcome::Outcome;

/// The results of all suites so far.
#[derive(Default)]
pub(super) struct Table {
    suites: Vec<Suite>,
}

/// The results of one suite.
struct Suite {
    name: String,
    /// By engine, in the order in which they came; `None` for tests without an engine.
    counts: Vec<(Option<&'static str>, Counts)>,
    /// Why tests were skipped.
    skips: BTreeMap<String, Skips>,
}

/// Results, counted.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Tests of a suite that were skipped for the same reason.
#[derive(Default)]
struct Skips {
    count: usize,
    engines: Vec<&'static str>,
}

impl Table {
    /// Counts the following results under `name`.
    pub(super) fn begin_suite(&mut self, name: &str) {
        self.suites.push(Suite { name: name.into(), counts: Vec::new(), skips: BTreeMap::new() });
    }

    /// Counts the outcome of a test on `engine`, or without one.
    pub(super) fn add(&mut self, engine: Option<&'static str>, outcome: &Outcome) {
        if self.suites.is_empty() {
            self.begin_suite("tests");
        }
        if let Some(suite) = self.suites.last_mut() {
            suite.add(engine, outcome);
        }
    }

    /// The total of each engine, in the order in which they came.
    pub(super) fn engines(&self) -> Vec<(&'static str, Counts)> {
        let mut totals: Vec<(&'static str, Counts)> = Vec::new();
        for (engine, counts) in self.rows().filter_map(|(engine, counts)| Some((engine?, counts))) {
            match totals.iter_mut().find(|(other, _)| *other == engine) {
                Some((_, total)) => *total = *total + counts,
                None => totals.push((engine, counts)),
            }
        }
        totals
    }

    /// The total of all.
    pub(super) fn total(&self) -> Counts {
        self.rows().fold(Counts::default(), |total, (_, counts)| total + counts)
    }

    /// Prints a row for each suite and engine, then why tests were skipped, the most frequent reasons first.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let widest = |names: &mut dyn Iterator<Item = &str>| names.map(|name| name.chars().count()).max();
        let width = widest(&mut self.suites.iter().map(|suite| &*suite.name).chain(["suite"])).unwrap_or_default();
        let engines = self.rows().filter_map(|(engine, _)| engine);
        let engine_width = widest(&mut engines.chain(["engine"])).unwrap_or_default();
        writeln!(out, "{:width$}  {:engine_width$}  passed  failed  skipped", "suite", "engine")?;
        for Suite { name, counts, .. } in &self.suites {
            for (engine, Counts { passed, failed, skipped }) in counts {
                let engine = engine.unwrap_or("-");
                writeln!(out, "{name:width$}  {engine:engine_width$}  {passed:6}  {failed:6}  {skipped:7}")?;
            }
        }
        self.print_skips(out)
    }

    fn print_skips(&self, out: &mut dyn Write) -> io::Result<()> {
        let total = self.total().skipped;
        if total == 0 {
            return Ok(());
        }
        writeln!(out, "\n{total} skipped:")?;
        let mut lines = Vec::new();
        for Suite { name, skips, .. } in &self.suites {
            lines.extend(skips.iter().map(|(reason, skips)| (name, reason, skips)));
        }
        lines.sort_by_key(|(_, _, skips)| Reverse(skips.count));
        for (name, reason, Skips { count, engines }) in lines {
            let on = if engines.is_empty() { String::new() } else { format!(" on {}", engines.join(", ")) };
            writeln!(out, "{count:5} of {name}{on}: {reason}")?;
        }
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = (Option<&'static str>, Counts)> {
        self.suites.iter().flat_map(|suite| suite.counts.iter().copied())
    }
}

impl Suite {
    fn add(&mut self, engine: Option<&'static str>, outcome: &Outcome) {
        let counts = match self.counts.iter().position(|(other, _)| *other == engine) {
            Some(index) => index,
            None => {
                self.counts.push((engine, Counts::default()));
                self.counts.len() - 1
            }
        };
        let counts = &mut self.counts[counts].1;
        match outcome {
            Outcome::Passed => counts.passed += 1,
            Outcome::Failed { .. } => counts.failed += 1,
            Outcome::Skipped { reason } => {
                counts.skipped += 1;
                let skips = self.skips.entry(reason.clone()).or_default();
                skips.count += 1;
                if let Some(engine) = engine.filter(|engine| !skips.engines.contains(engine)) {
                    skips.engines.push(engine);
                }
            }
        }
    }
}

impl Counts {
    /// Whether a test failed.
    pub(super) fn has_failures(self) -> bool {
        self.failed > 0
    }
}

impl core::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

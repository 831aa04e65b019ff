//! What is printed: one line per test, why a test failed, the table, the closing line, and the exit status.
//!
//! A test of a pool goes its way on each engine: its line names, in brackets, the engines on which it went so. Nothing
//! printed depends on the time, the machine or anything else but the files, the engines and the seeds, unless a test fails
//! on an engine in real time, or its events are asked for. That a test was carried out again there goes to the error output.

use alloc::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use crate::engine::Run;
use crate::format::Problem;
use crate::runner::{Outcome, Round};
use crate::unified;
use crate::uri_suite;
use crate::verdict::describe_value;

/// How much to print about single tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Only those that failed or were skipped; of connection strings, only those that failed.
    Exceptions,
    /// All.
    All,
    /// All, with their events.
    Events,
}

/// Prints results as they come, and counts them.
pub struct Report<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    detail: Detail,
    suites: Vec<Suite>,
    unusable: bool,
}

/// The results of one suite.
struct Suite {
    name: String,
    /// By engine, in the order in which they came.
    tallies: Vec<(Option<&'static str>, Tally)>,
}

/// The results of one suite on one engine, or without one.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Why tests were skipped, and how many for each reason.
    reasons: BTreeMap<String, usize>,
}

impl Tally {
    fn skip(&mut self, reason: &str) {
        self.skipped += 1;
        *self.reasons.entry(reason.into()).or_default() += 1;
    }
}

impl<'a> Report<'a> {
    /// An empty report that prints results to `out` and unusable input to `err`.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write, detail: Detail) -> Self {
        Self { out, err, detail, suites: Vec::new(), unusable: false }
    }

    /// Counts what follows under `name`.
    pub fn begin_suite(&mut self, name: &str) {
        self.suites.push(Suite { name: name.into(), tallies: Vec::new() });
    }

    /// Prints a line that is no result.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Prints and counts how the test in the file `path` went, on each engine.
    pub fn result(&mut self, path: &Path, description: &str, outcomes: &[(&'static str, Outcome)]) -> io::Result<()> {
        let test = test_name(path, description);
        let mut passed = Vec::new();
        let mut skipped: Vec<(&str, Vec<&str>)> = Vec::new();
        for (engine, outcome) in outcomes {
            let tally = self.tally(Some(engine));
            match outcome {
                Outcome::Passed { .. } => {
                    tally.passed += 1;
                    passed.push(*engine);
                }
                Outcome::Failed { .. } => tally.failed += 1,
                Outcome::Skipped { reason } => {
                    tally.skip(reason);
                    match skipped.iter_mut().find(|(other, _)| other == reason) {
                        Some((_, engines)) => engines.push(engine),
                        None => skipped.push((reason, vec![engine])),
                    }
                }
            }
        }
        if !passed.is_empty() && self.detail != Detail::Exceptions {
            writeln!(self.out, "PASS {test} [{}]", passed.join(", "))?;
        }
        for (reason, engines) in skipped {
            writeln!(self.out, "SKIP {test} [{}] ({reason})", engines.join(", "))?;
        }
        for (engine, outcome) in outcomes {
            match outcome {
                Outcome::Passed { round, run } => {
                    if run.retaken > 0 {
                        let count = run.retaken;
                        writeln!(
                            self.err,
                            "AGAIN {test} [{engine}] (failed {count} times while the machine stood still)"
                        )?;
                    }
                    self.events(engine, *round, run)?;
                }
                Outcome::Failed { round, run, failure } => {
                    writeln!(self.out, "FAIL {test} [{engine}]\n  {round}")?;
                    failure.to_string().lines().try_for_each(|line| writeln!(self.out, "  {line}"))?;
                    self.events(engine, *round, run)?;
                }
                Outcome::Skipped { .. } => {}
            }
        }
        Ok(())
    }

    /// Prints and counts that the test in the file `path` is in a format that is not run.
    pub fn unsupported(&mut self, path: &Path, description: &str, reason: &str) -> io::Result<()> {
        self.tally(None).skip(reason);
        writeln!(self.out, "SKIP {} ({reason})", test_name(path, description))
    }

    /// Prints and counts how a case of the file `path` about connection strings went.
    pub fn uri_result(&mut self, path: &Path, description: &str, outcome: &uri_suite::Outcome) -> io::Result<()> {
        let test = test_name(path, description);
        let is_listed = self.detail != Detail::Exceptions;
        match outcome {
            uri_suite::Outcome::Passed => {
                self.tally(None).passed += 1;
                if is_listed { writeln!(self.out, "PASS {test}") } else { Ok(()) }
            }
            uri_suite::Outcome::Failed { reasons } => {
                self.tally(None).failed += 1;
                writeln!(self.out, "FAIL {test}")?;
                reasons.iter().try_for_each(|reason| writeln!(self.out, "  {}", printable(reason)))
            }
            uri_suite::Outcome::Skipped { reason } => {
                self.tally(None).skip(reason);
                if is_listed { writeln!(self.out, "SKIP {test} ({reason})") } else { Ok(()) }
            }
        }
    }

    /// Prints and counts how a test of the file `path` in the unified format went.
    pub fn unified_result(&mut self, path: &Path, description: &str, outcome: &unified::Outcome) -> io::Result<()> {
        let test = test_name(path, description);
        match outcome {
            unified::Outcome::Passed => {
                self.tally(None).passed += 1;
                if self.detail == Detail::Exceptions { Ok(()) } else { writeln!(self.out, "PASS {test}") }
            }
            unified::Outcome::Failed { seed, reasons } => {
                self.tally(None).failed += 1;
                writeln!(self.out, "FAIL {test}\n  seed {seed}")?;
                reasons.iter().try_for_each(|reason| writeln!(self.out, "  {}", printable(reason)))
            }
            unified::Outcome::Skipped { reason } => {
                self.tally(None).skip(reason);
                writeln!(self.out, "SKIP {test} ({})", printable(reason))
            }
        }
    }

    /// Prints why `path` cannot be used.
    pub fn unusable(&mut self, path: &Path, problem: &Problem) -> io::Result<()> {
        self.unusable = true;
        writeln!(self.err, "ERROR {}", printable(&format!("{}: {problem}", path.display())))
    }

    /// Prints why nothing can be run.
    pub fn unable(&mut self, error: &dyn std::error::Error) -> io::Result<()> {
        self.unusable = true;
        writeln!(self.err, "ERROR {}", printable(&error.to_string()))
    }

    /// Prints the results of each suite on each engine, and why tests were skipped.
    pub fn table(&mut self) -> io::Result<()> {
        let widest = |names: &mut dyn Iterator<Item = &str>| names.map(|name| name.chars().count()).max();
        let width = widest(&mut self.suites.iter().map(|suite| &*suite.name).chain(["suite"])).unwrap_or_default();
        let engines = self.tallies().filter_map(|(engine, _)| engine);
        let engine_width = widest(&mut engines.chain(["engine"])).unwrap_or_default();
        writeln!(self.out, "{:width$}  {:engine_width$}  passed  failed  skipped", "suite", "engine")?;
        for Suite { name, tallies } in &self.suites {
            for (engine, Tally { passed, failed, skipped, .. }) in tallies {
                let engine = engine.unwrap_or("-");
                writeln!(self.out, "{name:width$}  {engine:engine_width$}  {passed:6}  {failed:6}  {skipped:7}")?;
            }
        }
        for suite in &self.suites {
            let mut reasons: BTreeMap<(&str, usize), Vec<&str>> = BTreeMap::new();
            for (engine, tally) in &suite.tallies {
                for (reason, &count) in &tally.reasons {
                    reasons.entry((reason, count)).or_default().extend(*engine);
                }
            }
            for ((reason, count), engines) in reasons {
                let on = if engines.is_empty() { String::new() } else { format!(" on {}", engines.join(", ")) };
                writeln!(self.out, "{count} skipped in {}{on}: {reason}", suite.name)?;
            }
        }
        writeln!(self.out)
    }

    /// Prints the totals of each engine, if there were several, and the last line.
    pub fn close(&mut self) -> io::Result<()> {
        let mut engines: Vec<&str> = Vec::new();
        for engine in self.tallies().filter_map(|(engine, _)| engine) {
            if !engines.contains(&engine) {
                engines.push(engine);
            }
        }
        if engines.len() > 1 {
            for engine in engines {
                let of_engine = self.total(|other| other == Some(engine));
                writeln!(self.out, "{engine}: {of_engine}")?;
            }
        }
        let total = self.total(|_| true);
        writeln!(self.out, "{total}")?;
        self.out.flush()
    }

    /// The exit status for all so far: 2 for unusable input, 1 for a failure, else 0.
    pub fn status(&self) -> u8 {
        if self.unusable { 2 } else { u8::from(self.tallies().any(|(_, tally)| tally.failed > 0)) }
    }

    fn tally(&mut self, engine: Option<&'static str>) -> &mut Tally {
        if self.suites.is_empty() {
            self.begin_suite("tests");
        }
        let last = self.suites.len() - 1;
        let tallies = &mut self.suites[last].tallies;
        let index = tallies.iter().position(|(other, _)| *other == engine).unwrap_or_else(|| {
            tallies.push((engine, Tally::default()));
            tallies.len() - 1
        });
        &mut tallies[index].1
    }

    fn tallies(&self) -> impl Iterator<Item = (Option<&'static str>, &Tally)> {
        self.suites.iter().flat_map(|suite| &suite.tallies).map(|(engine, tally)| (*engine, tally))
    }

    fn total(&self, is_meant: impl Fn(Option<&str>) -> bool) -> String {
        let meant = || self.tallies().filter(|(engine, _)| is_meant(*engine)).map(|(_, tally)| tally);
        let sum = |count: fn(&Tally) -> usize| meant().map(count).sum::<usize>();
        let (passed, failed, skipped) =
            (sum(|tally| tally.passed), sum(|tally| tally.failed), sum(|tally| tally.skipped));
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    fn events(&mut self, engine: &str, round: Round, run: &Run) -> io::Result<()> {
        if self.detail != Detail::Events {
            return Ok(());
        }
        writeln!(self.out, "  events on {engine}, {round}:")?;
        run.events.iter().try_for_each(|event| writeln!(self.out, "    {}", describe_value(event)))
    }
}

fn test_name(path: &Path, description: &str) -> String {
    printable(&format!("{}: {description}", path.display()))
}

/// `text` on one line: a file must not look like the result of another, nor write to a terminal.
fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().collect() } else { String::from(c) };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Detail, Report};
    use crate::engine::Run;
    use crate::format::Problem;
    use crate::runner::{Outcome, Round};
    use crate::uri_suite;
    use crate::verdict::Failure;

    fn print(detail: Detail, body: impl Fn(&mut Report<'_>)) -> (String, String, u8) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut report = Report::new(&mut out, &mut err, detail);
        body(&mut report);
        let status = report.status();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), status)
    }

    fn passed() -> Outcome {
        Outcome::Passed { round: Round::Seed(0), run: Run::default() }
    }

    #[test]
    fn the_table_counts_by_suite_and_engine_and_gives_reasons() {
        let skipped = || Outcome::Skipped { reason: "no such server".into() };
        let failure = Failure { reasons: vec!["bad".into()], comparison: Vec::new() };
        let failed = Outcome::Failed { round: Round::Seed(17), run: Run::default(), failure };
        let (out, err, status) = print(Detail::Exceptions, |report| {
            report.begin_suite("cmap-format");
            report.result(Path::new("a.json"), "a", &[("core", passed()), ("smol", passed())]).unwrap();
            report.result(Path::new("b.json"), "b", &[("core", failed.clone()), ("smol", passed())]).unwrap();
            report.begin_suite("own");
            let outcomes = [("core", passed()), ("tokio", skipped()), ("smol", skipped())];
            report.result(Path::new("c.json"), "c", &outcomes).unwrap();
            report.unsupported(Path::new("d.json"), "d", "a strange format").unwrap();
            report.table().unwrap();
            report.close().unwrap();
        });
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            lines,
            [
                "FAIL b.json: b [core]",
                "  seed 17",
                "  bad",
                "SKIP c.json: c [tokio, smol] (no such server)",
                "SKIP d.json: d (a strange format)",
                "suite        engine  passed  failed  skipped",
                "cmap-format  core         1       1        0",
                "cmap-format  smol         2       0        0",
                "own          core         1       0        0",
                "own          tokio        0       0        1",
                "own          smol         0       0        1",
                "own          -            0       0        1",
                "1 skipped in own: a strange format",
                "1 skipped in own on tokio, smol: no such server",
                "",
                "core: 2 passed, 1 failed, 0 skipped",
                "smol: 2 passed, 0 failed, 1 skipped",
                "tokio: 0 passed, 0 failed, 1 skipped",
                "4 passed, 1 failed, 3 skipped",
            ]
        );
        assert_eq!((err.as_str(), status), ("", 1));
    }

    #[test]
    fn what_was_carried_out_again_is_said_so() {
        let run = Run { retaken: 2, ..Run::default() };
        let passed = Outcome::Passed { round: Round::Run(1), run };

        let (_, err, status) = print(Detail::Exceptions, |report| {
            report.begin_suite("cmap-format");
            report.result(Path::new("a.json"), "a", &[("smol", passed.clone())]).unwrap();
        });

        assert_eq!(err, "AGAIN a.json: a [smol] (failed 2 times while the machine stood still)\n");
        assert_eq!(status, 0);
    }

    #[test]
    fn of_connection_strings_only_failures_are_exceptions() {
        let failed = uri_suite::Outcome::Failed { reasons: vec!["bad".into(), "a\nb".into()] };
        let skipped = uri_suite::Outcome::Skipped { reason: "SRV".into() };
        let outcomes = [uri_suite::Outcome::Passed, failed, skipped];
        let print = |detail| {
            let (out, _, status) = print(detail, |report| {
                for outcome in &outcomes {
                    report.uri_result(Path::new("a.json"), "a", outcome).unwrap();
                }
                report.close().unwrap();
            });
            assert_eq!(status, 1);
            out
        };
        let failure = "FAIL a.json: a\n  bad\n  a\\nb\n";
        let closing = "1 passed, 1 failed, 1 skipped\n";
        assert_eq!(print(Detail::Exceptions), format!("{failure}{closing}"));
        assert_eq!(print(Detail::All), format!("PASS a.json: a\n{failure}SKIP a.json: a (SRV)\n{closing}"));
    }

    #[test]
    fn unusable_input_outweighs_everything() {
        let (out, err, status) = print(Detail::All, |report| {
            report.result(Path::new("a.json"), "a", &[("core", passed())]).unwrap();
            report.unusable(Path::new("b.json"), &Problem::of_file("is empty")).unwrap();
        });
        assert_eq!((out.as_str(), err.as_str(), status), ("PASS a.json: a [core]\n", "ERROR b.json: is empty\n", 2));
    }
}

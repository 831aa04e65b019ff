//! The output: lines about single tests, the table, the closing line, and the exit status.
//!
//! A test of a pool runs on each engine: its line names, in brackets, the engines with that outcome. The output depends
//! only on the files, the engines and the seeds, unless a test fails on an engine in real time, or its events are asked
//! for. A note that a test was repeated there goes to the error output.

mod table;

use std::io::{self, Write};
use std::path::Path;

use self::table::Table;
use super::outcome::{Outcome, Round};
use super::problem::Problem;

/// How much to print about single tests. Each includes the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Those that failed.
    Failures,
    /// Those that were skipped.
    Skips,
    /// Those that passed.
    All,
    /// Their events.
    Events,
}

/// The outcome of a test on one engine, or without any.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The engine, if the test has one.
    pub engine: Option<&'static str>,
    /// The outcome.
    pub outcome: Outcome,
    /// The run that shows it, if the test has events to show.
    pub shown: Option<Shown>,
}

/// The shown run of a test.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Which of the runs.
    pub round: Round,
    /// Its events, a line for each.
    pub events: Vec<String>,
    /// How often the test had failed before while the machine stalled.
    pub retaken: u32,
}

/// Prints results as they come, and counts them.
pub struct Report<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    detail: Detail,
    table: Table,
    unusable: bool,
}

impl From<Outcome> for Entry {
    /// The outcome of a test without an engine.
    fn from(outcome: Outcome) -> Self {
        Self { engine: None, outcome, shown: None }
    }
}

impl<'a> Report<'a> {
    /// An empty report that prints results to `out` and unusable input to `err`.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write, detail: Detail) -> Self {
        Self { out, err, detail, table: Table::default(), unusable: false }
    }

    /// Counts the following results under `name`.
    pub fn begin_suite(&mut self, name: &str) {
        self.table.begin_suite(name);
    }

    /// Prints a line that is not a result.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Prints and counts the outcome of the test in the file `path` on each engine.
    pub fn result(&mut self, path: &Path, description: &str, entries: &[Entry]) -> io::Result<()> {
        let test = printable(&format!("{}: {description}", path.display()));
        for entry in entries {
            self.table.add(entry.engine, &entry.outcome);
        }
        if self.detail >= Detail::All {
            self.passed(&test, entries)?;
        }
        if self.detail >= Detail::Skips {
            self.skipped(&test, entries)?;
        }
        for entry in entries {
            self.failed(&test, entry)?;
            self.shown(&test, entry)?;
        }
        Ok(())
    }

    /// One line for all engines.
    fn passed(&mut self, test: &str, entries: &[Entry]) -> io::Result<()> {
        let passed: Vec<_> = entries.iter().filter(|entry| entry.outcome == Outcome::Passed).collect();
        if passed.is_empty() {
            return Ok(());
        }
        let engines: Vec<_> = passed.iter().filter_map(|entry| entry.engine).collect();
        writeln!(self.out, "PASS {test}{}", bracketed(&engines))
    }

    /// One line for all engines with the same reason.
    fn skipped(&mut self, test: &str, entries: &[Entry]) -> io::Result<()> {
        let mut skips: Vec<(&str, Vec<&str>)> = Vec::new();
        for entry in entries {
            let Outcome::Skipped { reason } = &entry.outcome else { continue };
            match skips.iter_mut().find(|(other, _)| other == reason) {
                Some((_, engines)) => engines.extend(entry.engine),
                None => skips.push((reason, entry.engine.into_iter().collect())),
            }
        }
        skips.into_iter().try_for_each(|(reason, engines)| {
            writeln!(self.out, "SKIP {test}{} ({})", bracketed(&engines), printable(reason))
        })
    }

    fn failed(&mut self, test: &str, entry: &Entry) -> io::Result<()> {
        let Outcome::Failed { round, reasons } = &entry.outcome else { return Ok(()) };
        writeln!(self.out, "FAIL {test}{}", bracketed(entry.engine.as_slice()))?;
        if let Some(round) = round {
            writeln!(self.out, "  {round}")?;
        }
        reasons.iter().try_for_each(|reason| writeln!(self.out, "  {}", printable(reason)))
    }

    fn shown(&mut self, test: &str, entry: &Entry) -> io::Result<()> {
        let Some(Shown { round, events, retaken }) = &entry.shown else { return Ok(()) };
        if *retaken > 0 && entry.outcome == Outcome::Passed {
            let engine = bracketed(entry.engine.as_slice());
            writeln!(self.err, "AGAIN {test}{engine} (failed {retaken} times while the machine stood still)")?;
        }
        if self.detail < Detail::Events {
            return Ok(());
        }
        let engine = entry.engine.map(|engine| format!(" on {engine}")).unwrap_or_default();
        writeln!(self.out, "  events{engine}, {round}:")?;
        events.iter().try_for_each(|event| writeln!(self.out, "    {event}"))
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
        self.table.print(self.out)?;
        writeln!(self.out)
    }

    /// Prints the totals of each engine, if there were several, and the last line.
    pub fn close(&mut self) -> io::Result<()> {
        let engines = self.table.engines();
        if engines.len() > 1 {
            engines.iter().try_for_each(|(engine, total)| writeln!(self.out, "{engine}: {total}"))?;
        }
        writeln!(self.out, "{}", self.table.total())?;
        self.out.flush()
    }

    /// The exit status so far: 2 for unusable input, 1 for a failure, else 0.
    pub fn status(&self) -> u8 {
        if self.unusable { 2 } else { u8::from(self.table.total().has_failures()) }
    }
}

/// The engines in brackets; nothing for a test without engines.
fn bracketed(engines: &[&str]) -> String {
    if engines.is_empty() { String::new() } else { format!(" [{}]", engines.join(", ")) }
}

/// `text` on one line: a file must not look like the result of another, nor write to a terminal.
fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().collect() } else { String::from(c) };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Detail, Entry, Report, Shown};
    use crate::suites::outcome::{Outcome, Round};
    use crate::suites::problem::Problem;

    fn print(detail: Detail, body: impl Fn(&mut Report<'_>)) -> (String, String, u8) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut report = Report::new(&mut out, &mut err, detail);
        body(&mut report);
        let status = report.status();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), status)
    }

    fn on(engine: &'static str, outcome: Outcome) -> Entry {
        Entry { engine: Some(engine), outcome, shown: None }
    }

    fn passed(engine: &'static str) -> Entry {
        on(engine, Outcome::Passed)
    }

    fn skipped(reason: &str) -> Outcome {
        Outcome::Skipped { reason: reason.into() }
    }

    fn failed(reasons: &[&str]) -> Outcome {
        Outcome::of(reasons.iter().map(|&reason| reason.to_owned()).collect())
    }

    #[test]
    fn the_table_counts_by_suite_and_engine_and_gives_reasons() {
        let failed = Outcome::Failed { round: Some(Round::Seed(17)), reasons: vec!["bad".into()] };
        let no_server = || skipped("no such server");
        let body = |report: &mut Report<'_>| {
            report.begin_suite("cmap-format");
            report.result(Path::new("a.json"), "a", &[passed("core"), passed("smol")]).unwrap();
            report.result(Path::new("b.json"), "b", &[on("core", failed.clone()), passed("smol")]).unwrap();
            report.begin_suite("own");
            report.result(Path::new("d.json"), "d", &[skipped("a strange format").into()]).unwrap();
            let entries = [passed("core"), on("tokio", no_server()), on("smol", no_server())];
            report.result(Path::new("c.json"), "c", &entries).unwrap();
            report.table().unwrap();
            report.close().unwrap();
        };
        let (out, err, status) = print(Detail::Failures, body);
        let failure = ["FAIL b.json: b [core]", "  seed 17", "  bad"];
        let skips = ["SKIP d.json: d (a strange format)", "SKIP c.json: c [tokio, smol] (no such server)"];
        let summary = [
            "suite        engine  passed  failed  skipped",
            "cmap-format  core         1       1        0",
            "cmap-format  smol         2       0        0",
            "own          -            0       0        1",
            "own          core         1       0        0",
            "own          tokio        0       0        1",
            "own          smol         0       0        1",
            "",
            "3 skipped:",
            "    2 of own on tokio, smol: no such server",
            "    1 of own: a strange format",
            "",
            "core: 2 passed, 1 failed, 0 skipped",
            "smol: 2 passed, 0 failed, 1 skipped",
            "tokio: 0 passed, 0 failed, 1 skipped",
            "4 passed, 1 failed, 3 skipped",
        ];
        assert_eq!(out.lines().collect::<Vec<_>>(), [&failure[..], &summary].concat());
        assert_eq!((err.as_str(), status), ("", 1));
        let (out, ..) = print(Detail::Skips, body);
        assert_eq!(out.lines().collect::<Vec<_>>(), [&failure[..], &skips, &summary].concat());
    }

    #[test]
    fn what_was_carried_out_again_is_said_so() {
        let shown = Some(Shown { round: Round::Run(1), events: Vec::new(), retaken: 2 });
        let passed = Entry { shown, ..passed("smol") };

        let (_, err, status) = print(Detail::Failures, |report| {
            report.begin_suite("cmap-format");
            report.result(Path::new("a.json"), "a", core::slice::from_ref(&passed)).unwrap();
        });

        assert_eq!(err, "AGAIN a.json: a [smol] (failed 2 times while the machine stood still)\n");
        assert_eq!(status, 0);
    }

    #[test]
    fn of_connection_strings_only_failures_are_exceptions() {
        let outcomes = [Outcome::Passed, failed(&["bad", "a\nb"]), skipped("SRV")];
        let print = |detail| {
            let (out, _, status) = print(detail, |report| {
                for outcome in &outcomes {
                    report.result(Path::new("a.json"), "a", &[outcome.clone().into()]).unwrap();
                }
                report.close().unwrap();
            });
            assert_eq!(status, 1);
            out
        };
        let failure = "FAIL a.json: a\n  bad\n  a\\nb\n";
        let closing = "1 passed, 1 failed, 1 skipped\n";
        assert_eq!(print(Detail::Failures), format!("{failure}{closing}"));
        assert_eq!(print(Detail::All), format!("PASS a.json: a\n{failure}SKIP a.json: a (SRV)\n{closing}"));
    }

    #[test]
    fn unusable_input_outweighs_everything() {
        let (out, err, status) = print(Detail::All, |report| {
            report.result(Path::new("a.json"), "a", &[passed("core")]).unwrap();
            report.unusable(Path::new("b.json"), &Problem::of_file("is empty")).unwrap();
        });
        assert_eq!((out.as_str(), err.as_str(), status), ("PASS a.json: a [core]\n", "ERROR b.json: is empty\n", 2));
    }
}

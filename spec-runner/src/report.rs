//! What is printed: one line per test, why a test failed, the table, the closing line, and the exit status.
//!
//! Nothing printed depends on the time, the machine or anything else but the files, the engine and the seeds.

use alloc::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use crate::engine::Run;
use crate::format::Problem;
use crate::runner::Outcome;
use crate::unified;
use crate::uri_suite;
use crate::verdict::{Failure, describe_value};

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
    suites: Vec<Tally>,
    unusable: bool,
}

/// The results of one suite.
#[derive(Default)]
struct Tally {
    name: String,
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
        self.suites.push(Tally { name: name.into(), ..Tally::default() });
    }

    /// Prints a line that is no result.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Prints and counts how the test in the file `path` went.
    pub fn result(&mut self, path: &Path, description: &str, outcome: &Outcome) -> io::Result<()> {
        let test = test_name(path, description);
        match outcome {
            Outcome::Passed { seed, run } => {
                self.tally().passed += 1;
                if self.detail == Detail::Exceptions {
                    return Ok(());
                }
                writeln!(self.out, "PASS {test}")?;
                self.events(*seed, run)
            }
            Outcome::Failed { seed, run, failure } => {
                self.tally().failed += 1;
                writeln!(self.out, "FAIL {test}")?;
                self.failure(*seed, failure)?;
                self.events(*seed, run)
            }
            Outcome::Skipped { reason } => {
                self.tally().skip(reason);
                writeln!(self.out, "SKIP {test} ({reason})")
            }
        }
    }

    /// Prints and counts how a case of the file `path` about connection strings went.
    pub fn uri_result(&mut self, path: &Path, description: &str, outcome: &uri_suite::Outcome) -> io::Result<()> {
        let test = test_name(path, description);
        let is_listed = self.detail != Detail::Exceptions;
        match outcome {
            uri_suite::Outcome::Passed => {
                self.tally().passed += 1;
                if is_listed { writeln!(self.out, "PASS {test}") } else { Ok(()) }
            }
            uri_suite::Outcome::Failed { reasons } => {
                self.tally().failed += 1;
                writeln!(self.out, "FAIL {test}")?;
                reasons.iter().try_for_each(|reason| writeln!(self.out, "  {}", printable(reason)))
            }
            uri_suite::Outcome::Skipped { reason } => {
                self.tally().skip(reason);
                if is_listed { writeln!(self.out, "SKIP {test} ({reason})") } else { Ok(()) }
            }
        }
    }

    /// Prints and counts how a test of the file `path` in the unified format went.
    pub fn unified_result(&mut self, path: &Path, description: &str, outcome: &unified::Outcome) -> io::Result<()> {
        let test = test_name(path, description);
        match outcome {
            unified::Outcome::Passed => {
                self.tally().passed += 1;
                if self.detail == Detail::Exceptions { Ok(()) } else { writeln!(self.out, "PASS {test}") }
            }
            unified::Outcome::Failed { seed, reasons } => {
                self.tally().failed += 1;
                writeln!(self.out, "FAIL {test}\n  seed {seed}")?;
                reasons.iter().try_for_each(|reason| writeln!(self.out, "  {}", printable(reason)))
            }
            unified::Outcome::Skipped { reason } => {
                self.tally().skip(reason);
                writeln!(self.out, "SKIP {test} ({})", printable(reason))
            }
        }
    }

    /// Prints why `path` cannot be used.
    pub fn unusable(&mut self, path: &Path, problem: &Problem) -> io::Result<()> {
        self.unusable = true;
        writeln!(self.err, "ERROR {}", printable(&format!("{}: {problem}", path.display())))
    }

    /// Prints the results of each suite, and why tests were skipped.
    pub fn table(&mut self) -> io::Result<()> {
        let width = self.suites.iter().map(|suite| suite.name.chars().count()).max().unwrap_or_default();
        let width = width.max("suite".len());
        writeln!(self.out, "{:width$}  passed  failed  skipped", "suite")?;
        for Tally { name, passed, failed, skipped, .. } in &self.suites {
            writeln!(self.out, "{name:width$}  {passed:6}  {failed:6}  {skipped:7}")?;
        }
        for suite in &self.suites {
            for (reason, count) in &suite.reasons {
                writeln!(self.out, "{count} skipped in {}: {reason}", suite.name)?;
            }
        }
        writeln!(self.out)
    }

    /// Prints the last line.
    pub fn close(&mut self) -> io::Result<()> {
        let sum = |count: fn(&Tally) -> usize| self.suites.iter().map(count).sum::<usize>();
        let (passed, failed, skipped) =
            (sum(|suite| suite.passed), sum(|suite| suite.failed), sum(|suite| suite.skipped));
        writeln!(self.out, "{passed} passed, {failed} failed, {skipped} skipped")?;
        self.out.flush()
    }

    /// The exit status for all so far: 2 for unusable input, 1 for a failure, else 0.
    pub fn status(&self) -> u8 {
        if self.unusable { 2 } else { u8::from(self.suites.iter().any(|suite| suite.failed > 0)) }
    }

    fn tally(&mut self) -> &mut Tally {
        if self.suites.is_empty() {
            self.begin_suite("tests");
        }
        let last = self.suites.len() - 1;
        &mut self.suites[last]
    }

    fn failure(&mut self, seed: u64, failure: &Failure) -> io::Result<()> {
        writeln!(self.out, "  seed {seed}")?;
        failure.to_string().lines().try_for_each(|line| writeln!(self.out, "  {line}"))
    }

    fn events(&mut self, seed: u64, run: &Run) -> io::Result<()> {
        if self.detail != Detail::Events {
            return Ok(());
        }
        writeln!(self.out, "  events under seed {seed}:")?;
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
    use crate::runner::Outcome;
    use crate::uri_suite;
    use crate::verdict::Failure;

    fn print(detail: Detail, body: impl Fn(&mut Report<'_>)) -> (String, String, u8) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut report = Report::new(&mut out, &mut err, detail);
        body(&mut report);
        let status = report.status();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), status)
    }

    #[test]
    fn the_table_counts_by_suite_and_gives_reasons() {
        let skipped = Outcome::Skipped { reason: "no such server".into() };
        let failure = Failure { reasons: vec!["bad".into()], comparison: Vec::new() };
        let failed = Outcome::Failed { seed: 17, run: Run::default(), failure };
        let (out, err, status) = print(Detail::Exceptions, |report| {
            report.begin_suite("cmap-format");
            report.result(Path::new("a.json"), "a", &Outcome::Passed { seed: 0, run: Run::default() }).unwrap();
            report.result(Path::new("b.json"), "b", &failed).unwrap();
            report.begin_suite("own");
            report.result(Path::new("c.json"), "c", &skipped).unwrap();
            report.table().unwrap();
            report.close().unwrap();
        });
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            lines,
            [
                "FAIL b.json: b",
                "  seed 17",
                "  bad",
                "SKIP c.json: c (no such server)",
                "suite        passed  failed  skipped",
                "cmap-format       1       1        0",
                "own               0       0        1",
                "1 skipped in own: no such server",
                "",
                "1 passed, 1 failed, 1 skipped",
            ]
        );
        assert_eq!((err.as_str(), status), ("", 1));
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
            report.result(Path::new("a.json"), "a", &Outcome::Passed { seed: 0, run: Run::default() }).unwrap();
            report.unusable(Path::new("b.json"), &Problem::of_file("is empty")).unwrap();
        });
        assert_eq!((out.as_str(), err.as_str(), status), ("PASS a.json: a\n", "ERROR b.json: is empty\n", 2));
    }
}

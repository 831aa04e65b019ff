//! One program's run: its lines are read as they come, and it is killed if it takes too long.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use cmap_cli::process::{Output, ProcessError};

use super::InteropError;
use super::checks::Check;
use super::column::Column;

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should.
    Passed,
    /// Not as it should, and why.
    Failed(String),
    /// The driver does not have what the check is about.
    Skipped(String),
}

/// What is left of a program that ended.
#[derive(Debug)]
pub struct Ending {
    /// What it printed besides results.
    pub output: String,
}

impl Verdict {
    /// Reads a line: `PASS name`, `FAIL name: reason` or `SKIP name: reason`.
    pub fn read(line: &str) -> Option<(&str, Self)> {
        let (word, rest) = line.split_once(' ')?;
        match (word, rest.split_once(": ")) {
            ("PASS", _) => Some((rest, Self::Passed)),
            ("FAIL", Some((name, reason))) => Some((name, Self::Failed(reason.to_owned()))),
            ("SKIP", Some((name, reason))) => Some((name, Self::Skipped(reason.to_owned()))),
            _ => None,
        }
    }

    /// What is said about it at once; nothing if it passed.
    pub(super) fn line(&self, column: Column, check: &Check) -> Option<String> {
        match self {
            Self::Passed => None,
            Self::Failed(reason) => Some(format!("FAIL {column}: {}: {reason}", check.name)),
            Self::Skipped(reason) => Some(format!("SKIP {column}: {}: {reason}", check.name)),
        }
    }
}

/// Runs `command` on `input` and reports each of `checks` once. A check that the program says nothing about has failed.
#[expect(clippy::disallowed_methods, reason = "a program's time limit is in real time")]
pub fn run(
    mut command: Command,
    input: &Path,
    checks: &[&'static Check],
    timeout: Duration,
    report: &mut dyn FnMut(&'static Check, Verdict),
) -> Result<Ending, InteropError> {
    command.arg(input).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|source| ProcessError::Start { program: command.get_program().into(), source })?;
    let lines = read_lines(&mut child);
    let deadline = Instant::now() + timeout;
    let mut open = checks.to_vec();
    let output = Output::default();
    let reason = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => match Verdict::read(&line) {
                Some((name, verdict)) => match open.iter().position(|check| check.name == name) {
                    Some(place) => report(open.remove(place), verdict),
                    None => output.push(&line),
                },
                None => output.push(&line),
            },
            Err(RecvTimeoutError::Timeout) => break format!("no result within {timeout:?}; the program was killed"),
            Err(RecvTimeoutError::Disconnected) => break "no result; the program ended".to_owned(),
        }
    };
    // It has closed its outputs and is ending, or its time is up.
    let _ = child.kill();
    let _ = child.wait();
    for check in open {
        report(check, Verdict::Failed(reason.clone()));
    }
    Ok(Ending { output: output.text() })
}

/// The lines of both outputs, until both end.
fn read_lines(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = channel();
    let own_sender = sender.clone();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
    }
    if let Some(stderr) = child.stderr.take() {
        let read =
            move || BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| own_sender.send(line));
        thread::spawn(read);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::Verdict;

    #[test]
    fn lines_of_programs() {
        let failed = Verdict::Failed("no: it did not".into());
        assert_eq!(Verdict::read("PASS crud"), Some(("crud", Verdict::Passed)));
        assert_eq!(Verdict::read("FAIL crud: no: it did not"), Some(("crud", failed)));
        assert_eq!(Verdict::read("SKIP x509: never"), Some(("x509", Verdict::Skipped("never".into()))));
    }

    #[test]
    fn other_lines_are_no_results() {
        for line in ["", "PASS", "FAIL crud", "WARNING: old", "PASSED crud"] {
            assert_eq!(Verdict::read(line), None, "{line:?}");
        }
    }
}

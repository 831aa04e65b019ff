//! A process for each adapter: this program again, with the plan on its standard input. It prints a line of JSON for each
//! sample, and a last one with the result.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use cmap_async_std::AsyncStd;
use cmap_smol::Smol;
use cmap_tokio::Tokio;
use serde::{Deserialize, Serialize};

use super::args::{Adapter, Plan};
use super::panics;
use super::samples::Sample;
use super::session::{self, Run, SessionError};
use crate::process::this_program;

/// The argument that makes this program an adapter's process.
pub(crate) const COMMAND: &str = "soak-adapter";

/// How an adapter's process ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// With a result.
    Ended(Box<Ended>),
    /// Without, for this reason.
    Broken(String),
}

/// A result, and the samples before it.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The result.
    pub(crate) run: Run,
    /// The samples, in the order of time.
    pub(crate) samples: Vec<Sample>,
}

/// The arguments of an adapter's process.
#[derive(Debug, Serialize, Deserialize)]
struct Input {
    adapter: Adapter,
    plan: Plan,
}

/// A line that it prints.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    Sample(Sample),
    Ended(Box<Run>),
    Broken(String),
}

/// Soaks all `adapters` at a time. `watch` sees each sample as it is taken.
///
/// # Errors
/// Those of `watch`.
pub(crate) fn run(
    adapters: &[Adapter],
    plan: &Plan,
    watch: &mut dyn FnMut(Adapter, &Sample) -> io::Result<()>,
) -> io::Result<Vec<(Adapter, Ending)>> {
    let (sender, lines) = channel();
    let mut running = Vec::new();
    for &adapter in adapters {
        let started = start(adapter, plan, sender.clone());
        running.push((adapter, started, Vec::new(), None));
    }
    drop(sender);
    for (from, line) in lines {
        let Some((_, _, samples, result)) = running.iter_mut().find(|(adapter, ..)| *adapter == from) else { continue };
        match line {
            Line::Sample(sample) => {
                watch(from, &sample)?;
                samples.push(sample);
            }
            Line::Ended(run) => *result = Some(Ok(*run)),
            Line::Broken(reason) => *result = Some(Err(reason)),
        }
    }
    let ending = |started: io::Result<Process>, samples, result| match (started, result) {
        (Err(error), _) => Ending::Broken(format!("its process cannot be started: {error}")),
        (Ok(_), Some(Ok(run))) => Ending::Ended(Box::new(Ended { run, samples })),
        (Ok(_), Some(Err(reason))) => Ending::Broken(reason),
        // It has closed its output, so it is ending.
        (Ok(mut process), None) => Ending::Broken(match process.0.wait() {
            Ok(status) => format!("its process ended without a result ({status})"),
            Err(error) => format!("its process ended without a result ({error})"),
        }),
    };
    let ended =
        running.into_iter().map(|(adapter, started, samples, result)| (adapter, ending(started, samples, result)));
    Ok(ended.collect())
}

/// A started process. Dropping it kills it.
struct Process(Child);

fn start(adapter: Adapter, plan: &Plan, lines: Sender<(Adapter, Line)>) -> io::Result<Process> {
    let mut command: Command = this_program().map_err(io::Error::other)?;
    let child = command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut process = Process(child);
    if let Some(mut stdin) = process.0.stdin.take() {
        serde_json::to_writer(&mut stdin, &Input { adapter, plan: plan.clone() })?;
    }
    if let Some(stdout) = process.0.stdout.take() {
        thread::spawn(move || {
            let read = |line: io::Result<String>| serde_json::from_str(&line.ok()?).ok();
            // The receiver is gone if the run was given up.
            BufReader::new(stdout).lines().map_while(read).try_for_each(|line| lines.send((adapter, line)))
        });
    }
    Ok(process)
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended by itself, unless the run was given up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An adapter's process: reads what to do, soaks, and prints lines. The exit status is 0 if there is a result, else 2.
///
/// # Errors
/// Nothing more can be printed.
pub(crate) fn serve(out: &mut dyn Write) -> io::Result<u8> {
    panics::watch();
    let mut text = String::new();
    io::stdin().lock().read_line(&mut text)?;
    let soaked = match serde_json::from_str(&text) {
        Ok(input) => {
            soak(&input, &mut |sample| print(out, &Line::Sample(*sample))).map_err(|error| with_sources(&error))
        }
        Err(error) => Err(format!("not an input of this command: {error}")),
    };
    match soaked {
        Ok(run) => print(out, &Line::Ended(Box::new(run))).map(|()| 0),
        Err(reason) => print(out, &Line::Broken(reason)).map(|()| 2),
    }
}

fn soak(input: &Input, sink: &mut dyn FnMut(&Sample) -> io::Result<()>) -> Result<Run, SessionError> {
    match input.adapter {
        Adapter::Tokio => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            let runtime = runtime.map_err(SessionError::Runtime)?;
            let handle = runtime.handle().clone();
            let alive = || Some(handle.metrics().num_alive_tasks());
            session::run(Tokio::new(handle.clone()), &input.plan, &alive, sink)
        }
        Adapter::AsyncStd => session::run(AsyncStd, &input.plan, &|| None, sink),
        Adapter::Smol => session::run(Smol, &input.plan, &|| None, sink),
    }
}

fn print(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    writeln!(out)?;
    out.flush()
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let causes = core::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

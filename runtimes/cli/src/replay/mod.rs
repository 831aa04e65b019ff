//! `cmap replay`: repeats what a client recorded, from its file alone, and says why its callers waited.
//!
//! 1. `args` is the command line;
//! 2. `source` reads a trace, binary or as JSON lines, and writes the latter;
//! 3. `verify` makes all calls again and compares; `timeline` prints them;
//! 4. `hosts` writes a copy without the names of hosts;
//! 5. `history` tells what a sparse recorder wrote;
//! 6. `explanation` prints the waits that are asked for, as text or as JSON, and `rounding` their durations;
//! 7. `what_if` estimates them with other options;
//! 8. `picture` is what a trace looks like; `perfetto` and `page` draw it, and `drawing` writes the files;
//! 9. `lines` keeps texts of the trace from the terminal's controls.

mod args;
mod drawing;
mod explanation;
mod history;
mod hosts;
mod lines;
mod page;
mod perfetto;
mod picture;
mod rounding;
mod source;
mod timeline;
mod verify;
mod what_if;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use cmap_core::trace::{Question, Wait, WhatIfError};

use self::lines::Lines;

pub(crate) use self::args::ReplayArgs;

use self::args::Explained;

/// Repeats a trace. The exit status: 0; or 1 if the replay differs from the recording; or 2 if the trace cannot be read.
///
/// # Errors
/// Nothing more can be printed.
pub(crate) fn run(args: &ReplayArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let (out, err) = (&mut Lines(out), &mut Lines(err));
    let trace = match source::read(&args.trace) {
        Ok(trace) => trace,
        Err(error) => return writeln!(err, "error: {}: {error}", args.trace.display()).map(|()| 2),
    };
    if let Some(history) = &trace.history {
        return history::run(&trace, history, args, out, err);
    }
    if args.perfetto.is_some() || args.html.is_some() {
        return drawing::run(&trace, args, out, err);
    }
    if let Some(copy) = &args.hash_hosts {
        return write_file(hosts::replaced(&trace), copy, err);
    }
    if let Some(copy) = &args.sparse {
        return write_file(history::of(&trace), copy, err);
    }
    if let Some(explained) = args.explain.filter(|_| !args.what_if.is_empty()) {
        return match what_if::print(&trace, explained, &args.what_if, args.json, out)? {
            Ok(waits) => found(explained, &waits, err),
            Err(WhatIfError::Divergence(divergence)) => writeln!(err, "error: {divergence}").map(|()| 1),
            Err(error) => writeln!(err, "error: {error}").map(|()| 2),
        };
    }
    if let Some(explained) = args.explain {
        return explained_status(explained, explanation::print(&trace, explained, args.json, out)?, err);
    }
    let outcome = if args.json {
        source::write_lines(&trace, out)?;
        Ok(())
    } else if args.timeline {
        timeline::print(&trace, args.until, out)?
    } else {
        verify::print(&trace, args.until, out)?
    };
    status(outcome, err)
}

/// Writes a file that was made of a trace. The exit status is that of [`run`].
fn write_file<E: Display>(file: Result<Vec<u8>, E>, path: &Path, err: &mut dyn Write) -> io::Result<u8> {
    match file {
        Ok(file) => match std::fs::write(path, file) {
            Ok(()) => Ok(0),
            Err(error) => writeln!(err, "error: {}: {error}", path.display()).map(|()| 2),
        },
        Err(error) => writeln!(err, "error: {error}").map(|()| 1),
    }
}

/// The exit status of what makes the calls again.
fn status<E: Display>(outcome: Result<(), E>, err: &mut dyn Write) -> io::Result<u8> {
    match outcome {
        Ok(()) => Ok(0),
        Err(divergence) => writeln!(err, "error: {divergence}").map(|()| 1),
    }
}

/// The exit status of an explanation of these waits.
fn explained_status<E: Display>(
    explained: Explained,
    waits: Result<Vec<Wait>, E>,
    err: &mut dyn Write,
) -> io::Result<u8> {
    match waits {
        Ok(waits) => found(explained, &waits, err),
        Err(divergence) => status(Err(divergence), err),
    }
}

/// Whether a wait that was asked for by its call is there.
fn found(explained: Explained, waits: &[Wait], err: &mut dyn Write) -> io::Result<u8> {
    if let Question::Call(call) = explained.0
        && waits.is_empty()
    {
        return writeln!(err, "error: call {call} began no check-out that waited; --timeline shows the calls")
            .map(|()| 1);
    }
    Ok(0)
}

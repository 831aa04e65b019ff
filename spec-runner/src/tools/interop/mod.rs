//! Interoperability: MongoDB's official drivers against the embedded server, and our client against it and against
//! servers that were not written here.
//!
//! Every program makes the same [`checks`], as far as it can. Their way:
//!
//! 1. a [column](mod@column) of the table names a program and the servers that it talks to;
//! 2. [`servers`] starts those as processes, and stops them;
//! 3. [`program`] runs the program on a file that says where they are, and reads a line for each check;
//! 4. [`table`] shows which check passed with which program.
//!
//! `interop/README.md` has the formats of file and lines; [`cmap`] is the program that uses our client.

pub mod checks;
pub mod cmap;
pub mod column;
mod hub;
pub mod program;
pub mod servers;
pub mod table;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, process};

use cmap_cli::process::ProcessError;
use serde_json::json;
use thiserror::Error;

use checks::Check;
use column::Column;
use program::Ending;
use servers::Servers;
use table::Table;

/// What to run.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The columns of the table, in this order.
    pub columns: Vec<Column>,
    /// The checks, its rows.
    pub checks: Vec<&'static Check>,
    /// How long one program may take.
    pub timeout: Duration,
}

/// Why a program could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InteropError {
    /// The program is not installed.
    #[error("{} is not there; `.ci/interop` installs it", path.display())]
    NotInstalled {
        /// Where it should be.
        path: PathBuf,
    },
    /// The hub has not taken a user.
    #[error("the hub's program could not add the user {user:?}; `.ci/interop` builds it")]
    NoUser {
        /// The user.
        user: &'static str,
    },
    /// No MongoDB was named.
    #[error("${} is not set; set it to the connection string of a MongoDB to use", column::URI_VARIABLE)]
    NoUri,
    /// A process was not started, or a server does not listen.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file for the program cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Runs the programs one after the other, printing what fails and, at the end, the table. The exit status: 1 if a check
/// failed, 2 if a program could not be run.
///
/// # Errors
/// Nothing more can be printed.
pub fn run(selection: &Selection, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let mut table = Table::new(&selection.checks);
    let mut all_ran = true;
    for &column in &selection.columns {
        let checks: Vec<_> = selection.checks.iter().copied().filter(|check| column.can(check)).collect();
        if checks.is_empty() {
            continue;
        }
        table.begin(column);
        if let Err(error) = run_column(column, &checks, selection.timeout, &mut table, out)? {
            writeln!(err, "ERROR {column}: {}", with_sources(&error))?;
            all_ran = false;
        }
    }
    table.print(out)?;
    Ok(if all_ran { u8::from(table.failed() > 0) } else { 2 })
}

/// The outer result is about printing.
fn run_column(
    column: Column,
    checks: &[&'static Check],
    timeout: Duration,
    table: &mut Table,
    out: &mut dyn Write,
) -> io::Result<Result<(), InteropError>> {
    let prepared = column.command().and_then(|command| {
        let folder = Folder::new(column)?;
        let servers = column.servers().start(&folder.0)?;
        let input = write_input(&folder.0, &servers, checks)?;
        Ok((command, folder, servers, input))
    });
    let (command, _folder, servers, input) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Err(error)),
    };
    let mut printed = Ok(());
    let ran = program::run(command, &input, checks, timeout, &mut |check, verdict| {
        let line = verdict.line(column, check);
        if let (Some(line), Ok(())) = (line, &printed) {
            printed = writeln!(out, "{line}").and_then(|()| out.flush());
        }
        table.note(check, verdict);
    });
    printed?;
    let ending = match ran {
        Ok(ending) => ending,
        Err(error) => return Ok(Err(error)),
    };
    if table.failed_in_last() > 0 {
        print_outputs(&ending, &servers, out)?;
    }
    Ok(Ok(()))
}

/// How many of a process's last lines are shown.
const SHOWN: usize = 30;

/// The last lines of all processes, to find the reason of a failure.
fn print_outputs(ending: &Ending, servers: &Servers, out: &mut dyn Write) -> io::Result<()> {
    let of_servers = servers.outputs();
    let of_program = [("the program", ending.output.clone())];
    for (name, output) in of_program.into_iter().chain(of_servers).filter(|(_, output)| !output.is_empty()) {
        writeln!(out, "  {name} printed:")?;
        let skipped = output.lines().count().saturating_sub(SHOWN);
        output.lines().skip(skipped).try_for_each(|line| writeln!(out, "    {line}"))?;
    }
    Ok(())
}

fn write_input(folder: &Path, servers: &Servers, checks: &[&'static Check]) -> Result<PathBuf, InteropError> {
    let checks: Vec<_> = checks.iter().map(|check| check.name).collect();
    let input = json!({ "servers": servers.places(), "checks": checks });
    let path = folder.join("input.json");
    match fs::write(&path, input.to_string()) {
        Ok(()) => Ok(path),
        Err(source) => Err(InteropError::Write { path, source }),
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let causes = core::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// A folder for one column's files, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(column: Column) -> Result<Self, InteropError> {
        let path = std::env::temp_dir().join(format!("spec-runner-interop-{}-{column}", process::id()));
        match fs::create_dir_all(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(InteropError::Write { path, source }),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder left behind is no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}

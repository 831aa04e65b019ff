//! Writes the trace of an incident in virtual time, to look at: `cargo run --package cmap-cli --example incident -- OUT`.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "the incident is a test's, too")]

#[path = "../tests/commands/incident/mod.rs"]
mod incident;

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("error: no file is named; give the name of the file to write");
        return ExitCode::from(2);
    };
    match std::fs::write(&path, incident::file()) {
        Ok(()) => {
            println!("{} holds the leak by {}", path.to_string_lossy(), incident::LEAK);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {} cannot be written: {error}", path.to_string_lossy());
            ExitCode::FAILURE
        }
    }
}

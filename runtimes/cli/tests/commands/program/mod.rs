//! How tests run the program and read its output.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program with these arguments, and after them the paths.
pub(crate) fn cmap(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cmap")).args(args).args(paths).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> &str {
    core::str::from_utf8(&output.stdout).unwrap()
}

pub(crate) fn stderr(output: &Output) -> &str {
    core::str::from_utf8(&output.stderr).unwrap()
}

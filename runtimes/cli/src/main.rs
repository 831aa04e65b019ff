//! The program `cmap`; all of it is in the library, see [`cmap_cli`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cmap_cli::run(std::env::args_os())
}

//! `cmap-relay CONFIG`.

#![forbid(unsafe_code)]

mod cli;
mod service_manager;
mod signals;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}

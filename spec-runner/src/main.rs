//! The binary `spec-runner`; all of it is in the library, see [`spec_runner`].

use std::process::ExitCode;

fn main() -> ExitCode {
    spec_runner::cli::run(std::env::args_os())
}

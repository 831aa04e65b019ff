//! The command line.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::demo::{self, DemoArgs};
use crate::plan::{self, PlanArgs};
use crate::replay::{self, ReplayArgs};
use crate::serve::{self, ServeArgs};
use crate::soak::{self, SoakArgs};
use crate::while_read::WhileRead;

/// MongoDB's connection pool at work: a demo, a server for tests, recorded incidents, planned connections, and a soak.
#[derive(Parser)]
#[command(name = "cmap", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows the pool at work, in seconds: many tasks, few connections, a server that stops and comes back; what happened and why
    #[command(after_help = DEMO_EXIT_STATUS)]
    Demo(DemoArgs),
    /// Serves MongoDB's protocol for tests: handshakes, authentication, fail points, collections in memory
    #[command(after_long_help = serve::known())]
    Serve(ServeArgs),
    /// Repeats what a client recorded, from its file alone, and says why its callers waited
    #[command(after_help = REPLAY_EXIT_STATUS)]
    Replay(ReplayArgs),
    /// Counts the connections that an application's pools open at each server of a deployment, and says what fits
    #[command(after_help = PLAN_EXIT_STATUS)]
    Plan(PlanArgs),
    /// Lets many tasks use a client for a long time while its server is killed and restarted, and looks for what is left over
    #[command(after_help = SOAK_EXIT_STATUS)]
    Soak(SoakArgs),
    /// The process of one adapter in `soak`
    #[command(hide = true)]
    SoakAdapter,
}

const DEMO_EXIT_STATUS: &str =
    "Exit status: 0 if nothing is missing, 1 if something is, 2 if the demo could not be played.";

const REPLAY_EXIT_STATUS: &str =
    "Exit status: 0, or 1 if the replay differs from the recording, or 2 if the trace cannot be read.";

const PLAN_EXIT_STATUS: &str =
    "Exit status: 0 if all fits, 1 if there are warnings, 2 if the arguments cannot be used.";

const SOAK_EXIT_STATUS: &str =
    "Exit status: 0 if nothing is left over, 1 if something is, 2 if an adapter could not be soaked.";

/// Runs the program with these arguments, the first of which is its name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = match Cli::try_parse_from(args) {
        Ok(cli) => cli.command,
        Err(error) => {
            // If printing fails, there is nowhere to say so.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2).into();
        }
    };
    let is_terminal = io::stdout().is_terminal();
    match command {
        Command::Demo(args) => printed(|out, err| demo::run(&args, out, err, is_terminal)),
        Command::Serve(args) => serve(&args),
        Command::Replay(args) => printed(|out, err| replay::run(&args, out, err)),
        Command::Plan(args) => printed(|out, err| plan::run(&args, out, err)),
        Command::Soak(args) => printed(|out, err| soak::run(&args, out, err, is_terminal)),
        Command::SoakAdapter => soak_adapter(),
    }
}

/// Runs a command that prints and returns its exit status.
fn printed(run: impl FnOnce(&mut dyn Write, &mut dyn Write) -> io::Result<u8>) -> ExitCode {
    let mut out = BufWriter::new(WhileRead::new(io::stdout().lock()));
    let mut err = io::stderr().lock();
    match run(&mut out, &mut err).and_then(|status| out.flush().map(|()| status)) {
        Ok(status) => status.into(),
        Err(error) => {
            let _ = writeln!(err, "error: the results cannot be printed: {error}");
            2.into()
        }
    }
}

fn serve(args: &ServeArgs) -> ExitCode {
    match serve::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            2.into()
        }
    }
}

/// Ends when the reader of its lines is gone.
fn soak_adapter() -> ExitCode {
    match soak::adapter_process::serve(&mut io::stdout().lock()) {
        Ok(status) => status.into(),
        Err(_) => 2.into(),
    }
}

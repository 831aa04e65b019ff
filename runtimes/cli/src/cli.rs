//! The command line.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::demo::{self, DemoArgs};
use crate::plan::{self, PlanArgs};
use crate::replay::{self, ReplayArgs};
use crate::serve::{self, ServeArgs};
use crate::soak::{self, SoakArgs, adapter_process};
use crate::terminal::Terminal;
use crate::while_read::WhileRead;

/// MongoDB's connection pool at work: a demo, a server for tests, recorded incidents, planned connections, and a soak.
#[derive(Parser)]
#[command(name = "cmap", version, after_help = HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows the pool at work, in seconds: many tasks, few connections, a server that stops and comes back; what happened and why
    #[command(after_help = DEMO_HELP)]
    Demo(DemoArgs),
    /// Serves MongoDB's protocol for tests: handshakes, authentication, fail points, collections in memory
    #[command(after_long_help = serve::help())]
    Serve(ServeArgs),
    /// Repeats what a client recorded, from its file alone, and says why its callers waited
    #[command(after_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Counts the connections that an application's pools open at each server of a deployment, and says what fits
    #[command(after_help = PLAN_HELP)]
    Plan(PlanArgs),
    /// Lets many tasks use a client for a long time while its server is killed and restarted, and looks for what is left over
    #[command(after_help = SOAK_HELP)]
    Soak(SoakArgs),
    /// Prints a script by which a shell completes commands and options
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: Shell,
    },
}

const HELP: &str = "\
Example:
  cmap demo";

const DEMO_HELP: &str = "\
Example:
  cmap demo --seconds 2

Exit status: 0 if nothing is missing, 1 if something is, 2 if the demo could not be played.";

const REPLAY_HELP: &str = "\
Example:
  cmap replay incident.trace --explain slowest:3

Exit status: 0, or 1 if the replay differs from the recording, or 2 if the trace cannot be read.";

const PLAN_HELP: &str = "\
Example:
  cmap plan 'mongodb://a,b,c/?maxPoolSize=50' --processes 40 --limit 3000

Exit status: 0 if all fits, 1 if there are warnings, 2 if the arguments cannot be used.";

const SOAK_HELP: &str = "\
Example:
  cmap soak --engine tokio --minutes 10

Exit status: 0 if nothing is left over, 1 if something is, 2 if an adapter could not be soaked.";

const COMPLETIONS_HELP: &str = "\
Example:
  cmap completions bash > ~/.local/share/bash-completion/completions/cmap";

/// Runs the program with these arguments, the first of which is its name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<_> = args.into_iter().collect();
    // It is for `soak` alone, so no help and no shell names it.
    if args.get(1).is_some_and(|arg| arg == adapter_process::COMMAND) {
        return soak_adapter();
    }
    let command = match Cli::try_parse_from(args) {
        Ok(cli) => cli.command,
        Err(error) => {
            // If printing fails, there is nowhere to say so.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2).into();
        }
    };
    let terminal = Terminal::of_stdout();
    match command {
        Command::Demo(args) => printed(|out, err| demo::run(&args, out, err, terminal)),
        Command::Serve(args) => serve(&args),
        Command::Replay(args) => printed(|out, err| replay::run(&args, out, err)),
        Command::Plan(args) => printed(|out, err| plan::run(&args, out, err)),
        Command::Soak(args) => printed(|out, err| soak::run(&args, out, err, terminal)),
        Command::Completions { shell } => printed(|out, _| complete(shell, out)),
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
    match adapter_process::serve(&mut io::stdout().lock()) {
        Ok(status) => status.into(),
        Err(_) => 2.into(),
    }
}

fn complete(shell: Shell, out: &mut dyn Write) -> io::Result<u8> {
    // What cannot be printed would be a panic there.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cmap", &mut script);
    out.write_all(&script).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples in the help of a command.
    fn examples(command: &mut clap::Command) -> Vec<String> {
        let help = command.render_long_help().to_string();
        let lines = help.lines().skip_while(|line| *line != "Example:").skip(1);
        lines.take_while(|line| line.starts_with("  cmap ")).map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn the_help_of_each_command_has_an_example_that_can_be_used() {
        let mut cli = Cli::command();
        cli.build();
        let names: Vec<_> = cli.get_subcommands().map(|it| it.get_name().to_owned()).collect();
        for name in names.iter().filter(|name| *name != "help") {
            let examples = examples(cli.find_subcommand_mut(name).unwrap());
            let [example] = &examples[..] else { panic!("{name}: {examples:?}") };
            let (example, _) = example.split_once(" > ").unwrap_or((example, ""));
            let args = example.split(' ').map(|arg| arg.trim_matches('\'').to_owned());

            assert!(example.starts_with(&format!("cmap {name} ")), "{example}");
            assert!(Cli::try_parse_from(args).is_ok(), "{example}");
        }
    }
}

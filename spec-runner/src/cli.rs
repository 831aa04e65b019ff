//! The command line: what to run, on which engines, and how often.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use cmap_cli::while_read::WhileRead;

use crate::suites::cmap::engine::{self, Engine};
use crate::suites::cmap::runner::Plan;
use crate::suites::official::{self, Named, Suite};
use crate::suites::report::{Detail, Report};
use crate::suites::run;
use crate::tools::interop::column::{self, Column};
use crate::tools::interop::{self, Selection, checks};
use crate::tools::simulate::{self, SimulateArgs};

/// Runs MongoDB's official tests of a connection pool, and this project's scenarios, in virtual time and on real sockets;
/// and the official tests of connection strings, of server selection and of server discovery and monitoring.
///
/// Without a command: the official suites of the pool and the scenarios, on every engine, the official suites of
/// connection strings, of server selection and of server discovery and monitoring, and a table of the results.
#[derive(Parser)]
#[command(name = "spec-runner", args_conflicts_with_subcommands = true, after_help = EXIT_STATUS)]
struct Cli {
    /// The folder of MongoDB's specifications, up to and with its `source`; may be repeated, and files of a later folder
    /// replace those of an earlier one. Without it: $MONGODB_SPECS, which names several as $PATH does, else
    /// ./specifications/source, else ../shared/specs, ../shared/specs-next and ../shared/specs-later
    #[arg(long, value_name = "DIR")]
    specs: Vec<PathBuf>,

    #[command(flatten)]
    engines: EngineArgs,

    /// Print a line for each test that is skipped, too, with its reason. Without it: the reasons are counted
    #[arg(short, long)]
    verbose: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Runs test files, and all test files in folders, printing a line for each test
    Run(RunArgs),
    /// Runs checks on real sockets: official drivers with the embedded server, and our client with it and foreign servers
    Interop(InteropArgs),
    /// The program of `interop` that is our client
    #[command(hide = true)]
    InteropClient {
        /// Which checks to make, and where the servers are
        #[arg(value_name = "INPUT")]
        input: PathBuf,
    },
    /// The servers of `interop` and of the tests: `cmap serve`
    #[command(hide = true)]
    Serve {
        /// The arguments of `cmap serve`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Runs clients in random simulations, each from a seed, until a law breaks; what broke it becomes a short script and a trace
    #[command(after_help = SIMULATE_EXIT_STATUS)]
    Simulate(SimulateArgs),
}

/// What carries out the tests of a pool.
#[derive(Args)]
struct EngineArgs {
    /// `core`, in virtual time, or a runtime, on real sockets; may be repeated. Without it: all, but those that end in `-reverse`
    #[arg(long = "engine", value_name = "NAME", value_parser = PossibleValuesParser::new(engine::NAMES.into_iter().chain([ALL])))]
    names: Vec<String>,

    /// The MongoDB that runtimes connect to, for one test after the other. Without it: an embedded server for each test
    #[arg(long, value_name = "URI")]
    uri: Option<String>,

    /// How often to run each test on each runtime; `core` has seeds instead
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,

    /// How many seeds to run each test under in virtual time, from 0 up
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEEDS, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
}

#[derive(Args)]
#[command(after_help = EXIT_STATUS)]
struct RunArgs {
    #[command(flatten)]
    engines: EngineArgs,

    /// Run each test in virtual time under this seed only
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,

    /// Print the events of each test of a pool, too, of the run that failed or else the first
    #[arg(short, long)]
    verbose: bool,

    /// Test files, or folders of them
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

#[derive(Args)]
#[command(after_help = INTEROP_EXIT_STATUS)]
struct InteropArgs {
    /// A column of the table; may be repeated. Without it: all, but mongodb only if $MONGODB_URI is set
    #[arg(long = "driver", value_name = "NAME", value_parser = PossibleValuesParser::new(Column::NAMES))]
    drivers: Vec<String>,

    /// A check; may be repeated. Without it: all
    #[arg(long = "check", value_name = "NAME", value_parser = PossibleValuesParser::new(checks::names()), hide_possible_values = true)]
    checks: Vec<String>,

    /// Kill a program that takes longer than this, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,

    /// Print the names of the checks, and do nothing else
    #[arg(long)]
    list: bool,
}

/// The name that means all engines.
const ALL: &str = "all";

/// Enough for every order of a handful of things that happen at once.
const DEFAULT_SEEDS: u64 = 50;

const EXIT_STATUS: &str = "Exit status: 0 if no test failed, 1 if one did, 2 if some input could not be used.";

/// The end of `simulate --help`.
const SIMULATE_EXIT_STATUS: &str = "Exit status: 0 if no law broke, 1 if one did or something was never met.";

const INTEROP_EXIT_STATUS: &str = "Exit status: 0 if no check failed, 1 if one did, 2 if a program could not be run.";

/// Runs the program with these arguments, the first of which is its name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // If printing fails, there is nowhere to say so.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2).into();
        }
    };
    if let Some(Command::Serve { args }) = cli.command {
        return cmap_cli::run(["cmap".into(), "serve".into()].into_iter().chain(args));
    }
    let mut out = BufWriter::new(WhileRead::new(io::stdout().lock()));
    let mut err = io::stderr().lock();
    let (printed, status) = match cli.command {
        None => {
            let detail = if cli.verbose { Detail::Skips } else { Detail::Failures };
            let mut report = Report::new(&mut out, &mut err, detail);
            (run_default(&mut report, &cli.engines, cli.specs), report.status())
        }
        Some(Command::Serve { .. }) => (Ok(()), 0),
        Some(Command::Run(args)) => {
            let detail = if args.verbose { Detail::Events } else { Detail::All };
            let mut report = Report::new(&mut out, &mut err, detail);
            (run_paths(&mut report, &args), report.status())
        }
        Some(Command::Interop(args)) => of_program(run_interop(&args, &mut out, &mut err)),
        Some(Command::Simulate(args)) => {
            of_program(simulate::run(&args, &mut out, &mut err, io::stdout().is_terminal()))
        }
        Some(Command::InteropClient { input }) => of_program(interop::cmap::run(&input, &mut out, &mut err)),
    };
    match printed {
        Ok(()) => status.into(),
        Err(error) => {
            let _ = writeln!(err, "error: the results cannot be printed: {error}");
            2.into()
        }
    }
}

/// Tells whether the results were printed from the exit status.
fn of_program(status: io::Result<u8>) -> (io::Result<()>, u8) {
    match status {
        Ok(status) => (Ok(()), status),
        Err(error) => (Err(error), 2),
    }
}

fn run_interop(args: &InteropArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    if args.list {
        checks::ALL.iter().try_for_each(|check| writeln!(out, "{}", check.name))?;
        return out.flush().map(|()| 0);
    }
    // The command line allows no other names. The table has its own order.
    let named = |names: &[String], name: &str| names.is_empty() || names.iter().any(|other| other == name);
    let mut columns: Vec<_> = Column::ALL.into_iter().filter(|column| named(&args.drivers, column.name())).collect();
    if args.drivers.is_empty() && !column::is_uri_set() {
        writeln!(out, "${} is not set: our client is not checked with a MongoDB of yours", column::URI_VARIABLE)?;
        columns.retain(|&column| column != Column::MongoDb);
    }
    let checks = checks::ALL.iter().filter(|check| named(&args.checks, check.name)).collect();
    interop::run(&Selection { columns, checks, timeout: Duration::from_secs(args.timeout) }, out, err)
}

fn run_paths(report: &mut Report<'_>, args: &RunArgs) -> io::Result<()> {
    let Some(engines) = start_engines(report, &args.engines)? else { return Ok(()) };
    let seeds = args.seed.map_or(0..=args.engines.seeds - 1, |seed| seed..=seed);
    let plan = Plan { seeds, repeat: args.engines.repeat };
    report.begin_suite("tests");
    run::paths(report, &engines, &args.paths, &plan)?;
    report.close()
}

fn run_default(report: &mut Report<'_>, args: &EngineArgs, specs: Vec<PathBuf>) -> io::Result<()> {
    let Some(engines) = start_engines(report, args)? else { return Ok(()) };
    let plan = Plan { seeds: 0..=args.seeds - 1, repeat: args.repeat };
    let Some(mut suites) = official_suites(report, specs)? else { return Ok(()) };
    match official::scenarios() {
        Some(suite) => suites.push(suite),
        None => report.note("This project's scenarios are not here; run this in its folder to run them, too.")?,
    }
    run::suites(report, &engines, &suites, &plan)?;
    report.table()?;
    report.close()
}

/// The engines that `args` name, in the order of all; `None` if one did not start, which is reported.
fn start_engines(report: &mut Report<'_>, args: &EngineArgs) -> io::Result<Option<Vec<Box<dyn Engine>>>> {
    let is_all = args.names.is_empty() || args.names.iter().any(|named| named == ALL);
    let is_meant = |name: &str| (is_all && name != engine::BY_AGENTS) || args.names.iter().any(|named| named == name);
    match engine::start(is_meant, args.uri.as_deref()) {
        Ok(engines) => Ok(Some(engines)),
        Err(error) => report.unable(&error).map(|()| None),
    }
}

/// `None` if a folder cannot be used, which is reported.
fn official_suites(report: &mut Report<'_>, specs: Vec<PathBuf>) -> io::Result<Option<Vec<Suite>>> {
    let of_variable = || {
        let folders = std::env::var_os("MONGODB_SPECS").filter(|folders| !folders.is_empty())?;
        Some(Named { origin: "$MONGODB_SPECS", folders: std::env::split_paths(&folders).collect() })
    };
    let named = if specs.is_empty() { of_variable() } else { Some(Named { origin: "--specs", folders: specs }) };
    let found = official::find_specs(named.as_ref()).and_then(|folders| {
        let left_out = Some(official::LEFT_OUT).filter(|_| named.is_none() && official::leaves_out(&folders));
        Ok((official::suites(&folders, named.is_some())?, left_out))
    });
    match found {
        Ok((suites, _)) if suites.is_empty() => {
            let hint = format!("MongoDB's official tests are not here; get them with\n    {}", official::GET_SPECS);
            report.note(&hint).map(|()| Some(Vec::new()))
        }
        Ok((suites, left_out)) => {
            left_out.map_or(Ok(()), |left_out| report.note(left_out))?;
            Ok(Some(suites))
        }
        Err((folder, problem)) => report.unusable(&folder, &problem).map(|()| None),
    }
}

//! The command line, and the life of the program: read the file, relay, drain when told to end.

use std::future::poll_fn;
use std::io::Write;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;

use clap::{CommandFactory, Parser, ValueEnum};
use cmap_core::ErrorChain;
use cmap_relay::file::{self, Loaded};
use cmap_relay::{Drained, Relay};
use cmap_tokio::Tokio;
use tokio::runtime::{Builder, Handle, Runtime};
use tracing::{error, info};
use tracing_subscriber::filter::LevelFilter;

use crate::service_manager;
use crate::signals::Signals;

/// Dials out from a MongoDB server to applications, and parks sockets there that become their connections, so that no port of the
/// server is open to them.
#[derive(Parser)]
#[command(name = "cmap-relay", version, after_help = EXIT_STATUS)]
struct Cli {
    /// The file that says for which members to speak, and which applications to dial (TOML)
    #[arg(value_name = "CONFIG", required_unless_present = "man")]
    config: Option<PathBuf>,

    /// Print the manual page
    #[arg(long)]
    man: bool,

    /// Read the file and those that it names, say what the relay would do, and dial nobody
    #[arg(long)]
    check: bool,

    /// What is logged to standard error; `debug` has a line for each socket
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = Level::Info)]
    log: Level,
}

const EXIT_STATUS: &str = "SIGTERM and SIGINT drain: parked sockets go away, connections in use may end. A second one ends at once.

Exit status: 0 drained, or the file is in order; 1 connections had to be cut; 2 the file or the command line cannot be used.";

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

const CUT: u8 = 1;
const UNUSABLE: u8 = 2;

/// Does what the command line says.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let Some(config) = cli.config.filter(|_| !cli.man) else { return print_manual_page() };
    let loaded = match file::read(&config) {
        Ok(loaded) => loaded,
        Err(error) => return fail(&ErrorChain(&error)),
    };
    if cli.check {
        let _ = writeln!(std::io::stdout(), "{}", loaded.plan);
        return ExitCode::SUCCESS;
    }
    let log =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_max_level(cli.log.filter());
    log.init();
    match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => run(runtime, relay(&loaded)),
        Err(error) => fail(&format_args!("the runtime cannot start ({error}); look at the limits of this process")),
    }
}

fn print_manual_page() -> ExitCode {
    match clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Runs the program to its end. A look-up of a name blocks a thread for as long as the system's resolver likes, so none is waited for.
fn run<T>(runtime: Runtime, program: impl Future<Output = T>) -> T {
    let output = runtime.block_on(program);
    runtime.shutdown_background();
    output
}

async fn relay(loaded: &Loaded) -> ExitCode {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            return fail(&format_args!("signals cannot be handled ({error}); look at the limits of this process"));
        }
    };
    let relay = match Relay::start(Tokio::new(Handle::current()), &loaded.settings) {
        Ok(relay) => relay,
        Err(error) => return fail(&ErrorChain(&error)),
    };
    let (members, applications) = (loaded.settings.members.len(), loaded.settings.applications.len());
    info!(version = env!("CARGO_PKG_VERSION"), members, applications, "relaying");
    service_manager::is_ready();

    poll_fn(|cx| signals.poll_next(cx)).await;
    service_manager::ends();
    let mut draining = pin!(relay.drain());
    let drained = poll_fn(|cx| match draining.as_mut().poll(cx) {
        Poll::Ready(drained) => Poll::Ready(Some(drained)),
        Poll::Pending => signals.poll_next(cx).map(|()| None),
    });
    match drained.await {
        Some(Drained::Whole) => ExitCode::SUCCESS,
        Some(Drained::Cut(_)) => ExitCode::from(CUT),
        None => {
            error!("told to end again; connections in use are cut");
            ExitCode::from(CUT)
        }
    }
}

impl Level {
    fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        }
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "cmap-relay: {error}");
    ExitCode::from(UNUSABLE)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_does_not_wait_for_a_look_up_that_hangs_x_129() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (_name_server, answer) = channel::<()>();
        let (ended, end) = channel();
        thread::spawn(move || {
            run(runtime, async {
                drop(tokio::task::spawn_blocking(move || answer.recv()));
                // They begin in the order of their coming, and one that has begun cannot be taken back.
                tokio::task::spawn_blocking(|| {}).await.unwrap();
            });
            ended.send(()).unwrap();
        });

        assert_ne!(end.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Timeout));
    }
}

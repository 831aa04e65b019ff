//! `cmap-hub`: the hub as a program.

#[cfg(unix)]
mod ctl;
mod log;
mod service_manager;
mod signals;
#[cfg(unix)]
mod upgrade;

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use cmap_core::ErrorChain;
use cmap_core::options::Secret;
use cmap_hub::config;
use cmap_hub::hub::{Hub, Inherited, Reloaded};
use cmap_hub::users::{self, NewUser};
use zeroize::Zeroizing;

use signals::{Asked, Signals};

/// Shares a few MongoDB connections between many processes.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The configuration, a TOML file
    #[arg(long, global = true, value_name = "FILE", default_value = "cmap-hub.toml")]
    config: PathBuf,
    /// Only check the configuration and the users file
    #[arg(long)]
    check: bool,
    /// End when standard input ends
    #[arg(long)]
    until_stdin_ends: bool,
    /// Take over from the hub that runs, whose control socket this is: the order `ctl upgrade` starts a process like that
    #[cfg(unix)]
    #[arg(long, value_name = "PATH")]
    take_over: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Users of the hub
    #[command(subcommand)]
    User(UserCommand),
    /// Give a hub that runs an order, by the control socket of its configuration; the answer is a line of JSON
    #[cfg(unix)]
    Ctl {
        /// The control socket, in place of that of the configuration
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// status, users, pause [SECONDS], resume, drain, upgrade, kick user NAME, kick address ADDRESS, kick connection NUMBER, reload,
        /// log-level FILTER
        #[arg(required = true)]
        order: Vec<String>,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Add a user to a users file; the password is the first line of standard input
    Add {
        /// The name
        name: String,
        /// The users file, which is made if it does not exist
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
        /// The identity upstream, by its name in the configuration
        #[arg(long, value_name = "NAME")]
        upstream: Option<String>,
    },
    /// Give a user another password, the first line of standard input; its rules and limits stay
    Passwd {
        /// The name
        name: String,
        /// The users file
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
    },
    /// Remove a user, with its rules
    Remove {
        /// The name
        name: String,
        /// The users file
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
    },
    /// Print the users of a users file: name, group and identity upstream, with tabs between them
    List {
        /// The users file
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
    },
}

/// Exit status: clients were cut off.
const CUT: u8 = 1;

/// Exit status: the hub that runs has refused an order of `ctl`.
const REFUSED: u8 = 1;

/// Exit status: anything else went wrong.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Some(Command::User(command)) => edit_users(command),
        #[cfg(unix)]
        Some(Command::Ctl { socket, order }) => match control(&arguments.config, socket, &order) {
            Ok(true) => Ok(()),
            // The answer says why.
            Ok(false) => return ExitCode::from(REFUSED),
            Err(error) => Err(error),
        },
        Some(Command::Man { folder }) => clap_mangen::generate_to(Arguments::command(), folder).map_err(Into::into),
        None if arguments.check => check(&arguments.config),
        None => serve(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is there who could be told that nobody is there.
            let _ = writeln!(io::stderr(), "cmap-hub: {}", ErrorChain(&*error));
            ExitCode::from(if error.is::<CutOff>() { CUT } else { UNUSABLE })
        }
    }
}

type Done = Result<(), Box<dyn std::error::Error>>;

fn edit_users(command: UserCommand) -> Done {
    match command {
        UserCommand::Add { name, users, upstream } => {
            let password = read_password()?;
            users::add(&users, &NewUser { name, password, upstream })?;
        }
        UserCommand::Passwd { name, users } => users::set_password(&users, &name, &read_password()?)?,
        UserCommand::Remove { name, users } => users::remove(&users, &name)?,
        UserCommand::List { users } => {
            for user in users::read(&users)? {
                let group = user.share.group.as_ref().map_or("", |group| &*group.name);
                writeln!(io::stdout(), "{}\t{group}\t{}", user.name, user.upstream.as_deref().unwrap_or_default())?;
            }
        }
    }
    Ok(())
}

fn read_password() -> io::Result<Secret> {
    let mut line = Zeroizing::new(String::new());
    io::stdin().lock().read_line(&mut line)?;
    Ok(Secret::from(line.trim_end_matches(['\r', '\n'])))
}

#[cfg(unix)]
fn control(config: &Path, socket: Option<PathBuf>, order: &[String]) -> Result<bool, Box<dyn std::error::Error>> {
    let socket = socket.map_or_else(|| config::control_path(config), Ok)?;
    Ok(ctl::order(&socket, order)?)
}

fn check(path: &Path) -> Done {
    let config = config::read(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let of_system = runtime.block_on(Hub::check(&config))?;
    for warning in &config.warnings {
        writeln!(io::stderr(), "warning: upstream.uri: {warning}")?;
    }
    for advice in config.advice().into_iter().chain(of_system) {
        writeln!(io::stderr(), "warning: {advice}")?;
    }
    writeln!(io::stdout(), "{}: the configuration is good", path.display())?;
    Ok(())
}

fn serve(arguments: Arguments) -> Done {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: Arguments) -> Done {
    let mut signals = Signals::new()?;
    #[cfg(unix)]
    let program = upgrade::program()?;
    // Before the configuration: the hub that runs reads it no more from then on.
    #[cfg(unix)]
    let inherited = match &arguments.take_over {
        Some(control) => Inherited::from_hub(control).await?,
        None => Inherited::from_system()?,
    };
    #[cfg(not(unix))]
    let inherited = Inherited::default();
    let config = config::read(&arguments.config)?;
    let set_filter = log::begin(&config.log);
    let mut hub = Hub::start_by(config, inherited).await?;
    hub.on_log_level(set_filter);
    let until_stdin_ends = arguments.until_stdin_ends;
    #[cfg(unix)]
    hub.on_upgrade(upgrade::start_by(program, arguments));
    for address in hub.addresses() {
        // It serves, whether somebody reads that or not.
        let _ = writeln!(io::stdout(), "listening on {address}");
    }
    if let Some(address) = hub.status_address() {
        tracing::info!(target: "cmap::hub", "status at http://{address}/status");
    }
    service_manager::is_ready();
    hub.let_predecessor_go();
    let mut stdin_ends = std::pin::pin!(stdin_ends(until_stdin_ends));
    let mut next = async || {
        tokio::select! {
            asked = signals.next() => asked,
            () = &mut stdin_ends => Asked::End,
            () = hub.asked_to_end() => Asked::End,
        }
    };
    let mut asked = next().await;
    while asked == Asked::Reload {
        service_manager::reloads();
        // A new credential may wait for a server. Who asks again does not: a reload that is cut off changes nothing.
        asked = tokio::select! {
            () = reload(&hub) => {
                service_manager::has_reloaded();
                next().await
            }
            again = next() => again,
        };
    }
    if !hub.has_successor() {
        service_manager::ends();
    }
    // Who asks again does not want to wait.
    let hurry = async { while signals.next().await != Asked::End {} };
    match hub.drain(hurry).await {
        0 => {
            tracing::info!(target: "cmap::hub", "ended; all clients had finished");
            Ok(())
        }
        left => Err(CutOff(left).into()),
    }
}

/// The hub has ended before its clients.
#[derive(Debug, thiserror::Error)]
#[error("{0} clients had not finished when the hub ended; raise drain-seconds to wait longer")]
struct CutOff(usize);

/// A mistake in a file changes nothing.
async fn reload(hub: &Hub) {
    match hub.read_again().await {
        Ok(Reloaded { applied, needs_restart, ended, .. }) => {
            tracing::info!(target: "cmap::hub", ?applied, ?needs_restart, ended, "the configuration was read again");
        }
        Err(error) => tracing::error!(target: "cmap::hub", "the old configuration stays: {}", ErrorChain(&error)),
    }
}

/// Its reader is a thread of its own: the runtime waits at its end for those it has lent, and a read may take for ever.
async fn stdin_ends(is_asked_for: bool) {
    if !is_asked_for {
        return std::future::pending().await;
    }
    let (ends, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(|| {
        // However it ends.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = ends.send(());
    });
    let _ = ended.await;
}

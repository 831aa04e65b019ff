//! `cmap serve`: the test server of `cmap_test_server` behind real sockets.
//!
//! One mutex guards the machine, a deployment of one server or several. Each connection has a task, which reads, hands the
//! bytes to the machine under the lock, and writes its outputs (`connection`); one more task sleeps until the machine's next
//! timeout (`shared`), and another has the listening sockets (`listeners`). `acceptor` turns an accepted socket into a stream of plain bytes, with
//! `tls` and its `certificates`. `dns` names the servers, and `announcement` prints where they are. Servers inside this process, for tests that bring their own, are in `host`.

mod acceptor;
mod announcement;
mod args;
mod certificates;
mod connection;
mod dns;
mod host;
mod listeners;
mod shared;
mod tls;

pub(crate) use self::args::{ServeArgs, help};
pub use self::host::{Host, HostedServer};

use core::convert::Infallible;
use core::time::Duration;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cmap_test_server::{DeploymentConfig, ServerConfig, User};
use tempfile::TempDir;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use self::acceptor::Acceptor;
use self::announcement::Announcement;
use self::certificates::{CLIENT_SUBJECT, Certificates, CertificatesError, ServerHosts};
use self::dns::{DnsServer, Zone};
use self::shared::Shared;
use self::tls::TlsSetupError;

/// The server did not start, or cannot go on.
#[derive(Debug, Error)]
pub(crate) enum ServeError {
    /// Another program listens there, or the host is not this machine's.
    #[error("cannot listen on {host}:{port}: {source}; choose another --port, or 0 for any that is free")]
    Listen {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The operating system's error.
        source: io::Error,
    },
    /// There are not enough ports from the first one on.
    #[error(
        "there is no port {last} for the last server: ports end at 65535; choose a smaller --port, or 0 for any that are free"
    )]
    NoPort {
        /// The last port that is needed.
        last: u32,
    },
    /// An option is for replica sets of several members.
    #[error("{option} has no effect on fewer than two members: give --replica-set and --members, or leave it out")]
    OneMember {
        /// The option.
        option: &'static str,
    },
    /// There are tags for a member that is not there.
    #[error(
        "--tags is for member {member}, and the members are 0 to {last}: correct its number, or give more --members"
    )]
    NoMember {
        /// The number that was given.
        member: usize,
        /// The number of the last member.
        last: u16,
    },
    /// There are no certificates.
    #[error(transparent)]
    Certificates(#[from] CertificatesError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// The operating system gave no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// The operating system gave no thread, no socket or no reader.
    #[error("cannot serve: {0}")]
    Io(#[from] io::Error),
}

/// Serves until the program is killed, or its standard input ends if `args` say so.
///
/// # Errors
/// The server did not start.
pub(crate) fn run(args: &ServeArgs) -> Result<(), ServeError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(args))
}

async fn serve(args: &ServeArgs) -> Result<(), ServeError> {
    args.set.check(args.members)?;
    let listeners = bind(args).await?;
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
    let deployment = deployment(args, &addresses)?;
    let members: Vec<_> = deployment.members().into_iter().map(|(member, _)| member).collect();
    let (instructions, instructed) = unbounded_channel();
    let shared = Arc::new(Shared::new(deployment, instructions));
    tokio::spawn(Arc::clone(&shared).keep_time());
    // A temporary folder is removed when the guard is dropped.
    let (acceptor, certificates) = acceptor(args)?;
    let dns = dns_server(args, &addresses).await?;
    let announcement = Announcement {
        certificates: certificates.as_ref().map(Folder::path),
        dns: dns.as_ref().map(DnsServer::address).transpose()?,
        listening: &addresses,
    };
    let print = if args.json { Announcement::print_json } else { Announcement::print };
    print(&announcement, &mut io::stdout().lock())?;
    let listeners = members.into_iter().zip(listeners).collect();
    tokio::select! {
        () = listeners::listen(listeners, instructed, shared, Arc::new(acceptor)) => Ok(()),
        never = name(dns) => match never {},
        () = end_of_input(args.until_stdin_ends) => Ok(()),
    }
}

/// A socket for each server.
async fn bind(args: &ServeArgs) -> Result<Vec<TcpListener>, ServeError> {
    let mut listeners = Vec::new();
    for port in ports(args)? {
        let host = args.host.clone();
        match TcpListener::bind((host.as_str(), port)).await {
            Ok(listener) => listeners.push(listener),
            Err(source) => return Err(ServeError::Listen { host, port, source }),
        }
    }
    Ok(listeners)
}

/// The port of each server.
fn ports(args: &ServeArgs) -> Result<Vec<u16>, ServeError> {
    let count = args.sharded.unwrap_or(args.members);
    let port = |index| if args.port == 0 { Some(0) } else { args.port.checked_add(index) };
    let last = u32::from(args.port) + u32::from(count).saturating_sub(1);
    (0..count).map(port).collect::<Option<_>>().ok_or(ServeError::NoPort { last })
}

/// What to serve at these addresses.
fn deployment(args: &ServeArgs, addresses: &[SocketAddr]) -> Result<DeploymentConfig, ServeError> {
    let server = config(args, addresses)?;
    let hosts = addresses.iter().map(SocketAddr::to_string);
    let mut deployment = match (&args.replica_set, args.sharded) {
        (Some(name), _) if args.members > 1 => {
            DeploymentConfig::replica_set(server, args.set.to_set(name, hosts.collect()))
        }
        (_, Some(_)) => DeploymentConfig::sharded(server, hosts),
        (_, None) => DeploymentConfig::single(server),
    };
    deployment.election_timeout = Duration::from_millis(args.set.election_timeout);
    deployment.lag = Duration::from_millis(args.set.lag);
    Ok(deployment)
}

/// What all servers have in common.
fn config(args: &ServeArgs, addresses: &[SocketAddr]) -> Result<ServerConfig, ServeError> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed)?;
    let address = addresses.first().map(SocketAddr::to_string).unwrap_or_default();
    let mut config = ServerConfig::new(address).with_version(args.server_version);
    config.authorization = !args.auth.is_empty();
    config.users = args.auth.iter().map(args::Login::to_user).collect();
    if args.tls {
        config.users.push(User::Certificate { subject: CLIENT_SUBJECT.to_owned() });
    }
    config.compressors.clone_from(&args.compressors.0);
    config.load_balanced = args.load_balanced;
    config.replica_set.clone_from(&args.replica_set);
    config.limits = args.limits.to_limits();
    config.seed = u64::from_le_bytes(seed);
    config.time_of_day = time_of_day();
    Ok(config)
}

#[allow(clippy::disallowed_methods, reason = "a server behind real sockets has a real clock")]
fn time_of_day() -> Duration {
    // A clock before 1970 must not stop the server.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The DNS server by which `--srv` leads to these addresses.
async fn dns_server(args: &ServeArgs, addresses: &[SocketAddr]) -> io::Result<Option<DnsServer>> {
    let (Some(name), Some(first)) = (&args.srv, addresses.first()) else { return Ok(None) };
    let options = match &args.replica_set {
        Some(set) => Some(format!("replicaSet={set}")),
        None => args.load_balanced.then(|| "loadBalanced=true".to_owned()),
    };
    DnsServer::bind(first.ip(), Zone::new(name, addresses, options)).await.map(Some)
}

/// Answers questions of DNS, if there are to be answers.
async fn name(dns: Option<DnsServer>) -> Infallible {
    match dns {
        Some(dns) => dns.run().await,
        None => core::future::pending().await,
    }
}

/// The folder of the certificates.
enum Folder {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }
}

/// How to accept, and the folder of the clients' certificates.
fn acceptor(args: &ServeArgs) -> Result<(Acceptor, Option<Folder>), ServeError> {
    if !args.tls {
        return Ok((Acceptor::Plain, None));
    }
    let certificates = Certificates::make(if args.wrong_host { ServerHosts::Wrong } else { ServerHosts::Local })?;
    let folder = match &args.certificates {
        Some(path) => Folder::Given(path.clone()),
        None => Folder::Temporary(tempfile::tempdir()?),
    };
    certificates.write_to(folder.path())?;
    Ok((Acceptor::Tls(tls::acceptor(&certificates)?), Some(folder)))
}

/// Waits until standard input ends, or forever.
async fn end_of_input(matters: bool) {
    if !matters {
        return core::future::pending().await;
    }
    let (ended, wait) = oneshot::channel();
    // A separate thread: the runtime would wait for a reader of its own.
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while io::stdin().lock().read(&mut buffer).is_ok_and(|count| count > 0) {}
        let _ = ended.send(());
    });
    let _ = wait.await;
}

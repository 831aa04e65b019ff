//! `spec-runner serve`: the test server of `cmap_test_server` behind real sockets.
//!
//! One mutex guards the machine. Each connection has a task, which reads, hands the bytes to the machine under the
//! lock, and writes its outputs (`connection`); one more task sleeps until the machine's next timeout (`shared`).
//! `acceptor` turns an accepted socket into a stream of plain bytes, with `tls` and its `certificates`. Servers inside
//! this process, for tests that bring their own, are in `host`.

mod acceptor;
mod args;
pub mod certificates;
mod connection;
mod host;
mod shared;
pub mod tls;

pub use self::args::{ServeArgs, known};
pub use self::host::{Host, HostedServer};

use core::convert::Infallible;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cmap_test_server::{Peer, ServerConfig, User};
use tempfile::TempDir;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use self::acceptor::Acceptor;
use self::certificates::{CLIENT_SUBJECT, Certificates, CertificatesError, ServerHosts};
use self::shared::Shared;
use self::tls::TlsSetupError;

/// The server did not start, or cannot go on.
#[derive(Debug, Error)]
pub enum ServeError {
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
pub fn run(args: &ServeArgs) -> Result<(), ServeError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(args))
}

async fn serve(args: &ServeArgs) -> Result<(), ServeError> {
    let (host, port) = (args.host.clone(), args.port);
    let listener = TcpListener::bind((host.as_str(), port)).await;
    let listener = listener.map_err(|source| ServeError::Listen { host, port, source })?;
    let address = listener.local_addr()?;
    let shared = Arc::new(Shared::new(config(args, address)?));
    tokio::spawn(Arc::clone(&shared).keep_time());
    // A temporary folder is removed when the guard is dropped.
    let (acceptor, certificates) = acceptor(args)?;
    announce(certificates.as_ref().map(Folder::path), address)?;
    tokio::select! {
        never = accept(listener, shared, Arc::new(acceptor)) => match never {},
        () = end_of_input(args.until_stdin_ends) => Ok(()),
    }
}

fn config(args: &ServeArgs, address: SocketAddr) -> Result<ServerConfig, ServeError> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed)?;
    let mut config = ServerConfig::new(address.to_string());
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

fn announce(certificates: Option<&Path>, address: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if let Some(folder) = certificates {
        writeln!(out, "certificates in {}", folder.display())?;
    }
    writeln!(out, "listening on {address}")?;
    out.flush()
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, acceptor: Arc<Acceptor>) -> Infallible {
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                tokio::spawn(serve_client(socket, from, Arc::clone(&shared), Arc::clone(&acceptor)));
            }
            // The client is gone already, or the process has too many open files, which passes.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve_client(socket: TcpStream, from: SocketAddr, shared: Arc<Shared>, acceptor: Arc<Acceptor>) {
    // Without it the client only has a higher latency.
    let _ = socket.set_nodelay(true);
    acceptor.serve(socket, Peer::at(from.to_string()), &shared).await;
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

//! Embedded servers inside this process: each on a port of its own, all on one thread next to their clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use cmap_test_server::{DeploymentConfig, MemberId, ServerConfig};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;

use super::acceptor::Acceptor;
use super::listeners::accept;
use super::shared::Shared;

/// The thread that embedded servers live on.
#[derive(Debug)]
pub struct Host {
    runtime: Runtime,
}

/// An embedded server. Dropping it closes its port and stops its clock; its work for clients ends with their
/// connections.
#[derive(Debug)]
pub struct HostedServer {
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Host {
    /// A thread without servers.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start() -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("embedded-servers").enable_all().build().map(|runtime| Self { runtime })
    }

    /// A server on a port of its own; `configure` gets its address.
    ///
    /// # Errors
    /// The operating system gives no socket.
    pub fn serve(&self, configure: impl FnOnce(SocketAddr) -> ServerConfig) -> io::Result<HostedServer> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _context = self.runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let config = DeploymentConfig::single(configure(address));
        // A single server listens as long as it lives.
        let (instructions, _) = unbounded_channel();
        let shared = Arc::new(Shared::new(config, instructions));
        let time = self.runtime.spawn(Arc::clone(&shared).keep_time());
        let clients = self
            .runtime
            .spawn(async move { match accept(listener, MemberId::FIRST, shared, Arc::new(Acceptor::Plain)).await {} });
        Ok(HostedServer { address, tasks: [time, clients] })
    }
}

impl HostedServer {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HostedServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

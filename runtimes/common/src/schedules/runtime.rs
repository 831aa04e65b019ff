//! A runtime whose tasks are shuttle's, with a network in memory. Time stands still: nothing that is tested here depends on it.

use std::collections::VecDeque;
use std::future::{Future, pending, ready};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use cmap_core::time::Instant as Time;
use cmap_test_server::{ClientId, Peer, ServerConfig, ServerOutput, TestServer};
use futures_io::{AsyncRead, AsyncWrite};
use shuttle::future::JoinHandle;

use crate::error::RuntimeGone;
use crate::runtime::sync::Arc;
use crate::runtime::{Runtime, Target};

/// Tasks, on a network.
#[derive(Clone)]
pub(super) struct Schedule {
    network: Arc<Network>,
}

/// What is between a pool and its server. No thread waits for its locks: shuttle changes threads nowhere here.
#[derive(Default)]
pub(super) struct Network(Mutex<State>);

#[derive(Default)]
struct State {
    open: usize,
    tasks: Vec<JoinHandle<()>>,
    is_silent: bool,
}

/// A socket, with a server of its own at the other end, which answers while it is written to.
pub(super) struct Socket {
    network: Arc<Network>,
    server: TestServer,
    client: ClientId,
    unread: VecDeque<u8>,
}

impl Schedule {
    pub(super) fn new(network: &Arc<Network>) -> Self {
        Self { network: Arc::clone(network) }
    }
}

impl Network {
    /// From now on no server answers.
    pub(super) fn fall_silent(&self) {
        self.0.lock().unwrap().is_silent = true;
    }

    /// One of the tasks that were begun, each once.
    pub(super) fn task(&self) -> Option<JoinHandle<()>> {
        self.0.lock().unwrap().tasks.pop()
    }

    /// The open sockets.
    pub(super) fn open(&self) -> usize {
        self.0.lock().unwrap().open
    }
}

impl Runtime for Schedule {
    const NAME: &'static str = "schedule";

    type Stream = Socket;

    fn current() -> Result<Self, RuntimeGone> {
        Err(RuntimeGone)
    }

    #[expect(clippy::disallowed_methods, reason = "there is no other way to an instant")]
    fn now(&self) -> Instant {
        static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
        *NOW
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static {
        let is_over = at <= self.now();
        async move {
            if !is_over {
                pending::<()>().await;
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = shuttle::future::spawn(task);
        self.network.0.lock().unwrap().tasks.push(task);
    }

    fn spawn_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send {
        ready(Some(job()))
    }

    fn read_now(stream: &mut Socket, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer).ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn resolve(&self, _host: &str, port: u16) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        ready(Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]))
    }

    fn connect(&self, _target: Target) -> impl Future<Output = io::Result<Socket>> + Send {
        let mut server = TestServer::new(ServerConfig::new("db:27017"), Time::ORIGIN);
        let client = server.accept(Time::ORIGIN, Peer::operator());
        self.network.0.lock().unwrap().open += 1;
        ready(Ok(Socket { network: Arc::clone(&self.network), server, client, unread: VecDeque::new() }))
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        bytes.fill(7);
        Ok(())
    }
}

impl Socket {
    fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if self.unread.is_empty() || self.network.0.lock().unwrap().is_silent {
            return None;
        }
        Some(io::Read::read(&mut self.unread, buffer).unwrap())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.network.0.lock().unwrap().open -= 1;
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, _cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        // Nobody is woken later: the server answers at once, or never.
        self.read(buffer).map_or(Poll::Pending, |read| Poll::Ready(Ok(read)))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { server, client, unread, .. } = &mut *self;
        server.handle_bytes(Time::ORIGIN, *client, bytes);
        while let Some(output) = server.poll_output() {
            if let ServerOutput::Send { bytes, .. } = output {
                unread.extend(bytes);
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

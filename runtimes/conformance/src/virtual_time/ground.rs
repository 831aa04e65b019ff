//! The virtual network as the place of a case's servers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::ground::{Ground, Place, Site, Socket, TakeIn, Work};
use cmap_runtime::runtime::{Runtime, Target};
use cmap_sim::{Listener, Reachability, SimRuntime, Stream};
use futures_io::{AsyncRead, AsyncWrite};

/// The hosts of a simulation. Servers are at 127.0.0.1, as elsewhere.
pub(super) struct Hosts {
    runtime: SimRuntime,
}

/// A moment in which others get their turn.
const MOMENT: Duration = Duration::from_micros(100);

/// An address of a simulation.
struct VirtualSite {
    runtime: SimRuntime,
    place: Place,
    /// Made before it is listened at.
    listener: Mutex<Option<Listener>>,
}

/// Listens until it is dropped.
struct Acceptor(Listener);

/// A server's end of a connection.
struct VirtualSocket {
    state: Mutex<State>,
}

struct State {
    /// None after the end.
    stream: Option<Stream>,
    resets_at_end: bool,
    reader: Option<Waker>,
}

impl Hosts {
    pub(super) fn new(runtime: SimRuntime) -> Self {
        Self { runtime }
    }

    fn site_at(&self, ip: Ipv4Addr) -> VirtualSite {
        let listener = self.runtime.listen(SocketAddr::new(IpAddr::V4(ip), 0));
        let place = Place::Tcp(listener.address());
        VirtualSite { runtime: self.runtime.clone(), place, listener: Mutex::new(Some(listener)) }
    }
}

impl Ground for Hosts {
    fn site(&self) -> io::Result<Box<dyn Site>> {
        Ok(Box::new(self.site_at(Ipv4Addr::LOCALHOST)))
    }

    fn full_site(&self) -> io::Result<Box<dyn Site>> {
        let site = self.site_at(Ipv4Addr::new(127, 0, 0, 2));
        site.listener().iter().for_each(|listener| listener.set_reachability(Reachability::Silent));
        Ok(Box::new(site))
    }

    fn connect(&self, place: &Place) -> Work<io::Result<Arc<dyn Socket>>> {
        let (runtime, place) = (self.runtime.clone(), place.clone());
        Box::pin(async move {
            let Place::Tcp(address) = place else { return Err(io::ErrorKind::Unsupported.into()) };
            let stream = runtime.connect(Target::Tcp(address)).await?;
            Ok(Arc::new(VirtualSocket::new(stream)) as Arc<dyn Socket>)
        })
    }

    fn spawn(&self, task: Work) {
        self.runtime.spawn(task);
    }

    fn age(&self) -> Duration {
        self.runtime.elapsed()
    }

    fn unix_time(&self) -> Duration {
        self.runtime.unix_time()
    }

    fn sleep_until(&self, age: Duration) -> Work {
        Box::pin(self.runtime.sleep(age.saturating_sub(self.age())))
    }

    fn keep_writes_whole(&self) {
        self.runtime.set_splits(false);
    }

    fn pause(&self) -> Work {
        Box::pin(self.runtime.sleep(MOMENT))
    }
}

impl VirtualSite {
    fn listener(&self) -> MutexGuard<'_, Option<Listener>> {
        self.listener.lock().unwrap()
    }
}

impl Site for VirtualSite {
    fn place(&self) -> &Place {
        &self.place
    }

    fn listen(&self, take_in: TakeIn) -> io::Result<Box<dyn Send>> {
        let Place::Tcp(address) = self.place else { return Err(io::ErrorKind::Unsupported.into()) };
        let made = self.listener().take();
        let listener = made.unwrap_or_else(|| self.runtime.listen(address));
        listener.set_reachability(Reachability::Up);
        let acceptor = listener.clone();
        self.runtime.spawn(async move {
            while let Some(stream) = listener.accept().await {
                take_in(Arc::new(VirtualSocket::new(stream)));
            }
        });
        Ok(Box::new(Acceptor(acceptor)))
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl VirtualSocket {
    fn new(stream: Stream) -> Self {
        Self { state: Mutex::new(State { stream: Some(stream), resets_at_end: false, reader: None }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Socket for VirtualSocket {
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        state.reader = Some(cx.waker().clone());
        match &mut state.stream {
            Some(stream) => Pin::new(stream).poll_read(cx, buffer),
            None => Poll::Ready(Ok(0)),
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.state().stream {
            Some(stream) => Pin::new(stream).poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn close(&self) {
        let (stream, reader) = {
            let mut state = self.state();
            (state.stream.take(), state.reader.take())
        };
        drop(stream);
        reader.into_iter().for_each(Waker::wake);
    }

    fn reset_at_end(&self) -> io::Result<()> {
        self.state().resets_at_end = true;
        Ok(())
    }
}

impl Drop for VirtualSocket {
    fn drop(&mut self) {
        let state = self.state();
        if state.resets_at_end {
            state.stream.iter().for_each(Stream::reset);
        }
    }
}

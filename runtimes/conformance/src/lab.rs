//! A runtime under laboratory conditions: another one, whose clock can be stepped, and whose sockets can be made to stutter,
//! be watched, and lead elsewhere.
//!
//! A step forward is what a suspended machine sees when it goes on: timers that have become due fire. A step back
//! should never happen: timers, which count the time that passes, fire as if it had not happened.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cmap_runtime::runtime::{Runtime, Target};
use cmap_runtime::{Client, RuntimeGone};
use futures_io::{AsyncRead, AsyncWrite};

use super::ground::Bell;
use super::{LocalServer, options, yield_now};

/// The runtime `R` under conditions that the test sets. Clones are one lab.
#[derive(Clone)]
pub(super) struct Lab<R> {
    runtime: R,
    conditions: Arc<Conditions>,
}

#[derive(Default)]
struct Conditions {
    /// How far the clock is ahead, in seconds.
    ahead: AtomicU64,
    /// How far the wall clock is ahead, in seconds.
    wall_ahead: AtomicU64,
    /// The sleeping tasks; a step wakes all of them.
    sleepers: Mutex<Vec<Waker>>,
    /// The number of sleeps so far.
    sleeps: AtomicUsize,
    /// The number of tasks.
    tasks: AtomicUsize,
    /// The waiters for the end of all tasks.
    watchers: Mutex<Vec<Waker>>,
    stutters: AtomicBool,
    /// Jobs of blocking work, from when they are handed over to their end.
    jobs: AtomicUsize,
    /// The most jobs at a time.
    most_jobs: AtomicUsize,
    /// The number of jobs so far.
    all_jobs: AtomicUsize,
    /// The outcome of attempts to connect, by their address; others are as usual.
    routes: Mutex<Vec<(IpAddr, Route)>>,
    /// The number of attempts that hang.
    hanging: AtomicUsize,
    reader: Arc<Reader>,
}

/// The outcome of an attempt to connect.
#[derive(Clone, Copy)]
pub(super) enum Route {
    /// It hangs, without a packet being sent.
    Nowhere,
    /// It reaches this address.
    To(SocketAddr),
}

/// A task in a lab, until it has ended or was dropped.
struct LabTask(Arc<Conditions>);

/// A job of blocking work in a lab, which counts until it has ended or was dropped, and no longer than that.
struct LabJob<J> {
    // Dropped first.
    noted: NotedJob,
    job: J,
}

struct NotedJob(Arc<Conditions>);

/// The state of the one socket that is watched.
#[derive(Default)]
pub(super) struct Reader {
    state: Mutex<ReaderState>,
    changed: Bell,
}

#[derive(Default)]
struct ReaderState {
    /// Bytes on the way to the reader.
    unread: usize,
    /// Whether it has read everything and waits for more.
    waits: bool,
    gone: bool,
}

/// A socket in a lab.
pub(super) struct LabStream<S> {
    stream: S,
    conditions: Arc<Conditions>,
    hesitated: bool,
}

impl<R: Runtime> Lab<R> {
    /// With usual conditions.
    pub(super) fn new() -> Self {
        Self { runtime: R::current().unwrap(), conditions: Arc::default() }
    }

    /// A client of `server` in a new lab; `query` are the options of its connection string.
    pub(super) async fn client(server: &LocalServer, query: &str) -> (Client<Self>, Self) {
        let lab = Self::new();
        let client = Client::builder(options(server, query)).runtime(lab.clone()).build().await.unwrap();
        (client, lab)
    }

    /// Waits until there is no task any more.
    pub(super) async fn all_tasks_ended(&self) {
        poll_fn(|cx| {
            self.conditions.watchers.lock().unwrap().push(cx.waker().clone());
            match self.conditions.tasks.load(Ordering::SeqCst) {
                0 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }

    /// Sets the clock `seconds` ahead of the real time, which may be a step forward or back.
    pub(super) fn set_ahead(&self, seconds: u64) {
        self.conditions.ahead.store(seconds, Ordering::SeqCst);
        let sleepers = std::mem::take(&mut *self.conditions.sleepers.lock().unwrap());
        sleepers.into_iter().for_each(Waker::wake);
    }

    /// Sets the wall clock alone `seconds` ahead of the real time, as a suspension does.
    pub(super) fn set_wall_ahead(&self, seconds: u64) {
        self.conditions.wall_ahead.store(seconds, Ordering::SeqCst);
    }

    /// Whether every read and write moves one byte and waits for its turn before it does, and blocking work, too.
    pub(super) fn stutter(&self, stutters: bool) {
        self.conditions.stutters.store(stutters, Ordering::SeqCst);
    }

    /// Sets the outcome of attempts to connect to `address`.
    pub(super) fn route(&self, address: impl Into<IpAddr>, route: Route) {
        self.conditions.routes.lock().unwrap().push((address.into(), route));
    }

    /// The number of attempts so far that led nowhere.
    pub(super) fn hanging(&self) -> usize {
        self.conditions.hanging.load(Ordering::SeqCst)
    }

    /// The number of sleeps so far.
    pub(super) fn sleeps(&self) -> usize {
        self.conditions.sleeps.load(Ordering::SeqCst)
    }

    /// The number of jobs of blocking work.
    pub(super) fn jobs(&self) -> usize {
        self.conditions.jobs.load(Ordering::SeqCst)
    }

    /// The most jobs of blocking work at a time.
    pub(super) fn most_jobs(&self) -> usize {
        self.conditions.most_jobs.load(Ordering::SeqCst)
    }

    /// The number of jobs of blocking work so far.
    pub(super) fn all_jobs(&self) -> usize {
        self.conditions.all_jobs.load(Ordering::SeqCst)
    }

    /// The reader of the lab's one socket.
    pub(super) fn reader(&self) -> Arc<Reader> {
        Arc::clone(&self.conditions.reader)
    }
}

impl Conditions {
    fn route(&self, target: &Target) -> Option<Route> {
        let Target::Tcp(address) = target else { return None };
        let routes = self.routes.lock().unwrap();
        routes.iter().find(|(routed, _)| *routed == address.ip()).map(|(_, route)| *route)
    }

    fn ahead(&self) -> Duration {
        Duration::from_secs(self.ahead.load(Ordering::SeqCst))
    }
}

impl Reader {
    /// Waits until everything was read and the reader waits for more; then `bytes` are on their way.
    pub(super) async fn wait_and_send(&self, bytes: usize) {
        let waits = || {
            let mut state = self.state.lock().unwrap();
            let waits = state.gone || (state.unread == 0 && state.waits);
            if waits {
                state.unread += bytes;
                state.waits = false;
            }
            waits
        };
        self.changed.wait_until(waits).await;
    }

    fn note(&self, change: impl FnOnce(&mut ReaderState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.ring();
    }
}

impl<R: Runtime> Runtime for Lab<R> {
    const NAME: &'static str = R::NAME;

    type Stream = LabStream<R::Stream>;

    fn current() -> Result<Self, RuntimeGone> {
        Ok(Self { runtime: R::current()?, conditions: Arc::default() })
    }

    fn now(&self) -> Instant {
        self.runtime.now() + self.conditions.ahead()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static {
        let real = at.checked_sub(self.conditions.ahead()).unwrap_or(at);
        let (lab, mut timer) = (self.clone(), Box::pin(self.runtime.sleep_until(real)));
        lab.conditions.sleeps.fetch_add(1, Ordering::SeqCst);
        poll_fn(move |cx| {
            lab.conditions.sleepers.lock().unwrap().push(cx.waker().clone());
            if lab.now() >= at { Poll::Ready(()) } else { timer.as_mut().poll(cx) }
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.conditions.tasks.fetch_add(1, Ordering::SeqCst);
        let noted = LabTask(Arc::clone(&self.conditions));
        self.runtime.spawn(async move {
            let _noted = noted;
            task.await;
        });
    }

    async fn spawn_blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.conditions.stutters.load(Ordering::SeqCst) {
            yield_now().await;
        }
        let job = LabJob { noted: NotedJob::new(&self.conditions), job };
        self.runtime.spawn_blocking(move || job.run()).await
    }

    fn unix_time(&self) -> Duration {
        self.runtime.unix_time() + Duration::from_secs(self.conditions.wall_ahead.load(Ordering::SeqCst))
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.runtime.fill_random(bytes)
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.runtime.resolve(host, port).await
    }

    fn read_now(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        let portion = stream.portion(buffer.len()).ok_or(io::ErrorKind::WouldBlock)?;
        let read = R::read_now(&mut stream.stream, &mut buffer[..portion]);
        stream.conditions.reader.note(|reader| match &read {
            Ok(count) => reader.unread = reader.unread.saturating_sub(*count),
            Err(error) => reader.gone |= error.kind() != io::ErrorKind::WouldBlock,
        });
        read
    }

    fn poll_readable(stream: &mut Self::Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let readable = R::poll_readable(&mut stream.stream, cx);
        stream.conditions.reader.note(|reader| reader.waits |= readable.is_pending());
        readable
    }

    fn wake_after_others(stream: &mut Self::Stream, cx: &mut Context<'_>) {
        // It may wait until there is more to read.
        stream.conditions.reader.note(|reader| reader.waits = true);
        R::wake_after_others(&mut stream.stream, cx);
    }

    async fn connect(&self, target: Target) -> io::Result<Self::Stream> {
        let target = match self.conditions.route(&target) {
            Some(Route::Nowhere) => {
                self.conditions.hanging.fetch_add(1, Ordering::SeqCst);
                pending().await
            }
            Some(Route::To(address)) => Target::Tcp(address),
            None => target,
        };
        let stream = self.runtime.connect(target).await?;
        Ok(LabStream { stream, conditions: Arc::clone(&self.conditions), hesitated: false })
    }

    async fn exchange_datagram(&self, to: SocketAddr, message: Vec<u8>) -> io::Result<Vec<u8>> {
        self.runtime.exchange_datagram(to, message).await
    }
}

impl<T, J: FnOnce() -> T> LabJob<J> {
    fn run(self) -> T {
        let Self { noted, job } = self;
        let result = job();
        drop(noted);
        result
    }
}

impl NotedJob {
    fn new(conditions: &Arc<Conditions>) -> Self {
        let jobs = conditions.jobs.fetch_add(1, Ordering::SeqCst) + 1;
        conditions.most_jobs.fetch_max(jobs, Ordering::SeqCst);
        conditions.all_jobs.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(conditions))
    }
}

impl Drop for NotedJob {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for LabTask {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, Ordering::SeqCst);
        let watchers = std::mem::take(&mut *self.0.watchers.lock().unwrap());
        watchers.into_iter().for_each(Waker::wake);
    }
}

impl<S> LabStream<S> {
    /// How much of `length` bytes may move now; `None`, if it hesitates.
    fn portion(&mut self, length: usize) -> Option<usize> {
        if !self.conditions.stutters.load(Ordering::SeqCst) {
            return Some(length);
        }
        self.hesitated = !self.hesitated;
        (!self.hesitated).then_some(length.min(1))
    }

    fn poll_portion(&mut self, cx: &Context<'_>, length: usize) -> Poll<usize> {
        let portion = self.portion(length);
        if portion.is_none() {
            cx.waker().wake_by_ref();
        }
        portion.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LabStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let Poll::Ready(portion) = self.poll_portion(cx, buffer.len()) else { return Poll::Pending };
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut buffer[..portion]);
        self.conditions.reader.note(|reader| match &read {
            Poll::Ready(Ok(count)) => reader.unread = reader.unread.saturating_sub(*count),
            Poll::Ready(Err(_)) => reader.gone = true,
            Poll::Pending => reader.waits = true,
        });
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LabStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Poll::Ready(portion) = self.poll_portion(cx, bytes.len()) else { return Poll::Pending };
        Pin::new(&mut self.stream).poll_write(cx, &bytes[..portion])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

impl<S> Drop for LabStream<S> {
    fn drop(&mut self) {
        self.conditions.reader.note(|reader| reader.gone = true);
    }
}

//! Connections that wait for keys, in every order, on a runtime whose blocking work the tests carry out themselves.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::task::{Context, Wake};
use std::time::Instant;

use cmap_core::connection::auth::{Authentication, Nonce, Opening, Reply, Step};
use cmap_core::options::{Credential, Mechanism};
use futures_io::{AsyncRead, AsyncWrite};

use super::*;
use crate::runtime::Target;

/// A runtime whose blocking work runs when the test says so.
#[derive(Clone, Default)]
struct Bench(Arc<Mutex<VecDeque<Job>>>);

type Job = Box<dyn FnOnce() + Send>;

impl Bench {
    fn jobs(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn next_job(&self) -> Job {
        self.0.lock().unwrap().pop_front().expect("there is a job")
    }
}

impl Runtime for Bench {
    const NAME: &'static str = "bench";

    type Stream = NoStream;

    fn current() -> Result<Self, RuntimeGone> {
        Ok(Self::default())
    }

    fn now(&self) -> Instant {
        unreachable!("keys know no time")
    }

    fn sleep_until(&self, _at: Instant) -> impl Future<Output = ()> + Send + 'static {
        std::future::pending()
    }

    fn spawn(&self, _task: impl Future<Output = ()> + Send + 'static) {}

    fn spawn_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send {
        let (sender, receiver) = mpsc::channel();
        // A result that no task waits for is dropped.
        self.0.lock().unwrap().push_back(Box::new(move || drop(sender.send(job()))));
        poll_fn(move |_| match receiver.try_recv() {
            Ok(result) => Poll::Ready(Some(result)),
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
            Err(TryRecvError::Empty) => Poll::Pending,
        })
    }

    fn read_now(stream: &mut Self::Stream, _buffer: &mut [u8]) -> io::Result<usize> {
        match *stream {}
    }

    async fn connect(&self, _target: Target) -> io::Result<Self::Stream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The stream of a runtime that connects to nothing.
enum NoStream {}

impl AsyncRead for NoStream {
    fn poll_read(self: Pin<&mut Self>, _cx: &mut Context<'_>, _buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }
}

impl AsyncWrite for NoStream {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, _bytes: &[u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

/// A connection that waits for its keys, in a task of its own.
struct Connection {
    get: Pin<Box<dyn Future<Output = Result<DerivedKeys, RuntimeGone>>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Connection {
    /// A request for a server with this salt, in base64, and number of iterations.
    fn new(keys: &Arc<Keys>, bench: &Bench, salt: &str, iterations: u32) -> Self {
        let (keys, bench, request) = (Arc::clone(keys), bench.clone(), request(salt, iterations));
        let get = Box::pin(async move { keys.get(&bench, request).await });
        Self { get, woken: Arc::default() }
    }

    fn poll(&mut self) -> Poll<Result<DerivedKeys, RuntimeGone>> {
        self.woken.0.store(false, Ordering::SeqCst);
        self.get.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.woken))))
    }

    fn waits(&mut self) -> bool {
        self.poll().is_pending()
    }

    fn has_keys(&mut self) -> bool {
        matches!(self.poll(), Poll::Ready(Ok(_)))
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst)
    }
}

fn request(salt: &str, iterations: u32) -> DeriveKey {
    let credential = Credential::new("user", "pencil".into(), "admin").with_mechanism(Mechanism::ScramSha256);
    let nonce = Nonce::from_random([0; Nonce::RANDOM_BYTES]);
    let login = Authentication::new(Arc::new(credential), nonce, u32::MAX).unwrap();
    let Ok(Opening::Start(mut conversation)) = login.handle_hello(None::<[&str; 0]>, None) else { panic!("{salt}") };
    let server_first = format!("r={}x,s={salt},i={iterations}", "A".repeat(32));
    match conversation.handle_reply(Reply::new(server_first.as_bytes(), false)) {
        Ok(Step::Derive(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_login_has_a_nonce_of_its_own() {
    let random = || {
        let mut bytes = [0; 24];
        Bench::default().fill_random(&mut bytes).map(|()| bytes)
    };

    assert_ne!(random().unwrap(), random().unwrap());
}

#[test]
fn connections_with_the_same_salt_share_a_derivation() {
    let (keys, bench) = (Arc::new(Keys::default()), Bench::default());
    let mut connections = [(); 3].map(|()| Connection::new(&keys, &bench, "AAAA", 4096));
    assert!(connections.iter_mut().all(Connection::waits));
    assert_eq!(bench.jobs(), 1);

    bench.next_job()();

    assert!(connections.iter_mut().all(Connection::has_keys));
    assert!(Connection::new(&keys, &bench, "AAAA", 4096).has_keys());
    assert_eq!(bench.jobs(), 0);
}

#[test]
fn the_keys_of_many_users_are_kept() {
    let (keys, bench) = (Arc::new(Keys::default()), Bench::default());
    for number in 0..9 {
        let mut connection = Connection::new(&keys, &bench, &format!("AAA{number}"), 4096);
        assert!(connection.waits());
        bench.next_job()();
        assert!(connection.has_keys());
    }

    assert!(Connection::new(&keys, &bench, "AAA0", 4096).has_keys());
    assert_eq!(bench.jobs(), 0);
}

#[test]
fn a_connection_that_is_dropped_while_it_derives_leaves_the_keys_to_the_others() {
    let (keys, bench) = (Arc::new(Keys::default()), Bench::default());
    let [mut first, mut second] = [(); 2].map(|()| Connection::new(&keys, &bench, "AAAA", 4096));
    assert!(first.waits() && second.waits());

    drop(first);
    bench.next_job()();

    assert!(second.is_woken() && second.has_keys());
    assert_eq!(bench.jobs(), 0);
}

#[test]
fn a_derivation_that_never_began_passes_to_the_next() {
    let (keys, bench) = (Arc::new(Keys::default()), Bench::default());
    let [mut first, mut second] = [(); 2].map(|()| Connection::new(&keys, &bench, "AAAA", 4096));
    assert!(first.waits() && second.waits());

    drop(bench.next_job());

    assert!(matches!(first.poll(), Poll::Ready(Err(RuntimeGone))));
    assert!(second.is_woken() && second.waits());
    bench.next_job()();
    assert!(second.has_keys());
}

#[test]
fn a_derivation_that_no_connection_waits_for_is_broken_off() {
    let (keys, bench) = (Arc::new(Keys::default()), Bench::default());
    let mut hostile = Connection::new(&keys, &bench, "AAAA", u32::MAX);
    let mut honest = Connection::new(&keys, &bench, "BBBB", 4096);
    assert!(hostile.waits() && honest.waits());
    assert_eq!(bench.jobs(), 1, "one at a time");
    drop(hostile);

    // Running it to the end would take an hour.
    bench.next_job()();

    assert!(honest.is_woken() && honest.waits());
    bench.next_job()();
    assert!(honest.has_keys());
}

#[test]
fn a_connection_that_is_dropped_in_the_queue_derives_nothing() {
    let (keys, bench) = (Arc::new(Keys::default()), Bench::default());
    let [mut first, mut second, mut third] =
        ["AAAA", "BBBB", "CCCC"].map(|salt| Connection::new(&keys, &bench, salt, 4096));
    assert!(first.waits() && second.waits() && third.waits());

    drop(second);
    bench.next_job()();

    assert!(first.has_keys());
    assert!(third.is_woken() && third.waits());
    bench.next_job()();
    assert!(third.has_keys());
}

#[test]
fn a_connection_that_is_dropped_when_it_is_its_turn_passes_it_on() {
    let (keys, bench) = (Arc::new(Keys::default()), Bench::default());
    let [mut first, mut second, mut third] =
        ["AAAA", "BBBB", "CCCC"].map(|salt| Connection::new(&keys, &bench, salt, 4096));
    assert!(first.waits() && second.waits() && third.waits());
    bench.next_job()();
    assert!(first.has_keys() && second.is_woken() && third.waits());

    drop(second);

    assert!(third.is_woken() && third.waits());
    assert_eq!(bench.jobs(), 1);
}

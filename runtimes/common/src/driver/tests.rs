//! Calls of several threads in orders that a test chooses, on a runtime whose time and tasks are the test's.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Instant as Time;

use cmap_core::monitor::Finding;
use cmap_core::options::ClientOptions;
use cmap_core::pool::CheckOutRequest;
use cmap_core::server::ServerType;
use cmap_core::topology::Criteria;
use futures_io::{AsyncRead, AsyncWrite};

use super::*;
use crate::client::Client;
use crate::error::RuntimeGone;
use crate::runtime::Target;

/// Time passes, and tasks run, when the test says so.
#[derive(Clone, Default)]
struct Bench {
    age: Arc<Mutex<Duration>>,
    /// In the order in which they were begun. They are kept, because a task that is dropped says that its runtime has ended.
    tasks: Arc<Mutex<Vec<Task>>>,
    /// Called whenever the time is asked for.
    on_now: Arc<Mutex<Option<OnNow>>>,
}

type OnNow = Arc<dyn Fn() + Send + Sync>;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Bench {
    fn pass(&self, time: Duration) {
        *self.age.lock().unwrap() += time;
    }

    /// Gives a turn to the task of a client that drives its machine.
    fn run_driver(&self) {
        let mut timer = self.tasks.lock().unwrap().remove(0);
        assert!(timer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        self.tasks.lock().unwrap().insert(0, timer);
    }
}

impl Runtime for Bench {
    const NAME: &'static str = "bench";

    type Stream = NoStream;

    fn current() -> Result<Self, RuntimeGone> {
        Ok(Self::default())
    }

    #[expect(clippy::disallowed_methods, reason = "there is no other way to an instant")]
    fn now(&self) -> Time {
        static ORIGIN: LazyLock<Time> = LazyLock::new(Time::now);
        let on_now = self.on_now.lock().unwrap().clone();
        on_now.into_iter().for_each(|on_now| on_now());
        *ORIGIN + *self.age.lock().unwrap()
    }

    fn sleep_until(&self, at: Time) -> impl Future<Output = ()> + Send + 'static {
        let bench = self.clone();
        poll_fn(move |_| if bench.now() < at { Poll::Pending } else { Poll::Ready(()) })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().unwrap().push(Box::pin(task));
    }

    fn spawn_blocking<T: Send + 'static>(
        &self,
        _job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send {
        pending()
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

/// A client whose servers are being checked, and the names of its servers' events from the first one on.
fn client(hosts: &str) -> (Client<Bench>, Bench, impl Fn() -> Vec<String>) {
    let (options, _) = ClientOptions::parse(&format!("mongodb://{hosts}/")).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&told);
    let bench = Bench::default();
    let builder = Client::builder(options).runtime(bench.clone()).on_event(move |server, event| {
        if let Event::Server(event) = event {
            events.lock().unwrap().push(format!("{server} {}", event.name()));
        }
    });
    let Poll::Ready(client) = pin!(builder.build()).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("a client of hosts waits for nothing");
    };
    let client = client.unwrap();
    bench.run_driver();
    (client, bench, move || std::mem::take(&mut *told.lock().unwrap()))
}

fn describe(server: &str, server_type: ServerType) -> ServerDescription {
    ServerDescription::new(Arc::new(server.parse().unwrap()), server_type)
}

/// A check finds a server so.
fn learn(driver: &Arc<Driver<Bench>>, description: ServerDescription) {
    driver.drive(|State { machine, .. }, now, _| {
        let server = machine.servers().find(|(_, server)| server.description().address == description.address);
        let (server, _) = server.unwrap();
        machine.call(now, Input::Check(server, Finding::Description(Box::new(description))), None).done().unwrap();
    });
}

#[test]
fn no_lock_of_the_client_is_held_while_its_runtime_says_the_time() {
    let (client, bench, _) = client("a:1");
    let driver = Arc::downgrade(client.driver());
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    *bench.on_now.lock().unwrap() = Some(Arc::new(move || {
        let driver = driver.upgrade().unwrap();
        assert!(driver.state.try_lock().is_ok(), "the runtime is asked under the lock");
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }));

    learn(client.driver(), describe("a:1", ServerType::Standalone));
    let mut waits = pin!(client.check_out().into_future());
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let shown = (client.in_use(), client.waiting(), client.status(), client.statistics(), client.uses());
    drop((shown, client.resize(PoolLimits::default())));
    bench.run_driver();

    assert!(asked.load(std::sync::atomic::Ordering::Relaxed) > 8);
    *bench.on_now.lock().unwrap() = None;
}

#[test]
fn a_check_that_is_asked_for_after_a_cancellation_is_not_lost_to_another_thread_mon_3_mon_12() {
    let (client, ..) = client("a:1");
    let (driver, now) = (client.driver(), client.driver().clock.now());
    learn(driver, describe("a:1", ServerType::Standalone));
    let check_out =
        |machine: &mut Machine<_>, now| machine.check_out(now, Criteria::WRITABLE, CheckOutRequest::default()).0;
    let (given_up, work) = driver.begin(now, |state, now, _| check_out(&mut state.machine, now));
    let [Job::Establish { connection, .. }, ..] = *work.jobs else { panic!("a connection is to be established") };
    driver.finish(work);
    driver.call(Input::CancelCheckOut(given_up));

    // One thread learns that the server is gone, and another one needs it; the latter is done first.
    let error = EstablishError::new(Phase::Authenticate, Fault::Network, "gone");
    let (failed, first) =
        driver.begin(now, |state, now, _| state.machine.call(now, Input::EstablishFailed(connection, error), None));
    let (_, second) = driver.begin(now, |state, now, _| check_out(&mut state.machine, now));
    driver.finish(second);
    driver.finish(first);

    failed.done().unwrap();
    let next = driver.handle_monitors().unwrap();
    assert!(next <= now + Duration::from_millis(500), "{:?}", next.saturating_since(now));
}

#[test]
fn the_check_of_a_server_that_leaves_ends_before_the_server_is_closed_mon_13() {
    let (client, _bench, events) = client("a:1,b:2");
    let mut primary = describe("a:1", ServerType::RsPrimary);
    (primary.set_name, primary.hosts) = (Some("rs".into()), vec!["a:1".into()]);
    let driver = client.driver();
    assert!(events().contains(&"b:2 ServerHeartbeatStarted".into()));

    learn(driver, primary);
    driver.handle_timeout();

    let of_b: Vec<_> = events().into_iter().filter(|event| event.starts_with("b:2")).collect();
    assert_eq!(of_b, ["b:2 ServerHeartbeatFailed", "b:2 ServerClosed"]);
}

#[test]
fn the_checks_of_a_client_that_is_closed_end_once_mon_13() {
    let (client, _bench, events) = client("a:1");
    events();

    client.driver().close();

    let told = events();
    let told: Vec<_> = told.iter().filter(|event| !event.ends_with("DescriptionChanged")).collect();
    assert_eq!(told, ["a:1 ServerHeartbeatFailed", "a:1 ServerClosed"]);
}

#[test]
fn a_check_fails_after_a_stall_only_when_its_socket_had_a_turn_mon_8() {
    let (_client, bench, events) = client("a:1");
    assert_eq!(events().last().map(String::as_str), Some("a:1 ServerHeartbeatStarted"));

    bench.pass(Duration::from_secs(60));
    bench.run_driver();
    assert_eq!(events(), [""; 0]);

    bench.pass(Duration::from_millis(5));
    bench.run_driver();
    assert_eq!(events().first().map(String::as_str), Some("a:1 ServerHeartbeatFailed"));
}

#[test]
fn a_check_out_whose_runtime_stands_still_ends_in_its_next_poll() {
    let (client, bench, _) = client("a:1");
    let mut cx = Context::from_waker(Waker::noop());
    let mut check_out = pin!(client.check_out_within(Duration::from_secs(1)));
    assert!(check_out.as_mut().poll(&mut cx).is_pending());

    bench.pass(Duration::from_secs(1));

    let Poll::Ready(Err(error)) = check_out.poll(&mut cx) else { panic!("it goes on waiting") };
    assert!(error.is_timeout(), "{error}");
}

#[test]
fn a_pause_that_begins_after_the_end_of_the_runtime_ends_at_once() {
    let (client, ..) = client("a:1");
    client.driver().handle_runtime_gone();

    let pause = pin!(client.context().pauses.pause(client.driver(), Duration::from_secs(1)));

    assert_eq!(pause.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())));
}

//! Tasks in the runtime of a client under attack that have nothing to do with it: how well they are served meanwhile.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use atomic_waker::AtomicWaker;
use bson::rawdoc;
use cmap_core::connection::Command;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{Client, CommandErrorKind};

use super::{Harness, LocalServer, client};

/// How long the bystanders are watched before the attack.
const BEFORE: Duration = Duration::from_millis(500);

/// The least time of the attack.
const BESIDE: Duration = Duration::from_millis(1500);

/// What the bystanders must do during the attack. A rate would be one of the machine.
const TICKS: u64 = 50;
const PINGS: u64 = 30;

const TICK: Duration = Duration::from_millis(10);

/// The time limit of a command that is not answered.
const LIMIT: Duration = Duration::from_millis(100);

/// The counts of the bystanders.
#[derive(Default)]
struct Counts {
    ticks: AtomicU64,
    pings: AtomicU64,
    /// In microseconds.
    longest_ping: AtomicU64,
    end: End,
}

/// The end of everything that was spawned.
#[derive(Default)]
struct End {
    has_come: AtomicBool,
    attack: AtomicWaker,
}

/// Asserts that the tasks of a runtime are served while it is under `attack`: one that ticks every 10 ms, one that
/// pings another server, and one whose command has a time limit.
pub(super) async fn are_served_beside<H: Harness>(what: &str, attack: impl Future<Output = ()> + Send + 'static) {
    let runtime = H::Runtime::current().unwrap();
    let server = LocalServer::start();
    let client = client::<H>(&server, "serverMonitoringMode=poll").await;
    drop(client.check_out().await.unwrap());
    let counts = Arc::<Counts>::default();
    runtime.spawn(tick(runtime.clone(), Arc::clone(&counts)));
    runtime.spawn(ping(runtime.clone(), client.clone(), Arc::clone(&counts)));

    runtime.sleep_until(runtime.now() + BEFORE).await;
    let [ticks_before, pings_before] = counts.rates(BEFORE);
    counts.longest_ping.store(0, Ordering::SeqCst);
    let during = Arc::clone(&counts);
    runtime.spawn(async move {
        // It ends with the attack, or with the test.
        during.end.or(attack).await;
    });
    let start = runtime.now();
    // A runtime that is starved hangs here, into the limit of the case.
    let limit = limit_of_a_command(&runtime, &client).await;
    runtime.sleep_until(start + BESIDE).await;
    while counts.ticks.load(Ordering::SeqCst) < TICKS || counts.pings.load(Ordering::SeqCst) < PINGS {
        runtime.sleep_until(runtime.now() + TICK).await;
    }
    let [ticks, pings] = counts.rates(runtime.now() - start);
    let longest_ping = Duration::from_micros(counts.longest_ping.load(Ordering::SeqCst));
    counts.end.come();

    println!(
        "{}: {what}: {ticks:.0} ticks a second ({ticks_before:.0} without), {pings:.0} pings ({pings_before:.0}), the longest of \
         {longest_ping:?}; a limit of {LIMIT:?} passed after {limit:?}",
        H::Runtime::NAME
    );
}

async fn tick<R: Runtime>(runtime: R, counts: Arc<Counts>) {
    while !counts.is_over() {
        runtime.sleep_until(runtime.now() + TICK).await;
        counts.ticks.fetch_add(1, Ordering::SeqCst);
    }
}

async fn ping<R: Runtime>(runtime: R, client: Client<R>, counts: Arc<Counts>) {
    let mut connection = client.check_out().await.unwrap();
    while !counts.is_over() {
        let start = runtime.now();
        let pinged = connection.run_command("admin", rawdoc! { "ping": 1 }).await;
        assert!(pinged.is_ok() || counts.is_over(), "{pinged:?}");
        let took = u64::try_from((runtime.now() - start).as_micros()).unwrap();
        counts.longest_ping.fetch_max(took, Ordering::SeqCst);
        counts.pings.fetch_add(1, Ordering::SeqCst);
    }
}

/// How long it takes until a command that is not answered fails by its limit.
async fn limit_of_a_command<R: Runtime>(runtime: &R, client: &Client<R>) -> Duration {
    let mut connection = client.check_out().await.unwrap();
    let body = rawdoc! { "neverAnswer": 1 };
    let start = runtime.now();
    let error = connection.exchange_within(&Command::new("admin", &body), Some(LIMIT)).await.unwrap_err();
    assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
    runtime.now() - start
}

impl End {
    fn has_come(&self) -> bool {
        self.has_come.load(Ordering::SeqCst)
    }

    fn come(&self) {
        self.has_come.store(true, Ordering::SeqCst);
        self.attack.wake();
    }

    /// Ends with `attack`, or here.
    async fn or(&self, attack: impl Future<Output = ()>) {
        let mut attack = pin!(attack);
        poll_fn(|cx| {
            self.attack.register(cx.waker());
            if self.has_come() { Poll::Ready(()) } else { attack.as_mut().poll(cx) }
        })
        .await;
    }
}

impl Counts {
    fn is_over(&self) -> bool {
        self.end.has_come()
    }

    /// Ticks and pings a second, of the last `time`.
    fn rates(&self, time: Duration) -> [f64; 2] {
        [&self.ticks, &self.pings].map(|count| {
            let count = u32::try_from(count.swap(0, Ordering::SeqCst)).unwrap();
            f64::from(count) / time.as_secs_f64()
        })
    }
}

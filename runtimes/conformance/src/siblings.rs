//! How long a task that has nothing to do with a client waits for its own socket, while another task of its executor
//! uses the client.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use bson::rawdoc;
use cmap_core::options::ClientOptions;
use cmap_runtime::Pool;
use cmap_runtime::runtime::{Runtime, Target};
use futures_io::{AsyncRead as _, AsyncWrite as _};

use super::scripted_server::{ScriptedServer, streaming_hello};
use super::{Harness, run_alone, until};

/// The number of rounds without pings, and of rounds next to them, which take turns: a temporary disturbance of the
/// machine affects both.
const ROUNDS: usize = 9;

const ROUND_TRIPS: usize = 200;

/// How long the sibling's server works on an answer. One that answers at once may run on the processor of the one that asks, which makes
/// a round trip up to twenty times as fast: a matter of the operating system's scheduler, not of the pings.
const WORK: Duration = Duration::from_micros(100);

/// The factor by which a sibling may wait longer next to pings. On a busy machine, only a starved one exceeds it.
const MOST: f64 = 20.0;

/// The pings that are a load.
const LOAD: u64 = 100;

/// Another task of the executor, which pings a server that answers at once.
#[derive(Default)]
struct Pings {
    count: AtomicU64,
    is_over: AtomicBool,
    has_ended: AtomicBool,
}

pub fn a_sibling_waits_little_longer_for_its_socket_beside_pings<H: Harness>() {
    run_alone::<H>(async {
        let server = ScriptedServer::start(|_, mut client| async move {
            let request = client.next_request().await?;
            client.answer(request, &streaming_hello(1)).await?;
            let ok = rawdoc! { "ok": 1 };
            loop {
                let request = client.next_request().await?;
                client.answer(request, &ok).await?;
            }
        });
        let options = ClientOptions::parse(&server.uri("")).unwrap().0;
        let pool = Pool::<H::Runtime>::with_options(options).await.unwrap();
        pool.ready();
        let runtime = H::Runtime::current().unwrap();

        let ([without, beside], pings) = in_a_task(&runtime, measure(runtime.clone(), pool)).await;

        let ratio = beside.as_secs_f64() / without.as_secs_f64();
        println!(
            "{}: a sibling's round trip takes {without:?}, beside pings {beside:?}: {ratio:.2} times as long ({pings} pings)",
            H::Runtime::NAME
        );
        assert!(pings > LOAD, "{pings} pings are no load");
        assert!(ratio <= MOST, "{beside:?} instead of {without:?}");
    });
}

/// The round trip without pings and next to them, and the number of pings meanwhile.
async fn measure<R: Runtime>(runtime: R, pool: Pool<R>) -> ([Duration; 2], u64) {
    let mut socket = runtime.connect(Target::Tcp(echo())).await.unwrap();
    let (mut without, mut beside, mut count) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        without.push(median_round_trip(&runtime, &mut socket).await);
        let pings = Arc::<Pings>::default();
        runtime.spawn(ping(pool.clone(), Arc::clone(&pings)));
        beside.push(median_round_trip(&runtime, &mut socket).await);
        until(|| pings.count.load(Ordering::SeqCst) > LOAD / 5).await;
        count += pings.count.load(Ordering::SeqCst);
        pings.is_over.store(true, Ordering::SeqCst);
        while !pings.has_ended.load(Ordering::SeqCst) {
            runtime.sleep_until(runtime.now() + Duration::from_millis(1)).await;
        }
    }
    ([quiet(without), quiet(beside)], count)
}

async fn ping<R: Runtime>(pool: Pool<R>, pings: Arc<Pings>) {
    while !pings.is_over.load(Ordering::SeqCst) {
        let mut connection = pool.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        pings.count.fetch_add(1, Ordering::SeqCst);
    }
    pings.has_ended.store(true, Ordering::SeqCst);
}

/// A thread that echoes bytes, each after [`WORK`].
fn echo() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || -> io::Result<()> {
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let mut byte = [0];
        loop {
            // It ends when the other side hangs up.
            peer.read_exact(&mut byte)?;
            thread::sleep(WORK);
            peer.write_all(&byte)?;
        }
    });
    address
}

async fn median_round_trip<R: Runtime>(runtime: &R, socket: &mut R::Stream) -> Duration {
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let start = runtime.now();
        let sent = poll_fn(|cx| Pin::new(&mut *socket).poll_write(cx, &[1])).await.unwrap();
        let received = poll_fn(|cx| Pin::new(&mut *socket).poll_read(cx, &mut [0])).await.unwrap();
        assert_eq!((sent, received), (1, 1));
        times.push(runtime.now() - start);
    }
    median(times)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The lower quartile of the rounds' medians: rounds in which other processes had the machine do not count.
fn quiet(mut rounds: Vec<Duration>) -> Duration {
    rounds.sort_unstable();
    rounds[rounds.len() / 4]
}

/// The output of `work`, which is done by a task of its own: the one that waits for it may have a thread to itself.
async fn in_a_task<R: Runtime, T: Send + 'static>(runtime: &R, work: impl Future<Output = T> + Send + 'static) -> T {
    let shared = Arc::new(Mutex::new((None, Waker::noop().clone())));
    let result = Arc::clone(&shared);
    runtime.spawn(async move {
        let output = work.await;
        let mut shared = shared.lock().unwrap();
        shared.0 = Some(output);
        shared.1.wake_by_ref();
    });
    poll_fn(|cx| {
        let mut shared = result.lock().unwrap();
        shared.1 = cx.waker().clone();
        shared.0.take().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

//! Whole operations: check out, `ping`, check in.
//!
//! How many there are in a second depends on the server and the kernel as much as on the client. What the client works
//! for each, kernel included, is its own, and the same from run to run: the bars of a single thread are set on that.

use std::future::Future;
use std::io::{Read, Write};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use cmap_runtime::bson::{RawDocumentBuf, rawdoc};
use cmap_runtime::core::wire::{Flags, Limits, MessageIds, MessageWriter};
use cmap_runtime::{Client, Runtime};

use crate::contender::{SIZE, client};
use crate::cpu::worked;
use crate::figures::{ROUNDS, Rounds};
use crate::loads::Allocations;
use crate::pools::USUAL;
use crate::report::{Report, Table};
use crate::server::Server;
use crate::tasks::{clock, join};
use crate::{Harness, Threads};

/// How many tasks ping.
const TASKS: [usize; 3] = [1, 8, 64];

/// For how long, in each round.
const ROUND: Duration = Duration::from_millis(150);

/// How many pings are looked at for allocations.
const COUNTED: u32 = 1_000;

/// How many times the official driver's throughput ours has to be.
const FASTER: f64 = 1.3;

/// How much of the official driver's bytes ours may allocate.
const BYTES: f64 = 0.1;

/// A client that pings. Every task that uses it has a clone.
pub trait Pinger: Clone + Send + Sync + 'static {
    fn ping(&self) -> impl Future<Output = ()> + Send;
}

/// Our client, and the command.
#[derive(Clone)]
struct Ours<R: Runtime> {
    client: Client<R>,
    ping: Arc<RawDocumentBuf>,
}

impl<R: Runtime> Pinger for Ours<R> {
    async fn ping(&self) {
        let mut connection = self.client.check_out().await.unwrap();
        connection.run_command("admin", &*self.ping).await.unwrap();
    }
}

/// One line of the table.
pub struct Line {
    name: &'static str,
    load: Box<dyn Load>,
}

/// How many thousand pings there were.
struct Throughput {
    /// In a second.
    by_time: f64,
    /// In a second of the client's work.
    by_work: f64,
}

/// The same in all rounds.
#[derive(Default)]
struct Throughputs {
    by_time: Rounds,
    by_work: Rounds,
}

/// A client under load.
trait Load {
    /// The pings of so many tasks.
    fn throughput(&self, tasks: usize) -> Throughput;

    /// What a ping allocates, in tasks of the driver's too if all run on this thread.
    fn allocations(&self) -> Allocations;
}

/// A client on the runtime of a harness, which has to last from one load to the next.
struct On<H, P> {
    client: P,
    harness: PhantomData<H>,
}

/// A socket and nothing around it, blocking, for a single task.
struct BareSocket {
    socket: TcpStream,
    ping: Vec<u8>,
}

impl Line {
    /// A client called `name`.
    pub fn new<H: Harness>(name: &'static str, client: impl Pinger) -> Self {
        const { assert!(!H::ENDS) }
        Self { name, load: Box::new(On { client, harness: PhantomData::<H> }) }
    }
}

/// Compares cmap with `official`, if the official driver runs on this runtime, and with a bare socket.
pub fn compare<H: Harness>(name: &str, threads: Threads, server: &Server, report: &mut Report, official: Option<Line>) {
    let client = H::block_on(client::<H::Runtime>(server, USUAL));
    let ours = Line::new::<H>("cmap", Ours { client, ping: Arc::new(rawdoc! { "ping": 1 }) });
    println!("\n{name}: pings, {SIZE} connections, {ROUNDS} rounds of {ROUND:?} in turn, median (least–most)");

    let bare = BareSocket::connect(server);
    let mut by_time = Table::new(&["tasks", "cmap", "official driver", "ratio", "bare socket"]);
    let mut by_work = Table::new(&["tasks", "cmap", "official driver", "ratio", "bare socket"]);
    for tasks in TASKS {
        let [mut own, mut theirs, mut floor] = <[Throughputs; 3]>::default();
        for _ in 0..ROUNDS {
            own.push(&ours.load.throughput(tasks));
            if let Some(official) = &official {
                theirs.push(&official.load.throughput(tasks));
            }
            if tasks == 1 {
                floor.push(&bare.throughput());
            }
        }
        let row = |table: &mut Table, [own, theirs, floor]: [&Rounds; 3]| {
            let ratio = own.ratio_to(theirs);
            table.row([tasks.to_string(), own.show(1), theirs.show(1), ratio.show(2), floor.show(1)]);
            ratio
        };
        row(&mut by_time, [&own.by_time, &theirs.by_time, &floor.by_time]);
        let ratio = row(&mut by_work, [&own.by_work, &theirs.by_work, &floor.by_work]);
        if official.is_some() && threads == Threads::One {
            let what = format!("{name}: for the same work, tasks: {tasks}, {FASTER} times the official driver's pings");
            report.bar(what, ratio.show(2), ratio.median() >= FASTER);
        }
    }
    by_time.print("thousand pings a second");
    by_work.print("thousand pings in a second of the client's work");

    let mut table = Table::new(&["a ping allocates", "times", "bytes"]);
    let own = ours.load.allocations();
    for line in [&ours].into_iter().chain(&official) {
        let it = line.load.allocations();
        table.row([line.name.into(), format!("{:.2}", it.count), format!("{:.0}", it.bytes)]);
        if line.name != ours.name {
            let what = format!("{name}: a ping allocates at most {BYTES} of the official driver's bytes");
            report.bar(what, format_args!("{:.4}", own.bytes / it.bytes), own.bytes <= BYTES * it.bytes);
        }
    }
    table.print("by one task");
}

impl Throughput {
    /// Of the pings that `run` counts.
    fn of(run: impl FnOnce() -> u32) -> Self {
        let (start, worked_before) = (clock(), worked());
        let thousands = f64::from(run()) / 1e3;
        let work = worked() - worked_before;
        Self { by_time: thousands / start.elapsed().as_secs_f64(), by_work: thousands / work.as_secs_f64() }
    }
}

impl Throughputs {
    fn push(&mut self, round: &Throughput) {
        self.by_time.push(round.by_time);
        self.by_work.push(round.by_work);
    }
}

impl<H: Harness, P: Pinger> Load for On<H, P> {
    fn throughput(&self, tasks: usize) -> Throughput {
        let work = |client: P| async move {
            let (start, mut count) = (clock(), 0_u32);
            while start.elapsed() < ROUND {
                client.ping().await;
                count += 1;
            }
            count
        };
        let all = || (0..tasks).map(|_| work(self.client.clone()));
        Throughput::of(|| H::block_on(async { join(&H::Runtime::current().unwrap(), all()).await }).into_iter().sum())
    }

    fn allocations(&self) -> Allocations {
        let pings = || {
            H::block_on(async {
                for _ in 0..COUNTED {
                    self.client.ping().await;
                }
            });
        };
        Allocations::of(&allocation_counter::measure(pings), COUNTED)
    }
}

impl BareSocket {
    fn connect(server: &Server) -> Self {
        let socket = TcpStream::connect(server.address()).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut ping = Vec::new();
        let body = rawdoc! { "ping": 1, "$db": "admin" };
        let ids = MessageIds::request(1);
        MessageWriter::begin(&mut ping, ids, Flags::NONE, &body, &[], &Limits::DEFAULT).unwrap().finish();
        Self { socket, ping }
    }

    fn throughput(&self) -> Throughput {
        let mut socket = &self.socket;
        Throughput::of(|| {
            let (start, mut count) = (clock(), 0);
            while start.elapsed() < ROUND {
                socket.write_all(&self.ping).unwrap();
                // The reply is so small that it comes in one piece.
                assert!(socket.read(&mut [0; 256]).unwrap() > 0);
                count += 1;
            }
            count
        })
    }
}

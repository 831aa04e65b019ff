//! What the relay costs, beside plain splices of tokio's, in one run: what a round trip takes longer than without anything between, and
//! for how long threads work for it and for bulk.
//!
//! The relay speaks TLS with the application, so a round trip takes two encryptions and two decryptions. Therefore it is compared with
//! two splices by which as many are done, and costs at most 1.2 times as much:
//!
//! - `Through`: a splice in the clear, through which application and member speak TLS with each other. Encryption is at other places than
//!   with the relay, and as much on the whole way: times are compared, and the work of all threads.
//! - `Tls`: a splice that speaks TLS with the application, as stunnel or HAProxy would (`tokio-rustls`). Its thread does what the
//!   relay's does: times are compared, and the work of this thread.
//!
//! `Clear` has no TLS anywhere. What the relay costs beside it, TLS included, is printed and has no bar.
//!
//! All ways are open together and measured in turn many times, so that what else the machine does strikes all. All threads share one CPU:
//! on several, a round trip takes 15 µs or 600, by where the scheduler has put them. Buffers are as large as the relay's, and no
//! socket delays what it sends. Only the relay has a timer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark stops where something is not as it should be")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../tests/blocking/mod.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod blocking;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cmap_core::options::TlsOptions;
use cmap_core::reverse::Token;
use cmap_relay::{Application as Dialled, Limits, Member, Relay, Settings};
use cmap_runtime::tls::{PemTexts, TlsConfig};
use cmap_tokio::Tokio;
use rustix::thread::{CpuSet, gettid, sched_getcpu, sched_setaffinity};
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Handle};

use crate::blocking::{Application, Parked, SECRET};

const ROUNDS: usize = 300;
const ROUND_TRIPS: u32 = 100;
const QUESTION: usize = 200;
/// Every so many rounds there is bulk, too.
const BULK_EVERY: usize = 10;
const BULK: usize = 16 << 20;
const BAR: f64 = 1.2;

/// The relay's buffer for each direction.
const BUFFER: usize = 16 * 1024;

/// What lies between the application and the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Nothing.
    Direct,
    Clear,
    Through,
    Tls,
    Relay,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measured {
    RoundTrip,
    /// From the member.
    Bulk,
    /// To the member.
    Upload,
}

const MEASURED: [(Measured, &str); 3] =
    [(Measured::RoundTrip, "a round trip"), (Measured::Bulk, "the bulk"), (Measured::Upload, "the upload")];

/// A way that is open, from the application's end.
struct Course {
    way: Way,
    stream: Box<dyn Duplex>,
    /// Those of the application, of the member, and of what is between.
    threads: Vec<Thread>,
    /// The relay's next socket.
    parked: Option<Parked>,
    costs: [Vec<Cost>; 3],
}

trait Duplex: Read + Write {}

impl<T: Read + Write> Duplex for T {}

/// A thread of this process, by its number.
#[derive(Clone, Copy)]
struct Thread(i32);

#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    time: Duration,
    /// Work of the splicing thread.
    splicing: Duration,
    /// Work of all threads.
    work: Duration,
}

fn main() {
    stay_on_one_cpu();
    let ways = [Way::Direct, Way::Clear, Way::Through, Way::Tls, Way::Relay];
    let mut courses = ways.map(Course::open);
    for round in 0..ROUNDS {
        for turn in 0..courses.len() {
            let course = &mut courses[(round + turn) % ways.len()];
            course.measure_round_trips();
            if round % BULK_EVERY == 0 {
                course.measure_bulk();
            }
        }
    }
    println!("{QUESTION} bytes there and back; {} MiB from the member, and to it", BULK >> 20);
    courses.iter().for_each(Course::print);
    let [direct, clear, through, tls, relay] = &courses;
    let against_clear = relay.ratios(clear, direct, |cost| cost.splicing);
    println!("the relay's, as multiples of those of Clear: {}", told(&against_clear));
    let bars = [relay.ratios(through, direct, |cost| cost.work), relay.ratios(tls, direct, |cost| cost.splicing)];
    println!("of those of Through, at most {BAR}: {}", told(&bars[0]));
    println!("of those of Tls, at most {BAR}: {}", told(&bars[1]));
    assert!(bars.iter().flatten().all(|(_, ratio)| *ratio <= BAR), "the bar of {BAR} is missed");
    let parked = courses.iter().filter(|course| course.parked.is_some()).count();
    assert_eq!(parked, 1, "the relay has another socket parked");
}

fn told(ratios: &[(String, f64)]) -> String {
    ratios.iter().map(|(what, ratio)| format!("{what} {ratio:.2}")).collect::<Vec<_>>().join(", ")
}

impl Course {
    fn open(way: Way) -> Self {
        let (application, member, secured) = (Application::new(), listen(), Application::new());
        let authority = secured.authority.clone();
        let members = if way == Way::Through { secured.address() } else { member.local_addr().unwrap() };
        let serving = spawn(move || match way {
            Way::Through => serve(secured.accept()),
            Way::Direct | Way::Clear | Way::Tls | Way::Relay => serve(accept(&member)),
        });
        let (stream, threads) = (Box::new(std::io::empty()), vec![Thread::current(), serving]);
        let mut course = Self { way, stream, threads, parked: None, costs: Default::default() };
        if way == Way::Direct {
            course.stream = Box::new(connect(members));
            return course;
        }
        let clear = listen();
        let (address, clear_address) = (application.address(), clear.local_addr().unwrap());
        let trusted = application.authority.clone();
        course.threads.push(spawn(move || {
            Builder::new_current_thread().enable_all().build().unwrap().block_on(async move {
                match way {
                    Way::Relay => {
                        let _relay = relay(address, members, &trusted);
                        std::future::pending::<()>().await;
                    }
                    Way::Tls => splice(dial_under_tls(address, &trusted).await, members).await,
                    Way::Clear | Way::Through | Way::Direct => splice(dial(clear_address).await, members).await,
                }
            });
        }));
        match way {
            Way::Relay => {
                course.stream = Box::new(application.park().start());
                course.parked = Some(application.park());
            }
            Way::Tls => course.stream = Box::new(application.accept()),
            Way::Through => course.stream = Box::new(secure(accept(&clear), &authority)),
            Way::Clear | Way::Direct => course.stream = Box::new(accept(&clear)),
        }
        course
    }

    fn measure_round_trips(&mut self) {
        // The caches are another way's.
        self.ask(10);
        let cost = self.cost(|this| this.ask(ROUND_TRIPS));
        let [time, splicing, work] = [cost.time, cost.splicing, cost.work].map(|all| all / ROUND_TRIPS);
        self.costs[Measured::RoundTrip as usize].push(Cost { time, splicing, work });
    }

    fn measure_bulk(&mut self) {
        let bulk = self.cost(|this| {
            this.stream.write_all(&[1; QUESTION]).unwrap();
            this.stream.flush().unwrap();
            take(&mut this.stream);
        });
        self.costs[Measured::Bulk as usize].push(bulk);
        let upload = self.cost(|this| {
            this.stream.write_all(&[2; QUESTION]).unwrap();
            give(&mut this.stream);
            this.stream.read_exact(&mut [0; QUESTION]).unwrap();
        });
        self.costs[Measured::Upload as usize].push(upload);
    }

    fn cost(&mut self, what: impl FnOnce(&mut Self)) -> Cost {
        let (before, start) = (self.work(), Instant::now());
        what(self);
        let time = start.elapsed();
        let after = self.work();
        let spent: Vec<_> = after.iter().zip(before).map(|(after, before)| *after - before).collect();
        Cost { time, splicing: spent.get(2).copied().unwrap_or_default(), work: spent.iter().sum() }
    }

    fn work(&self) -> Vec<Duration> {
        self.threads.iter().map(|thread| thread.work()).collect()
    }

    fn ask(&mut self, count: u32) {
        let mut question = [0; QUESTION];
        for _ in 0..count {
            self.stream.write_all(&question).unwrap();
            self.stream.flush().unwrap();
            self.stream.read_exact(&mut question).unwrap();
        }
    }

    fn print(&self) {
        for (measured, name) in MEASURED {
            let [low, time, high] = self.quartiles(measured, |cost| cost.time);
            let [_, splicing, _] = self.quartiles(measured, |cost| cost.splicing);
            let [_, work, _] = self.quartiles(measured, |cost| cost.work);
            let way = self.way;
            println!(
                "{way:?}: {name} {time:?} ({low:?} to {high:?}); work of the splicing thread {splicing:?}, of all {work:?}"
            );
        }
    }

    fn quartiles(&self, measured: Measured, of: impl Fn(&Cost) -> Duration) -> [Duration; 3] {
        let mut all: Vec<_> = self.costs[measured as usize].iter().map(of).collect();
        all.sort_unstable();
        [1, 2, 3].map(|quarter| all[all.len() * quarter / 4])
    }

    /// The added time of a round trip, the times of bulk, and all the work, as multiples of another way's.
    fn ratios(&self, other: &Self, direct: &Self, work: fn(&Cost) -> Duration) -> Vec<(String, f64)> {
        let median =
            |course: &Self, measured, of: fn(&Cost) -> Duration| course.quartiles(measured, of)[1].as_secs_f64();
        let mut ratios = Vec::new();
        for (measured, name) in MEASURED {
            let base = if measured == Measured::RoundTrip { median(direct, measured, |cost| cost.time) } else { 0.0 };
            let time = |course| median(course, measured, |cost| cost.time) - base;
            ratios.push((format!("time of {name}"), time(self) / time(other)));
            ratios.push((format!("work for {name}"), median(self, measured, work) / median(other, measured, work)));
        }
        ratios
    }
}

impl Thread {
    fn current() -> Self {
        Self(gettid().as_raw_nonzero().get())
    }

    /// For how long it has worked.
    fn work(self) -> Duration {
        let statistics = fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.0)).unwrap();
        Duration::from_nanos(statistics.split_whitespace().next().unwrap().parse().unwrap())
    }
}

/// Keeps this thread, and those that it starts, where it is.
fn stay_on_one_cpu() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
}

/// Starts a thread, which ends with the program.
fn spawn(work: impl FnOnce() + Send + 'static) -> Thread {
    let (tell, told) = channel();
    thread::spawn(move || {
        tell.send(Thread::current()).unwrap();
        work();
    });
    told.recv().unwrap()
}

/// Answers questions with as many bytes; one that begins with a 1 with the bulk; one that begins with a 2 when the bulk has come.
fn serve(mut stream: impl Read + Write) {
    let mut question = [0; QUESTION];
    while stream.read_exact(&mut question).is_ok() {
        match question[0] {
            1 => give(&mut stream),
            2 => {
                take(&mut stream);
                stream.write_all(&question).unwrap();
            }
            _ => stream.write_all(&question).unwrap(),
        }
        stream.flush().unwrap();
    }
}

fn give(stream: &mut impl Write) {
    let bytes = vec![7; 1 << 20];
    (0..BULK >> 20).for_each(|_| stream.write_all(&bytes).unwrap());
    stream.flush().unwrap();
}

fn take(stream: &mut impl Read) {
    let mut buffer = vec![0; 256 << 10];
    let mut received = 0;
    while received < BULK {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the end after {received} bytes");
        received += read;
    }
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn accept(listener: &TcpListener) -> TcpStream {
    let stream = listener.accept().unwrap().0;
    stream.set_nodelay(true).unwrap();
    stream
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn secure(stream: TcpStream, authority: &str) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    let host = stream.peer_addr().unwrap().ip().into();
    rustls::StreamOwned::new(rustls::ClientConnection::new(trusting(authority), host).unwrap(), stream)
}

fn trusting(authority: &str) -> Arc<rustls::ClientConfig> {
    let mut authorities = rustls::RootCertStore::empty();
    authorities.add(rustls::pki_types::CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(authorities).with_no_client_auth();
    config.alpn_protocols = vec![cmap_core::reverse::ALPN.to_vec()];
    Arc::new(config)
}

fn relay(application: SocketAddr, member: SocketAddr, authority: &str) -> Relay<Tokio> {
    let mut texts = PemTexts::default();
    texts.authorities = Some(authority.as_bytes());
    let member = Member { name: "db1.example:27017".parse().unwrap(), connect: member.to_string().parse().unwrap() };
    let application = Dialled {
        address: application.to_string().parse().unwrap(),
        members: vec![member.name.clone()],
        tls: TlsConfig::with_pem(&TlsOptions::default(), texts).unwrap(),
        token: Some(Token::new("db1", SECRET.as_bytes()).unwrap()),
    };
    let settings = Settings { members: vec![member], applications: vec![application], limits: Limits::default() };
    Relay::start(Tokio::new(Handle::current()), &settings).unwrap()
}

async fn splice(mut application: impl AsyncRead + AsyncWrite + Unpin, member: SocketAddr) {
    let mut member = dial(member).await;
    let _end = tokio::io::copy_bidirectional_with_sizes(&mut application, &mut member, BUFFER, BUFFER).await;
}

async fn dial_under_tls(address: SocketAddr, authority: &str) -> impl AsyncRead + AsyncWrite + Unpin + use<> {
    let connector = tokio_rustls::TlsConnector::from(trusting(authority));
    connector.connect(address.ip().into(), dial(address).await).await.unwrap()
}

async fn dial(address: SocketAddr) -> tokio::net::TcpStream {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

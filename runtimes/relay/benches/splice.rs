//! What the relay costs, beside plain splices of tokio's, in one run: what a round trip takes longer than without anything between, and
//! for how long the splicing thread works, for round trips and for bulk.
//!
//! The relay's way to the application is under TLS, so the splice that it is compared with dials out under TLS, too, as stunnel or
//! HAProxy would (`tokio-rustls` and `copy_bidirectional`, no pings, no parking). The bar: at most 1.2 times of each. A splice in the
//! clear is there for orientation.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark stops where something is not as it should be")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../tests/blocking/mod.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod blocking;

use std::fmt;
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
use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::pem::PemObject;
use tokio::runtime::{Builder, Handle};

use crate::blocking::{Application, SECRET};

const ROUNDS: usize = 15;
const ROUND_TRIPS: u32 = 4_000;
const QUESTION: usize = 200;
const BULK: usize = 64 << 20;
const BAR: f64 = 1.2;

/// What lies between the application and the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Clear,
    Tls,
    Relay,
}

/// What a way costs.
#[derive(Clone, Copy, Default)]
struct Cost {
    round_trip: Duration,
    /// Work of the splicing thread for a round trip.
    work: Duration,
    /// Work of the splicing thread for the bulk.
    bulk_work: Duration,
    bulk: Duration,
    /// The same, to the member.
    upload_work: Duration,
    upload: Duration,
}

fn main() {
    let mut costs = [Way::Direct, Way::Clear, Way::Tls, Way::Relay].map(|way| (way, Vec::new()));
    for _ in 0..ROUNDS {
        for (way, costs) in &mut costs {
            costs.push(measure(*way));
        }
    }
    let costs = costs.map(|(way, costs)| (way, Cost::median(&costs)));
    let [(_, direct), (_, clear), (_, tls), (_, relay)] = costs;
    println!(
        "{QUESTION} bytes there and back, {} MiB from the member and to it; medians of {ROUNDS} rounds",
        BULK >> 20
    );
    for (way, cost) in costs {
        println!("{way:?}: {cost}; added {:?}", cost.round_trip.saturating_sub(direct.round_trip));
    }
    let against_clear = ratios(&relay, &clear, &direct);
    let against_tls = ratios(&relay, &tls, &direct);
    println!("the relay against a splice under TLS, and against one in the clear:");
    for ((what, tls), (_, clear)) in against_tls.iter().zip(against_clear) {
        println!("  {what}: {tls:.2} (at most {BAR}), {clear:.2}");
    }
    assert!(against_tls.iter().all(|(_, ratio)| *ratio <= BAR), "the bar of {BAR} is missed");
}

/// What the relay costs as a multiple of another way.
fn ratios(relay: &Cost, other: &Cost, direct: &Cost) -> [(&'static str, f64); 6] {
    let ratio = |of: fn(&Cost) -> Duration| of(relay).as_secs_f64() / of(other).as_secs_f64();
    let added = |cost: &Cost| cost.round_trip.saturating_sub(direct.round_trip).as_secs_f64();
    [
        ("added latency", added(relay) / added(other)),
        ("work for a round trip", ratio(|cost| cost.work)),
        ("work for the bulk", ratio(|cost| cost.bulk_work)),
        ("time of the bulk", ratio(|cost| cost.bulk)),
        ("work for the upload", ratio(|cost| cost.upload_work)),
        ("time of the upload", ratio(|cost| cost.upload)),
    ]
}

fn measure(way: Way) -> Cost {
    let application = Application::new();
    let member = TcpListener::bind("127.0.0.1:0").unwrap();
    let member_address = member.local_addr().unwrap();
    let serving = thread::spawn(move || serve(&member.accept().unwrap().0));
    if way == Way::Direct {
        let cost = drive(&mut connect(member_address), &mut || Duration::ZERO);
        serving.join().unwrap();
        return cost;
    }
    let clear = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, clear_address, authority) =
        (application.address(), clear.local_addr().unwrap(), application.authority.clone());
    let (ask, asked) = channel::<()>();
    let (answer, answered) = channel();
    let splicing = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let relay = match way {
                Way::Relay => Some(relay(address, member_address, &authority)),
                Way::Tls => {
                    drop(tokio::spawn(splice_under_tls(address, member_address, authority)));
                    None
                }
                Way::Clear | Way::Direct => {
                    drop(tokio::spawn(splice_in_the_clear(clear_address, member_address)));
                    None
                }
            };
            // The runtime has one thread, so it is asked rarely and between the measurements.
            loop {
                match asked.try_recv() {
                    Ok(()) => answer.send(work_of_this_thread()).unwrap(),
                    Err(std::sync::mpsc::TryRecvError::Empty) => tokio::time::sleep(Duration::from_millis(20)).await,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
                }
            }
            drop(relay);
        });
    });
    let mut work = || {
        ask.send(()).unwrap();
        answered.recv().unwrap()
    };
    let cost = match way {
        Way::Relay => drive(&mut application.park().start(), &mut work),
        Way::Tls => drive(&mut application.accept(), &mut work),
        Way::Clear | Way::Direct => {
            let stream = clear.accept().unwrap().0;
            stream.set_nodelay(true).unwrap();
            drive(&mut { stream }, &mut work)
        }
    };
    drop(ask);
    serving.join().unwrap();
    splicing.join().unwrap();
    cost
}

/// Answers questions with as many bytes; one that begins with a 1 with the bulk, after which it hangs up; one that begins with a 2 when
/// the bulk has come.
fn serve(mut stream: &TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut question = [0; QUESTION];
    while stream.read_exact(&mut question).is_ok() {
        if question[0] == 1 {
            let bytes = vec![7; 1 << 20];
            (0..BULK >> 20).for_each(|_| stream.write_all(&bytes).unwrap());
            return;
        }
        if question[0] == 2 {
            let mut buffer = vec![0; 256 << 10];
            let mut received = 0;
            while received < BULK {
                received += stream.read(&mut buffer).unwrap();
            }
        }
        stream.write_all(&question).unwrap();
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn drive(stream: &mut (impl Read + Write), work: &mut dyn FnMut() -> Duration) -> Cost {
    let mut question = [0; QUESTION];
    let mut ask = |count| {
        for _ in 0..count {
            stream.write_all(&question).unwrap();
            stream.flush().unwrap();
            stream.read_exact(&mut question).unwrap();
        }
    };
    ask(500);
    let (before, start) = (work(), Instant::now());
    ask(ROUND_TRIPS);
    let (took, after) = (start.elapsed(), work());

    question[0] = 2;
    let start = Instant::now();
    stream.write_all(&question).unwrap();
    let bytes = vec![7; 1 << 20];
    (0..BULK >> 20).for_each(|_| stream.write_all(&bytes).unwrap());
    stream.flush().unwrap();
    stream.read_exact(&mut question).unwrap();
    let (upload, after_upload) = (start.elapsed(), work());

    let mut buffer = vec![0; 256 << 10];
    question[0] = 1;
    let start = Instant::now();
    stream.write_all(&question).unwrap();
    stream.flush().unwrap();
    let mut received = 0;
    while received < BULK {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the end after {received} bytes");
        received += read;
    }
    let bulk = start.elapsed();
    Cost {
        round_trip: took / ROUND_TRIPS,
        work: (after - before) / ROUND_TRIPS,
        bulk_work: work() - after_upload,
        bulk,
        upload_work: after_upload - after,
        upload,
    }
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

async fn splice_under_tls(application: SocketAddr, member: SocketAddr, authority: String) {
    let mut authorities = rustls::RootCertStore::empty();
    authorities.add(rustls::pki_types::CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(authorities).with_no_client_auth();
    config.alpn_protocols = vec![cmap_core::reverse::ALPN.to_vec()];
    let stream = dial(application).await;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(application.ip().into(), stream).await.unwrap();
    let _end = tokio::io::copy_bidirectional(&mut stream, &mut dial(member).await).await;
}

async fn splice_in_the_clear(application: SocketAddr, member: SocketAddr) {
    let (mut application, mut member) = (dial(application).await, dial(member).await);
    let _end = tokio::io::copy_bidirectional(&mut application, &mut member).await;
}

async fn dial(address: SocketAddr) -> tokio::net::TcpStream {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn work_of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

impl Cost {
    fn median(costs: &[Self]) -> Self {
        let median = |of: fn(&Self) -> Duration| {
            let mut all: Vec<_> = costs.iter().map(of).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        Self {
            round_trip: median(|cost| cost.round_trip),
            work: median(|cost| cost.work),
            bulk_work: median(|cost| cost.bulk_work),
            bulk: median(|cost| cost.bulk),
            upload_work: median(|cost| cost.upload_work),
            upload: median(|cost| cost.upload),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round_trip, work, bulk_work, bulk, upload_work, upload } = self;
        write!(
            f,
            "{round_trip:?} a round trip, {work:?} of work; bulk {bulk:?}, {bulk_work:?} of work; upload {upload:?}, \
             {upload_work:?} of work"
        )
    }
}

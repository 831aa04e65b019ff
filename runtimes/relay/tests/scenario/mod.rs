//! A replica set behind relays, and an application that has no way out: whatever happens to members, relays, the application and the
//! network, every write ends well within its deadline, and is there exactly once. On any runtime.

pub(crate) mod inward;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_core::options::{ClientOptions, TlsOptions};
use cmap_core::reverse::Token;
use cmap_core::topology::ServerSelector::Writable;
use cmap_relay::{Application as Dialled, Limits, Member, Relay, Settings};
use cmap_runtime::bson::rawdoc;
use cmap_runtime::reverse::{PemSource, ReverseOptions};
use cmap_runtime::tls::{PemTexts, TlsConfig};
use cmap_runtime::{Client, Listen, ReverseListener, Runtime as _};
use cmap_test_server::certificates::{Authority, Validity};

use self::inward::Inward;

const SECRET: &[u8] = b"0123456789abcdef";

/// What an application's writes may take.
const OPTIONS: &str = "replicaSet=rs0&heartbeatFrequencyMS=500&connectTimeoutMS=1000&timeoutMS=30000&w=majority";

/// How long the network is cut.
pub(crate) const CUT: Duration = Duration::from_secs(3);

/// How long a member is down.
pub(crate) const OUTAGE: Duration = Duration::from_secs(1);

/// How long everything is left alone after a fault.
const PAUSE: Duration = Duration::from_secs(2);

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The primary steps down.
    StepDown,
    /// The primary is killed, and started again.
    Kill,
    /// Nothing passes between the application and the relays.
    Cut,
    /// All relays are killed, one after the other, and started again.
    RelaysKilled,
    /// A relay is replaced while its predecessor drains.
    RelayReplaced,
    /// The application ends, and comes again at the same port.
    ApplicationRestarts,
}

pub(crate) const FAULTS: [Fault; 6] =
    [Fault::StepDown, Fault::Kill, Fault::Cut, Fault::RelaysKilled, Fault::RelayReplaced, Fault::ApplicationRestarts];

/// Where a scenario takes place.
pub(crate) trait Stage {
    type Runtime: Listen;

    /// The members: their names, and where their relays reach them.
    fn members(&self) -> Vec<Member>;

    /// The runtime of a relay beside a member.
    fn relay_runtime(&self, member: usize) -> Self::Runtime;

    /// The host by which relays know the application, and the address at which it listens.
    fn application(&self) -> (&'static str, SocketAddr);

    /// Something happens that is not the relays' or the application's.
    fn happen(&self, fault: Fault) -> impl Future<Output = ()>;
}

/// What the application has done.
pub(crate) struct Played {
    /// How many writes of each task were acknowledged.
    pub(crate) acknowledged: Vec<i64>,
    /// Errors that no write may meet.
    pub(crate) errors: Vec<String>,
}

/// The application, its relays, and what is between them.
struct Scene<'a, S: Stage> {
    stage: &'a S,
    runtime: S::Runtime,
    authority: Authority,
    address: SocketAddr,
    relays: Vec<Relay<S::Runtime>>,
    listener: Option<ReverseListener<Inward<S::Runtime>>>,
    work: Arc<Work<S::Runtime>>,
}

/// The tasks of the application.
struct Work<R: Listen> {
    client: Mutex<Option<Client<Inward<R>>>>,
    acknowledged: Vec<AtomicI64>,
    errors: Mutex<Vec<String>>,
    writing: AtomicUsize,
    running: AtomicUsize,
    is_over: AtomicBool,
}

/// Lets so many tasks write again and again, while these faults happen.
pub(crate) async fn play<S: Stage>(stage: &S, runtime: S::Runtime, tasks: usize, faults: &[Fault]) -> Played {
    let (host, address) = stage.application();
    let authority = Authority::made_at("authority", runtime.unix_time()).unwrap();
    let work = Work {
        client: Mutex::new(None),
        acknowledged: (0..tasks).map(|_| AtomicI64::new(0)).collect(),
        errors: Mutex::default(),
        writing: AtomicUsize::new(0),
        running: AtomicUsize::new(tasks),
        is_over: AtomicBool::new(false),
    };
    let (relays, listener, work) = (Vec::new(), None, Arc::new(work));
    let mut scene = Scene { stage, runtime, authority, address, relays, listener, work };
    scene.start_application(host).await;
    for member in 0..stage.members().len() {
        let relay = scene.relay(host, member);
        scene.relays.push(relay);
    }
    for task in 0..tasks {
        scene.runtime.spawn(write(scene.runtime.clone(), Arc::clone(&scene.work), task));
    }
    scene.all_write_again().await;
    for fault in faults {
        scene.fault(host, *fault).await;
        scene.all_write_again().await;
        scene.sleep(PAUSE).await;
    }
    scene.end().await
}

impl<S: Stage> Scene<'_, S> {
    async fn fault(&mut self, host: &str, fault: Fault) {
        match fault {
            Fault::StepDown | Fault::Kill | Fault::Cut => self.stage.happen(fault).await,
            Fault::RelaysKilled => {
                for member in 0..self.relays.len() {
                    drop(self.relays.remove(member));
                    self.sleep(Duration::from_millis(300)).await;
                    let relay = self.relay(host, member);
                    self.relays.insert(member, relay);
                    self.sleep(Duration::from_millis(300)).await;
                }
            }
            Fault::RelayReplaced => {
                // The time of day tells two runs apart.
                self.sleep(Duration::from_millis(10)).await;
                let successor = self.relay(host, 0);
                let predecessor = std::mem::replace(&mut self.relays[0], successor);
                let _cut = predecessor.drain().await;
            }
            Fault::ApplicationRestarts => {
                let client = self.work.client.lock().unwrap().take();
                while self.work.writing.load(Ordering::SeqCst) > 0 {
                    self.sleep(Duration::from_millis(5)).await;
                }
                drop((client, self.listener.take()));
                self.sleep(Duration::from_millis(500)).await;
                self.start_application(host).await;
            }
        }
    }

    async fn start_application(&mut self, host: &str) {
        let identity = self.authority.server(&[host], Validity::Now).unwrap();
        let mut options = ReverseOptions::new(PemSource::Text(identity.pem().into_bytes()));
        let members = self.stage.members();
        options.tokens.add(Token::new("rack", SECRET).unwrap(), members.iter().map(|member| member.name.clone()));
        options.keep_alive = Duration::from_secs(2);
        let home = Inward(self.runtime.clone());
        let listener = ReverseListener::bind_in(home, self.address, options).await.unwrap();
        self.address = listener.local_address();
        let names: Vec<_> = members.iter().map(|member| member.name.to_string()).collect();
        let uri = format!("mongodb://{}/?{OPTIONS}", names.join(","));
        let client = Client::builder(ClientOptions::parse(&uri).unwrap().0).reverse(listener.clone());
        *self.work.client.lock().unwrap() = Some(client.build().await.unwrap());
        self.listener = Some(listener);
    }

    fn relay(&self, host: &str, member: usize) -> Relay<S::Runtime> {
        let mut texts = PemTexts::default();
        let authority = self.authority.pem();
        texts.authorities = Some(authority.as_bytes());
        let member_settings = self.stage.members().remove(member);
        let application = Dialled {
            address: format!("{host}:{}", self.address.port()).parse().unwrap(),
            members: vec![member_settings.name.clone()],
            tls: TlsConfig::with_pem(&TlsOptions::default(), texts).unwrap(),
            token: Some(Token::new("rack", SECRET).unwrap()),
        };
        let mut limits = Limits::default();
        limits.connect_timeout = Duration::from_secs(1);
        limits.max_reconnect_delay = Duration::from_secs(1);
        limits.drain_timeout = Duration::from_secs(2);
        let settings = Settings { members: vec![member_settings], applications: vec![application], limits };
        Relay::start(self.stage.relay_runtime(member), &settings).unwrap()
    }

    /// Waits until every task has written once more.
    async fn all_write_again(&self) {
        let before = self.work.acknowledged();
        while self.work.acknowledged().iter().zip(&before).any(|(now, before)| now <= before) {
            self.sleep(Duration::from_millis(5)).await;
            if !self.work.errors.lock().unwrap().is_empty() {
                return;
            }
        }
    }

    async fn end(self) -> Played {
        self.work.is_over.store(true, Ordering::SeqCst);
        while self.work.running.load(Ordering::SeqCst) > 0 {
            self.sleep(Duration::from_millis(5)).await;
        }
        let client = self.work.client.lock().unwrap().take().unwrap();
        client.close(Duration::from_secs(20)).await.unwrap();
        let errors = self.work.errors.lock().unwrap().clone();
        Played { acknowledged: self.work.acknowledged(), errors }
    }

    async fn sleep(&self, time: Duration) {
        self.runtime.sleep_until(self.runtime.now() + time).await;
    }
}

impl<R: Listen> Work<R> {
    fn acknowledged(&self) -> Vec<i64> {
        self.acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }

    /// The client, if the application runs, for a write that begins now.
    fn begin(&self) -> Option<Client<Inward<R>>> {
        let client = self.client.lock().unwrap();
        if client.is_some() {
            self.writing.fetch_add(1, Ordering::SeqCst);
        }
        client.clone()
    }
}

/// Inserts documents that nothing but their transaction numbers keeps from being inserted twice.
async fn write<R: Listen>(runtime: R, work: Arc<Work<R>>, task: usize) {
    let number = i64::try_from(task).unwrap();
    while !work.is_over.load(Ordering::SeqCst) {
        if let Some(client) = work.begin() {
            let insert = rawdoc! { "insert": "log", "documents": [{ "task": number }] };
            match client.operation(("db", insert)).on(Writable).run().await {
                Ok(_) => drop(work.acknowledged[task].fetch_add(1, Ordering::SeqCst)),
                Err(error) => work.errors.lock().unwrap().push(error.to_string()),
            }
            drop(client);
            work.writing.fetch_sub(1, Ordering::SeqCst);
        }
        runtime.sleep_until(runtime.now() + Duration::from_millis(50)).await;
    }
    work.running.fetch_sub(1, Ordering::SeqCst);
}

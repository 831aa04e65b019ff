//! A server for the suite: the test server on the case's [ground](crate::ground), in the test's own process.
//!
//! It listens on TCP or a Unix socket, in the clear or under TLS ([`certificates`]). Each connection has a task that reads
//! ([`connection`]), and one more keeps the time ([`machine`]).
//! Before a command reaches the machine, [`misbehaviour`] checks for another deed: [`Manners`] say how new connections
//! are treated, and the names of commands what happens to one of them.

mod certificates;
mod connection;
mod lies;
mod machine;
mod misbehaviour;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cmap_test_server::{ServerConfig, ServerVersion, User};

pub use self::certificates::Hosts;
use self::certificates::{Certificates, client_subject};
use self::connection::Channel;
use self::lies::Lies;
pub use self::lies::Whim;
use self::machine::Machine;
pub use self::misbehaviour::{Deed, Manners};
use crate::ground::{self, Ground, Place, Site};

/// The configuration of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Whether clients have to log in: as `app` with the password `secret`, by their certificate,
    /// or by the access tokens `first-token` and `second-token`.
    pub authorization: bool,
    /// The hosts that its certificate is for, if it speaks TLS.
    pub tls: Option<Hosts>,
    /// The number of services behind a load balancer, which gives each new connection to the next; none is a server
    /// without one.
    pub services: usize,
    /// The oldest and the newest version of the protocol that it claims to speak, if not MongoDB 7.0's.
    pub wire_versions: Option<(i32, i32)>,
    /// The version of MongoDB that it is.
    pub version: ServerVersion,
    /// The most writes of one command, if not as many as MongoDB takes.
    pub write_batch: Option<usize>,
    /// Whether it is the only member of the replica set `rs`, and has transactions.
    pub replica_set: bool,
    /// Whether it listens on a Unix socket instead of TCP.
    pub unix_socket: bool,
}

/// A server at an address of its own, until it is dropped.
pub struct LocalServer {
    setup: Setup,
    ground: Arc<dyn Ground>,
    site: Box<dyn Site>,
    certificates: Option<Arc<Certificates>>,
    shared: Arc<Shared>,
    lies: Option<Arc<Lies>>,
    /// None while it is down.
    acceptor: Option<Box<dyn Send>>,
}

/// The state that the server's tasks share.
struct Shared {
    manners: Mutex<Manners>,
    /// One for each service, or one.
    machines: Vec<Arc<Machine>>,
    accepted: AtomicUsize,
    channels: Mutex<Vec<Weak<Channel>>>,
    goodbyes: AtomicUsize,
}

impl LocalServer {
    /// A server for any client, in the clear.
    pub fn start() -> Self {
        Self::start_as(Setup::default())
    }

    /// A server with the configuration `setup`.
    pub fn start_as(setup: Setup) -> Self {
        let ground = ground::current();
        let site = match setup.unix_socket {
            true => ground.unix_site().unwrap(),
            false => ground.site().unwrap(),
        };
        Self::start_at(site, setup)
    }

    /// A server that lies, as `whim` says.
    pub(super) fn start_lying(setup: Setup, whim: Whim) -> Self {
        let ground = ground::current();
        let lies = Lies::new(whim, Arc::clone(&ground));
        let site = ground.site().unwrap();
        Self::make(site, setup, Some(lies))
    }

    /// A server at a site of the case's ground.
    pub(super) fn start_at(site: Box<dyn Site>, setup: Setup) -> Self {
        Self::make(site, setup, None)
    }

    fn make(site: Box<dyn Site>, setup: Setup, lies: Option<Arc<Lies>>) -> Self {
        let ground = ground::current();
        let certificates = setup.tls.map(|hosts| Arc::new(Certificates::make(hosts, &ground)));
        let shared = Arc::new(Shared::new(&ground, setup, site.place()));
        let mut server = Self { setup, ground, site, certificates, shared, lies, acceptor: None };
        server.listen();
        server
    }

    /// The connection string; `query` are its options.
    pub fn uri(&self, query: &str) -> String {
        format!("mongodb://{}/?{query}", self.site.place())
    }

    /// The connection string of a client that logs in, as in `app:secret`.
    pub fn uri_as(&self, login: &str, query: &str) -> String {
        format!("mongodb://{login}@{}/?{query}", self.site.place())
    }

    /// Its address.
    pub(super) fn place(&self) -> &Place {
        self.site.place()
    }

    /// The authority that has signed the certificate of a server with TLS, as a PEM file.
    pub fn authority(&self) -> PathBuf {
        self.certificates.as_ref().unwrap().authority()
    }

    /// A client's certificate of that authority, and its key.
    pub fn client_certificate(&self) -> PathBuf {
        self.certificates.as_ref().unwrap().client()
    }

    /// Ends its lies.
    pub(super) fn tell_the_truth(&self) {
        self.lies.iter().for_each(|lies| lies.stop());
    }

    /// How connections are treated that are made from now on.
    pub fn set_manners(&self, manners: Manners) {
        *self.shared.manners.lock().unwrap() = manners;
    }

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How many connections to it are open.
    pub(super) fn open(&self) -> usize {
        self.shared.channels.lock().unwrap().iter().filter(|channel| channel.strong_count() > 0).count()
    }

    /// How many connections under TLS clients have ended by a close_notify.
    pub(super) fn goodbyes(&self) -> usize {
        self.shared.goodbyes.load(Ordering::SeqCst)
    }

    /// Whether it stops, like a process that gets no more time: it reads, and does nothing else until it goes on.
    pub fn hang(&self, hang: bool) {
        self.shared.machines.iter().for_each(|machine| machine.hang(hang));
    }

    /// Ends the server and all its connections, as if its process were killed.
    pub fn kill(&mut self) {
        self.acceptor = None;
        self.shared.machines.iter().for_each(|machine| machine.end());
        for channel in self.shared.channels.lock().unwrap().drain(..).filter_map(|channel| channel.upgrade()) {
            channel.close();
        }
    }

    /// Starts it again at the same address, as another process.
    pub fn restart(&mut self) {
        self.kill();
        self.shared = Arc::new(Shared::new(&self.ground, self.setup, self.site.place()));
        self.listen();
    }

    fn listen(&mut self) {
        let (ground, shared) = (Arc::clone(&self.ground), Arc::clone(&self.shared));
        let (tls, lies) = (self.certificates.as_ref().map(|made| made.server_config()), self.lies.clone());
        let acceptor = self.site.listen(Box::new(move |socket| {
            let channel = Arc::new(Channel::new(socket, tls.as_ref(), lies.as_ref().map(Lies::liar)));
            shared.channels.lock().unwrap().push(Arc::downgrade(&channel));
            let manners = *shared.manners.lock().unwrap();
            let turn = shared.accepted.fetch_add(1, Ordering::Relaxed) % shared.machines.len();
            let (machine, shared) = (Arc::clone(&shared.machines[turn]), Arc::clone(&shared));
            ground.spawn(Box::pin(async move {
                // A connection ends when either side hangs up; whatever the error, the task ends with it.
                drop(connection::serve(Arc::clone(&channel), manners, &machine).await);
                shared.goodbyes.fetch_add(usize::from(channel.heard_goodbye()), Ordering::SeqCst);
            }));
        }));
        self.acceptor = Some(acceptor.unwrap());
    }
}

impl Shared {
    fn new(ground: &Arc<dyn Ground>, setup: Setup, place: &Place) -> Self {
        let machine = |_| Machine::start(Arc::clone(ground), config(setup, place));
        Self {
            manners: Mutex::default(),
            machines: (0..setup.services.max(1)).map(machine).collect(),
            accepted: AtomicUsize::new(0),
            channels: Mutex::default(),
            goodbyes: AtomicUsize::new(0),
        }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn config(setup: Setup, place: &Place) -> ServerConfig {
    /// Different ones, so that a server that was restarted is another process, and each service has an id of its own.
    static SEED: AtomicU64 = AtomicU64::new(0);
    let mut config = ServerConfig::new(place.to_string()).with_version(setup.version);
    config.seed = SEED.fetch_add(1, Ordering::Relaxed);
    config.load_balanced = setup.services > 0;
    config.replica_set = setup.replica_set.then(|| "rs".into());
    if let Some(most) = setup.write_batch {
        config.limits.write_batch = most;
    }
    if let Some(versions) = setup.wire_versions {
        config.wire_versions = versions;
    }
    config.authorization = setup.authorization;
    if setup.authorization {
        config.users = vec![
            User::with_password("app", "secret"),
            User::Certificate { subject: client_subject() },
            User::with_token("first", "first-token"),
            User::with_token("second", "second-token"),
        ];
        // The fewest iterations that a client accepts (AUTH-13).
        config.iterations = (4096, 4096);
    }
    config
}

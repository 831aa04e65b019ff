//! The builder of a client or a pool: the settings that both share, and the parts that both are made of.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::auth::{MAX_ITERATIONS, SaslMechanism};
use cmap_core::connection::{ClientMetadata, ConnectionOptions, Environment, MetadataError};
use cmap_core::monitor::MonitorOptions;
use cmap_core::options::{ClientOptions, ConnectionStringError, Mechanism, TlsOptions, Warning};
use cmap_core::pool;
use cmap_core::server::CommandDefaults;
use cmap_core::topology::seed_list::SeedList;
use cmap_core::topology::{Topology as Machine, TopologyOptions};

use crate::clock::Clock;
use crate::command_limit::TimeLimit;
use crate::error::{ClientError, RuntimeGone};
use crate::establish::{Keys, Settings};
use crate::events::{Event, Listeners};
use crate::pool::Pool;
use crate::runtime::Runtime;
use crate::seed_list;
use crate::tls::TlsConfig;
use crate::topology::Topology;
use crate::warnings;

/// The options, and further settings, of a `T`: a [`Client`](crate::Client) or a [`Pool`].
#[must_use = "nothing is made before `build` is awaited"]
pub struct Builder<R, T> {
    runtime: Result<R, RuntimeGone>,
    options: ClientOptions,
    warnings: Vec<Warning>,
    metadata: ClientMetadata,
    listeners: Listeners,
    tls: Option<TlsConfig>,
    max_scram_iterations: u32,
    mechanism: Option<Arc<dyn SaslMechanism>>,
    quiet: bool,
    reselect: bool,
    command_events: bool,
    makes: PhantomData<fn() -> T>,
}

/// The side that monitors the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Monitored {
    /// The client, unless it is a load balancer.
    ByClient,
    /// The pool's owner, which makes it ready and clears it.
    ByOwner,
}

impl<R: Runtime, T> Builder<R, T> {
    pub(crate) fn new(options: ClientOptions) -> Self {
        Self {
            runtime: R::current(),
            options,
            warnings: Vec::new(),
            metadata: metadata::<R>(),
            listeners: Listeners::default(),
            tls: None,
            max_scram_iterations: MAX_ITERATIONS,
            mechanism: None,
            quiet: false,
            reselect: true,
            command_events: false,
            makes: PhantomData,
        }
    }

    /// Keeps the warnings of the connection string that the options were read from.
    pub(crate) fn warnings(mut self, warnings: Vec<Warning>) -> Self {
        self.warnings = warnings;
        self
    }

    /// Makes it live in `runtime` instead of the caller's.
    pub fn runtime(mut self, runtime: R) -> Self {
        self.runtime = Ok(runtime);
        self
    }

    /// Uses `config` for TLS, instead of the options' certificates. This turns TLS on.
    pub fn tls(mut self, config: TlsConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Lets the server ask for at most `iterations` of SCRAM's hash, instead of [`MAX_ITERATIONS`]. The server chooses
    /// the number and this process does the work, in a thread for blocking work: 100,000 take some 20 milliseconds.
    /// Raise it for a server whose users were created with a higher number.
    pub fn max_scram_iterations(mut self, iterations: u32) -> Self {
        self.max_scram_iterations = iterations;
        self
    }

    /// Logs in by a mechanism of the user's own, such as MONGODB-AWS, MONGODB-OIDC or GSSAPI, whatever the options name.
    pub fn mechanism(mut self, mechanism: impl SaslMechanism + 'static) -> Self {
        self.mechanism = Some(Arc::new(mechanism));
        self
    }

    /// Keeps warnings about options from standard error, for programs that show [`Client::warnings`](crate::Client::warnings)
    /// themselves.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Whether a check-out whose server fails it before it has its connection (the pool is cleared, connecting fails, the
    /// server steps down) selects a server anew, while its time lasts. Default true. Without it the check-out fails with the
    /// server's error, as the specification has it. Only for clients: the owner of a pool selects servers.
    pub fn reselect(mut self, reselect: bool) -> Self {
        self.reselect = reselect;
        self
    }

    /// Calls `handler` for every event from the first one on, in order. It is called on the thread that causes the
    /// event or, if another thread is delivering events at that moment, in a task of the runtime: it must be quick, and
    /// neither block nor wait for the runtime. It may call the client or the pool. A panic in it is caught.
    pub fn on_event(mut self, handler: impl Fn(&ServerAddress, &Event) + Send + Sync + 'static) -> Self {
        self.listeners.handlers.push(Box::new(handler));
        self
    }

    /// Makes events of each command, too: started, and then succeeded or failed, with its documents. Handlers, subscriptions and
    /// the log get them. Commands that may hold a secret are shown without their documents (LOG-15). Off by default, and free
    /// then: an event copies what it shows.
    pub fn command_events(mut self) -> Self {
        self.command_events = true;
        self
    }

    /// Adds a library that wraps this one to the client's name in the server's logs (HS-14).
    ///
    /// # Errors
    /// A part contains the character that separates libraries.
    pub fn wrapped_by(mut self, name: &str, version: &str, platform: &str) -> Result<Self, MetadataError> {
        self.metadata.append(name, version, platform)?;
        Ok(self)
    }

    /// The pool of a server, `monitored` by the client or by the pool's owner.
    pub(crate) async fn start(self, monitored: Monitored) -> Result<Pool<R>, ClientError> {
        let Self {
            runtime,
            mut options,
            mut warnings,
            metadata,
            listeners,
            tls,
            max_scram_iterations,
            mechanism,
            quiet,
            reselect,
            command_events,
            makes: _,
        } = self;
        let runtime = runtime?;
        if let Some(seed_list) = SeedList::of(&options).filter(|_| options.hosts.is_empty()) {
            let resolved = seed_list::resolve(&runtime, &seed_list, options).await?;
            options = resolved.options;
            warnings.extend(resolved.warnings);
        }
        // Options changed in code may set only one of the two.
        if options.pool.load_balanced || options.load_balanced == Some(true) {
            options.pool.load_balanced = true;
            options.load_balanced = Some(true);
        }
        options.check()?;
        if tls.is_some() {
            // The caller's own configuration replaces what the options say about TLS.
            options.tls = TlsOptions::default();
            options.tls.enabled = Some(true);
        }
        if mechanism.is_none() {
            check_mechanism(&options)?;
        }
        warnings.extend(options.advice());
        warnings.extend(warnings::without_effect(&options, monitored));
        warnings::tell(&warnings, quiet);
        let tls = match tls {
            None if options.tls.is_enabled() => {
                let options = options.tls.clone();
                // Files are read where this blocks no other task.
                let config = runtime.spawn_blocking(move || TlsConfig::new(&options)).await;
                Some(config.ok_or(RuntimeGone)??.timed_by(runtime.clone()))
            }
            given => given.map(|given| given.timed_by(runtime.clone())),
        };
        let first_seed = Arc::new(check_hosts(&options, monitored)?);
        let clock = Clock::new(runtime);
        let mut pool_options = options.pool.clone();
        let (seed, pool_number) = seed_and_number(clock.runtime());
        (pool_options.seed, pool_options.pool_number) = (seed, pool_number);
        if options.timeout.is_some() {
            // CSOT-3.
            pool_options.wait_queue_timeout = None;
        }
        let mut connection_options = ConnectionOptions::of_client(&options, metadata.clone());
        connection_options.max_scram_iterations = max_scram_iterations;
        connection_options.mechanism = mechanism;
        let now = clock.now();
        let settings = Arc::new(Settings {
            timeout: without_zero(Some(options.connect_timeout.unwrap_or(CONNECT_TIMEOUT))),
            tls,
            keys: Arc::new(Keys::default()),
            clock,
            command_limit: TimeLimit::of_client(&options),
            command_defaults: CommandDefaults::of_client(&options),
            command_events,
            options: Mutex::new(Arc::new(connection_options)),
        });
        let (mut machine, monitor_options) = match monitored {
            Monitored::ByOwner => {
                let pool = pool::Pool::new((*first_seed).clone(), pool_options, now);
                (Machine::unmonitored(pool.map_err(ConnectionStringError::from)?), None)
            }
            Monitored::ByClient => {
                let mut topology_options = TopologyOptions::of_client(&options);
                topology_options.reselect = reselect;
                let machine = Machine::new(topology_options, pool_options);
                let mut machine = machine.map_err(ConnectionStringError::from)?;
                machine.open(now);
                (machine, Some(MonitorOptions::of_client(&options, metadata)))
            }
        };
        machine.observe(listeners.are_logged() || listeners.any());
        let topology = Topology::start(machine, first_seed, settings, monitor_options, listeners);
        Ok(Pool::new(topology, options, warnings, seed))
    }
}

/// The default of connectTimeoutMS (URI-12).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The limit that an option sets; zero sets none (CSOT-2).
pub(crate) fn without_zero(option: Option<Duration>) -> Option<Duration> {
    option.filter(|limit| !limit.is_zero())
}

/// The seed of a pool's backoff jitter, and the number that tells the pool from others. Clients that are refused together
/// must not come back together; if there are no random numbers, at least the clients of one process differ.
fn seed_and_number(runtime: &impl Runtime) -> (u64, u32) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let (mut seed, mut number) = ([0; 8], [0; 4]);
    match runtime.fill_random(&mut seed).and_then(|()| runtime.fill_random(&mut number)) {
        Ok(()) => (u64::from_le_bytes(seed), u32::from_le_bytes(number)),
        Err(_) => {
            let number = LAST.fetch_add(1, Ordering::Relaxed);
            (number.into(), number)
        }
    }
}

/// Refuses a mechanism that cannot be carried out before anything is sent.
fn check_mechanism(options: &ClientOptions) -> Result<(), ClientError> {
    let option = match options.credential.as_ref().and_then(|credential| credential.mechanism) {
        Some(Mechanism::Gssapi) => "authMechanism=GSSAPI",
        Some(Mechanism::MongoDbAws) => "authMechanism=MONGODB-AWS",
        Some(Mechanism::MongoDbOidc) => "authMechanism=MONGODB-OIDC",
        _ => return Ok(()),
    };
    Err(ClientError::Unsupported {
        option,
        remedy: "use SCRAM-SHA-256, SCRAM-SHA-1, PLAIN or MONGODB-X509, or bring the mechanism by Builder::mechanism",
    })
}

/// The first host; and a pool has only that one.
fn check_hosts(options: &ClientOptions, monitored: Monitored) -> Result<ServerAddress, ClientError> {
    let unsupported = |option, remedy| Err(ClientError::Unsupported { option, remedy });
    match (monitored, options.hosts.as_slice()) {
        _ if options.proxy.host.is_some() => unsupported("proxyHost", "connect without a proxy"),
        (Monitored::ByClient, [first, ..]) | (Monitored::ByOwner, [first]) => Ok(first.clone()),
        (Monitored::ByOwner, _) => unsupported("a pool of several hosts", "make a pool for each of them, or a client"),
        (Monitored::ByClient, []) => unsupported("a connection string without a host", "name one"),
    }
}

fn metadata<R: Runtime>() -> ClientMetadata {
    let mut metadata = ClientMetadata::new(match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        "windows" => "Windows",
        other => other,
    });
    metadata.os_architecture = Some(std::env::consts::ARCH.into());
    metadata.platform = Some(format!("Rust, {}", R::NAME));
    let dockerenv = std::path::Path::new("/.dockerenv").exists();
    metadata.environment = Environment::detect(|name| std::env::var(name).ok(), dockerenv);
    metadata
}

impl<R, T> fmt::Debug for Builder<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}

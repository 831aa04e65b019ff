//! The builder of a client or a pool: the settings that both share, and the parts that both are made of.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
#[cfg(feature = "srv")]
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::auth::{MAX_ITERATIONS, MechanismError, SaslMechanism};
use cmap_core::connection::{ClientMetadata, ConnectionOptions, Environment, MetadataError};
use cmap_core::monitor::MonitorOptions;
use cmap_core::options::{ClientOptions, ConnectionStringError, TlsOptions, Warning};
use cmap_core::pool;
use cmap_core::server::{CommandDefaults, ServerDescription};
use cmap_core::topology::seed_list::{PolledSeedList, SeedList};
use cmap_core::topology::{self, Input, MinPoolSizePolicy, SizesByRole, TopologyOptions};

use super::connections::Connections;
use super::warnings;
use crate::driver::Driver;
#[cfg(feature = "trace")]
use crate::driver::Machine;
use crate::error::{ClientError, RuntimeGone};
use crate::establish::optional::{ReverseListener, TlsConfig};
use crate::establish::{
    Keys, ServerFilter, Settings, TokenCallback, TokenReply, TokenRequest, Tokens, check_mechanism, token_callback,
};
use crate::events::{Event, Listeners};
use crate::names::Names;
use crate::names::seed_list::{self, HostFilter};
#[cfg(feature = "trace")]
use crate::recording::{Recorder, Trigger};
use crate::runtime::Runtime;
#[cfg(feature = "tracing")]
use crate::spans::SpanOptions;
use crate::time::{CONNECT_TIMEOUT, Clock, TimeLimit, without_zero};
use crate::watch::Labels;

/// The options, and further settings, of a `T`: a [`Client`](crate::Client) or a [`Pool`](crate::Pool).
#[must_use = "nothing is made before `build` is awaited"]
pub struct Builder<R: Runtime, T> {
    runtime: Result<R, RuntimeGone>,
    options: ClientOptions,
    warnings: Vec<Warning>,
    metadata: ClientMetadata,
    listeners: Listeners,
    tls: Option<TlsConfig>,
    max_scram_iterations: u32,
    mechanism: Option<Arc<dyn SaslMechanism>>,
    token_callback: Option<TokenCallback>,
    reselect: bool,
    min_pool_size_policy: MinPoolSizePolicy,
    max_connections: u32,
    sizes_by_role: SizesByRole,
    command_events: bool,
    #[cfg(feature = "tracing")]
    spans: SpanOptions,
    watches_holders: bool,
    leak_detection_threshold: Option<Duration>,
    server_filter: Option<ServerFilter>,
    names: Names,
    srv_host_filter: Option<HostFilter>,
    listener: Option<ReverseListener<R>>,
    #[cfg(feature = "trace")]
    recorder: Option<Recorder>,
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
            token_callback: None,
            reselect: true,
            min_pool_size_policy: MinPoolSizePolicy::Disabled,
            max_connections: 0,
            sizes_by_role: SizesByRole::default(),
            command_events: false,
            #[cfg(feature = "tracing")]
            spans: SpanOptions::default(),
            watches_holders: false,
            leak_detection_threshold: None,
            server_filter: None,
            names: Names::default(),
            srv_host_filter: None,
            listener: None,
            #[cfg(feature = "trace")]
            recorder: None,
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
    #[cfg(feature = "__rustls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
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

    /// Logs in by a mechanism of the user's own, such as MONGODB-AWS or GSSAPI, whatever the options name. A server that asks for
    /// another login while a connection is open (code 391) gets another conversation.
    pub fn mechanism(mut self, mechanism: impl SaslMechanism + 'static) -> Self {
        self.mechanism = Some(Arc::new(mechanism));
        self
    }

    /// Fetches the access tokens of MONGODB-OIDC by `callback`: a token is used by all connections of its user, until a server refuses
    /// it (OIDC-3). It is called in a task of the runtime, by one at a time, and dropped when its deadline has passed. An error that
    /// it returns, or a panic in it, fails the connection that has asked; others that wait ask again, one at a time.
    ///
    /// ```
    /// use cmap_runtime::{Client, ClientError, ClientOptions, Runtime, TokenReply, TokenRequest};
    ///
    /// async fn connect<R: Runtime>() -> Result<Client<R>, ClientError> {
    ///     let (options, _) = ClientOptions::parse("mongodb://db.example/?authMechanism=MONGODB-OIDC&tls=true")?;
    ///     Client::builder(options).oidc_callback(fetch).build().await
    /// }
    ///
    /// async fn fetch(_request: TokenRequest) -> std::io::Result<TokenReply> {
    ///     Ok(TokenReply::new(std::fs::read_to_string("/run/secrets/token")?.trim()))
    /// }
    /// ```
    pub fn oidc_callback<F, W, E>(mut self, callback: F) -> Self
    where
        F: Fn(TokenRequest) -> W + Send + Sync + 'static,
        W: Future<Output = Result<TokenReply, E>> + Send + 'static,
        E: Into<MechanismError>,
    {
        self.token_callback = Some(token_callback(callback));
        self
    }

    /// Whether a check-out whose server fails it before it has its connection (the pool is cleared, connecting fails, the
    /// server steps down) selects a server anew, while its time lasts. Default true. Without it the check-out fails with the
    /// server's error, as the specification has it. Only for clients: the owner of a pool selects servers.
    pub fn reselect(mut self, reselect: bool) -> Self {
        self.reselect = reselect;
        self
    }

    /// Whether pools keep up more connections than minPoolSize, because another server's pool has more (X-71): so that the
    /// next primary has its connections before a failover. Default none. Only for clients.
    pub fn min_pool_size_policy(mut self, policy: MinPoolSizePolicy) -> Self {
        self.min_pool_size_policy = policy;
        self
    }

    /// Most connections that the pools of all servers have together, those of monitors apart; 0 = no limit (X-73). Where it
    /// is reached, those who wait are served in the order of their arrival, whichever server they wait for, and idle
    /// connections of other servers are closed for them. Default 0. Only for clients.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// Limits of the pools by the roles of their servers: after a failover each pool has those of its server's new role
    /// (X-74). Default those of the options. Only for clients.
    pub fn sizes_by_role(mut self, sizes: SizesByRole) -> Self {
        self.sizes_by_role = sizes;
        self
    }

    /// Closes the connections to a host that nobody has used for `timeout`, and keeps up no minPoolSize there until it is
    /// used again (X-72). The same as `options.pool.host_timeout`. Default never.
    pub fn host_timeout(mut self, timeout: Duration) -> Self {
        self.options.pool.host_timeout = Some(timeout);
        self
    }

    /// Calls `filter` with the servers that suit a check-out, for it to remove those that it does not want; one of the rest
    /// is taken, by the latency window and the load. It is never called with an empty list, may change its mind with every
    /// new description of a server, and runs in the task of the check-out, outside of every lock. A check-out for which it
    /// leaves no server waits for one. Only for clients that discover their servers.
    pub fn filter_servers(mut self, filter: impl Fn(&mut Vec<Arc<ServerDescription>>) + Send + Sync + 'static) -> Self {
        self.server_filter = Some(Arc::new(filter));
        self
    }

    /// Whether handlers and subscriptions get events of every selection of a server
    /// ([`Event::Selection`](crate::Event::Selection)): two events for each check-out at least. Default false. The log has its
    /// records of selections without this.
    pub fn observe_selections(mut self, observe: bool) -> Self {
        self.listeners.selections = observe;
        self
    }

    /// Takes connections from agents that have dialled to `listener`, instead of connecting: those of pools and those of monitors. An
    /// agent speaks for a member by the name that its replica set knows it by, so hosts are named as ever, and discovery goes on as
    /// ever; the names need not be known to DNS. While a member has no agent, it is an unknown server: check-outs wait for
    /// serverSelectionTimeoutMS ([how](crate::reverse)).
    #[cfg(all(feature = "reverse", feature = "__rustls"))]
    #[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
    pub fn reverse(mut self, listener: ReverseListener<R>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Looks up all names at `servers`, instead of asking the runtime: SRV and TXT records, and the addresses of hosts. They are asked
    /// over UDP, and over TCP where that fails. The first that answers counts, each has 3 s, and `localhost` needs none. Addresses of
    /// one version will do: those of the other are waited for no longer than a second then. For networks with name servers of their
    /// own, and for platforms on which the system's are not known. No server at all is an error of `build`.
    #[cfg(feature = "srv")]
    #[cfg_attr(docsrs, doc(cfg(feature = "srv")))]
    pub fn name_servers(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.names = Names::At(servers.into_iter().collect());
        self
    }

    /// Calls `allows` with the name of each host that SRV records name, beyond the check of their domain: `build` fails if one is
    /// refused, and when the records are looked up again, refused hosts are left out (DNS-20). A panic in it then refuses.
    pub fn allow_srv_hosts(mut self, allows: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.srv_host_filter = Some(Arc::new(allows));
        self
    }

    /// Calls `handler` for every event from the first one on, in order. It is called on the thread that causes the
    /// event or, if another thread is delivering events at that moment, in a task of the runtime: it must be quick, and
    /// neither block nor wait for the runtime. It may call the client or the pool. A panic in it is caught.
    pub fn on_event(mut self, handler: impl Fn(&ServerAddress, &Event) + Send + Sync + 'static) -> Self {
        self.listeners.handlers.push(Box::new(handler));
        self
    }

    /// Whether there are events of each command, too ([`Event::Command`](crate::Event::Command)): started, and then succeeded or
    /// failed, with its documents. Handlers, subscriptions and the log get them. Commands that may hold a secret are shown without
    /// their documents (LOG-15). Default false, and free then: an event copies what it shows.
    pub fn observe_commands(mut self, observe: bool) -> Self {
        self.command_events = observe;
        self
    }

    /// Whether operations, commands and transactions have spans of the crate `tracing` by OpenTelemetry's names, each a child of its
    /// caller's (OTEL-1). Default as the environment says, and none without it; they are free then.
    ///
    /// ```
    /// use cmap_runtime::exports::SpanOptions;
    /// use cmap_runtime::{Client, ClientError, ClientOptions, Runtime};
    ///
    /// async fn connect<R: Runtime>(options: ClientOptions) -> Result<Client<R>, ClientError> {
    ///     Client::builder(options).spans(SpanOptions::on()).build().await
    /// }
    /// ```
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn spans(mut self, options: SpanOptions) -> Self {
        self.spans = options;
        self
    }

    /// Notes who holds connections and who waits for one (X-105): the [label](crate::CheckOut::label) of a
    /// check-out, its place in the source, and the last command on its connection. [`Client::in_use`](crate::Connections::in_use) and
    /// [`Client::waiting`](crate::Connections::waiting) show them, and errors of check-outs whose time is up name the holders. Default
    /// false: without it both lists say only which connections, since when, and for what. It takes 64 KiB at most. With the feature
    /// `tracing` a check-out that waits has a span (`check_out`), a child of its caller's.
    pub fn watch_holders(mut self, watch: bool) -> Self {
        self.watches_holders = watch;
        self
    }

    /// Tells of each use of a connection that lasts for longer than `limit`, once ([`Event::PossibleLeak`](crate::Event::PossibleLeak),
    /// and a record at level WARN): a leak, a command that takes long, or a connection that is kept between commands. The first
    /// byte of a reply begins the time anew, since it shows that the server works. It turns [`watch_holders`](Self::watch_holders)
    /// on, and [`Client::uses`](crate::Connections::uses) says what the uses of each label took (X-109). A limit of zero is an error of
    /// `build`. Default none.
    pub fn leak_detection_threshold(mut self, limit: Duration) -> Self {
        self.leak_detection_threshold = Some(limit);
        self
    }

    /// Records what the client's machine does (X-111): the calls with their times, without bytes of commands and without
    /// credentials. [`Client::trace`](crate::Connections::trace) makes a file of it, which `cmap replay` repeats and explains.
    /// [`Recorder::sparse`] costs least and reaches back for hours. Default none, unless CMAP_TRACE_DIR names a directory: then every
    /// client writes files there.
    #[cfg(feature = "trace")]
    #[cfg_attr(docsrs, doc(cfg(feature = "trace")))]
    pub fn recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
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

    /// The connections of a client or a pool, whose servers are `monitored` by the client or by the pool's owner.
    pub(crate) async fn start(self, monitored: Monitored) -> Result<Arc<Connections<R>>, ClientError> {
        let Self {
            runtime,
            mut options,
            mut warnings,
            metadata,
            listeners,
            tls,
            max_scram_iterations,
            mechanism,
            token_callback,
            reselect,
            min_pool_size_policy,
            max_connections,
            sizes_by_role,
            command_events,
            #[cfg(feature = "tracing")]
            spans,
            watches_holders,
            leak_detection_threshold,
            server_filter,
            names,
            srv_host_filter,
            listener,
            #[cfg(feature = "trace")]
            recorder,
            makes: _,
        } = self;
        if leak_detection_threshold == Some(Duration::ZERO) {
            return Err(ClientError::Unsupported {
                option: "a leak_detection_threshold of zero",
                remedy: "every use takes longer: name a time that a use should not take, or leave the limit out",
            });
        }
        #[cfg(feature = "srv")]
        check_names(&names)?;
        let runtime = runtime?;
        let mut polled_seed_list = None;
        if let Some(seed_list) = SeedList::of(&options).filter(|_| options.hosts.is_empty()) {
            seed_list::check_public_suffix(&options.srv)?;
            let resolved = seed_list::resolve(&runtime, &names, srv_host_filter.as_ref(), &seed_list, options).await?;
            options = resolved.options;
            warnings.extend(resolved.warnings);
            polled_seed_list = Some(PolledSeedList::new(seed_list, resolved.time_to_live));
        }
        // Code may have set one of them alone; the pool's own options are what its owner reads.
        options.pool.load_balanced = options.is_load_balanced();
        options.check()?;
        check_agents(listener.is_some(), &options)?;
        if tls.is_some() {
            // The caller's own configuration replaces what the options say about TLS.
            options.tls = TlsOptions::default();
            options.tls.enabled = Some(true);
        }
        if mechanism.is_none() {
            check_mechanism(options.credential.as_ref(), token_callback.is_some())?;
        }
        check_tls(&options.tls)?;
        warnings.extend(options.advice());
        options.hosts = ServerAddress::distinct(options.hosts);
        warnings.extend(warnings::without_effect(&options, monitored));
        #[cfg(feature = "tracing")]
        warnings.iter().for_each(crate::events::logging::warn);
        #[cfg(feature = "__rustls")]
        let tls = match tls {
            None if options.tls.is_enabled() => {
                let options = options.tls.clone();
                // Files are read where this blocks no other task.
                let config = runtime.spawn_blocking(move || TlsConfig::new(&options)).await;
                Some(config.ok_or(RuntimeGone)??)
            }
            given => given,
        }
        .map(|config| config.timed_by(runtime.clone()));
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
            proxy: options.proxy.clone(),
            tls,
            keys: Arc::new(Keys::default()),
            tokens: Tokens::new(token_callback),
            clock,
            names,
            seeds: options.hosts.clone(),
            srv_host_filter,
            listener,
            command_limit: TimeLimit::of_client(&options),
            command_defaults: CommandDefaults::of_client(&options),
            command_events,
            #[cfg(feature = "tracing")]
            spans: spans.spans(|name| std::env::var(name).ok()),
            #[cfg(not(feature = "tracing"))]
            spans: None,
            number: pool_number,
            labels: (watches_holders || leak_detection_threshold.is_some())
                .then(|| Arc::new(Labels::new("(other labels)"))),
            leak_detection_threshold,
            // CSOT-1: zero sets no limit.
            check_out_limit: without_zero(options.timeout).into(),
            server_filter: server_filter.filter(|_| monitored == Monitored::ByClient),
            options: Mutex::new(Arc::new(connection_options)),
            identities: Mutex::default(),
        });
        let (machine, monitor_options) = match monitored {
            Monitored::ByOwner => {
                let pool = pool::Pool::new((*first_seed).clone(), pool_options, now);
                (topology::Topology::unmonitored(pool.map_err(ConnectionStringError::from)?), None)
            }
            Monitored::ByClient => {
                let mut topology_options = TopologyOptions::of_client(&options);
                topology_options.reselect = reselect;
                topology_options.min_pool_size_policy = min_pool_size_policy;
                topology_options.max_connections = max_connections;
                topology_options.sizes_by_role = sizes_by_role;
                topology_options.polled_seed_list = polled_seed_list;
                let machine = topology::Topology::new(topology_options, pool_options);
                (machine.map_err(ConnectionStringError::from)?, Some(MonitorOptions::of_client(&options, metadata)))
            }
        };
        #[cfg(feature = "trace")]
        let mut listeners = listeners;
        #[cfg(feature = "trace")]
        let (mut machine, trigger) = recorded(machine, recorder, &mut listeners);
        #[cfg(not(feature = "trace"))]
        let mut machine = machine;
        if monitored == Monitored::ByClient {
            machine.call(now, Input::Open, None);
        }
        machine.call(now, Input::Observe(listeners.are_logged() || listeners.any()), None);
        machine.call(now, Input::ObserveSelections(listeners.selection_detail()), None);
        let driver = Driver::start(machine, first_seed, settings, monitor_options, listeners);
        #[cfg(feature = "trace")]
        trigger.into_iter().for_each(|trigger| trigger.attach(&driver));
        Ok(Arc::new(Connections::new(driver, options, warnings, seed)))
    }
}

/// The machine with its recorder, and what writes files of it.
#[cfg(feature = "trace")]
fn recorded<R: Runtime, C>(
    machine: topology::Topology<C>,
    recorder: Option<Recorder>,
    listeners: &mut Listeners,
) -> (Machine<C>, Option<Arc<Trigger<R>>>) {
    let mut machine = Machine::from(machine);
    let recorder = recorder.or_else(Recorder::of_environment);
    recorder.iter().for_each(|recorder| machine.start_recording(recorder.options()));
    let trigger = recorder.and_then(|recorder| Trigger::of(&recorder, listeners));
    (machine, trigger)
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

/// Refuses TLS in a build that has none.
fn check_tls(options: &TlsOptions) -> Result<(), ClientError> {
    if options.is_enabled() && !cfg!(feature = "__rustls") {
        return Err(ClientError::NotBuiltIn { what: "TLS, which tls=false turns off", feature: "tls" });
    }
    Ok(())
}

/// Somebody is asked for names.
#[cfg(feature = "srv")]
fn check_names(names: &Names) -> Result<(), ClientError> {
    match names {
        Names::At(servers) if servers.is_empty() => Err(ClientError::Unsupported {
            option: "an empty list of name_servers",
            remedy: "name a server, or leave name_servers out: the runtime looks up names then",
        }),
        Names::At(_) | Names::Runtime => Ok(()),
    }
}

/// No agent speaks for a Unix socket, and none is reached through a proxy.
fn check_agents(are_there: bool, options: &ClientOptions) -> Result<(), ClientError> {
    let is_unix = |host: &ServerAddress| matches!(host, ServerAddress::Unix { .. });
    if are_there && options.hosts.iter().any(is_unix) {
        return Err(ClientError::Unsupported {
            option: "a Unix socket that an agent speaks for",
            remedy: "name the member as its replica set does, by host and port, or connect without `reverse`",
        });
    }
    if are_there && options.proxy.address().is_some() {
        return Err(ClientError::Unsupported {
            option: "proxyHost where agents connect",
            remedy: "remove it: nothing is connected from here, or connect without `reverse`",
        });
    }
    Ok(())
}

/// The first host; and a pool has only that one.
fn check_hosts(options: &ClientOptions, monitored: Monitored) -> Result<ServerAddress, ClientError> {
    let unsupported = |option, remedy| Err(ClientError::Unsupported { option, remedy });
    match (monitored, options.hosts.as_slice()) {
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

impl<R: Runtime, T> fmt::Debug for Builder<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "__rustls")))]
mod tests {
    use super::*;

    #[test]
    fn options_that_ask_for_tls_are_refused_with_the_name_of_the_feature() {
        let (options, _) = ClientOptions::parse("mongodb://h/?tls=true").unwrap();

        let error = check_tls(&options.tls).unwrap_err().to_string();

        assert!(error.contains("enable the feature `tls`"), "{error}");
    }
}

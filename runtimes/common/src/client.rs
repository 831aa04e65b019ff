//! The client: where a user begins.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{ClientMetadata, ConnectionOptions, Environment, MetadataError};
use cmap_core::monitor::MonitorOptions;
use cmap_core::options::ClientOptions;
use cmap_core::pool::{CheckOutRequest, Pool, Stats};
use cmap_core::server::{self, ServerDescription, ServerOptions};

use crate::check_out::CheckOut;
use crate::clock::Clock;
use crate::command_limit::CommandLimit;
use crate::endpoint::Endpoint;
use crate::error::{ClientError, RuntimeGone};
use crate::establish::Establisher;
use crate::event::Event;
use crate::keys::Keys;
use crate::listeners::Listeners;
use crate::runtime::Runtime;
use crate::subscription::Subscription;
use crate::tls::TlsConfig;

/// A client of one server, with a pool of connections to it.
///
/// Cheap to clone; all clones are one client. It lives in the runtime it was made in and can be used from every thread
/// and every other runtime. When the last clone is dropped, the client is closed: connections in use may still be used,
/// and are closed when they come back.
///
/// Connections do not survive `fork`: make a client in each process.
pub struct Client<R: Runtime> {
    owner: Arc<Owner<R>>,
}

/// A client in the making.
#[must_use = "nothing is made before `build` is awaited"]
pub struct ClientBuilder<R> {
    runtime: Result<R, RuntimeGone>,
    options: ClientOptions,
    metadata: ClientMetadata,
    listeners: Listeners,
    tls: Option<TlsConfig>,
}

/// What all clones share. Connections in use hold the endpoint alone.
struct Owner<R: Runtime> {
    endpoint: Arc<Endpoint<R>>,
    /// timeoutMS.
    timeout: Option<Duration>,
}

impl<R: Runtime> Client<R> {
    #[cfg(feature = "conformance")]
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<R>> {
        &self.owner.endpoint
    }

    /// A client as a connection string asks for it. It checks the server from now on; a check-out waits for that.
    ///
    /// # Errors
    /// The connection string cannot be used, or the caller runs in no runtime.
    pub async fn connect(uri: &str) -> Result<Self, ClientError> {
        let (options, _warnings) = ClientOptions::parse(uri)?;
        #[cfg(feature = "tracing")]
        _warnings.iter().for_each(crate::logging::warn);
        Self::with_options(options).await
    }

    /// A client with `options`.
    ///
    /// # Errors
    /// The options do not go together, or the caller runs in no runtime.
    pub async fn with_options(options: ClientOptions) -> Result<Self, ClientError> {
        Self::builder(options).build().await
    }

    /// A client with `options`, and with more than options can say.
    pub fn builder(options: ClientOptions) -> ClientBuilder<R> {
        ClientBuilder {
            runtime: R::current(),
            options,
            metadata: metadata::<R>(),
            listeners: Listeners::default(),
            tls: None,
        }
    }

    /// Checks out a connection: one that is available, or the next that comes back or is established. For at most
    /// timeoutMS, or waitQueueTimeoutMS (CSOT-3); and while the server is not usable for at most
    /// serverSelectionTimeoutMS.
    #[inline]
    pub fn check_out(&self) -> CheckOut<'_, R> {
        self.check_out_within(self.owner.timeout)
    }

    /// The same, for at most `limit`; zero and none mean for ever.
    pub fn check_out_within(&self, limit: Option<Duration>) -> CheckOut<'_, R> {
        let mut request = CheckOutRequest::default();
        request.deadline = self.owner.endpoint.deadline(limit);
        CheckOut::new(&self.owner.endpoint, request)
    }

    /// Closes the client: what is available is closed, whoever waits fails, nothing is checked out any more.
    /// Connections in use may come back for as long as `patience`; then their commands are cut off. Returns how many
    /// connections that concerned.
    ///
    /// Dropping the future leaves the client closed, and connections in use untouched. It borrows nothing, so a task of its
    /// own can await it.
    ///
    /// # Errors
    /// The client's runtime has ended.
    pub fn close(&self, patience: Duration) -> impl Future<Output = Result<u32, RuntimeGone>> + Send + use<R> {
        let endpoint = Arc::clone(&self.owner.endpoint);
        async move {
            endpoint.close();
            endpoint.closed(patience).await
        }
    }

    /// What the pool counts.
    pub fn stats(&self) -> Stats {
        self.owner.endpoint.stats()
    }

    /// What is known of the server.
    pub fn description(&self) -> Arc<ServerDescription> {
        self.owner.endpoint.description()
    }

    /// The server's address.
    pub fn address(&self) -> &ServerAddress {
        &self.owner.endpoint.address
    }

    /// The events from now on. At most `capacity` that were not read yet are kept.
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        self.owner.endpoint.subscribe(capacity)
    }
}

impl<R: Runtime> ClientBuilder<R> {
    /// Lets the client live in `runtime` instead of the one that the caller runs in.
    pub fn runtime(mut self, runtime: R) -> Self {
        self.runtime = Ok(runtime);
        self
    }

    /// Uses `config` for TLS, instead of what the options say about certificates. TLS is on with it.
    pub fn tls(mut self, config: TlsConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Calls `handler` for every event from the first one on, in order, on whatever thread makes it happen: it must be
    /// quick. It may call the client. A panic in it is caught.
    pub fn on_event(mut self, handler: impl Fn(&ServerAddress, &Event) + Send + Sync + 'static) -> Self {
        self.listeners.handlers.push(Box::new(handler));
        self
    }

    /// Adds a library that wraps this one to what the server's logs show (HS-14).
    ///
    /// # Errors
    /// A part contains the character that separates libraries.
    pub fn wrapped_by(mut self, name: &str, version: &str, platform: &str) -> Result<Self, MetadataError> {
        self.metadata.append(name, version, platform)?;
        Ok(self)
    }

    /// The client.
    ///
    /// # Errors
    /// The options do not go together, or there is no runtime.
    pub async fn build(self) -> Result<Client<R>, ClientError> {
        let Self { runtime, options, metadata, listeners, tls } = self;
        let runtime = runtime?;
        options.check()?;
        let tls = match tls {
            None if options.tls.is_enabled() => {
                let options = options.tls.clone();
                // Files are read where it stalls nobody.
                let config = runtime.spawn_blocking(move || TlsConfig::new(&options)).await;
                Some(config.ok_or(RuntimeGone)??)
            }
            given => given,
        };
        let address = Arc::new(single_server(&options)?);
        let clock = Clock::new(runtime);
        let mut pool_options = options.pool.clone();
        pool_options.pool_number = pool_number();
        if options.timeout.is_some() {
            // CSOT-3.
            pool_options.wait_queue_timeout = None;
        }
        let pool = Pool::new((*address).clone(), pool_options, clock.now())
            .map_err(cmap_core::options::ConnectionStringError::from)?;
        let establisher = Arc::new(Establisher {
            address,
            timeout: Some(options.connect_timeout.unwrap_or(CONNECT_TIMEOUT)),
            tls,
            keys: Arc::new(Keys::default()),
            clock,
            command_limit: CommandLimit::of_client(&options),
            options: Arc::new(ConnectionOptions::of_client(&options, metadata.clone())),
        });
        let mut core = server::Endpoint::new(
            establisher.clock.now(),
            pool,
            ServerOptions::of_client(&options),
            MonitorOptions::of_client(&options, metadata),
        );
        core.server_mut().observe(listeners.any());
        let endpoint = Endpoint::start(core, establisher, listeners);
        Ok(Client { owner: Arc::new(Owner { endpoint, timeout: options.timeout }) })
    }
}

/// connectTimeoutMS, if it is not set (URI-12).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Tells the pools of this process apart.
fn pool_number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

fn single_server(options: &ClientOptions) -> Result<ServerAddress, ClientError> {
    let unsupported = |option, remedy| Err(ClientError::Unsupported { option, remedy });
    match options.hosts.as_slice() {
        _ if options.proxy.host.is_some() => unsupported("proxyHost", "connect without a proxy"),
        [address] => Ok(address.clone()),
        _ => unsupported("a connection to several hosts", "name one host, such as the primary"),
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

impl<R: Runtime> Clone for Client<R> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<R: Runtime> Drop for Owner<R> {
    fn drop(&mut self) {
        self.endpoint.close();
    }
}

impl<R: Runtime> fmt::Debug for Client<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", self.address()).finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for ClientBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

//! From a server's address to a usable connection (CMAP-23): resolve, connect (through a proxy, perhaps), TLS, hello, authenticate.
//!
//! Each establishment is a task of its own in the home runtime and outlives the check-out that caused it. It is bounded
//! by connectTimeoutMS, and aborted when the pool forgets it. The server learns the result exactly once,
//! whatever happens to the task, even if the runtime drops it half-way.

mod keys;
mod limit;
mod mechanism;
pub(crate) mod optional;
mod proxy;
mod resolve;
mod token_source;
mod tokens;

use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bson::RawDocument;
use cmap_core::address::ServerAddress;
use cmap_core::connection::{
    ClientMetadata, ConnectionOptions, Establish, EstablishError, Fault, MetadataError, Phase, Progress, Socks,
};
use cmap_core::options::{Credential, ProxyOptions, Secret};
use cmap_core::pool::{Handle, IdentityId, PhaseTimes, ServiceId};
use cmap_core::server::{CommandDefaults, ServerDescription};
use cmap_core::time::Instant;
use futures_io::{AsyncRead, AsyncWrite};
use zeroize::Zeroizing;

pub(crate) use self::keys::Keys;
use self::limit::{Limit, Timer};
pub(crate) use self::mechanism::check_mechanism;
use self::optional::{ReverseListener, TlsConfig};
use self::resolve::{NamedBy, resolve};
pub(crate) use self::token_source::{TokenCallback, token_callback};
pub use self::token_source::{TokenReply, TokenRequest};
pub(crate) use self::tokens::{TokenCache, Tokens};
use crate::names::Names;
use crate::names::host::{LastAddress, Unreachable, race};
use crate::names::seed_list::HostFilter;
use crate::runtime::{Runtime, Target};
use crate::socket::abort::Abort;
use crate::socket::read_budget::BudgetedStream;
use crate::socket::transport::Transport;
use crate::socket::{self, Socket};
use crate::spans::Spans;
use crate::time::{Clock, TimeLimit};
#[cfg(feature = "__rustls")]
use crate::tls::{self, TlsError};
use crate::watch::Labels;

/// How long before a monitor's limit its dialer gives up, at most.
const HEAD_START: Duration = Duration::from_millis(250);

/// The number of bytes read at once.
const READ: usize = 4096;

/// How connections to one server are established.
pub(crate) struct Establisher<R: Runtime> {
    pub(crate) address: Arc<ServerAddress>,
    pub(crate) settings: Arc<Settings<R>>,
    /// Whose credential connections have; `None` = that of the options.
    identity: Option<IdentityId>,
    last_address: LastAddress,
}

/// Removes the servers that the user does not want.
pub(crate) type ServerFilter = Arc<dyn Fn(&mut Vec<Arc<ServerDescription>>) + Send + Sync>;

/// What connections to all servers of a client have in common.
pub(crate) struct Settings<R: Runtime> {
    /// For connections yet to come; replaced when a library names itself.
    pub(crate) options: Mutex<Arc<ConnectionOptions>>,
    /// The credentials of identities.
    pub(crate) identities: Mutex<BTreeMap<IdentityId, Arc<Credential>>>,
    /// connectTimeoutMS; `None` sets no limit.
    pub(crate) timeout: Option<Duration>,
    /// The limit of a command for which its caller sets none.
    pub(crate) command_limit: Option<TimeLimit>,
    /// What the options add to commands.
    pub(crate) command_defaults: Option<CommandDefaults>,
    /// Whether there are events of commands.
    pub(crate) command_events: bool,
    /// The spans of operations, commands and transactions; `None` if there are none.
    pub(crate) spans: Option<Spans>,
    /// A number that tells the client from others.
    pub(crate) number: u32,
    /// The labels of check-outs, where it is noted who holds connections.
    pub(crate) labels: Option<Arc<Labels>>,
    /// How long a use may last before it is reported.
    pub(crate) leak_detection_threshold: Option<Duration>,
    /// How long a check-out may wait for which its caller sets no limit.
    pub(crate) check_out_limit: crate::time::Limit,
    /// The user's choice among suitable servers.
    pub(crate) server_filter: Option<ServerFilter>,
    /// The way to the servers.
    pub(crate) proxy: ProxyOptions,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) keys: Arc<Keys>,
    /// The access tokens of users of MONGODB-OIDC.
    pub(crate) tokens: Tokens,
    pub(crate) clock: Clock<R>,
    pub(crate) names: Names,
    /// The servers that the user has named, or DNS for the user.
    pub(crate) seeds: Vec<ServerAddress>,
    /// The user's choice among the hosts of SRV records.
    pub(crate) srv_host_filter: Option<HostFilter>,
    /// Whose sockets are taken, instead of connecting.
    pub(crate) listener: Option<ReverseListener<R>>,
}

/// Learns what comes out of establishments: of each connection first its hello, then its end.
pub(crate) trait Requester<S>: Send + Sync + 'static {
    /// A connection was greeted: by a service, behind a load balancer, or by the server itself. The description has the hello's
    /// round-trip time.
    fn handle_hello(
        self: &Arc<Self>,
        connection: Handle,
        service_id: Option<ServiceId>,
        description: ServerDescription,
    );

    /// A connection was established; its phases took so long.
    fn handle_established(self: &Arc<Self>, connection: Handle, socket: Box<Socket<S>>, took: PhaseTimes);

    /// A connection could not be established.
    fn handle_establish_failed(self: &Arc<Self>, connection: Handle, error: EstablishError);

    /// The home runtime has ended.
    fn handle_runtime_gone(self: &Arc<Self>);
}

/// Why a connection is established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A check-out waits.
    CheckOut,
    /// The pool keeps it at hand.
    Population,
}

/// The duty to report an establishment's result.
struct Report<Q: Requester<S>, S> {
    requester: Weak<Q>,
    address: Arc<ServerAddress>,
    connection: Handle,
    done: bool,
    socket: PhantomData<fn(S)>,
}

impl<R: Runtime> Settings<R> {
    /// Adds a library that wraps this one to the metadata of connections yet to come (HS-14).
    ///
    /// # Errors
    /// A part contains the character that separates libraries.
    pub(crate) fn append_metadata(&self, name: &str, version: &str, platform: &str) -> Result<(), MetadataError> {
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        let mut appended = ConnectionOptions::clone(&options);
        appended.metadata.append(name, version, platform)?;
        *options = Arc::new(appended);
        Ok(())
    }

    /// The options of connections yet to come, with another credential.
    pub(crate) fn options_with(&self, credential: Option<Arc<Credential>>) -> ConnectionOptions {
        let mut options = ConnectionOptions::clone(&self.options());
        options.credential = credential;
        options
    }

    /// How the client describes itself on connections yet to come.
    pub(crate) fn metadata(&self) -> ClientMetadata {
        self.options().metadata.clone()
    }

    /// Gives connections yet to come another credential. Returns the former one.
    pub(crate) fn replace_credential(&self, credential: Option<Arc<Credential>>) -> Option<Arc<Credential>> {
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        let mut replaced = ConnectionOptions::clone(&options);
        let former = std::mem::replace(&mut replaced.credential, credential);
        *options = Arc::new(replaced);
        former
    }

    /// Notes the credential of an identity, or that there is none any more. Returns the former one.
    pub(crate) fn set_identity(
        &self,
        identity: IdentityId,
        credential: Option<Arc<Credential>>,
    ) -> Option<Arc<Credential>> {
        let mut identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        match credential {
            Some(credential) => identities.insert(identity, credential),
            None => identities.remove(&identity),
        }
    }

    /// Forgets the access tokens of users whom neither the options nor an identity has; and the keys of `credential`, which was used
    /// until now, unless it is among those that they have.
    pub(crate) fn forget(&self, credential: &Credential) {
        let of_options = self.options();
        let identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        let used = || of_options.credential.iter().chain(identities.values()).map(|used| &**used);
        self.tokens.retain(used());
        let (Some(username), Some(password)) = (&credential.username, &credential.password) else { return };
        let has_it = |used: &Credential| {
            let own = used.password.as_ref().map(Secret::expose);
            used.username.as_ref() == Some(username) && own == Some(password.expose())
        };
        if !used().any(has_it) {
            self.keys.forget(username, password);
        }
    }

    /// What the user of an identity is called: by the name that logs in, or else by the identity's number.
    pub(crate) fn name_of(&self, identity: IdentityId) -> Arc<str> {
        let identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        let credential = identities.get(&identity);
        match credential.and_then(|credential| credential.username.as_deref()) {
            Some(name) => name.into(),
            None => format!("identity {identity}").into(),
        }
    }

    /// The options of an identity's connections; `None` if it was removed.
    pub(crate) fn options_of(&self, identity: Option<IdentityId>) -> Option<Arc<ConnectionOptions>> {
        let Some(identity) = identity else { return Some(self.options()) };
        let identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        let credential = Some(Arc::clone(identities.get(&identity)?));
        drop(identities);
        Some(Arc::new(self.options_with(credential)))
    }

    fn options(&self) -> Arc<ConnectionOptions> {
        Arc::clone(&self.options.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<R: Runtime> Establisher<R> {
    pub(crate) fn new(address: Arc<ServerAddress>, settings: Arc<Settings<R>>, identity: Option<IdentityId>) -> Self {
        Self { address, settings, identity, last_address: LastAddress::default() }
    }

    /// Establishes `connection` in a task of its own. One that populates the pool has the options' limit for each command
    /// after its hello.
    pub(crate) fn begin<Q: Requester<R::Stream>>(
        self: &Arc<Self>,
        requester: Weak<Q>,
        connection: Handle,
        origin: Origin,
        abort: Arc<Abort>,
    ) {
        let address = Arc::clone(&self.address);
        let report = Report { requester, address, connection, done: false, socket: PhantomData };
        let establisher = Arc::clone(self);
        self.settings.clock.runtime().spawn(async move {
            let outcome = establisher.run(&report, origin, abort).await;
            report.end(outcome);
        });
    }

    async fn run<Q: Requester<R::Stream>>(
        &self,
        report: &Report<Q, R::Stream>,
        origin: Origin,
        abort: Arc<Abort>,
    ) -> Result<(Box<Socket<R::Stream>>, PhaseTimes), EstablishError> {
        let hello = |service_id, reply: &_, took| report.hello(service_id, reply, took);
        // one that a caller waits for may be slow, and serves the next one.
        let command_limit = self.settings.command_limit.filter(|_| origin == Origin::Population);
        self.establish(|| self.settings.options_of(self.identity), hello, command_limit, abort).await
    }

    /// Proves `options` by a connection that belongs to no pool, and is closed at once.
    pub(crate) async fn prove(&self, options: ConnectionOptions, abort: Arc<Abort>) -> Result<(), EstablishError> {
        let (socket, _) = self.establish(|| Some(Arc::new(options)), |_, _, _| {}, None, abort).await?;
        socket.close();
        Ok(())
    }

    /// Establishes a connection with `options`, which are asked for when it has reached its server. `handle_hello` learns how long
    /// the hello took.
    async fn establish(
        &self,
        options: impl FnOnce() -> Option<Arc<ConnectionOptions>>,
        handle_hello: impl Fn(Option<ServiceId>, &RawDocument, Duration),
        command_limit: Option<TimeLimit>,
        abort: Arc<Abort>,
    ) -> Result<(Box<Socket<R::Stream>>, PhaseTimes), EstablishError> {
        let mut limit = Limit::new(self, Arc::clone(&abort));
        let mut stream = match Socks::new(&self.settings.proxy, &self.address)? {
            Some(socks) => limit.during(Phase::Proxy, self.connect_through(socks, limit.deadline)).await??,
            None => {
                let targets = limit.during(Phase::Resolve, self.targets()).await??;
                limit.during(Phase::Connect, self.connect(targets, limit.deadline)).await??
            }
        };
        if self.tls().is_some() {
            stream = limit.during(Phase::Tls, self.secure(stream)).await??;
        }
        let removed =
            || EstablishError::new(Phase::Authenticate, Fault::Other, "its identity was removed from the client");
        let mut options = options().ok_or_else(removed)?;
        let credential = options.credential.clone();
        let tokens = self.settings.tokens.of(&options);
        // OIDC-6.
        let mut token = tokens.as_deref().and_then(TokenCache::cached);
        if token.is_some() {
            Arc::make_mut(&mut options).token.clone_from(&token);
        }
        let mut establish = Establish::new(options, random(self.settings.clock.runtime())?)?;
        let mut progress = Progress::Exchange;
        let mut asked = None;
        // As long as what is read at once: one that grew would leave a copy of what was sent.
        let mut buffer = Zeroizing::new(Vec::with_capacity(READ));
        loop {
            let phase = establish.phase();
            if !matches!(progress, Progress::Exchange) {
                limit.command = None;
            }
            progress = match progress {
                Progress::Established => break,
                Progress::Derive(request) => {
                    let iterations = request.id().iterations();
                    let keys =
                        limit.during(phase, self.settings.keys.get(self.settings.clock.runtime(), request)).await;
                    let keys = keys.map_err(|error| too_slow(error, iterations))?;
                    let keys = keys.map_err(|gone| EstablishError::new(phase, Fault::Other, gone.to_string()))?;
                    establish.handle_keys(&keys)?
                }
                Progress::Token => {
                    let tokens = tokens.as_deref().ok_or_else(|| {
                        EstablishError::new(
                            phase,
                            Fault::Other,
                            "no access token can be fetched; make a client with a callback",
                        )
                    })?;
                    // The server has refused it.
                    token.iter().for_each(|token| tokens.invalidate(token));
                    let fetching = tokens.get(&self.settings.clock, limit.deadline);
                    let fetched = limit.during(phase, fetching).await??;
                    token = Some(fetched.secret().clone());
                    establish.handle_token(&fetched)?
                }
                Progress::Exchange => {
                    // The first exchange is the hello.
                    let asked = *asked.get_or_insert_with(|| (limit.now)());
                    buffer.clear();
                    establish.write_to(&mut buffer);
                    if !buffer.is_empty() && phase == Phase::Authenticate {
                        limit.command = command_limit.map(|limit| Timer::of_command(&self.settings.clock, limit));
                    }
                    limit.during(phase, socket::write_all(&mut stream, &buffer)).await?.map_err(self.lost(phase))?;
                    buffer.resize(READ, 0);
                    let count =
                        limit.during(phase, socket::read(&mut stream, &mut buffer)).await?.map_err(self.lost(phase))?;
                    let progress = establish.handle_bytes(buffer.get(..count).unwrap_or_default());
                    // First: an error that follows, and a clear, need the service's generation (LB-7, LB-10).
                    if let Some(hello_reply) = establish.take_hello_reply() {
                        let took = (limit.now)().saturating_since(asked);
                        handle_hello(establish.service_id(), &hello_reply, took);
                    }
                    progress?
                }
            };
        }
        let protocol = establish
            .finish()
            .ok_or_else(|| EstablishError::new(Phase::Authenticate, Fault::Other, "it ended before its end"))?;
        let mut socket = Box::new(Socket::new(Arc::clone(&self.address), stream, protocol, abort));
        (socket.credential, socket.token) = (credential, token);
        Ok((socket, limit.took))
    }

    /// An open stream to the server, under TLS if the options want it. Only connecting is bounded: the caller has its
    /// own limits.
    pub(crate) async fn open(&self) -> Result<Transport<R::Stream>, EstablishError> {
        let mut limit = self.settings.timeout;
        let socks = Socks::new(&self.settings.proxy, &self.address)?;
        if self.settings.listener.is_some() || socks.is_some() {
            // The monitor's own limit knows neither of an agent nor of a proxy: this one passes first, and names them.
            limit = limit.map(|limit| limit - (limit / 8).min(HEAD_START));
        }
        let until = self.settings.clock.deadline(limit);
        let stream = match socks {
            Some(socks) => self.connect_through(socks, until).await?,
            None => self.connect(self.targets().await?, until).await?,
        };
        self.secure(stream).await
    }

    /// Where to connect to; nowhere, if the server's agent connects.
    async fn targets(&self) -> Result<Vec<Target>, EstablishError> {
        if self.settings.listener.is_some() {
            return Ok(Vec::new());
        }
        resolve(self.settings.clock.runtime(), &self.settings.names, &self.address, self.named_by()).await
    }

    /// Who has named the server.
    fn named_by(&self) -> NamedBy {
        if self.settings.seeds.contains(&self.address) { NamedBy::User } else { NamedBy::Deployment }
    }

    /// The error for a stream that failed in `phase`.
    fn lost(&self, phase: Phase) -> impl Fn(io::Error) -> EstablishError {
        let advice = if phase == Phase::Hello { self.advice_before_hello() } else { "" };
        move |error| lost(phase, &error, advice)
    }

    /// What else may be wrong where a server hangs up before it has answered.
    pub(crate) fn advice_before_hello(&self) -> &'static str {
        match (&self.settings.tls, &*self.address) {
            (None, ServerAddress::Tcp { .. }) => "; if it expects TLS at this port, set tls=true",
            (Some(_), _) | (None, ServerAddress::Unix { .. }) => "",
        }
    }

    /// A stream to the server, before `until`.
    async fn connect(
        &self,
        targets: Vec<Target>,
        until: Option<Instant>,
    ) -> Result<Transport<R::Stream>, EstablishError> {
        let (clock, runtime) = (&self.settings.clock, self.settings.clock.runtime());
        #[cfg(all(feature = "reverse", feature = "__rustls"))]
        if let Some(listener) = &self.settings.listener {
            return listener.dial(&self.address, clock, until).await.map(Transport::Tls);
        }
        let connected = race(clock, &self.last_address, targets, until, |target| runtime.connect(target));
        Ok(Transport::Clear(BudgetedStream::new::<R>(connected.await.map_err(unreachable)?)))
    }

    /// Puts TLS over `stream`, if it has to be there.
    async fn secure(&self, stream: Transport<R::Stream>) -> Result<Transport<R::Stream>, EstablishError> {
        #[cfg(feature = "__rustls")]
        if let Some((config, host)) = self.tls() {
            let secured = tls::connect(config, host, stream).await.map_err(|error| {
                let note = if error.is_about_the_name() { self.named_by().note() } else { "" };
                let error = error.establish_error();
                EstablishError::new(error.phase, error.fault, error.message + note)
            })?;
            return Ok(Transport::Tls(Box::new(secured)));
        }
        Ok(stream)
    }

    /// TLS, if the options want it, and the server's name there.
    fn tls(&self) -> Option<(&TlsConfig, &str)> {
        match (&self.settings.tls, &*self.address) {
            (Some(config), ServerAddress::Tcp { host, .. }) => Some((config, host)),
            // A Unix socket does not leave the machine, and has no name for a certificate.
            (Some(_), ServerAddress::Unix { .. }) | (None, _) => None,
        }
    }
}

impl<Q: Requester<S>, S: AsyncRead + AsyncWrite + Unpin> Report<Q, S> {
    fn hello(&self, service_id: Option<ServiceId>, hello_reply: &RawDocument, took: Duration) {
        if let Some(requester) = self.requester.upgrade() {
            let mut description = ServerDescription::of_reply(Arc::clone(&self.address), hello_reply);
            description.round_trip_time = Some(took);
            requester.handle_hello(self.connection, service_id, description);
        }
    }

    fn end(mut self, outcome: Result<(Box<Socket<S>>, PhaseTimes), EstablishError>) {
        self.done = true;
        match (self.requester.upgrade(), outcome) {
            (Some(requester), Ok((socket, took))) => requester.handle_established(self.connection, socket, took),
            (Some(requester), Err(error)) => requester.handle_establish_failed(self.connection, error),
            (None, Ok((socket, _))) => socket.close(),
            (None, Err(_)) => {}
        }
    }
}

impl<Q: Requester<S>, S> Drop for Report<Q, S> {
    fn drop(&mut self) {
        if !self.done
            && let Some(requester) = self.requester.upgrade()
        {
            // First, so that the pool does not create another connection for the next waiter, whose task would be
            // dropped as well.
            let text = if std::thread::panicking() {
                "a panic has ended it: in a mechanism, in the TLS configuration or in the runtime".to_owned()
            } else {
                requester.handle_runtime_gone();
                crate::error::RuntimeGone.to_string()
            };
            let error = EstablishError::new(Phase::Connect, Fault::Other, text);
            requester.handle_establish_failed(self.connection, error);
        }
    }
}

pub(crate) fn random(runtime: &impl Runtime) -> Result<[u8; 24], EstablishError> {
    let mut random = [0; 24];
    runtime.fill_random(&mut random).map_err(|error| {
        EstablishError::new(Phase::Authenticate, Fault::Other, format!("the system gave no random numbers: {error}"))
    })?;
    Ok(random)
}

/// The end of an establishment while its keys are derived: the server is not at fault for a timeout.
fn too_slow(error: EstablishError, iterations: u32) -> EstablishError {
    if error.fault != Fault::Timeout {
        return error;
    }
    let text = format!("keys of {iterations} iterations were not derived in time; connectTimeoutMS allows more");
    EstablishError::new(error.phase, error.fault, text)
}

/// The error for a stream that failed in `phase`: the network is at fault, unless TLS says more (CMAP-51).
pub(crate) fn lost(phase: Phase, error: &io::Error, advice: &str) -> EstablishError {
    #[cfg(feature = "__rustls")]
    match TlsError::of(error) {
        Some(error @ TlsError::Truncated) => return EstablishError::new(phase, Fault::Network, error.to_string()),
        // With TLS 1.3 a server refuses a client's certificate when the hello is on its way already.
        Some(error) => return error.establish_error(),
        None => {}
    }
    EstablishError::new(phase, Fault::Network, format!("{error}{advice}"))
}

/// No address of the server could be connected (CMAP-51).
///
/// If this process has no descriptors left, that is an error of connecting like any other. Its labels (CMAP-50)
/// have the right effect: the server is not at fault, so nothing is cleared (SDAM-7), and a later attempt may work.
fn unreachable(error: Unreachable) -> EstablishError {
    let fault = if error.ran_out_of_time() { Fault::Timeout } else { Fault::Network };
    let refused = if error.is_refused() { "; check that MongoDB runs there and listens at this port" } else { "" };
    let text = error.text("no answer within connectTimeoutMS");
    EstablishError::new(Phase::Connect, fault, format!("{text}{refused}"))
}

#[cfg(all(test, feature = "__rustls"))]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_cut_off_in_authentication_has_no_labels_cmap_51() {
        let cut_off = io::Error::from(TlsError::Truncated);

        let error = lost(Phase::Authenticate, &cut_off, "");

        assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Network));
    }
}

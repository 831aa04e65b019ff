//! The client, the entry point of this crate.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::MetadataError;
use cmap_core::options::{ClientOptions, Credential, PoolLimits, PoolOptionsError, Warning};
use cmap_core::pool::{AffinityKey, IdentityId, PoolState, Statistics, Stats};
use cmap_core::topology::{Criteria, ServerSelector, TopologyDescription};

use crate::builder::{Builder, Monitored};
use crate::check_out::CheckOut;
use crate::deadline::{Deadline, Limit};
use crate::document::{IntoRequest, Reply};
use crate::driver::{Closing, ServerStatus};
use crate::error::{ClientError, RotationError, RuntimeGone, WarmUpError};
use crate::events::Subscription;
use crate::operation::{Context, Operation, OperationError};
use crate::pool::Pool;
use crate::runtime::Runtime;
use crate::session::{LastWords, Session, SessionOptions, Sessions};
#[cfg(feature = "metrics")]
use crate::watch::Metrics;
use crate::watch::{ClientStatus, Holder, Label, UseReport, WaitingCheckOut};

/// A client of a deployment: a replica set, a sharded cluster, a load balancer or one server, with a pool of connections to each
/// server.
///
/// Cheap to clone; all clones are one client. It lives in the runtime it was made in and can be used from every thread
/// and every other runtime. When the last clone is dropped, the client is closed, behind what it has begun to end by itself: connections
/// in use may still be used, and are closed when they come back.
///
/// Connections do not survive `fork`: make a client in each process.
pub struct Client<R: Runtime> {
    pool: Pool<R>,
}

/// A builder of a client.
pub type ClientBuilder<R> = Builder<R, Client<R>>;

impl<R: Runtime> Client<R> {
    pub(crate) fn driver(&self) -> &Arc<crate::driver::Driver<R>> {
        self.pool.driver()
    }

    pub(crate) fn sessions(&self) -> &Arc<Sessions> {
        &self.context().sessions
    }

    pub(crate) fn context(&self) -> &Arc<Context<R>> {
        self.pool.context()
    }

    /// A client as a connection string asks for it. It checks the server from now on; a check-out waits until the
    /// server answers. Options that do not exist, and values that an option cannot have, are ignored:
    /// [`warnings`](Self::warnings) names them. A `mongodb+srv` connection string is looked up in DNS first, which needs the
    /// feature `srv`.
    ///
    /// # Errors
    /// The connection string cannot be used, DNS has no server for it, or the caller runs in no runtime.
    pub async fn connect(uri: &str) -> Result<Self, ClientError> {
        let (options, warnings) = ClientOptions::parse(uri)?;
        Self::builder(options).warnings(warnings).build().await
    }

    /// A client with `options`.
    ///
    /// # Errors
    /// The options do not go together, or the caller runs in no runtime.
    pub async fn with_options(options: ClientOptions) -> Result<Self, ClientError> {
        Self::builder(options).build().await
    }

    /// A builder of a client with `options`, for further settings.
    pub fn builder(options: ClientOptions) -> ClientBuilder<R> {
        Builder::new(options)
    }

    /// Checks out a connection: one that is available, or the next that comes back or is established. For at most
    /// timeoutMS, or waitQueueTimeoutMS (CSOT-3); and while the server is not usable for at most
    /// serverSelectionTimeoutMS.
    #[inline]
    #[track_caller]
    pub fn check_out(&self) -> CheckOut<'_, R> {
        self.pool.check_out()
    }

    /// Checks out a connection, but within a [`Duration`] or before a [`Deadline`] instead of for timeoutMS; `None` sets no
    /// limit, and zero means that time is up: the check-out fails at once. waitQueueTimeoutMS, where it applies, and
    /// serverSelectionTimeoutMS bound it as well.
    #[track_caller]
    pub fn check_out_within(&self, limit: impl Into<Limit>) -> CheckOut<'_, R> {
        self.pool.check_out_within(limit)
    }

    /// Checks out a connection to a server that suits `selector`: for reads with a read preference, or to one of some servers.
    /// For at most timeoutMS, or waitQueueTimeoutMS (CSOT-3), and serverSelectionTimeoutMS.
    #[track_caller]
    pub fn check_out_for(&self, selector: impl Into<ServerSelector>) -> CheckOut<'_, R> {
        self.pool.check_out_for(selector.into())
    }

    /// The same within a [`Duration`] or before a [`Deadline`], as [`check_out_within`](Self::check_out_within), and for the
    /// next attempt of an operation that has failed on `deprioritized` servers: they are taken only if no other one suits.
    #[track_caller]
    pub fn check_out_for_within(&self, criteria: Criteria, limit: impl Into<Limit>) -> CheckOut<'_, R> {
        self.pool.check_out_for_within(criteria, limit.into())
    }

    /// Runs a command on a server that suits `selector`, for at most timeoutMS: a write, with
    /// [`Writable`](ServerSelector::Writable), or a read with a read preference. It is tried again where the rules allow that: a
    /// read after an error that may pass, a write of single documents too, because its server carries it out once, and anything
    /// that an overloaded server refused. [`operation`](Self::operation) has more settings.
    ///
    /// A session, the cluster's time, and the options' read and write concern go along with commands that take them.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::core::options::{ReadMode, ReadPreference};
    /// use cmap_runtime::core::topology::ServerSelector;
    /// use cmap_runtime::{Client, OperationError, Runtime};
    ///
    /// async fn buy<R: Runtime>(client: &Client<R>) -> Result<(), OperationError> {
    ///     let order = doc! { "insert": "orders", "documents": [{ "item": "apple" }] };
    ///     client.run(ServerSelector::Writable, ("shop", order)).await?;
    ///     let nearest = ReadPreference::new(ReadMode::Nearest);
    ///     client.run(nearest, ("shop", doc! { "count": "orders" })).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`Operation::run`].
    pub async fn run(
        &self,
        selector: impl Into<ServerSelector>,
        command: impl IntoRequest,
    ) -> Result<Reply<'static>, OperationError> {
        self.operation(selector, command).run().await
    }

    /// The same within a [`Duration`] or before a [`Deadline`], retries included, instead of for timeoutMS.
    ///
    /// # Errors
    /// Those of [`Operation::run`].
    pub async fn run_within(
        &self,
        selector: impl Into<ServerSelector>,
        command: impl IntoRequest,
        limit: impl Into<Limit>,
    ) -> Result<Reply<'static>, OperationError> {
        self.operation(selector, command).within(limit).run().await
    }

    /// A command to run on a server that suits `selector`.
    pub fn operation<'a>(
        &'a self,
        selector: impl Into<ServerSelector>,
        command: impl IntoRequest + 'a,
    ) -> Operation<'a, R> {
        Operation::new(self.context(), selector.into(), command)
    }

    /// A session for operations that belong together, causally consistent.
    ///
    /// # Errors
    /// The system has no random bits for its id.
    pub fn start_session(&self) -> Result<Session<R>, ClientError> {
        self.start_session_with(SessionOptions::default())
    }

    /// The same with other options: [`SessionOptions`], or just its [`Consistency`](crate::Consistency), or just the defaults of
    /// its transactions.
    ///
    /// # Errors
    /// The system has no random bits for its id.
    pub fn start_session_with(&self, options: impl Into<SessionOptions>) -> Result<Session<R>, ClientError> {
        let lent = self.sessions().take(self.driver()).ok_or(ClientError::NoRandomBits)?;
        Ok(Session::new(self.clone(), lent, options.into()))
    }

    /// The end of an operation that begins now and may take `limit`: for its check-out and its commands.
    pub fn deadline(&self, limit: Duration) -> Deadline {
        self.pool.deadline(limit)
    }

    /// The time that an operation has left; zero when it is over.
    pub fn time_left(&self, deadline: Deadline) -> Duration {
        self.pool.time_left(deadline)
    }

    /// Closes the client: available connections are closed, every waiter fails, and no connection is checked out any
    /// more. Connections in use have `patience` to come back; then their commands are aborted. Returns the number of
    /// those connections.
    ///
    /// Before that the client ends what it has begun to end by itself: cursors that were dropped, and transactions of sessions that were
    /// dropped or whose end was. That takes no longer than `patience`; if there is nothing to end, the client is closed when this
    /// returns. Then, if a connection is available at that moment, the server is told that those of the client's sessions have
    /// ended that are free; that takes a second at most, whatever other callers do meanwhile.
    ///
    /// Dropping the future leaves the client closed, and connections in use untouched. It borrows nothing, so a
    /// separate task can await it.
    ///
    /// # Errors
    /// The client's runtime has ended.
    pub fn close(&self, patience: Duration) -> impl Future<Output = Result<u32, RuntimeGone>> + Send + use<R> {
        let context = Arc::clone(self.context());
        context.pauses.close();
        let begun = context.chores.begun();
        let waits = context.chores.under_way() > 0 && !patience.is_zero();
        let mut last_words = if waits { None } else { LastWords::of(&context) };
        let closing = Closing(Arc::clone(&context.driver));
        if !waits && last_words.is_none() {
            context.driver.close();
        }
        async move {
            let driver = Arc::clone(&context.driver);
            let began_at = driver.clock().now();
            if waits {
                // However it ends, nobody waits any longer.
                let _ = driver.within(Some(patience), context.chores.ended(begun)).await;
                last_words = LastWords::of(&context);
            }
            let waited = driver.clock().now().saturating_since(began_at);
            if let Some(last_words) = last_words {
                last_words.send().await;
            }
            drop(closing);
            driver.closed(patience.saturating_sub(waited)).await
        }
    }

    /// What has been recorded until now, as a file: nothing without a [`Builder::recorder`].
    #[cfg(feature = "trace")]
    #[cfg_attr(docsrs, doc(cfg(feature = "trace")))]
    pub fn trace(&self) -> Option<Vec<u8>> {
        self.driver().trace("asked for")
    }

    /// The options that the client was made with. Passwords in them do not show.
    pub fn options(&self) -> &ClientOptions {
        self.pool.options()
    }

    /// Gives the pools of all servers new limits, also of those that join later: waiters are served at once where there is
    /// room now; where there are too many connections, the coldest available ones are closed, and those in use when they
    /// come back (X-70). [`options`](Self::options) stay as they were given.
    ///
    /// ```
    /// use cmap_runtime::core::options::{PoolLimits, PoolOptionsError, PoolSizes, QueueDepth};
    /// # use cmap_runtime::{Client, Runtime};
    /// # fn resize<R: Runtime>(client: &Client<R>) -> Result<(), PoolOptionsError> {
    /// client.resize(PoolSizes::default().max_pool_size(200).min_pool_size(10))?;
    /// client.resize(PoolLimits::default().max_wait_queue_depth(QueueDepth::TimesMaxPoolSize(2)))
    /// # }
    /// ```
    ///
    /// # Errors
    /// A limit has a value that it cannot have beside the others. Then nothing has changed.
    pub fn resize(&self, limits: impl Into<PoolLimits>) -> Result<(), PoolOptionsError> {
        self.pool.resize(limits.into())
    }

    /// Waits until every server has been checked, and as many connections are established to each that takes writes, so that the
    /// first requests need not wait; `None` means minPoolSize. Returns these servers.
    ///
    /// It waits for at most a [`Duration`], or until a [`Deadline`]. A server that has not answered by then does not count. Call it
    /// again after an error that passes: what was established stays.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cmap_runtime::{Client, Runtime, WarmUpError};
    ///
    /// async fn begin<R: Runtime>(client: &Client<R>) -> Result<(), WarmUpError> {
    ///     let servers = client.warm_up(10, Duration::from_secs(5)).await?;
    ///     println!("{} servers are warm", servers.len());
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// No server was found, a connection could not be established, a pool was cleared meanwhile, maxPoolSize is smaller, or
    /// time was up.
    pub async fn warm_up(
        &self,
        connections: impl Into<Option<u32>>,
        limit: impl Into<Limit>,
    ) -> Result<Vec<ServerAddress>, WarmUpError> {
        self.warm_up_for(ServerSelector::Writable, connections, limit).await
    }

    /// The same for every server that suits `selector`: a read preference of [`Nearest`](cmap_core::options::ReadMode::Nearest) takes all.
    ///
    /// # Errors
    /// Those of [`warm_up`](Self::warm_up).
    pub async fn warm_up_for(
        &self,
        selector: impl Into<ServerSelector>,
        connections: impl Into<Option<u32>>,
        limit: impl Into<Limit>,
    ) -> Result<Vec<ServerAddress>, WarmUpError> {
        self.pool.warm_up_for(selector.into(), connections.into(), limit.into()).await
    }

    /// Replaces all connections, those of each server evenly over a time: those in use when they come back, and never so
    /// many at once that fewer than minPoolSize are left. For new certificates, or after a balancer got another host.
    pub fn retire_all(&self, over: Duration) {
        self.pool.retire_all(over);
    }

    /// Lets the pools of all servers forget the connection of a key (X-85), which is not used any more. Its check-outs that
    /// wait for the connection go on waiting for it.
    pub fn end_affinity(&self, key: AffinityKey) {
        self.pool.end_affinity(key);
    }

    /// Call this when the process goes on after a freeze that its clock has not counted: every connection that is available
    /// now is checked for life before its next use (X-97). A suspension of the machine is noticed without it, as soon as the
    /// client has something to do by itself; a call makes sure of it before the next check-out.
    pub fn resume(&self) {
        self.pool.resume();
    }

    /// Replaces the credential of all connections, without a failed operation (X-90): proves the new one by one connection of
    /// its own, uses it for all connections yet to come, and lets those of the old one [retire](Self::retire_all) at once:
    /// those in use when they come back, and minPoolSize of them when their successors are there. `None` logs out: new
    /// connections have no user.
    ///
    /// The server has to know the new one: change a password there first, and call this at once, because logins with the old one
    /// are refused in between, each of which clears a pool; a server that refused one is asked all the same. Of two users that take
    /// turns, remove the old one when [`outdated_connections`](Self::outdated_connections) says zero. Cursors that the old user has
    /// opened do not go on for the new one. [`options`](Self::options) stay as they were given. Dropping the future before its
    /// end changes nothing.
    ///
    /// # Errors
    /// The proof failed, or no server answered for serverSelectionTimeoutMS: nothing has changed.
    pub async fn set_credential(&self, credential: Option<Credential>) -> Result<(), RotationError> {
        self.pool.set_credential(credential).await
    }

    /// Adds an identity: a user with a credential of their own, beside that of the options (X-91). Check-outs as this user say
    /// so: [`CheckOut::identity`]. All identities of a client share maxPoolSize and maxConnecting at each server: where there is
    /// no room, the coldest available connection of another one is closed, and otherwise those who wait longest come first.
    /// Nothing is asked of the server here: the first connection proves the credential. That a server refuses it is the error of
    /// the check-out that asked, and clears no pool (X-92).
    ///
    /// Each identity has pools of its own, which events tell of as such: their connections are numbered by themselves.
    ///
    /// # Errors
    /// The credential contradicts itself, or this build cannot log in by its mechanism.
    pub fn add_identity(&self, credential: Credential) -> Result<IdentityId, ClientError> {
        self.pool.add_identity(credential)
    }

    /// Removes an identity: its available connections are closed, its check-outs that wait fail, and its connections in use are
    /// closed when they come back.
    pub fn remove_identity(&self, identity: IdentityId) {
        self.pool.remove_identity(identity);
    }

    /// Connections that have an older credential than [`set_credential`](Self::set_credential) has set.
    pub fn outdated_connections(&self) -> u32 {
        self.pool.outdated_connections()
    }

    /// Whether a pool is ready; all are paused, because no server is usable; or the client is closed.
    pub fn state(&self) -> PoolState {
        self.pool.state()
    }

    /// The counts of all pools together. A high water is the sum of those of the servers, and may never have been reached.
    pub fn stats(&self) -> Stats {
        self.pool.stats()
    }

    /// Who holds connections, the longest use first: which, since when, and for what; with
    /// [`Builder::watch_holders`] also by which label, from which place in the source, and with which last command (X-105).
    pub fn in_use(&self) -> Vec<Holder> {
        self.pool.in_use()
    }

    /// The check-outs that wait: those for a server, then those for a connection to each, in the order in which they are
    /// served (X-105).
    pub fn waiting(&self) -> Vec<WaitingCheckOut> {
        self.pool.waiting()
    }

    /// All that the client does at this moment (X-107): a value to serialise, which displays as a table.
    pub fn status(&self) -> ClientStatus {
        self.pool.status()
    }

    /// What has happened since the start, to be compared with [what comes later](Statistics::since): totals, high-water marks and,
    /// with [`Builder::watch_holders`], how long it all took (X-108). Taken from the state, so that no event can be missed.
    pub fn statistics(&self) -> Statistics {
        self.pool.statistics()
    }

    /// What uses of connections took, by label, the slowest of them, and those that are not over; empty unless
    /// [`Builder::slow_use_limit`] is set (X-109). A client that is closed tells it to the log.
    pub fn uses(&self) -> UseReport {
        self.pool.uses()
    }

    /// A label for [many check-outs](crate::CheckOut::labelled), with the text that [`CheckOut::label`](crate::CheckOut::label)
    /// takes.
    pub fn label(&self, text: impl AsRef<str>) -> Label {
        self.pool.label(text)
    }

    /// How often a check-out had a label that there was no room for, since 128 others were known.
    pub fn folded_labels(&self) -> u64 {
        self.pool.folded_labels()
    }

    /// What is known of the servers: the type of the deployment, and a description of each.
    pub fn description(&self) -> Arc<TopologyDescription> {
        self.pool.driver().description()
    }

    /// The servers of the deployment, each with its description and the counts of its pool.
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.pool.driver().servers()
    }

    /// The first host of the connection string.
    pub fn address(&self) -> &ServerAddress {
        self.pool.address()
    }

    /// Warnings about the connection string that [`connect`](Self::connect) was given: parts that were ignored (URI-5,
    /// URI-6), parts that will not be understood forever, options that give up a protection ([`ClientOptions::advice`]), and
    /// options that have no effect here. Each displays as a sentence that says what to write instead. They have been told
    /// already: to the log at level WARN, where the feature `tracing` is on and a subscriber is installed, and otherwise on
    /// standard error, each text once in a process. [`Builder::quiet`] keeps them from standard error.
    ///
    /// A client made from options has no warnings about a connection string: [`ClientOptions::parse`] returned those.
    pub fn warnings(&self) -> &[Warning] {
        self.pool.warnings()
    }

    /// Adds a library that wraps this one to the client's name in the server's logs, for connections yet to come (HS-14).
    /// The same for all connections: [`Builder::wrapped_by`].
    ///
    /// # Errors
    /// A part contains the character that separates libraries.
    pub fn append_metadata(&self, name: &str, version: &str, platform: &str) -> Result<(), MetadataError> {
        self.pool.append_metadata(name, version, platform)
    }

    /// The events from now on. At most `capacity` unread ones are kept.
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        self.pool.subscribe(capacity)
    }
}

impl<R: Runtime> Builder<R, Client<R>> {
    /// Makes the client.
    ///
    /// # Errors
    /// The options do not go together, or there is no runtime.
    pub async fn build(self) -> Result<Client<R>, ClientError> {
        // Boxed, so that the futures of callers stay small: executors copy them onto the stack.
        Ok(Client { pool: Box::pin(self.start(Monitored::ByClient)).await? })
    }
}

#[cfg(feature = "metrics")]
impl Metrics {
    /// Records what has become of the client's pools since the last time.
    pub fn record<R: Runtime>(&mut self, client: &Client<R>) {
        self.record_pools(client.driver().pool_figures());
        if client.driver().watches_holders() {
            self.record_holders(&client.in_use());
        }
    }
}

impl<R: Runtime> Clone for Client<R> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone() }
    }
}

impl<R: Runtime> fmt::Debug for Client<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", self.address()).finish_non_exhaustive()
    }
}

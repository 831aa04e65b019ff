//! The pool of one server without a monitor, for authors of drivers and proxies that have a monitor of their own.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::MetadataError;
use cmap_core::options::{ClientOptions, Credential, PoolLimits, PoolOptionsError, Warning};
use cmap_core::pool::{AffinityKey, ApiMisuse, Clear, IdentityId, PoolState, Statistics, Stats};
use cmap_core::retry::RetryPolicy;
use cmap_core::topology::{Criteria, ServerSelector, TopologyOptions};

use crate::builder::{Builder, Monitored};
use crate::check_out::CheckOut;
use crate::cursor::Doomed;
use crate::deadline::{Deadline, Limit, without_zero};
use crate::driver::{Closing, Driver};
use crate::error::{ClientError, RotationError, RuntimeGone, WarmUpError};
use crate::events::Subscription;
use crate::operation::Context;
use crate::runtime::Runtime;
use crate::session::Sessions;
use crate::watch::{ClientStatus, Holder, Label, UseReport, WaitingCheckOut};

/// A pool of connections to one server, as *Connection Monitoring and Pooling* has it: paused at first, and made ready,
/// cleared and closed by its owner, who checks the server.
///
/// Check-outs do not wait for the server here: a check-out from a paused pool fails at once, with an error that says
/// why it is paused and that a retry makes sense (CMAP-28). An error of a connection clears the pool without the owner
/// where the rules say so: an error while establishing, unless the server is overloaded (SDAM-7, SDAM-8), and for a
/// command a network error or the report that the server shuts down (SDAM-10, SDAM-15), each unless a clear has made
/// its connection stale (SDAM-4). Only the next [`ready`](Self::ready) opens the pool again, so an owner listens for
/// `ConnectionPoolCleared` and checks the server soon. An owner that reads events from a subscription, which may lose
/// some, also looks at [`state`](Self::state). Only the command's error tells the owner that the server is not a
/// primary any more.
///
/// The options of server selection and of the monitor are ignored.
///
/// Cheap to clone; all clones are one pool. It lives in the runtime it was made in and can be used from every thread and
/// every other runtime. When the last clone is dropped, the pool is closed: connections in use may still be used, and are
/// closed when they come back.
///
/// ```
/// use cmap_runtime::core::pool::{ApiMisuse, Cause, Clear};
/// use cmap_runtime::{Pool, Runtime};
///
/// /// The result of a check of the server.
/// enum Check {
///     Answered,
///     Failed { cause: Cause, timed_out: bool },
/// }
///
/// fn follow<R: Runtime>(pool: &Pool<R>, check: Check) -> Result<(), ApiMisuse> {
///     match check {
///         Check::Answered => Ok(pool.ready()),
///         // Waiting for a server that hangs would not help (MON-9).
///         Check::Failed { cause, timed_out: true } => pool.clear(Clear::pool(cause).interrupting()),
///         Check::Failed { cause, timed_out: false } => pool.clear(Clear::pool(cause)),
///     }
/// }
/// ```
pub struct Pool<R: Runtime> {
    owner: Arc<Owner<R>>,
}

/// A builder of a pool.
pub type PoolBuilder<R> = Builder<R, Pool<R>>;

/// The state that all clones share. Connections in use hold the server alone.
struct Owner<R: Runtime> {
    /// For operations; a pool alone has none.
    context: Arc<Context<R>>,
    /// As they were checked and completed.
    options: ClientOptions,
    /// The warnings of the connection string, if there was one.
    warnings: Vec<Warning>,
}

impl<R: Runtime> Pool<R> {
    pub(crate) fn new(driver: Arc<Driver<R>>, options: ClientOptions, warnings: Vec<Warning>, seed: u64) -> Self {
        // CSOT-1: zero sets no limit.
        let timeout = without_zero(options.timeout);
        let sessions = Arc::new(Sessions::new(options.pool.load_balanced, seed));
        let (pauses, chores, policy) = (Arc::default(), Arc::default(), RetryPolicy::of_client(&options));
        let doomed = Doomed::default();
        let context = Arc::new(Context { driver, sessions, pauses, chores, doomed, policy, timeout });
        Self { owner: Arc::new(Owner { context, options, warnings }) }
    }

    pub(crate) fn driver(&self) -> &Arc<Driver<R>> {
        &self.owner.context.driver
    }

    pub(crate) fn context(&self) -> &Arc<Context<R>> {
        &self.owner.context
    }

    pub(crate) fn warnings(&self) -> &[Warning] {
        &self.owner.warnings
    }

    /// A paused pool with `options`.
    ///
    /// # Errors
    /// The options do not go together, or the caller runs in no runtime.
    pub async fn with_options(options: ClientOptions) -> Result<Self, ClientError> {
        Self::builder(options).build().await
    }

    /// A builder of a pool with `options`, for further settings.
    pub fn builder(options: ClientOptions) -> PoolBuilder<R> {
        Builder::new(options)
    }

    /// Checks out a connection: one that is available, or the next that comes back or is established. For at most
    /// timeoutMS, or waitQueueTimeoutMS (CSOT-3).
    #[inline]
    #[track_caller]
    pub fn check_out(&self) -> CheckOut<'_, R> {
        CheckOut::new(&self.owner.context.driver)
    }

    /// Checks out a connection, but within a [`Duration`] or before a [`Deadline`] instead of for timeoutMS; `None` sets no
    /// limit, and zero means that time is up: the check-out fails at once. waitQueueTimeoutMS, where it applies, bounds it as
    /// well.
    #[track_caller]
    pub fn check_out_within(&self, limit: impl Into<Limit>) -> CheckOut<'_, R> {
        CheckOut::within(&self.owner.context.driver, limit.into()).by_caller()
    }

    #[track_caller]
    pub(crate) fn check_out_for(&self, selector: ServerSelector) -> CheckOut<'_, R> {
        let limit = self.owner.context.timeout.map_or(Limit::None, Limit::Within);
        self.check_out_for_within(Criteria { selector, ..Criteria::default() }, limit)
    }

    #[track_caller]
    pub(crate) fn check_out_for_within(&self, criteria: Criteria, limit: Limit) -> CheckOut<'_, R> {
        CheckOut::of(&self.owner.context.driver, criteria, limit).by_caller()
    }

    /// The end of an operation that begins now and may take `limit`: for its check-out and its commands.
    pub fn deadline(&self, limit: Duration) -> Deadline {
        Deadline::within(self.owner.context.driver.clock().runtime(), limit)
    }

    /// The time that an operation has left; zero when it is over.
    pub fn time_left(&self, deadline: Deadline) -> Duration {
        deadline.left(self.owner.context.driver.clock().runtime())
    }

    /// The server answers: connections are given out and established from now on (CMAP-18). Does nothing unless the pool
    /// is paused.
    pub fn ready(&self) {
        // Refused only if there is a monitor, which this pool does not have.
        let _ = self.owner.context.driver.ready();
    }

    /// Makes all connections stale (CMAP-37 to CMAP-43), or those of one service behind a load balancer (LB-8). Without
    /// a service the pool is paused, and every waiter fails at once.
    ///
    /// # Errors
    /// A service was named for a pool that is not load-balanced, or none for one that is.
    pub fn clear(&self, clear: Clear) -> Result<(), ApiMisuse> {
        self.owner.context.driver.clear(clear)
    }

    /// Gives the pool new limits: waiters are served at once where there is room now; where there are too many connections,
    /// the coldest available ones are closed, and those in use when they come back (X-70). [`options`](Self::options) stay
    /// as they were given.
    ///
    /// # Errors
    /// A limit has a value that it cannot have beside the others. Then nothing has changed.
    pub fn resize(&self, limits: impl Into<PoolLimits>) -> Result<(), PoolOptionsError> {
        self.owner.context.driver.resize(limits.into())
    }

    /// Replaces all connections, evenly over a time: those in use when they come back, and never so many at once that
    /// fewer than minPoolSize are left. For new certificates, or after a balancer got another host.
    pub fn retire_all(&self, over: Duration) {
        self.owner.context.driver.retire_all(over);
    }

    /// Lets the pool forget the connection of a key (X-85), which is not used any more. Its check-outs that
    /// wait for the connection go on waiting for it.
    pub fn end_affinity(&self, key: AffinityKey) {
        self.owner.context.driver.end_affinity(key);
    }

    /// Call this when the process goes on after a freeze that its clock has not counted: every connection that is available
    /// now is checked for life before its next use (X-97). A suspension of the machine is noticed without it, as soon as the
    /// pool has something to do by itself; a call makes sure of it before the next check-out.
    pub fn resume(&self) {
        self.owner.context.driver.resume();
    }

    /// Replaces the credential of all connections, as
    /// [`Client::set_credential`](crate::Client::set_credential) does.
    ///
    /// # Errors
    /// The proof failed: nothing has changed.
    pub async fn set_credential(&self, credential: Option<Credential>) -> Result<(), RotationError> {
        let patience = TopologyOptions::of_client(self.options()).server_selection_timeout;
        // Boxed, so that the futures of callers stay small.
        Box::pin(Arc::clone(self.driver()).set_credential(credential, patience)).await
    }

    /// Waits until as many connections are established; `None` means minPoolSize. As [`Client::warm_up`](crate::Client::warm_up),
    /// but a pool that is not ready is an error.
    ///
    /// # Errors
    /// A connection could not be established, the pool is not ready, maxPoolSize is smaller, or time was up.
    pub async fn warm_up(
        &self,
        connections: impl Into<Option<u32>>,
        limit: impl Into<Limit>,
    ) -> Result<(), WarmUpError> {
        self.warm_up_for(ServerSelector::Writable, connections.into(), limit.into()).await.map(drop)
    }

    pub(crate) async fn warm_up_for(
        &self,
        selector: ServerSelector,
        connections: Option<u32>,
        limit: Limit,
    ) -> Result<Vec<ServerAddress>, WarmUpError> {
        let driver = Arc::clone(self.driver());
        let (criteria, limit) = (Criteria { selector, ..Criteria::default() }, driver.left(limit));
        // Boxed, so that the futures of callers stay small.
        Box::pin(driver.warm_up(criteria, connections, limit)).await
    }

    /// Adds an identity, as [`Client::add_identity`](crate::Client::add_identity) does.
    ///
    /// # Errors
    /// The credential contradicts itself, or this build cannot log in by its mechanism.
    pub fn add_identity(&self, credential: Credential) -> Result<IdentityId, ClientError> {
        self.driver().add_identity(credential)
    }

    /// Removes an identity, as [`Client::remove_identity`](crate::Client::remove_identity) does.
    pub fn remove_identity(&self, identity: IdentityId) {
        self.driver().remove_identity(identity);
    }

    /// Connections that have an older credential than [`set_credential`](Self::set_credential) has set.
    pub fn outdated_connections(&self) -> u32 {
        self.driver().outdated_connections()
    }

    /// Closes the pool for good (CMAP-20): available connections are closed, every waiter fails, and no connection is
    /// checked out any more. Connections in use are closed when they come back.
    pub fn close(&self) {
        self.owner.context.driver.close();
    }

    /// Closes the pool, if it is not closed, and waits for at most `patience` until its last connection came back; then
    /// aborts the commands of the others. Returns the number of those connections.
    ///
    /// Dropping the future leaves the pool closed, and connections in use untouched.
    ///
    /// # Errors
    /// The pool's runtime has ended.
    pub fn closed(&self, patience: Duration) -> impl Future<Output = Result<u32, RuntimeGone>> + Send + use<R> {
        self.owner.context.driver.close();
        let driver = Arc::clone(&self.owner.context.driver);
        async move { driver.closed(patience).await }
    }

    /// The options that the pool was made with. Passwords in them do not show.
    pub fn options(&self) -> &ClientOptions {
        &self.owner.options
    }

    /// Whether the pool is paused, ready or closed.
    pub fn state(&self) -> PoolState {
        self.owner.context.driver.state()
    }

    /// The pool's counts.
    pub fn stats(&self) -> Stats {
        self.owner.context.driver.stats()
    }

    /// Who holds connections, the longest use first: which, since when, and for what; with
    /// [`Builder::watch_holders`] also by which label, from which place in the source, and with which last command (X-105).
    pub fn in_use(&self) -> Vec<Holder> {
        self.driver().in_use()
    }

    /// The check-outs that wait: those for a server, then those for a connection to each, in the order in which they are
    /// served (X-105).
    pub fn waiting(&self) -> Vec<WaitingCheckOut> {
        self.driver().waiting()
    }

    /// All that the client does at this moment (X-107): a value to serialise, which displays as a table.
    pub fn status(&self) -> ClientStatus {
        self.driver().status(self.options())
    }

    /// What has happened since the start, to be compared with [what comes later](Statistics::since): totals, high-water marks and,
    /// with [`Builder::watch_holders`], how long it all took (X-108). Taken from the state, so that no event can be missed.
    pub fn statistics(&self) -> Statistics {
        self.driver().statistics()
    }

    /// What uses of connections took, by label, the slowest of them, and those that are not over; empty unless
    /// [`Builder::slow_use_limit`] is set (X-109). A client that is closed tells it to the log.
    pub fn uses(&self) -> UseReport {
        self.driver().uses()
    }

    /// A label for [many check-outs](crate::CheckOut::labelled), with the text that [`CheckOut::label`](crate::CheckOut::label)
    /// takes.
    pub fn label(&self, text: impl AsRef<str>) -> Label {
        self.driver().new_label(text.as_ref())
    }

    /// How often a check-out had a label that there was no room for, since 128 others were known.
    pub fn folded_labels(&self) -> u64 {
        self.driver().folded_labels()
    }

    /// The server's address.
    pub fn address(&self) -> &ServerAddress {
        self.owner.context.driver.address()
    }

    /// Adds a library that wraps this one to the pool's name in the server's logs, for connections yet to come (HS-14).
    ///
    /// # Errors
    /// A part contains the character that separates libraries.
    pub fn append_metadata(&self, name: &str, version: &str, platform: &str) -> Result<(), MetadataError> {
        self.driver().append_metadata(name, version, platform)
    }

    /// The events from now on. At most `capacity` unread ones are kept.
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        self.owner.context.driver.subscribe(capacity)
    }
}

impl<R: Runtime> Builder<R, Pool<R>> {
    /// Makes the pool, paused.
    ///
    /// # Errors
    /// The options do not go together, or there is no runtime.
    pub async fn build(self) -> Result<Pool<R>, ClientError> {
        Box::pin(self.start(Monitored::ByOwner)).await
    }
}

impl<R: Runtime> Clone for Pool<R> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<R: Runtime> Drop for Owner<R> {
    fn drop(&mut self) {
        let (pauses, chores, driver) = (&self.context.pauses, &self.context.chores, &self.context.driver);
        pauses.close();
        if chores.under_way() == 0 {
            return driver.close();
        }
        // The clean-up that has begun needs connections.
        let (chores, begun, closing) = (Arc::clone(chores), chores.begun(), Closing(Arc::clone(driver)));
        driver.clock().runtime().spawn(async move {
            chores.ended(begun).await;
            drop(closing);
        });
    }
}

impl<R: Runtime> fmt::Debug for Pool<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("address", self.address()).finish_non_exhaustive()
    }
}

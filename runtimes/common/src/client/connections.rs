//! What clients and pools can both do with their connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::MetadataError;
use cmap_core::options::{ClientOptions, Credential, PoolLimits, PoolOptionsError, Warning};
use cmap_core::pool::{AffinityKey, IdentityId, PoolState, Statistics, Stats};
use cmap_core::retry::RetryPolicy;
use cmap_core::topology::{Criteria, Input, ServerSelector, TopologyOptions};

use crate::connection::CheckOut;
use crate::cursor::Doomed;
use crate::driver::{Closing, Driver};
use crate::error::{ClientError, RotationError, WarmUpError};
use crate::events::Subscription;
use crate::operation::Context;
use crate::runtime::Runtime;
use crate::session::Sessions;
use crate::time::{Deadline, Limit, without_zero};
use crate::watch::{ClientStatus, Holder, Label, UseReport, WaitingCheckOut};

/// The connections of a [`Client`](crate::Client) or a [`Pool`](crate::Pool): what both can do with them. Both dereference to it, so its
/// methods are theirs.
///
/// A client has a pool of connections to each of its servers, a pool has connections to its one server.
pub struct Connections<R: Runtime> {
    context: Arc<Context<R>>,
    /// As they were checked and completed.
    options: ClientOptions,
    warnings: Vec<Warning>,
}

impl<R: Runtime> Connections<R> {
    pub(crate) fn new(driver: Arc<Driver<R>>, options: ClientOptions, warnings: Vec<Warning>, seed: u64) -> Self {
        // CSOT-1: zero sets no limit.
        let (timeout, has_timeout) = (without_zero(options.timeout), options.timeout.is_some());
        let sessions = Arc::new(Sessions::new(options.pool.load_balanced, seed));
        let (pauses, chores, policy) = (Arc::default(), Arc::default(), RetryPolicy::of_client(&options));
        let doomed = Doomed::default();
        let context = Context {
            driver,
            sessions,
            pauses,
            chore_pauses: Arc::default(),
            chores,
            doomed,
            policy,
            timeout,
            has_timeout,
        };
        let context = Arc::new(context);
        Self { context, options, warnings }
    }

    pub(crate) fn driver(&self) -> &Arc<Driver<R>> {
        &self.context.driver
    }

    pub(crate) fn context(&self) -> &Arc<Context<R>> {
        &self.context
    }

    pub(crate) fn sessions(&self) -> &Arc<Sessions> {
        &self.context.sessions
    }

    // Check-outs.

    /// Checks out a connection: one that is available, or the next that comes back or is established. For at most
    /// timeoutMS, or waitQueueTimeoutMS (CSOT-3). A client waits until a server is usable, but for at most
    /// serverSelectionTimeoutMS; a pool that is paused fails at once.
    #[inline]
    #[track_caller]
    pub fn check_out(&self) -> CheckOut<'_, R> {
        CheckOut::new(self.driver())
    }

    /// Checks out a connection, but within a [`Duration`] or before a [`Deadline`] instead of for timeoutMS; `None` sets no
    /// limit, and zero means that time is up: the check-out fails at once. waitQueueTimeoutMS, where it applies, and a client's
    /// serverSelectionTimeoutMS bound it as well.
    #[track_caller]
    pub fn check_out_within(&self, limit: impl Into<Limit>) -> CheckOut<'_, R> {
        CheckOut::within(self.driver(), limit.into()).by_caller()
    }

    /// The end of an operation that begins now and may take `limit`: for its check-out and its commands.
    pub fn deadline(&self, limit: Duration) -> Deadline {
        Deadline::within(self.driver().clock.runtime(), limit)
    }

    /// The time that an operation has left; zero when it is over.
    pub fn time_left(&self, deadline: Deadline) -> Duration {
        deadline.left(self.driver().clock.runtime())
    }

    /// A label for [many check-outs](CheckOut::labelled), with the text that [`CheckOut::label`] takes.
    pub fn label(&self, text: impl AsRef<str>) -> Label {
        self.driver().new_label(text.as_ref())
    }

    /// How often a check-out had a label that there was no room for, since 128 others were known.
    pub fn folded_labels(&self) -> u64 {
        self.driver().folded_labels()
    }

    // Connections that are there, and those to come.

    /// Sets new limits of the pool, or of a client's pools of all servers, also of those that join later. Waiters are served at once
    /// where there is room now; where there are too many connections, the least recently used available ones are closed, and those in use
    /// when they come back (X-70). [`options`](Self::options) stay as they were given.
    ///
    /// ```
    /// use cmap_runtime::cmap_core::options::{PoolLimits, PoolOptionsError, PoolSizes, QueueDepth};
    /// # use cmap_runtime::{Client, Runtime};
    /// # fn resize<R: Runtime>(client: &Client<R>) -> Result<(), PoolOptionsError> {
    /// client.resize(PoolSizes::default().max_pool_size(200).min_pool_size(10))?;
    /// client.resize(PoolLimits::default().max_wait_queue_depth(QueueDepth::TimesMaxPoolSize(2)))
    /// # }
    /// ```
    ///
    /// # Errors
    /// A limit has a value that it cannot have together with the others. Then nothing has changed.
    pub fn resize(&self, limits: impl Into<PoolLimits>) -> Result<(), PoolOptionsError> {
        self.driver().resize(limits.into())
    }

    /// Replaces all connections, those of each server evenly over a time: those in use when they come back, and never so
    /// many at once that fewer than minPoolSize are left. For new certificates, or after a balancer got another host.
    pub fn replace_connections(&self, over: Duration) {
        self.driver().call(Input::ReplaceConnections(over));
    }

    /// Forgets which connection each server has for a key (X-85), which is not used any more. Check-outs of the key that wait for the
    /// connection go on waiting for it.
    pub fn end_affinity(&self, key: AffinityKey) {
        self.driver().call(Input::EndAffinity(key));
    }

    /// Call this when the process goes on after a freeze that its clock has not counted: every connection that is available
    /// now is checked for life before its next use (X-97). A suspension of the machine is noticed without it, as soon as the
    /// client or the pool has something to do by itself; a call makes sure of it before the next check-out.
    pub fn resume(&self) {
        self.driver().call(Input::Resume);
    }

    /// Adds a library that wraps this one to the client's name in the server's logs, for connections yet to come (HS-14), those of monitors
    /// included. [`Builder::wrapped_by`](crate::Builder::wrapped_by) does so for all connections.
    ///
    /// # Errors
    /// A part contains the character that separates libraries.
    pub fn append_metadata(&self, name: &str, version: &str, platform: &str) -> Result<(), MetadataError> {
        self.driver().append_metadata(name, version, platform)
    }

    /// Waits until as many connections are established to every server that suits `selector`; `None` means minPoolSize.
    pub(crate) async fn warm_up_servers(
        &self,
        selector: ServerSelector,
        connections: Option<u32>,
        limit: Limit,
    ) -> Result<Vec<ServerAddress>, WarmUpError> {
        let driver = Arc::clone(self.driver());
        let (criteria, limit) = (Criteria { selector, ..Criteria::default() }, limit.left(driver.clock.runtime()));
        // Boxed, so that the futures of callers stay small.
        Box::pin(driver.warm_up(criteria, connections, limit)).await
    }

    // Users.

    /// Replaces the credential of all connections, without a failed operation (X-90): proves the new one by one connection of
    /// its own, uses it for all connections yet to come, and lets those of the old one [retire](Self::replace_connections) at once:
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
    /// The proof failed, no server answered for serverSelectionTimeoutMS, or the client was closed meanwhile: nothing has changed.
    pub async fn set_credential(&self, credential: Option<Credential>) -> Result<(), RotationError> {
        let patience = TopologyOptions::of_client(&self.options).server_selection_timeout;
        // Boxed, so that the futures of callers stay small.
        Box::pin(Arc::clone(self.driver()).set_credential(credential, patience)).await
    }

    /// Connections that have an older credential than [`set_credential`](Self::set_credential) has set.
    pub fn outdated_connections(&self) -> u32 {
        self.driver().outdated_connections()
    }

    /// Adds an identity: a user with a credential of their own, besides that of the options (X-91). Check-outs as this user say
    /// so: [`CheckOut::identity`]. All identities of a client share maxPoolSize and maxConnecting at each server: where there is
    /// no room, the least recently used available connection of another one is closed, and otherwise those who wait longest come first.
    /// Nothing is asked of the server here: the first connection proves the credential. That a server refuses it is the error of
    /// the check-out that asked, and clears no pool (X-92).
    ///
    /// Each identity has pools of its own, which events tell of as such: their connections are numbered by themselves.
    ///
    /// # Errors
    /// The credential contradicts itself, or this build cannot log in by its mechanism.
    pub fn add_identity(&self, credential: Credential) -> Result<IdentityId, ClientError> {
        self.driver().add_identity(credential)
    }

    /// Removes an identity: its available connections are closed, its check-outs that wait fail, and its connections in use are
    /// closed when they come back. Keys and access tokens that no other user of the client has are forgotten.
    pub fn remove_identity(&self, identity: IdentityId) {
        self.driver().remove_identity(identity);
    }

    // What can be seen.

    /// Whether a pool is ready; all are paused, because no server is usable; or the client or the pool is closed.
    pub fn state(&self) -> PoolState {
        self.driver().state()
    }

    /// The counts of all pools together. A high water is the sum of those of the servers: with more than one it may never have been
    /// reached.
    pub fn stats(&self) -> Stats {
        self.driver().stats()
    }

    /// What has happened since the start, to be compared with [what comes later](Statistics::since): totals, high-water marks and,
    /// with [`Builder::watch_holders`](crate::Builder::watch_holders), how long it all took (X-108). Taken from the state, so that no
    /// event can be missed.
    pub fn statistics(&self) -> Statistics {
        self.driver().statistics()
    }

    /// All that happens at this moment (X-107): a value to serialise, which displays as a table.
    pub fn status(&self) -> ClientStatus {
        self.driver().status(&self.options)
    }

    /// Who holds connections, the longest use first: which, since when, and for what; with
    /// [`Builder::watch_holders`](crate::Builder::watch_holders) also by which label, from which place in the source, and with which
    /// last command (X-105).
    pub fn in_use(&self) -> Vec<Holder> {
        self.driver().in_use()
    }

    /// The check-outs that wait: those for a server, then those for a connection to each, in the order in which they are
    /// served (X-105).
    pub fn waiting(&self) -> Vec<WaitingCheckOut> {
        self.driver().waiting()
    }

    /// What uses of connections took, by label, the slowest of them, and those that are not over; empty unless
    /// [`Builder::leak_detection_threshold`](crate::Builder::leak_detection_threshold) is set (X-109). A client that is closed tells it to
    /// the log.
    pub fn uses(&self) -> UseReport {
        self.driver().uses()
    }

    /// The events from now on. At most `capacity` unread ones are kept.
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        self.driver().subscribe(capacity)
    }

    /// What has been recorded until now, as a file: nothing without a [`Builder::recorder`](crate::Builder::recorder).
    #[cfg(feature = "trace")]
    #[cfg_attr(docsrs, doc(cfg(feature = "trace")))]
    pub fn trace(&self) -> Option<Vec<u8>> {
        self.driver().trace("asked for")
    }

    /// The options that the client or the pool was made with. Passwords in them do not show.
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// The pool's server; of a client, the first host of its connection string.
    pub fn address(&self) -> &ServerAddress {
        &self.driver().address
    }

    /// Warnings about the connection string that [`Client::connect`](crate::Client::connect) was given: parts that were ignored (URI-5,
    /// URI-6), parts that will not be understood forever, options that give up a protection ([`ClientOptions::advice`]), and
    /// options that have no effect here. Each displays as a sentence that says what to write instead. With the feature `tracing`
    /// the log has them, too, at level WARN.
    ///
    /// A client made from options has no warnings about a connection string: [`ClientOptions::parse`] returned those.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

impl<R: Runtime> Drop for Connections<R> {
    fn drop(&mut self) {
        let (pauses, chores, driver) = (&self.context.pauses, &self.context.chores, &self.context.driver);
        pauses.close();
        if chores.under_way() == 0 {
            return driver.close();
        }
        // The clean-up that has begun needs connections.
        let (chores, begun, closing) = (Arc::clone(chores), chores.begun(), Closing(Arc::clone(driver)));
        driver.clock.runtime().spawn(async move {
            chores.ended(begun).await;
            drop(closing);
        });
    }
}

impl<R: Runtime> fmt::Debug for Connections<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("address", self.address()).finish_non_exhaustive()
    }
}

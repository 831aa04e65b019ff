//! The pool of one server without a monitor, for authors of drivers and proxies, who have their own.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::{ClientOptions, Warning};
use cmap_core::pool::{ApiMisuse, Clear, PoolState, Stats};
use cmap_core::server;

use crate::builder::Builder;
use crate::check_out::CheckOut;
use crate::endpoint::Endpoint;
use crate::error::{ClientError, RuntimeGone};
use crate::runtime::Runtime;
use crate::subscription::Subscription;

/// A pool of connections to one server, as *Connection Monitoring and Pooling* has it: paused at first, and made ready,
/// cleared and closed by its owner, who checks the server.
///
/// Nobody waits for a server here: a check-out from a paused pool fails at once, with an error that says why it is paused
/// and that a retry makes sense (CMAP-28). An error of a connection clears the pool by itself where the rules say so: one
/// while establishing, unless the server is overloaded (SDAM-7, SDAM-8), and of a command a network error or the news
/// that the server shuts down (SDAM-10, SDAM-15), each unless a clear has made its connection stale (SDAM-4). Only the next
/// [`ready`](Self::ready) opens it again, so an owner listens for `ConnectionPoolCleared` and checks the server soon; who
/// reads events from a subscription that may lose some looks at [`state`](Self::state) as well. That the server is no primary
/// any more is told by the command's error alone.
///
/// Of the options, those of server selection and of the monitor count for nothing.
///
/// Cheap to clone; all clones are one pool. It lives in the runtime it was made in and can be used from every thread and
/// every other runtime. When the last clone is dropped, the pool is closed: connections in use may still be used, and are
/// closed when they come back.
///
/// ```
/// use cmap_runtime::core::pool::{ApiMisuse, Cause, Clear};
/// use cmap_runtime::{Pool, Runtime};
///
/// /// What a check of the server has found.
/// enum Check {
///     Answered,
///     Failed { cause: Cause, timed_out: bool },
/// }
///
/// fn follow<R: Runtime>(pool: &Pool<R>, check: Check) -> Result<(), ApiMisuse> {
///     match check {
///         Check::Answered => Ok(pool.ready()),
///         // Who waits for a server that hangs would wait in vain (MON-9).
///         Check::Failed { cause, timed_out: true } => pool.clear(Clear::pool(cause).interrupting()),
///         Check::Failed { cause, timed_out: false } => pool.clear(Clear::pool(cause)),
///     }
/// }
/// ```
pub struct Pool<R: Runtime> {
    owner: Arc<Owner<R>>,
}

/// A pool in the making.
pub type PoolBuilder<R> = Builder<R, Pool<R>>;

/// What all clones share. Connections in use hold the endpoint alone.
struct Owner<R: Runtime> {
    endpoint: Arc<Endpoint<R>>,
    /// timeoutMS.
    timeout: Option<Duration>,
    /// Of the connection string, if there was one.
    warnings: Vec<Warning>,
}

impl<R: Runtime> Pool<R> {
    pub(crate) fn new(endpoint: Arc<Endpoint<R>>, timeout: Option<Duration>, warnings: Vec<Warning>) -> Self {
        Self { owner: Arc::new(Owner { endpoint, timeout, warnings }) }
    }

    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<R>> {
        &self.owner.endpoint
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

    /// A pool with `options`, and with more than options can say.
    pub fn builder(options: ClientOptions) -> PoolBuilder<R> {
        Builder::new(options)
    }

    /// Checks out a connection: one that is available, or the next that comes back or is established. For at most
    /// timeoutMS, or waitQueueTimeoutMS (CSOT-3).
    #[inline]
    pub fn check_out(&self) -> CheckOut<'_, R> {
        self.check_out_within(self.owner.timeout)
    }

    /// The same, but for at most `limit` instead of timeoutMS; zero and none mean for ever. A waitQueueTimeoutMS that counts
    /// bounds it as well.
    pub fn check_out_within(&self, limit: Option<Duration>) -> CheckOut<'_, R> {
        CheckOut::new(&self.owner.endpoint, limit)
    }

    /// The server answers: connections are given out and established from now on (CMAP-18). Does nothing unless the pool
    /// is paused.
    pub fn ready(&self) {
        self.owner.endpoint.ready();
    }

    /// Makes all connections stale (CMAP-37 to CMAP-43), or those of one service behind a load balancer (LB-8). Without a
    /// service the pool is paused, and whoever waits fails at once.
    ///
    /// # Errors
    /// A service was named for a pool that is not load-balanced, or none for one that is.
    pub fn clear(&self, clear: Clear) -> Result<(), ApiMisuse> {
        self.owner.endpoint.clear(clear)
    }

    /// Closes the pool for good (CMAP-20): what is available is closed, whoever waits fails, nothing is checked out any
    /// more. Connections in use are closed when they come back.
    pub fn close(&self) {
        self.owner.endpoint.close();
    }

    /// Closes the pool, if it is not closed, and waits until its last connection came back, for as long as `patience`; then
    /// cuts off the commands of those that did not. Returns how many connections that concerned.
    ///
    /// Dropping the future leaves the pool closed, and connections in use untouched.
    ///
    /// # Errors
    /// The pool's runtime has ended.
    pub fn closed(&self, patience: Duration) -> impl Future<Output = Result<u32, RuntimeGone>> + Send + use<R> {
        self.owner.endpoint.close();
        let endpoint = Arc::clone(&self.owner.endpoint);
        async move { endpoint.closed(patience).await }
    }

    /// Whether the pool is paused, ready or closed.
    pub fn state(&self) -> PoolState {
        self.owner.endpoint.state()
    }

    /// What the pool counts.
    pub fn stats(&self) -> Stats {
        self.owner.endpoint.stats()
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

impl<R: Runtime> Builder<R, Pool<R>> {
    /// The pool, paused.
    ///
    /// # Errors
    /// The options do not go together, or there is no runtime.
    pub async fn build(self) -> Result<Pool<R>, ClientError> {
        self.start(|now, pool, _, _| server::Endpoint::unmonitored(now, pool)).await
    }
}

impl<R: Runtime> Clone for Pool<R> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<R: Runtime> Drop for Owner<R> {
    fn drop(&mut self) {
        self.endpoint.close();
    }
}

impl<R: Runtime> fmt::Debug for Pool<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("address", self.address()).finish_non_exhaustive()
    }
}

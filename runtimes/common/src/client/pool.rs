//! The pool of one server without a monitor, for authors of drivers and proxies that have a monitor of their own.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::options::ClientOptions;
use cmap_core::pool::{ApiMisuse, Clear};
use cmap_core::topology::{Input, ServerSelector};

use super::builder::{Builder, Monitored};
use super::connections::Connections;
use crate::error::{ClientError, RuntimeGone, WarmUpError};
use crate::runtime::Runtime;
use crate::time::Limit;

/// A pool of connections to one server, as *Connection Monitoring and Pooling* has it: paused at first, and made ready,
/// cleared and closed by its owner, who checks the server.
///
/// Check-outs do not wait for the server here: a check-out from a paused pool fails at once, with an error that says
/// why it is paused and that a retry makes sense (CMAP-28). An error of a connection clears the pool without the owner
/// where the rules say so: an error while establishing, unless the server is overloaded (SDAM-7, SDAM-8), and for a
/// command a network error or the report that the server shuts down (SDAM-10, SDAM-15), each unless a clear has made
/// its connection stale (SDAM-4). Only the next [`ready`](Self::ready) opens the pool again, so an owner listens for
/// `ConnectionPoolCleared` and checks the server soon. An owner that reads events from a subscription, which may lose
/// some, also looks at [`state`](Connections::state). Only the command's error tells the owner that the server is not a
/// primary any more.
///
/// The options of server selection and of the monitor are ignored.
///
/// It dereferences to its [`Connections`], whose methods check out connections, change limits and users, and show what happens.
///
/// Cheap to clone; all clones are one pool. It lives in the runtime it was made in and can be used from every thread and
/// every other runtime. When the last clone is dropped, the pool is closed: connections in use may still be used, and are
/// closed when they come back.
///
/// ```
/// use cmap_runtime::cmap_core::pool::{ApiMisuse, Cause, Clear};
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
    connections: Arc<Connections<R>>,
}

/// A builder of a pool.
pub type PoolBuilder<R> = Builder<R, Pool<R>>;

impl<R: Runtime> Pool<R> {
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

    /// The server answers: connections are given out and established from now on (CMAP-18). Does nothing unless the pool
    /// is paused.
    pub fn ready(&self) {
        // Refused only if there is a monitor, which this pool does not have.
        self.driver().call(Input::Ready);
    }

    /// Makes all connections stale (CMAP-37 to CMAP-43), or those of one service behind a load balancer (LB-8). Without
    /// a service the pool is paused, and every waiter fails at once.
    ///
    /// # Errors
    /// A service was named for a pool that is not load-balanced, or none for one that is.
    pub fn clear(&self, clear: Clear) -> Result<(), ApiMisuse> {
        self.driver().call(Input::Clear(clear)).done()
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
        self.warm_up_servers(ServerSelector::Writable, connections.into(), limit.into()).await.map(drop)
    }

    /// Closes the pool for good (CMAP-20): available connections are closed, every waiter fails, and no connection is
    /// checked out any more. Connections in use are closed when they come back.
    pub fn close(&self) {
        self.driver().close();
    }

    /// Closes the pool, if it is not closed, and waits for at most `patience` until its last connection came back; then
    /// aborts the commands of the others. Returns the number of those connections.
    ///
    /// Dropping the future leaves the pool closed, and connections in use untouched.
    ///
    /// # Errors
    /// The pool's runtime has ended.
    pub fn closed(&self, patience: Duration) -> impl Future<Output = Result<u32, RuntimeGone>> + Send + use<R> {
        self.driver().close();
        let driver = Arc::clone(self.driver());
        async move { driver.closed(patience).await }
    }
}

impl<R: Runtime> Builder<R, Pool<R>> {
    /// Makes the pool, paused.
    ///
    /// # Errors
    /// The options do not go together, or there is no runtime.
    pub async fn build(self) -> Result<Pool<R>, ClientError> {
        Ok(Pool { connections: Box::pin(self.start(Monitored::ByOwner)).await? })
    }
}

impl<R: Runtime> Deref for Pool<R> {
    type Target = Connections<R>;

    #[inline]
    fn deref(&self) -> &Connections<R> {
        &self.connections
    }
}

impl<R: Runtime> Clone for Pool<R> {
    fn clone(&self) -> Self {
        Self { connections: Arc::clone(&self.connections) }
    }
}

impl<R: Runtime> fmt::Debug for Pool<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("address", self.address()).finish_non_exhaustive()
    }
}

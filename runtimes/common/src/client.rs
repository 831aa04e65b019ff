//! The client: where a user begins.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::MonitorOptions;
use cmap_core::options::{ClientOptions, Warning};
use cmap_core::pool::Stats;
use cmap_core::server::{self, ServerDescription, ServerOptions};

use crate::builder::Builder;
use crate::check_out::CheckOut;
use crate::error::{ClientError, RuntimeGone};
use crate::pool::Pool;
use crate::runtime::Runtime;
use crate::subscription::Subscription;

/// A client of one server, with a pool of connections to it.
///
/// Cheap to clone; all clones are one client. It lives in the runtime it was made in and can be used from every thread
/// and every other runtime. When the last clone is dropped, the client is closed: connections in use may still be used,
/// and are closed when they come back.
///
/// Connections do not survive `fork`: make a client in each process.
pub struct Client<R: Runtime> {
    pool: Pool<R>,
}

/// A client in the making.
pub type ClientBuilder<R> = Builder<R, Client<R>>;

impl<R: Runtime> Client<R> {
    #[cfg(feature = "conformance")]
    pub(crate) fn endpoint(&self) -> &Arc<crate::endpoint::Endpoint<R>> {
        self.pool.endpoint()
    }

    /// A client as a connection string asks for it. It checks the server from now on; a check-out waits for that. Options
    /// that do not exist, and values that an option cannot have, are ignored: [`warnings`](Self::warnings) names them.
    ///
    /// # Errors
    /// The connection string cannot be used, or the caller runs in no runtime.
    pub async fn connect(uri: &str) -> Result<Self, ClientError> {
        let (options, warnings) = ClientOptions::parse(uri)?;
        #[cfg(feature = "tracing")]
        warnings.iter().for_each(crate::logging::warn);
        Self::builder(options).warnings(warnings).build().await
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
        Builder::new(options)
    }

    /// Checks out a connection: one that is available, or the next that comes back or is established. For at most
    /// timeoutMS, or waitQueueTimeoutMS (CSOT-3); and while the server is not usable for at most
    /// serverSelectionTimeoutMS.
    #[inline]
    pub fn check_out(&self) -> CheckOut<'_, R> {
        self.pool.check_out()
    }

    /// The same, but for at most `limit` instead of timeoutMS; zero and none mean for ever. A waitQueueTimeoutMS that counts,
    /// and serverSelectionTimeoutMS, bound it as well.
    pub fn check_out_within(&self, limit: Option<Duration>) -> CheckOut<'_, R> {
        self.pool.check_out_within(limit)
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
        let endpoint = Arc::clone(self.pool.endpoint());
        endpoint.close();
        async move { endpoint.closed(patience).await }
    }

    /// What the pool counts.
    pub fn stats(&self) -> Stats {
        self.pool.stats()
    }

    /// What is known of the server.
    pub fn description(&self) -> Arc<ServerDescription> {
        self.pool.endpoint().description()
    }

    /// The server's address.
    pub fn address(&self) -> &ServerAddress {
        self.pool.address()
    }

    /// What is odd about the connection string that [`connect`](Self::connect) was given: what was ignored (URI-5, URI-6),
    /// and what will not be understood for ever. And which options give up a protection
    /// ([`ClientOptions::advice`]). Each displays as a sentence that says what to write instead. Show them to the author of
    /// the connection string; with the feature `tracing` they are also in the log, at level WARN.
    ///
    /// A client that was made of options has those of the second kind alone: [`ClientOptions::parse`] returned the others.
    pub fn warnings(&self) -> &[Warning] {
        self.pool.warnings()
    }

    /// The events from now on. At most `capacity` that were not read yet are kept.
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        self.pool.subscribe(capacity)
    }
}

impl<R: Runtime> Builder<R, Client<R>> {
    /// The client.
    ///
    /// # Errors
    /// The options do not go together, or there is no runtime.
    pub async fn build(self) -> Result<Client<R>, ClientError> {
        let pool = self.start(|now, pool, options, metadata| {
            let monitor = MonitorOptions::of_client(options, metadata);
            server::Endpoint::new(now, pool, ServerOptions::of_client(options), monitor)
        });
        Ok(Client { pool: pool.await? })
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

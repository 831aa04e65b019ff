//! The client, the entry point of this crate; the pool of one server; and the builder of both.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the client: operations, sessions, its end |
//! | `pool` | the pool of one server, without a monitor |
//! | `connections` | what both can do: check-outs, limits, users, and what can be seen |
//! | `builder` | the settings of both, and how they are made |
//! | `warnings` | options that have no effect |

mod builder;
mod connections;
mod pool;
mod warnings;

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::ClientOptions;
use cmap_core::topology::{Criteria, ServerSelector, TopologyDescription};

pub use self::builder::Builder;
use self::builder::Monitored;
pub use self::connections::Connections;
pub use self::pool::{Pool, PoolBuilder};
use crate::connection::CheckOut;
use crate::document::{IntoRequest, Reply};
use crate::driver::{Closing, ServerStatus};
use crate::error::{ClientError, OperationError, RuntimeGone, WarmUpError};
use crate::operation::Operation;
use crate::runtime::Runtime;
use crate::session::{LastWords, Session, SessionOptions};
use crate::time::Limit;
#[cfg(feature = "metrics")]
use crate::watch::Metrics;

/// A client of a deployment: a replica set, a sharded cluster, a load balancer or one server, with a pool of connections to each
/// server.
///
/// Cheap to clone; all clones are one client. It lives in the runtime it was made in and can be used from every thread
/// and every other runtime. When the last clone is dropped, the client is closed, behind what it has begun to end by itself: connections
/// in use may still be used, and are closed when they come back.
///
/// It dereferences to its [`Connections`], whose methods check out connections to servers that take writes, change limits and users, and
/// show what happens.
///
/// Connections do not survive `fork`: make a client in each process.
pub struct Client<R: Runtime> {
    connections: Arc<Connections<R>>,
}

/// A builder of a client.
pub type ClientBuilder<R> = Builder<R, Client<R>>;

impl<R: Runtime> Client<R> {
    /// A client as a connection string asks for it. It checks the server from now on; a check-out waits until the
    /// server answers. Options that do not exist, and values that an option cannot have, are ignored:
    /// [`warnings`](Connections::warnings) names them. A `mongodb+srv` connection string is looked up in DNS first, which needs the
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

    /// Checks out a connection to a server that suits `selector`: for reads with a read preference, or to one of some servers.
    /// For at most timeoutMS, or waitQueueTimeoutMS (CSOT-3), and serverSelectionTimeoutMS.
    #[track_caller]
    pub fn check_out_for(&self, selector: impl Into<ServerSelector>) -> CheckOut<'_, R> {
        let criteria = Criteria { selector: selector.into(), ..Criteria::default() };
        self.check_out_for_within(criteria, self.context().timeout)
    }

    /// Checks a connection to a server that meets `criteria` out, within a [`Duration`] or before a
    /// [`Deadline`](crate::Deadline). Servers that an earlier attempt has failed on are `deprioritized`: they are taken only if
    /// no other one suits.
    #[track_caller]
    pub fn check_out_for_within(&self, criteria: Criteria, limit: impl Into<Limit>) -> CheckOut<'_, R> {
        CheckOut::of(self.driver(), criteria, limit.into()).by_caller()
    }

    /// Runs a command, for at most timeoutMS: one that reads on a server that suits the read preference of the options, any other on
    /// a server that takes writes. It is tried again where the rules allow that: a read after an error that may pass, a write of
    /// single documents too, because its server carries it out once, and anything that an overloaded server refused.
    /// [`operation`](Self::operation) has more settings, among them another server.
    ///
    /// A session, the cluster's time, and the options' read and write concern go along with commands that take them.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::{Client, OperationError, ReadMode, ReadPreference, Runtime};
    ///
    /// async fn buy<R: Runtime>(client: &Client<R>) -> Result<(), OperationError> {
    ///     let order = doc! { "insert": "orders", "documents": [{ "item": "apple" }] };
    ///     client.run(("shop", order)).await?;
    ///     let nearest = ReadPreference::new(ReadMode::Nearest);
    ///     client.operation(("shop", doc! { "count": "orders" })).on(nearest).run().await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`Operation::run`].
    #[track_caller]
    pub fn run<'a>(
        &'a self,
        command: impl IntoRequest + 'a,
    ) -> impl Future<Output = Result<Reply<'static>, OperationError>> {
        self.operation(command).run()
    }

    /// Runs a command, retries included, within a [`Duration`] or before a [`Deadline`](crate::Deadline) instead of for timeoutMS.
    ///
    /// # Errors
    /// Those of [`Operation::run`].
    #[track_caller]
    pub fn run_within<'a>(
        &'a self,
        command: impl IntoRequest + 'a,
        limit: impl Into<Limit>,
    ) -> impl Future<Output = Result<Reply<'static>, OperationError>> {
        self.operation(command).within(limit).run()
    }

    /// A command to run, with settings of its own.
    #[track_caller]
    pub fn operation<'a>(&'a self, command: impl IntoRequest + 'a) -> Operation<'a, R> {
        Operation::new(self.context(), command).by_caller()
    }

    /// A session for operations that belong together, causally consistent.
    ///
    /// # Errors
    /// The system has no random bits for its id.
    pub fn start_session(&self) -> Result<Session<R>, ClientError> {
        self.start_session_with(SessionOptions::default())
    }

    /// Starts a session with other options: [`SessionOptions`], or just its [`Consistency`](crate::Consistency), or just the defaults of
    /// its transactions.
    ///
    /// # Errors
    /// The system has no random bits for its id.
    pub fn start_session_with(&self, options: impl Into<SessionOptions>) -> Result<Session<R>, ClientError> {
        let borrowed = self.sessions().take(self.driver()).ok_or(ClientError::NoRandomBits)?;
        Ok(Session::new(self.clone(), borrowed, options.into()))
    }

    /// Closes the client: available connections are closed, every waiter fails, and no connection is checked out any
    /// more. Connections in use have `patience` to come back; then their commands are aborted. Returns the number of
    /// those connections.
    ///
    /// Before that the client ends what it has begun to end by itself: cursors that were dropped, and transactions of sessions that were
    /// dropped or whose end was. That takes no longer than `patience`; if there is nothing to end, the client is closed when this
    /// returns. Then, if a connection is available at that moment, a command tells the server that those of the client's sessions have
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
        if !waits {
            context.chore_pauses.close();
        }
        let mut last_words = if waits { None } else { LastWords::of(&context) };
        let closing = Closing(Arc::clone(&context.driver));
        if !waits && last_words.is_none() {
            context.driver.close();
        }
        async move {
            let driver = Arc::clone(&context.driver);
            let began_at = driver.clock.now();
            if waits {
                // However it ends, nobody waits any longer.
                let _ = driver.within(Some(patience), context.chores.ended(begun)).await;
                context.chore_pauses.close();
                last_words = LastWords::of(&context);
            }
            let waited = driver.clock.now().saturating_since(began_at);
            if let Some(last_words) = last_words {
                last_words.send().await;
            }
            drop(closing);
            driver.closed(patience.saturating_sub(waited)).await
        }
    }

    /// Waits until every server has been checked, and as many connections are established to each that takes writes, so that the
    /// first requests need not wait; `None` means minPoolSize. Returns these servers.
    ///
    /// It waits for at most a [`Duration`], or until a [`Deadline`](crate::Deadline). A server that has not answered by then does
    /// not count. Call it again after an error that passes: what was established stays.
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

    /// Has connections established to every server that suits `selector`: a read preference of
    /// [`Nearest`](cmap_core::options::ReadMode::Nearest) takes all.
    ///
    /// # Errors
    /// Those of [`warm_up`](Self::warm_up).
    pub async fn warm_up_for(
        &self,
        selector: impl Into<ServerSelector>,
        connections: impl Into<Option<u32>>,
        limit: impl Into<Limit>,
    ) -> Result<Vec<ServerAddress>, WarmUpError> {
        self.warm_up_servers(selector.into(), connections.into(), limit.into()).await
    }

    /// What is known of the servers: the type of the deployment, and a description of each.
    pub fn description(&self) -> Arc<TopologyDescription> {
        self.driver().description()
    }

    /// The servers of the deployment, each with its description and the counts of its pool.
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.driver().servers()
    }
}

impl<R: Runtime> Builder<R, Client<R>> {
    /// Makes the client.
    ///
    /// # Errors
    /// The options do not go together, or there is no runtime.
    pub async fn build(self) -> Result<Client<R>, ClientError> {
        // Boxed, so that the futures of callers stay small: executors copy them onto the stack.
        Ok(Client { connections: Box::pin(self.start(Monitored::ByClient)).await? })
    }
}

#[cfg(feature = "metrics")]
impl Metrics {
    /// Records what has become of the client's pools since the last time.
    pub fn record<R: Runtime>(&mut self, client: &Client<R>) {
        self.record_pools(client.driver().pool_figures());
        Self::record_selecting(client.address(), client.driver().selecting());
        if client.driver().watches_holders() {
            self.record_holders(&client.in_use());
        }
    }
}

impl<R: Runtime> Deref for Client<R> {
    type Target = Connections<R>;

    #[inline]
    fn deref(&self) -> &Connections<R> {
        &self.connections
    }
}

impl<R: Runtime> Clone for Client<R> {
    fn clone(&self) -> Self {
        Self { connections: Arc::clone(&self.connections) }
    }
}

impl<R: Runtime> fmt::Debug for Client<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", self.address()).finish_non_exhaustive()
    }
}

//! MongoDB clients and servers in virtual time, from one seed.
//!
//! An application's test runs in a [`Sim`]: the same client as in production, on a runtime whose time, network, servers
//! and order of tasks are virtual. Hours pass in milliseconds, every fault can be had by a call, and the same seed is the
//! same run. So a test can look for the one order in which the application is wrong, among thousands.
//!
//! ```
//! use std::time::Duration;
//!
//! use cmap_sim::bson::rawdoc;
//! use cmap_sim::{Client, Data, Sim};
//!
//! let sim = Sim::new(42);
//! let server = sim.server("db.example");
//! sim.run(async {
//!     let client = Client::connect("mongodb://db.example/?timeoutMS=20000").await?;
//!     let mut connection = client.check_out().await?;
//!     connection.run_command("shop", rawdoc! { "insert": "orders", "documents": [{ "_id": 1 }] }).await?;
//!
//!     server.partition();
//!     sim.sleep(Duration::from_secs(5)).await;
//!     server.heal();
//!     connection.run_command("shop", rawdoc! { "ping": 1 }).await?;
//!     drop(connection);
//!
//!     server.restart(Data::Kept);
//!     sim.sleep(Duration::from_secs(1)).await;
//!     let mut connection = client.check_out().await?;
//!     let count = connection.run_command("shop", rawdoc! { "count": "orders" }).await?;
//!     assert_eq!(count.get_i32("n")?, 1);
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! One seed gives equal events at equal virtual times, in every process. Under TLS that holds for outcomes
//! only: the keys of a handshake cannot be seeded.
//!
//! | file or room | content |
//! |---|---|
//! | `sim` | the simulation, as tests see it |
//! | `seeds` | one test under many seeds |
//! | `runtime` | the simulation as a [`Runtime`] |
//! | `executor` | tasks, timers, the clock |
//! | `network` | hosts, names, connections and faults |
//! | `host` | a server, its process, its side of TLS, and its end; several servers that belong together |

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod executor;
mod host;
mod network;
mod runtime;
mod seeds;
mod sim;
mod world;

pub use cmap_runtime::{
    BatchError, CheckOutError, ClientError, CommandError, CommandErrorKind, Consistency, CursorError, CursorOptions,
    Deadline, Error, Event, InSession, IntoCommand, IntoRequest, Labelled, Limit, NoSession, Notice, OperationError,
    OperationErrorKind, ParseError, PoolEvent, Reply, Runtime, RuntimeGone, SelectionEvent, ServerEvent, ServerStatus,
    SessionOptions, Subscription, TimeLimit, TimeoutMode, TokenReply, TokenRequest, TopologyEvent, WriteResult, bson,
    cmap_core, tls,
};
#[cfg(feature = "reverse")]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub use cmap_runtime::{Listen, reverse};
pub use cmap_test_server::{
    DeploymentConfig, MemberConfig, MemberId, MemberRole, ServerConfig, ServerVersion, SetConfig, User,
};
pub use rustls;

pub use self::executor::{Stuck, TaskNames};
pub use self::host::{Data, Server, Servers};
#[cfg(feature = "reverse")]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub use self::network::Bound;
pub use self::network::{Listener, Reachability, Stream};
pub use self::runtime::{SimRuntime, Sleep};
pub use self::seeds::{campaign, for_seeds, seeds_or};
pub use self::sim::Sim;

/// A listener for agents in a simulation.
#[cfg(feature = "reverse")]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub type ReverseListener = cmap_runtime::ReverseListener<SimRuntime>;
/// A client in a simulation.
pub type Client = cmap_runtime::Client<SimRuntime>;
/// A builder of a client in a simulation.
pub type ClientBuilder = cmap_runtime::ClientBuilder<SimRuntime>;
/// A pool in a simulation, without a monitor.
pub type Pool = cmap_runtime::Pool<SimRuntime>;
/// A builder of a pool in a simulation.
pub type PoolBuilder = cmap_runtime::PoolBuilder<SimRuntime>;
/// What clients and pools in a simulation can both do.
pub type Connections = cmap_runtime::Connections<SimRuntime>;
/// The future of a check-out in a simulation.
pub type CheckOut<'a> = cmap_runtime::CheckOut<'a, SimRuntime>;
/// A connection in a simulation.
pub type Connection = cmap_runtime::Connection<SimRuntime>;
/// A connection in a simulation, kept for a cursor or a transaction.
pub type PinnedConnection = cmap_runtime::PinnedConnection<SimRuntime>;
/// A command to run in a simulation.
pub type Operation<'a, S = NoSession> = cmap_runtime::Operation<'a, SimRuntime, S>;
/// Writes of any number in a simulation.
pub type Batched<'a, S = NoSession> = cmap_runtime::Batched<'a, SimRuntime, S>;
/// A cursor in a simulation.
pub type Cursor = cmap_runtime::Cursor<SimRuntime>;
/// A cursor in a simulation, whose documents become values.
pub type TypedCursor<T> = cmap_runtime::TypedCursor<SimRuntime, T>;
/// A cursor in a simulation, in a session of a user's own.
pub type SessionCursor = cmap_runtime::SessionCursor<SimRuntime>;
/// A session of a user's own in a simulation.
pub type Session = cmap_runtime::Session<SimRuntime>;

//! MongoDB connections on real sockets: everything that the adapters for tokio, async-std and smol share.
//!
//! Use it through one of them (`cmap-tokio`, `cmap-async-std`, `cmap-smol`): each names its [`Runtime`] and has aliases
//! for the types here. The rules of pooling, and the meaning of errors for a server, are in [`cmap_core`]; this crate
//! drives its machine, and owns the sockets.
//!
//! | room | content |
//! |---|---|
//! | `client`, `operation`, `session`, `cursor`, `batch` | what applications hold: the client, or the pool of one server alone, and the builder of both; a command with retries on whichever server suits; logical sessions; the documents of a reply, and those that follow; writes of any number |
//! | `connection` | the future of a check-out; the connection in use, its commands and their events |
//! | `driver`, `recording` | the servers of a client: the machine under its mutex, driven where calls are made; its timer; the monitors; what is recorded of it |
//! | `establish` | from an address to a usable connection: resolve, connect, derive keys, fetch access tokens |
//! | `reverse` | connections that the database's side opens: a listener for agents, and the dialer that takes their sockets |
//! | `names` | who is asked for names; the servers of a `mongodb+srv` connection string; a socket to one of a [host]'s addresses |
//! | [`events`], `spans` | events to handlers, streams and log records; spans of calls, commands and transactions |
//! | `socket` | one connection's stream and buffers, and what aborts its work |
//! | `error`, `time` | the errors; the clock, and the limits of calls and commands |
//! | `document` | commands from values, and replies that become values |
//! | `watch` | who holds connections, and who waits |
//! | `tls` | TLS through rustls, the same on every runtime |
//! | [`runtime`], `dns` | the interface of a runtime; how its tasks and threads meet; the system's name servers |
//!
//! No file of a module imports one of a module further up, apart from rooms in one line (`.ci/modules`).
//!
//! # Invariants
//!
//! - Dropping any future at any await point leaves the pool correct: a waiter is cancelled, a delivered connection goes
//!   back, a command that was aborted half-way costs its connection.
//! - No lock is held while foreign code runs: wakers, event handlers, the runtime's `spawn`.
//! - Only tasks of the home runtime sleep or connect, so handles work on any thread and in any executor. When the home
//!   runtime is gone, every call reports it at once.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod client;
mod connection;
mod cursor;
#[cfg(feature = "srv")]
mod dns;
mod document;
mod driver;
mod error;
mod establish;
pub mod events;
pub mod exports;
#[doc(hidden)]
pub mod instance;
#[doc(hidden)]
pub mod internals;
mod names;
mod operation;
mod readable_debug;
#[cfg(feature = "trace")]
mod recording;
#[cfg(all(feature = "reverse", feature = "__rustls"))]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub mod reverse;
pub mod runtime;
#[cfg(feature = "__shuttle")]
#[cfg(test)]
mod schedules;
mod session;
mod socket;
mod spans;
mod time;
#[cfg(feature = "__rustls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub mod tls;
mod watch;

pub use batch::Batched;
pub use client::{Builder, Client, ClientBuilder, Connections, Pool, PoolBuilder};
pub use connection::{CheckOut, Connection, PinnedConnection};
pub use cursor::{Cursor, SessionCursor, TypedCursor};
pub use exports::*;
pub use names::host;
pub use operation::Operation;
#[cfg(all(feature = "reverse", feature = "__rustls"))]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub use reverse::ReverseListener;
pub use session::Session;
pub use socket::net;
pub use socket::read_budget::BudgetedStream;
pub use time::Clock;

//! MongoDB connections on real sockets: everything that the adapters for tokio, async-std and smol share.
//!
//! Use it through one of them (`cmap-tokio`, `cmap-async-std`, `cmap-smol`): each names its [`Runtime`] and has aliases
//! for the types here. The rules of pooling, and what errors mean for a server, are those of [`cmap_core`]; this crate
//! drives its machine, and owns the sockets.
//!
//! | file | what it holds |
//! |---|---|
//! | `runtime`, `net`, `clock` | what a runtime has to offer; its sockets and its time |
//! | `client`, `pool`, `check_out`, `connection`, `pinned` | what users hold: the client, or the pool alone, the future of a check-out, the connection in use |
//! | `builder` | clients and pools in the making |
//! | `command_limit` | how long a command may take, and what the server is told of it |
//! | `endpoint`, `machine`, `waiters`, `driver` | one server: the machine under its mutex, driven where calls are made; its timer |
//! | `establish`, `resolve`, `keys` | from an address to a usable connection |
//! | [`tls`] | TLS through rustls, the same on every runtime |
//! | `link` | the monitor's sockets |
//! | `socket`, `cutoff` | one connection's stream and buffers; what cuts off its work |
//! | `read_budget`, `yield_now` | what keeps a server that floods its client from keeping other tasks waiting |
//! | [`event`], `listeners`, `subscription`, `logging` | events to handlers, streams and log records |
//! | `error` | what can go wrong |
//!
//! # What holds
//!
//! - Dropping any future at any await point leaves the pool correct: a waiter is cancelled, a delivered connection goes
//!   back, a command that was cut off half-way costs its connection.
//! - No lock is held while code of others runs: wakers, event handlers, the runtime's `spawn`.
//! - Only tasks of the home runtime sleep or connect, so handles work on any thread and in any executor. When the home
//!   is gone, every call says so at once.

#![forbid(unsafe_code)]

mod builder;
mod check_out;
mod client;
mod clock;
mod command_limit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connection;
mod cutoff;
mod driver;
mod endpoint;
mod error;
mod establish;
pub mod event;
mod keys;
mod link;
mod listeners;
#[cfg(feature = "tracing")]
mod logging;
mod machine;
pub mod net;
mod pinned;
mod pool;
mod read_budget;
mod resolve;
pub mod runtime;
mod socket;
mod subscription;
mod telling;
pub mod tls;
mod waiters;
mod yield_now;

pub use bson;
pub use cmap_core as core;

pub use builder::Builder;
pub use check_out::CheckOut;
pub use client::{Client, ClientBuilder};
pub use connection::Connection;
pub use error::{CheckOutError, ClientError, CommandError, CommandErrorKind, Error, RuntimeGone};
pub use event::Event;
pub use pinned::PinnedConnection;
pub use pool::{Pool, PoolBuilder};
pub use runtime::Runtime;
pub use subscription::{Notice, Subscription};

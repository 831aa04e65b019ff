//! MongoDB connections on real sockets: everything that the adapters for tokio, async-std and smol share.
//!
//! Use it through one of them (`cmap-tokio`, `cmap-async-std`, `cmap-smol`): each names its [`Runtime`] and has aliases
//! for the types here. The rules of pooling, and the meaning of errors for a server, are in [`cmap_core`]; this crate
//! drives its machine, and owns the sockets.
//!
//! | file or room | content |
//! |---|---|
//! | `client`, `pool`, `connections`, `check_out`, `connection`, `pinned` | the handles of users: the client, or the pool alone, what both can do, the future of a check-out, the connection in use |
//! | `operation`, `session` | a command with retries on whichever server suits; logical sessions |
//! | `cursor` | the documents of a reply, and those that follow |
//! | `chores`, `slot` | the clean-up that a client has begun by itself; where tasks leave their results |
//! | `unread_cursor` | the cursor of a command that was given up while it ran |
//! | `builder` | builders of clients and pools |
//! | `document` | commands from values, and replies that become values |
//! | `deadline` | the limits that callers set |
//! | `driver` | the servers of a client: the machine under its mutex, driven where calls are made; its timer; the monitors |
//! | `seed_list`, `names`, `dns` | the servers of a `mongodb+srv` connection string; who is asked for names; the system's name servers |
//! | `establish` | from an address to a usable connection: resolve, connect, derive keys |
//! | `tls` | TLS through rustls, the same on every runtime |
//! | `reverse`, `listen` | connections that the database's side opens: a listener for agents, and the dialer that takes their sockets |
//! | `socket` | one connection's stream and buffers, and what aborts its work |
//! | [`events`] | events to handlers, streams and log records |
//! | [`runtime`], `clock` | the interface of a runtime; its time |
//! | [`host`] | a socket to one of a host's addresses |
//! | `machine`, `recording` | the machine, and what is recorded of it |
//! | `watch` | who holds connections, and who waits |
//! | `command_telling` | the events of a command |
//! | `command_limit` | how long a command may take, and how much of that the server is told |
//! | `optional` | what a client has only with a feature |
//! | `sync` | the locks and wakers by which its threads meet |
//! | `error`, `warnings` | the errors; warnings about options, and who is told them |
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

mod builder;
mod check_out;
mod chores;
mod client;
mod clock;
mod command_limit;
mod command_telling;
mod connection;
mod connections;
mod cursor;
mod deadline;
#[cfg(feature = "srv")]
mod dns;
mod document;
mod driver;
mod error;
mod establish;
pub mod events;
pub mod host;
#[doc(hidden)]
pub mod internals;
#[cfg(feature = "reverse")]
mod listen;
mod machine;
mod names;
mod operation;
mod optional;
mod pinned;
mod pool;
#[cfg(feature = "trace")]
mod recording;
#[cfg(all(feature = "reverse", feature = "__rustls"))]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub mod reverse;
pub mod runtime;
#[cfg(feature = "__shuttle")]
#[cfg(test)]
mod schedules;
mod seed_list;
mod session;
mod slot;
mod socket;
mod sync;
#[cfg(feature = "__rustls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub mod tls;
mod unread_cursor;
mod warnings;
mod watch;

pub use bson;
pub use cmap_core as core;

pub use builder::Builder;
pub use check_out::CheckOut;
pub use client::{Client, ClientBuilder};
pub use clock::Clock;
pub use command_limit::TimeLimit;
pub use connection::Connection;
pub use connections::Connections;
pub use cursor::{Cursor, CursorError, CursorOptions, SessionCursor, TimeoutMode, TypedCursor};
pub use deadline::{Deadline, Limit};
pub use document::{IntoCommand, IntoRequest, ParseError, Reply, Request};
pub use driver::ServerStatus;
pub use error::{
    CheckOutError, ClientError, CommandError, CommandErrorKind, Error, RotationError, RuntimeGone, WarmUpError,
};
pub use events::{CommandEvent, Event, Notice, PoolEvent, SelectionEvent, ServerEvent, Subscription, TopologyEvent};
#[cfg(feature = "reverse")]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub use listen::Listen;
pub use operation::{InSession, NoSession, Operation, OperationError, OperationErrorKind};
pub use pinned::PinnedConnection;
pub use pool::{Pool, PoolBuilder};
#[cfg(feature = "trace")]
#[cfg_attr(docsrs, doc(cfg(feature = "trace")))]
pub use recording::Recorder;
#[cfg(all(feature = "reverse", feature = "__rustls"))]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub use reverse::ReverseListener;
pub use runtime::Runtime;
pub use session::{Consistency, Labelled, Session, SessionOptions};
pub use socket::net;
pub use socket::read_budget::BudgetedStream;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use watch::Metrics;
pub use watch::{
    ClientStatus, CommandInUse, Holder, Label, LabelUses, PastUse, Place, ServerLine, SlowUse, UseReport,
    WaitingCheckOut, WaitsFor,
};

//! MongoDB's connection pool as a pure state machine: no sockets, no clock, no threads, no randomness.
//!
//! Time, results and requests go in; actions and events come out, in one order. The same calls at the same times always
//! have the same outputs, so the pool runs in any runtime, is tested in virtual time, and a recorded run can be repeated.
//! It follows the specification *Connection Monitoring and Pooling* (CMAP). Ids such as CMAP-26 name rules of MongoDB's
//! specifications, and ids such as X-15 name choices made where these are silent; the repository's `docs/rules.md` and
//! `docs/decisions.md` define every id.
//!
//! # The driving rule
//!
//! > Call any method; then drain [`poll_output`](pool::Pool::poll_output) until it returns `None`; then ask
//! > [`poll_timeout`](pool::Pool::poll_timeout) when to come back.
//!
//! - Every call takes `now`. Time never runs backwards inside: an older `now` is read as the latest one seen.
//! - Every call is legal in every state; [`pool`] has a table of what each one does. A call that makes no sense is
//!   answered with an [`ApiMisuse`](pool::ApiMisuse), which data from a network can never cause. Nothing panics.
//! - A call may return its result at once, if no outputs were queued before: a check-out its delivery, a check-in the
//!   delivery to the next waiter.
//! - Every call that changes something can be made as data, too: [`Pool::call`](pool::Pool::call) and
//!   [`Topology::call`](topology::Topology::call) take an `Input` and return an `Answer`. Recorders, replays, simulations and bindings
//!   for other languages stand on them.
//! - While outputs are queued, the next timeout is now. After [`handle_timeout`](pool::Pool::handle_timeout) and a
//!   drain it lies later than now. Coming early is harmless; coming late delays what is due.
//!
//! # The run loop
//!
//! 1. Make a pool, and [`ready`](pool::Pool::ready) once the server is known to answer.
//! 2. Make a call: a caller wants a connection or gives one back, a connection was established, time is up.
//! 3. Carry out the outputs. The pool holds a socket while it is not in use: `Deliver` moves it out, `check_in` moves
//!    it back.
//! 4. Sleep until the next call or the next timeout.
//!
//! ```
//! use cmap_core::address::ServerAddress;
//! use cmap_core::options::PoolOptions;
//! use cmap_core::pool::{Action, CheckOutRequest, CheckedIn, Condition, Output, Pool};
//! use cmap_core::time::Instant;
//!
//! // 1. A real driver's time is the time since its start; this one's stands still.
//! let now = Instant::ORIGIN;
//! let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), now)?;
//! pool.ready(now);
//!
//! // 2. A caller wants a connection.
//! let (wanted, delivery) = pool.check_out(now, CheckOutRequest::default());
//! assert_eq!(delivery, None);
//!
//! // 3. There is none yet, so one is established. The socket of this example is a word.
//! while let Some(output) = pool.poll_output() {
//!     match output {
//!         Output::Action(Action::Connect { connection }) => pool.handle_established(now, connection, "socket")?,
//!         Output::Action(Action::Deliver { check_out, connection, socket }) => {
//!             assert_eq!((check_out, socket), (wanted, "socket"));
//!             let next = pool.check_in(now, check_out, connection, socket, Condition::Usable)?;
//!             assert_eq!(next, CheckedIn::Done, "nobody else waits");
//!         }
//!         Output::Action(action) => unreachable!("nothing else happens here: {action:?}"),
//!         Output::Event(event) => println!("{}", event.name()),
//!     }
//! }
//!
//! // 4. The connection is available, and nothing depends on time.
//! assert_eq!(pool.counts().available, 1);
//! assert_eq!(pool.poll_timeout(), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/threads.rs` drives a pool for a thousand threads in the same way, and `examples/deployment.rs` a topology with its monitors.
//!
//! # The modules
//!
//! | module | content |
//! |---|---|
//! | [`pool`] | the pool of one server: the machine itself, and the eleven CMAP events |
//! | [`monitor`] | the monitor of one server: hello after hello, and round-trip times (feature `wire`) |
//! | [`server`] | a server: its pool, its description, and what errors say about it |
//! | [`topology`] | a client's servers: how they are found, in DNS too, and which one suits an operation |
//! | `trace` | feature `trace`: what happened in a topology, recorded, and repeated call by call |
//! | [`retry`] | what to do after an operation has failed: try again, when and where; or give up |
//! | [`session`] | the sessions of operations, and the time of the cluster |
//! | `batch` | feature `wire`: writes of any number, as commands that a server takes |
//! | `change_stream` | feature `wire`: change streams, and what follows their failures |
//! | [`statistics`] | histograms of durations |
//! | [`log`] | the log records made from events |
//! | [`options`] | what a user can set: the connection string and every option in it |
//! | [`connection`] | from an open socket to a reply: hello, compression, authentication, commands (feature `wire`) |
//! | `wire` | feature `wire`: messages to bytes, and bytes to messages |
//! | [`address`], [`time`], [`random`] | where a server is; nanoseconds since the caller's origin; chance from a seed |
//! | `reverse` | feature `reverse`: the protocol of connections that the database's side opens |

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
#[cfg(feature = "wire")]
pub mod batch;
#[cfg(feature = "wire")]
pub mod change_stream;
pub mod connection;
mod error_text;
pub mod log;
pub mod monitor;
pub mod options;
pub mod pool;
pub mod random;
pub mod retry;
#[cfg(feature = "reverse")]
pub mod reverse;
pub mod server;
mod service_id;
pub mod session;
pub mod statistics;
pub mod time;
pub mod topology;
mod topology_version;
#[cfg(feature = "trace")]
pub mod trace;
#[cfg(feature = "wire")]
pub mod wire;
mod wire_version;

pub use error_text::ErrorChain;

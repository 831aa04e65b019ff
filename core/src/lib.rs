//! MongoDB's connection pool as a pure state machine: no sockets, no clock, no threads, no randomness.
//!
//! Time, results and requests go in; actions and events come out, in one order. The same calls at the same times always
//! have the same outputs, so the pool runs in any runtime, is tested in virtual time, and a recorded run can be repeated.
//! It follows the specification *Connection Monitoring and Pooling* (CMAP); ids such as CMAP-26 in these pages number its
//! rules, and X-15 and the like the choices made where it is silent.
//!
//! # The driving rule
//!
//! > Call any method; then drain [`poll_output`](pool::Pool::poll_output) until it returns `None`; then ask
//! > [`poll_timeout`](pool::Pool::poll_timeout) when to come back.
//!
//! - Every call takes `now`. Time never runs backwards inside: an older `now` is read as the latest one seen.
//! - Every call is legal in every state; [`pool`] has a table of what it does. What makes no sense is answered with an
//!   [`ApiMisuse`](pool::ApiMisuse), which data from a network can never cause. Nothing panics.
//! - [`try_check_out`](pool::Pool::try_check_out) is the short way of most check-outs: it hands a connection over past the
//!   outputs where nothing else would come out, so that there is nothing to drain, and no earlier timeout to ask for.
//!   [`hand_over`](pool::Pool::hand_over) is that of a check-in for which somebody waits.
//! - While outputs are queued, the next timeout is now. After [`handle_timeout`](pool::Pool::handle_timeout) and a drain it
//!   lies later than now. To come early is harmless, to come late delays what is due.
//!
//! # The run loop
//!
//! 1. Make a pool, and [`ready`](pool::Pool::ready) once the server is known to answer.
//! 2. Make a call: somebody wants a connection, gives one back, a connection was established, time is up.
//! 3. Carry out what comes out. A socket lives in the pool while nobody uses it: `Deliver` moves it out, `check_in` moves
//!    it back.
//! 4. Sleep until the next call or the next timeout.
//!
//! ```
//! use cmap_core::address::ServerAddress;
//! use cmap_core::options::PoolOptions;
//! use cmap_core::pool::{Action, CheckOutRequest, Condition, Output, Pool};
//! use cmap_core::time::Instant;
//!
//! // 1. A real driver's time is the time since its start; this one's stands still.
//! let now = Instant::ORIGIN;
//! let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), now)?;
//! pool.ready(now);
//!
//! // 2. Somebody wants a connection.
//! let wanted = pool.check_out(now, CheckOutRequest::default());
//!
//! // 3. Nobody has one yet, so one is established. The socket of this example is a word.
//! while let Some(output) = pool.poll_output() {
//!     match output {
//!         Output::Action(Action::Connect { connection }) => pool.handle_established(now, connection, "socket")?,
//!         Output::Action(Action::Deliver { check_out, connection, socket }) => {
//!             assert_eq!((check_out, socket), (wanted, "socket"));
//!             pool.check_in(now, connection, socket, Condition::Usable)?;
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
//! `examples/threads.rs` drives a pool for a thousand threads in the same way.
//!
//! # The rooms
//!
//! | module | what it is |
//! |---|---|
//! | [`pool`] | the pool of one endpoint: the machine itself |
//! | [`server`] | an endpoint: its pool, its monitor, and what checks and errors say about the server |
//! | `monitor` | the monitor of one server: hello after hello, and round-trip times (features `wire`, `auth`) |
//! | [`event`], [`log`] | the eleven CMAP events, and the log records made from them |
//! | [`options`] | what a user can set: the connection string and every option in it |
//! | [`connection`] | from an open socket to a reply: hello, compression, authentication, commands (features `wire`, `auth`) |
//! | `wire` | feature `wire`: messages to bytes, and bytes to messages |
//! | [`address`], [`time`] | where a server is; nanoseconds since an origin of the caller's |
//! | `sim` | feature `sim`: a seeded virtual network and server to run all of it in virtual time; a MongoDB server for tests |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod connection;
mod error_text;
pub mod event;
pub mod log;
#[cfg(all(feature = "wire", feature = "auth"))]
pub mod monitor;
pub mod options;
pub mod pool;
pub mod server;
#[cfg(feature = "sim")]
pub mod sim;
pub mod time;
#[cfg(feature = "wire")]
pub mod wire;

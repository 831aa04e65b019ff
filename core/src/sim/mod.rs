//! A seeded virtual network and server, itself without I/O, to run a pool in virtual time.
//!
//! [`Simulation`] drives a [`Server`](crate::server::Server) the way an adapter drives it with sockets and timers, except
//! that establishing a connection takes virtual time and succeeds or fails as [`Network`] and [`VirtualServer`] say. One
//! seed decides every latency and the order of what happens at the same moment, so that a run can be repeated.
//!
//! With the features `wire` and `auth`, `embedded` is a whole MongoDB server for tests, a machine too: it speaks the wire
//! protocol to real clients, ours and others.
//!
//! All of it is public because users test with it, too: feature `sim`.

#[cfg(all(feature = "wire", feature = "auth"))]
pub mod embedded;
mod fail_point;
mod network;
mod schedule;
mod simulation;
#[cfg(feature = "wire")]
pub mod store;

pub use self::fail_point::{ConfigureFailPoint, Effect, FailCommand, FailPoint, FailPointName, Mode, Outcome};
pub use self::network::{Network, NetworkMode, VirtualServer};
pub use self::schedule::Schedule;
pub use self::simulation::{News, Simulation};
pub use crate::random::Random;

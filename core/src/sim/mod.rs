//! A seeded virtual network and server, itself without I/O, to run a pool in virtual time.
//!
//! [`Simulation`] drives a [`Topology`](crate::topology::Topology) the way an adapter drives it with sockets and timers,
//! except that establishing a connection takes virtual time and succeeds or fails as [`Network`] and [`VirtualServer`]
//! say. One seed decides every latency and the order of events at the same moment, so that a run can be repeated.
//!
//! A whole MongoDB server for tests, which speaks the wire protocol, is the crate `cmap-test-server`. It uses
//! [`FailPoint`] from here.
//!
//! All of it is public because users test with it, too: feature `sim`.

mod fail_point;
mod network;
mod refreshing;
mod schedule;
mod simulation;

pub use self::fail_point::{ConfigureFailPoint, Effect, FailCommand, FailPoint, FailPointName, Mode, Outcome};
pub use self::network::{Network, NetworkMode, VirtualServer};
pub use self::schedule::Schedule;
pub use self::simulation::{News, Simulation};
pub use crate::random::Random;

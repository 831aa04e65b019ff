//! The engines on real sockets: the public pool of an adapter, in real time, against a server over TCP.
//!
//! | file | what it holds |
//! |---|---|
//! | `home` | the runtimes, and how each runs a future |
//! | `servers`, `control` | the server that a test gets; what a test does to it |
//! | `obstacle` | which tests cannot be carried out here, and why |
//! | `session`, `threads`, `operations` | a test while it runs: its threads, each of which is a task, and what they do |
//! | `journal`, `signal` | the pool's events so far; waking what waits for them |
//! | `aftermath` | what must not remain |
//!
//! Results depend on the speed of the machine only where a file's own waits do. An operation of the main thread begins when
//! every other thread waits or has nothing to do, as on the engine `core`. The order of arrivals is thus that of the file,
//! however late tasks are run.

mod aftermath;
pub(super) mod control;
mod home;
mod journal;
mod obstacle;
mod operations;
mod servers;
pub(super) mod session;
mod signal;
mod threads;

use std::sync::Arc;

use cmap_runtime::Runtime;

use self::home::Home;
pub(super) use self::home::{OnAsyncStd, OnSmol, OnTokio};
pub(super) use self::servers::Servers;
pub use self::servers::ServersError;
use super::{Chance, Engine, Run};
use crate::suites::cmap::format::{Case, Deployment};

/// The pool of an adapter, in its runtime.
pub(super) struct SocketEngine<H> {
    home: H,
    servers: Arc<Servers>,
}

impl<H: Home> SocketEngine<H> {
    /// The pool that lives in `home`, against `servers`.
    pub(super) fn new(home: H, servers: Arc<Servers>) -> Self {
        Self { home, servers }
    }
}

impl<H: Home> Engine for SocketEngine<H> {
    fn name(&self) -> &'static str {
        H::Runtime::NAME
    }

    fn chance(&self) -> Chance {
        Chance::Real
    }

    fn deployment(&self) -> Deployment {
        self.servers.deployment()
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        obstacle::of(case, &self.servers)
    }

    fn run(&self, case: &Case, _: u64) -> Run {
        match self.servers.lease(case) {
            Ok(lease) => self.home.block_on(session::run::<H::Runtime>(Arc::new(case.clone()), lease.options(), None)),
            Err(error) => Run { violations: vec![error.to_string()], ..Run::default() },
        }
    }
}

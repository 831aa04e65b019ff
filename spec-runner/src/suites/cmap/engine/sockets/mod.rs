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
use std::time::Duration;

use cmap_conformance::reverse::Front;
use cmap_runtime::{PoolBuilder, Runtime, RuntimeGone};

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
    approach: Approach,
}

/// How pools come to their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approach {
    /// They connect.
    Direct,
    /// They take them from an agent before the server, which has dialled out to a listener of theirs.
    ByAgents,
}

impl<H: Home> SocketEngine<H> {
    /// The pool that lives in `home`, against `servers`.
    pub(super) fn new(home: H, servers: Arc<Servers>, approach: Approach) -> Self {
        Self { home, servers, approach }
    }
}

/// The time since 1970, at which certificates are made.
fn runtime_time<R: Runtime>() -> Result<Duration, RuntimeGone> {
    R::current().map(|runtime| runtime.unix_time())
}

impl<H: Home> Engine for SocketEngine<H> {
    fn name(&self) -> &'static str {
        match self.approach {
            Approach::Direct => H::Runtime::NAME,
            Approach::ByAgents => H::BY_AGENTS,
        }
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
            Ok(lease) => self
                .home
                .block_on(async {
                    let front = match self.approach {
                        Approach::Direct => None,
                        Approach::ByAgents => Some(Front::<H::Runtime>::listen(runtime_time::<H::Runtime>()?).await),
                    };
                    let hosts = lease.options().hosts.clone();
                    let prepare = |builder: PoolBuilder<H::Runtime>| match &front {
                        Some(front) => front.prepare(builder, &hosts),
                        None => builder,
                    };
                    Ok(session::run::<H::Runtime>(Arc::new(case.clone()), lease.options(), None, prepare).await)
                })
                .unwrap_or_else(|gone: RuntimeGone| Run { violations: vec![gone.to_string()], ..Run::default() }),
            Err(error) => Run { violations: vec![error.to_string()], ..Run::default() },
        }
    }
}

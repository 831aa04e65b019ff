//! One server: its pool, its description, and what checks and errors say about it, behind one interface.
//!
//! An error of a connection may mean that the server is gone, or only that this connection is. [`reaction`] decides
//! which by the rules of SDAM; [`Server`] carries it out in one call, so that no caller sees one effect without the
//! other (SDAM-3), and in the order that can be observed: the server is unknown, the pool is cleared, the failed
//! connection is closed, and finally its check-out fails (CMAP-49). A check that succeeds makes the pool ready in the
//! same way.
//!
//! A [`Server`] is data, like its pool. Its `Monitor` stands beside it: the driver hands over the monitor's
//! [findings](Server::handle_check) and its [events](Server::handle_heartbeat), and makes the calls of the monitor that
//! come out as [`Output::Monitor`].
//!
//! A check-out that comes while the server is unknown waits for it ([`CheckOut::Selecting`]) and goes on in the pool as
//! soon as a check succeeds.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the server, and the driving rule |
//! | `callers` | check-outs, check-ins, and the end |
//! | `connections` | what happens at the pool's connections |
//! | `checks` | what checks and hellos say of the server, and what follows |
//! | `reaction`, `operation_error` | what an error says of the server |
//! | `selection` | check-outs that wait for the server |
//! | `command_defaults` | what a client's options add to commands |
//! | `topology` | the topology that one server makes |

pub mod reaction;

mod callers;
mod checks;
#[cfg(all(feature = "wire", feature = "auth"))]
mod command_defaults;
mod connections;
mod disbelief;
mod event;
mod operation_error;
mod output;
mod selection;
mod server_options;
mod topology;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(all(feature = "wire", feature = "auth"))]
pub use self::command_defaults::CommandDefaults;
use self::disbelief::Disbelief;
pub use self::event::ServerEvent;
pub use self::operation_error::{OperationError, StateChange};
pub use self::output::{Output, Timeout, TimeoutReason};
use self::selection::Selections;
pub use self::selection::{SelectionError, SelectionErrorKind, SelectionId};
pub use self::server_options::ServerOptions;
pub use self::topology::{TopologyDescription, TopologyType};
pub use crate::monitor::{HeartbeatEvent, MonitorConnection, ServerDescription, ServerType};
use crate::pool::{self, CheckOutId, Pool};
use crate::time::Instant;
pub use crate::topology_version::TopologyVersion;
pub use crate::wire_version::{MAX_WIRE_VERSION, MIN_WIRE_VERSION};

/// One server as the client knows it: its pool, its description, and the check-outs that wait for it.
///
/// **The driving rule.** Call any method; then drain [`poll_output`](Self::poll_output) until it returns `None`; then ask
/// [`poll_timeout`](Self::poll_timeout) when to come back. Every call takes `now`, and is legal in every state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "C: Serialize", deserialize = "C: Deserialize<'de>"))]
pub struct Server<C> {
    /// Its outputs are collected after every call.
    pool: Pool<C>,
    options: ServerOptions,
    topology: Arc<TopologyDescription>,
    description: Arc<ServerDescription>,
    disbelief: Disbelief,
    phase: Phase,
    now: Instant,
    selections: Selections,
    outputs: VecDeque<Output<C>>,
    observed: bool,
}

/// Where an arriving check-out goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// Waits for the server.
    Unusable,
    /// Goes on in the pool.
    Usable,
    /// Goes on in the pool, always: no monitor checks the server, and its owner says when the pool may be used.
    Unmonitored,
    /// Fails: the pool is closed and reports it.
    Closed,
}

/// A check-out that a caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CheckOut {
    /// It began in the pool.
    Started(CheckOutId),
    /// It waits for the server: [`Output::Selected`] or [`Output::SelectionFailed`] follows.
    Selecting(SelectionId),
}

impl<C> Server<C> {
    /// A server that was not checked yet. Nothing happens before [`open`](Self::open).
    pub fn new(pool: Pool<C>, options: ServerOptions) -> Self {
        let address = Arc::new(pool.address().clone());
        let mut server = Self {
            pool,
            options,
            topology: Arc::new(TopologyDescription::empty()),
            description: Arc::new(ServerDescription::new(address, ServerType::Unknown)),
            disbelief: Disbelief::default(),
            phase: Phase::Unusable,
            now: Instant::ORIGIN,
            selections: Selections::default(),
            outputs: VecDeque::new(),
            observed: true,
        };
        server.collect();
        server
    }

    /// A server without a monitor, for an owner with rules of its own: every check-out goes to the pool at once, and
    /// the owner makes the pool [ready](Self::ready) and [clears](Self::clear) it. Errors of connections clear it as
    /// always, and also come out as calls of a monitor, for the owner to obey. The server has no description and no
    /// events, and is never opened.
    pub fn unmonitored(pool: Pool<C>) -> Self {
        // A deadline is the caller's alone: there is no selection that could bound it.
        let options = ServerOptions { server_selection_timeout: Duration::MAX, ..ServerOptions::default() };
        Self { phase: Phase::Unmonitored, ..Self::new(pool, options) }
    }

    // Queries.

    /// The pool, to read.
    pub fn pool(&self) -> &Pool<C> {
        &self.pool
    }

    /// The description of the server.
    pub fn description(&self) -> &Arc<ServerDescription> {
        &self.description
    }

    /// The description of the topology that the server makes.
    pub fn topology(&self) -> &Arc<TopologyDescription> {
        &self.topology
    }

    /// Whether check-outs go on in the pool at once.
    pub fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Usable | Phase::Unmonitored)
    }

    /// How many check-outs wait for the server.
    pub fn selecting(&self) -> usize {
        self.selections.len()
    }

    // Time and outputs.

    /// Time has passed: fails the check-outs that waited long enough for the server, and does what is due in the pool.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.pool.handle_timeout(now);
        self.collect();
        self.fail_overdue_selections();
    }

    /// The next output; `None` when there is nothing more to do.
    #[must_use = "an action that is not carried out is lost"]
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        /// The capacity that the queue keeps; the memory of a burst is given back.
        const KEPT: usize = 1024;
        if self.outputs.is_empty() {
            if self.outputs.capacity() > 2 * KEPT {
                self.outputs.shrink_to(KEPT);
            }
            return None;
        }
        self.outputs.pop_front()
    }

    /// Whether all outputs have been drained.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.outputs.is_empty()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why; `None` if nothing depends on time.
    #[must_use = "without it the driver does not know when to come back"]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Timeout> {
        if !self.is_drained() {
            return Some(Timeout { at: self.now, reason: TimeoutReason::Outputs });
        }
        let pool = self.pool.poll_timeout();
        let pool = pool.map(|pool| Timeout { at: pool.at, reason: TimeoutReason::Pool(pool.reason) });
        let selection = self.selections.next_deadline();
        let selection = selection.map(|(at, _)| Timeout { at, reason: TimeoutReason::Selection });
        Timeout::earlier(pool, selection)
    }

    /// Whether events are produced at all. On at first.
    pub fn observe(&mut self, on: bool) {
        self.observed = on;
        self.pool.observe(on);
    }

    // Shared by the parts of the machine.

    #[inline]
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn emit(&mut self, event: ServerEvent) {
        if self.observed {
            self.outputs.push_back(Output::Event(event));
        }
    }

    /// Makes a call of the pool, and takes over its outputs.
    #[inline]
    fn call_pool<T>(&mut self, now: Instant, call: impl FnOnce(&mut Pool<C>) -> T) -> T {
        self.advance(now);
        let result = call(&mut self.pool);
        self.collect();
        result
    }

    /// Takes over the outputs of the pool: there is one queue, in one order.
    #[inline]
    fn collect(&mut self) {
        if !self.pool.is_drained() {
            self.collect_outputs();
        }
    }

    #[inline(never)]
    fn collect_outputs(&mut self) {
        self.outputs.extend(core::iter::from_fn(|| self.pool.poll_output()).map(Output::Pool));
    }

    /// Whether there are outputs here or in the pool.
    #[inline]
    fn has_outputs(&self) -> bool {
        !self.outputs.is_empty() || !self.pool.is_drained()
    }

    /// Takes over what a call of the pool led to. The delivery that it returned is for its caller, unless outputs had been
    /// queued before.
    #[inline(never)]
    fn queue_outputs(&mut self, now: Instant, delivery: Option<pool::Delivery<C>>) -> Option<pool::Delivery<C>> {
        self.advance(now);
        let was_drained = self.outputs.is_empty();
        self.collect();
        if was_drained {
            return delivery;
        }
        self.outputs.extend(delivery.map(|delivery| Output::Pool(delivery.into())));
        None
    }
}

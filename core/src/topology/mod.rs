//! Several servers, discovered from seeds: which of them exist, what they are, and which one a check-out is sent to.
//!
//! A [`Topology`] is what a client drives, also a client of one server. It holds the servers with their pools, the
//! description of all of them, and the check-outs that wait for a server. So "the server is unknown, its pool is cleared,
//! another one is selected" is one step: no caller sees one effect without the other (SDAM-3).
//!
//! A topology is data, like its pools. The monitors stand next to it: the driver hands over their
//! [findings](Topology::handle_check) and their [events](Topology::handle_heartbeat), and begins, calls and ends them as
//! [`Output::Monitor`] says.
//!
//! A check-out that finds no suitable server waits for one ([`CheckOut::Selecting`]). A check-out whose server fails it
//! before it has its connection goes back there, while its time lasts: a restart of a server, or an election, costs it no
//! error.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the topology, and the driving rule |
//! | `callers` | check-outs, check-ins, the beginning and the end |
//! | `connections` | what happens at connections, and what it says about their server |
//! | `checks` | what checks and hellos say about a server, and what follows for all of them |
//! | `description`, `update`, `transition` | what is known of the servers, and what a new description of one makes of it |
//! | `sizes` | new limits for all pools, by the roles of servers, and by what other servers' pools have |
//! | `budget` | a limit of the connections that all pools have together |
//! | `usage` | the connections that pools have together |
//! | `identities` | several users with pools of their own at each server |
//! | `servers` | the servers by their ids |
//! | `waiting` | who waits for a server, and what those want who wait in its pool |
//! | `selecting` | how check-outs wait for a server, go on, fail, and come back |
//! | `warm_up` | connections to servers before anybody needs them |
//! | [`selection`], `choosing` | which servers suit an operation, and the one that is chosen |
//! | [`seed_list`] | the servers that DNS names, at first and later |
//! | `queries` | what can be asked |
//! | `topology_options`, `input`, `output` | options, calls as data, outputs and events |
//!
#![doc = include_str!("../../docs/topology.md")]

mod budget;
mod callers;
mod checks;
mod choosing;
mod connections;
mod description;
mod identities;
mod input;
mod output;
mod queries;
pub mod seed_list;
mod selecting;
pub mod selection;
mod servers;
mod sizes;
mod topology_options;
mod transition;
mod update;
mod usage;
mod waiting;
mod warm_up;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use self::choosing::Windows;
pub use self::description::{TopologyDescription, TopologyType};
use self::identities::Identities;
pub use self::input::{Answer, Input};
pub use self::output::{
    MonitorCall, Output, SelectionDetail, SelectionEvent, SelectionEventKind, Timeout, TimeoutReason, TopologyEvent,
};
pub use self::queries::Binding;
use self::seed_list::SrvPolling;
pub use self::selection::{Criteria, Operation, SelectionError, SelectionErrorKind, ServerSelector};
use self::servers::Servers;
pub use self::topology_options::{MinPoolSizePolicy, SizesByRole, TopologyOptions};
use self::usage::Usage;
use self::waiting::Selections;
pub use self::waiting::{CheckOut, SelectionId};
use self::warm_up::WarmUps;
pub use self::warm_up::{WarmUpError, WarmUpId};
use crate::address::ServerAddress;
use crate::options::{PoolOptions, PoolOptionsError};
use crate::pool::{Durations, Pool, Stats};
use crate::random::Random;
use crate::server::{Membership, Server, ServerEvent, ServerId};
use crate::time::Instant;

/// The servers of a client: what is known of them, their pools, and the check-outs that wait for one of them.
///
/// **The driving rule.** Call any method; then drain [`poll_output`](Self::poll_output) until it returns `None`; then ask
/// [`poll_timeout`](Self::poll_timeout) when to come back. Every call takes `now`, and is legal in every state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "C: Serialize", deserialize = "C: Deserialize<'de>"))]
pub struct Topology<C> {
    options: TopologyOptions,
    /// Those of each server's pool.
    pool_options: PoolOptions,
    description: Arc<TopologyDescription>,
    /// The outputs of their pools are collected after every call.
    servers: Servers<C>,
    identities: Identities,
    /// Kept while pools share limits.
    #[serde(skip)]
    usage: Usage,
    /// What has happened in the pools of servers that have left and are forgotten.
    departed: Stats,
    /// How long it took there, if that is recorded.
    durations: Option<Box<Durations>>,
    phase: Phase,
    /// Of the seed list in DNS, from opening to closing.
    polling: Option<SrvPolling>,
    /// The server that every write is sent to now, if there is exactly one.
    writer: Option<ServerId>,
    /// How long a check-out may take that does not wait for a server.
    check_out_limit: Duration,
    selections: Selections,
    warm_ups: WarmUps,
    /// The servers to choose from, for what was wanted lately.
    windows: Windows,
    random: Random,
    now: Instant,
    outputs: VecDeque<Output<C>>,
    observed: bool,
    selection_detail: SelectionDetail,
}

/// What the topology does about its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// Nothing yet.
    Unopened,
    /// Its monitors check them.
    Monitored,
    /// Nothing: the owner of the one server says when its pool may be used.
    Unmonitored,
    /// The end.
    Closed,
}

/// The capacity that the queue of outputs keeps; the memory of a burst is given back.
const KEPT: usize = 1024;

impl<C> Topology<C> {
    /// A topology of the seeds in `options`, each with a pool with `pool_options`. Nothing happens before
    /// [`open`](Self::open).
    ///
    /// # Errors
    /// An option of the pools has a value that it cannot have, also in one of the roles.
    pub fn new(mut options: TopologyOptions, mut pool_options: PoolOptions) -> Result<Self, PoolOptionsError> {
        options.seeds = ServerAddress::distinct(options.seeds);
        pool_options.load_balanced |= options.load_balanced;
        pool_options.validate()?;
        options.sizes_by_role.check(&pool_options)?;
        Ok(Self::unopened(options, pool_options))
    }

    fn unopened(options: TopologyOptions, pool_options: PoolOptions) -> Self {
        Self {
            check_out_limit: options.server_selection_timeout,
            random: Random::new(pool_options.seed),
            options,
            pool_options,
            description: Arc::new(TopologyDescription::of_servers(TopologyType::Unknown, Vec::new())),
            servers: Servers::new(),
            identities: Identities::default(),
            usage: Usage::default(),
            departed: Stats::default(),
            durations: None,
            phase: Phase::Unopened,
            polling: None,
            writer: None,
            selections: Selections::default(),
            warm_ups: WarmUps::default(),
            windows: Windows::default(),
            now: Instant::ORIGIN,
            outputs: VecDeque::new(),
            observed: true,
            selection_detail: SelectionDetail::None,
        }
    }

    /// One server without a monitor, for an owner with rules of its own: every check-out goes to its pool at once, and
    /// the owner makes the pool [ready](Self::ready) and [clears](Self::clear) it. Errors of connections clear it as
    /// always, and also come out as calls of a monitor, for the owner to obey. The server has no description and no
    /// events, and is never opened.
    pub fn unmonitored(pool: Pool<C>) -> Self {
        let mut options = TopologyOptions::of_seeds(Vec::new());
        // There is no other server to turn to, and none to wait for: a deadline is the caller's alone.
        options.reselect = false;
        options.server_selection_timeout = Duration::MAX;
        options.load_balanced = pool.options().load_balanced;
        let mut topology = Self::unopened(options, pool.options().clone());
        topology.phase = Phase::Unmonitored;
        let id = topology.servers.next_id();
        topology.servers.add(id, Server::new(pool, Membership::Used));
        topology.writer = Some(id);
        topology.collect(id);
        topology
    }

    // Time and outputs.

    /// Time has passed: fails the check-outs that waited long enough for a server, does what is due in the pools, and asks
    /// for the SRV records again.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        if self.has_budget() {
            self.handle_timeout_within_budget();
        } else {
            // A pool that nobody may use yet must not grow to its minPoolSize.
            let used = self.servers.iter_mut().filter(|(_, server)| server.membership != Membership::Unused);
            used.for_each(|(_, server)| server.pool.handle_timeout(now));
            self.for_each(Self::collect);
        }
        while let Some((at, selection)) = self.selections.next_deadline()
            && at <= self.now
        {
            self.fail_selection(selection, SelectionErrorKind::Timeout);
        }
        self.ask_for_srv_if_due();
    }

    /// The next output; `None` when there is nothing more to do.
    #[must_use = "an action that is not carried out is lost"]
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        if self.outputs.is_empty() && self.outputs.capacity() > 2 * KEPT {
            self.outputs.shrink_to(KEPT);
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
        let selection = self.selections.next_deadline().map(|(at, _)| Timeout { at, reason: TimeoutReason::Selection });
        let used = self.servers.iter().filter(|(_, server)| server.membership != Membership::Unused);
        let pools = used.filter_map(|(id, server)| {
            let pool = server.pool.poll_timeout()?;
            Some(Timeout { at: pool.at, reason: TimeoutReason::Pool(id, pool.reason) })
        });
        let polling = self.next_srv_request().map(|at| Timeout { at, reason: TimeoutReason::SrvPolling });
        selection.into_iter().chain(pools).chain(polling).min_by_key(|timeout| timeout.at)
    }

    /// Whether events are produced at all. On at first.
    pub fn observe(&mut self, on: bool) {
        self.observed = on;
        self.servers.iter_mut().for_each(|(_, server)| server.pool.observe(on));
    }

    /// Records from now on how long everything takes, in the first four pools, or forgets what was recorded. Off at first.
    pub fn record_durations(&mut self, on: bool) {
        if self.durations.is_some() != on {
            self.durations = on.then(Box::default);
        }
        self.servers.iter_mut().for_each(|(_, server)| server.pool.record_durations(on));
    }

    /// Lets the first pool contradict itself.
    #[cfg(all(test, feature = "trace"))]
    pub(crate) fn break_invariant(&mut self) {
        self.servers.iter_mut().take(1).for_each(|(_, server)| server.pool.break_invariant());
    }

    // Shared by the parts of the machine.

    #[inline]
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn emit(&mut self, event: TopologyEvent) {
        if self.observed {
            self.outputs.push_back(Output::Topology(event));
        }
    }

    fn emit_of(&mut self, server: ServerId, event: ServerEvent) {
        if self.observed {
            self.outputs.push_back(Output::Server { server, event });
        }
    }

    fn call_monitor(&mut self, server: ServerId, call: MonitorCall) {
        self.outputs.push_back(Output::Monitor { server, call });
    }

    /// Adds a server to those that are kept, or the pool of an identity at one. `None` only if the options of its pool were changed into wrong ones.
    fn add_server(
        &mut self,
        address: Arc<ServerAddress>,
        options: PoolOptions,
        membership: Membership,
    ) -> Option<ServerId> {
        let id = self.servers.next_id();
        let pool = Pool::of_server(address, options, self.now, id.pool_owner()).ok()?;
        let mut server = Server::new(pool, membership);
        server.pool.observe(self.observed);
        server.pool.record_durations(self.durations.is_some());
        if self.has_budget() {
            server.pool.lend_nothing();
        }
        self.servers.add(id, server);
        self.usage.forget();
        Some(id)
    }

    /// Makes a call of a server's pool, and takes over its outputs.
    fn call_pool<T>(&mut self, server: ServerId, call: impl FnOnce(&mut Pool<C>) -> T) -> Option<T> {
        self.lend_permits(server);
        let result = self.servers.pool_mut(server).map(call);
        self.collect(server);
        result
    }

    /// Makes a call of each pool.
    fn call_all_pools(&mut self, call: impl Fn(&mut Pool<C>)) {
        self.for_each(|topology, id| {
            topology.call_pool(id, &call);
        });
    }

    /// Does something with each server and each pool of an identity, in the order of their slots.
    fn for_each(&mut self, mut act: impl FnMut(&mut Self, ServerId)) {
        for slot in 0..self.servers.slots() {
            if let Some(id) = self.servers.id_at(slot) {
                act(self, id);
            }
        }
    }

    /// Takes over the outputs of a server's pool, and does what follows for the others.
    #[inline(never)]
    fn collect(&mut self, id: ServerId) {
        self.take_outputs(id);
        self.share_budget();
        self.follow_min_pool_sizes();
    }

    /// Takes over the outputs of a server's pool, and lets those go on whom it has failed.
    #[inline(never)]
    fn take_outputs(&mut self, id: ServerId) {
        self.drain_pool(id);
        let Some((server, origins)) = self.servers.with_origins(id) else { return };
        if server.membership == Membership::Unused {
            return;
        }
        if server.pool.counts().waiting == 0 {
            origins.give_back();
        }
        self.serve_reselected();
        self.forget_if_drained(id);
    }

    /// Takes over the outputs of a server's pool, and no more: there is one queue, in one order.
    fn drain_pool(&mut self, id: ServerId) {
        self.note_call(id);
        while let Some(server) = self.servers.get_mut(id).filter(|server| server.membership != Membership::Unused)
            && let Some(output) = server.pool.poll_output()
        {
            self.take_output(id, output);
        }
    }

    /// Forgets a server that has left, and whose last connection is closed.
    fn forget_if_drained(&mut self, id: ServerId) {
        let Some(server) = self.servers.get(id) else { return };
        // Those of a closed client stay, for their figures.
        if !server.has_left() || server.pool.counts().total() > 0 || self.phase == Phase::Closed {
            return;
        }
        self.departed = self.departed.merge(server.pool.stats().without_marks());
        if let (Some(all), Some(own)) = (&mut self.durations, server.pool.durations()) {
            all.add(own);
        }
        self.servers.remove(id);
        self.usage.forget();
        self.forget_pool(id);
        self.call_monitor(id, MonitorCall::Forget);
    }
}

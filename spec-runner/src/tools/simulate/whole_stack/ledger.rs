//! What the events of the pools say, judged as each comes: the laws of pools as a listener can see them.

use std::collections::{BTreeMap, BTreeSet};

use cmap_core::address::ServerAddress;
use cmap_core::pool::ConnectionClosedReason;
use cmap_sim::{Event, PoolEvent};

use super::mark::Mark;
use crate::tools::simulate::oracle::{Broken, law};

/// The pools of a client, by their servers.
#[derive(Debug)]
pub(super) struct Ledger {
    pools: BTreeMap<String, Pool>,
    limits: Limits,
    pub(super) marks: BTreeSet<Mark>,
    /// The orders that a server has acknowledged.
    pub(super) acknowledged: BTreeSet<u64>,
    /// The first law that broke.
    pub(super) broken: Option<Broken>,
}

/// Of each pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) max_pool_size: usize,
    pub(super) max_connecting: usize,
    /// Whether anything goes wrong.
    pub(super) is_calm: bool,
}

#[derive(Debug, Default)]
struct Pool {
    is_ready: bool,
    establishing: BTreeSet<u64>,
    established: BTreeSet<u64>,
    in_use: BTreeSet<u64>,
    stale: BTreeSet<u64>,
    check_outs: BTreeSet<String>,
    /// How many connections there are, and check-outs that wait.
    open: i64,
    waiting: i64,
    /// A pool of this server was closed, and its connections were in use when the server was back: the next pool has the same
    /// numbers, and events do not tell whose they are. Only their sums are judged.
    is_mixed: bool,
}

impl Ledger {
    pub(super) fn new(limits: Limits) -> Self {
        Self { pools: BTreeMap::new(), limits, marks: BTreeSet::new(), acknowledged: BTreeSet::new(), broken: None }
    }

    pub(super) fn note(&mut self, address: &ServerAddress, event: &Event) {
        let limits = self.limits;
        let judged = match event {
            Event::Pool(event) => {
                self.marks.extend(mark(event));
                self.pools.entry(address.to_string()).or_default().note(event, limits)
            }
            Event::Lost(lost) => law("no event is lost", false, || format!("{lost} were")),
            Event::Server(_)
            | Event::Topology(_)
            | Event::Command(_)
            | Event::Selection(_)
            | Event::PossibleLeak(_)
            | _ => Ok(()),
        };
        if let Err(broken) = judged {
            self.broken.get_or_insert(broken);
        }
    }

    /// At the end: the client is closed.
    pub(super) fn nothing_is_left(&self) -> Result<(), Broken> {
        self.pools.iter().try_for_each(|(server, pool)| {
            let left = pool.establishing.len() + pool.established.len() + pool.check_outs.len();
            let is_empty = (pool.open, pool.waiting) == (0, 0) && (left == 0 || pool.is_mixed);
            law("a client that was closed leaves nothing over", is_empty, || format!("{server}: {pool:?}"))
        })
    }
}

impl Pool {
    fn note(&mut self, event: &PoolEvent, limits: Limits) -> Result<(), Broken> {
        let told = || format!("{event:?}");
        self.count(event);
        if matches!(event, PoolEvent::PoolCreated { .. }) {
            let Self { open, waiting, .. } = *self;
            *self = Self { open, waiting, is_mixed: (open, waiting) != (0, 0), ..Self::default() };
        }
        if self.is_mixed {
            return Ok(());
        }
        match event {
            PoolEvent::PoolReady => {
                law("a ready pool is not made ready", !self.is_ready, told)?;
                self.is_ready = true;
            }
            // Behind a load balancer the pool goes on, and events do not tell whose service a connection has.
            PoolEvent::PoolCleared { service_id: Some(_), .. } => {
                law("a healthy server's pool is not cleared", !limits.is_calm, told)?;
            }
            PoolEvent::PoolCleared { service_id: None, .. } => {
                law("a healthy server's pool is not cleared", !limits.is_calm, told)?;
                law("a paused pool is not cleared", self.is_ready, told)?;
                self.is_ready = false;
                self.stale.extend(self.establishing.union(&self.established));
            }
            PoolEvent::ConnectionCreated { connection_id } => {
                let id = connection_id.get();
                law("a paused pool creates no connection", self.is_ready, told)?;
                let is_new = !self.established.contains(&id) && self.establishing.insert(id);
                law("a connection is created once", is_new, told)?;
                let connecting = self.establishing.difference(&self.stale).count();
                law("a pool establishes at most maxConnecting at a time", connecting <= limits.max_connecting, told)?;
                let size = self.establishing.len() + self.established.len();
                law("a pool has at most maxPoolSize connections", size <= limits.max_pool_size, told)?;
            }
            PoolEvent::ConnectionReady { connection_id, .. } => {
                let id = connection_id.get();
                let was_established = self.establishing.remove(&id) && self.established.insert(id);
                law("a connection is established once", was_established, told)?;
            }
            PoolEvent::ConnectionClosed { connection_id, .. } => {
                let id = connection_id.get();
                let was_there = self.establishing.remove(&id) || self.established.remove(&id);
                law("a connection is closed once", was_there, told)?;
                law("a connection in use is not closed", !self.in_use.contains(&id), told)?;
                self.stale.remove(&id);
            }
            PoolEvent::ConnectionCheckOutStarted { check_out } => {
                law("a check-out starts once", self.check_outs.insert(format!("{check_out:?}")), told)?;
            }
            PoolEvent::ConnectionCheckedOut { check_out, connection_id, .. } => {
                let id = connection_id.get();
                law("a check-out ends once", self.check_outs.remove(&format!("{check_out:?}")), told)?;
                let is_free = self.established.contains(&id) && self.in_use.insert(id);
                law("a connection is delivered to one caller at a time", is_free, told)?;
                law("a stale connection is never delivered", !self.stale.contains(&id), told)?;
            }
            PoolEvent::ConnectionCheckOutFailed { check_out, .. } => {
                law("a check-out ends once", self.check_outs.remove(&format!("{check_out:?}")), told)?;
            }
            PoolEvent::ConnectionCheckedIn { connection_id } => {
                law("only what is in use is checked in", self.in_use.remove(&connection_id.get()), told)?;
            }
            PoolEvent::PoolClosed => self.is_ready = false,
            PoolEvent::PoolCreated { .. } | _ => {}
        }
        Ok(())
    }

    fn count(&mut self, event: &PoolEvent) {
        match event {
            PoolEvent::ConnectionCreated { .. } => self.open += 1,
            PoolEvent::ConnectionClosed { .. } => self.open -= 1,
            PoolEvent::ConnectionCheckOutStarted { .. } => self.waiting += 1,
            PoolEvent::ConnectionCheckedOut { .. } | PoolEvent::ConnectionCheckOutFailed { .. } => self.waiting -= 1,
            PoolEvent::PoolCreated { .. }
            | PoolEvent::PoolReady
            | PoolEvent::PoolCleared { .. }
            | PoolEvent::PoolClosed
            | PoolEvent::ConnectionReady { .. }
            | PoolEvent::ConnectionCheckedIn { .. }
            | _ => {}
        }
    }
}

/// What an event shows to have been met.
fn mark(event: &PoolEvent) -> Option<Mark> {
    if let PoolEvent::ConnectionClosed { reason, .. } = event {
        return match reason {
            ConnectionClosedReason::Stale => Some(Mark::ClosedStale),
            ConnectionClosedReason::Idle => Some(Mark::ClosedIdle),
            ConnectionClosedReason::Error | ConnectionClosedReason::PoolClosed | ConnectionClosedReason::Surplus => {
                None
            }
        };
    }
    let is_failure = matches!(event, PoolEvent::ConnectionCheckOutFailed { .. });
    let is_clear = matches!(event, PoolEvent::PoolCleared { .. });
    is_failure.then_some(Mark::CheckOutFailed).or(is_clear.then_some(Mark::Cleared))
}

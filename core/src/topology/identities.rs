//! Identities: several users share the limits of one client.
//!
//! A connection has one credential, so each identity has a pool of its own at each server that it uses, next to the
//! server's pool, which belongs to the credential of the options. All pools of a server together keep to maxPoolSize and
//! maxConnecting: like those of a budget they create nothing of their own accord, and what is free goes to the
//! waiter that has waited longest, whichever identity it is of. Where nothing is free, the least recently used available connection
//! of another identity is closed for it.
//!
//! They protect the server together, too: a backoff, the limit of new connections per second and maxWaitQueueDepth hold for all of them.
//!
//! A pool of an identity is made by its first check-out, and does what its server's pool does: it is ready, cleared and
//! closed with it. It keeps up no minPoolSize. That a server refuses the credential of one user, an identity's or that of the
//! options, says nothing about the server while there are several users, and clears nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{MonitorCall, SelectionErrorKind, Topology};
use crate::monitor::{Call, ServerType};
use crate::options::PoolOptions;
use crate::pool::{Admission, ApiMisuse, CheckOutRequest, Clear, Counts, Handle, IdentityId, Pool, PoolState};
use crate::server::{IdentityOfServer, Membership, Server, ServerId};
use crate::time::Instant;

/// The identities of a client, and the pools of each with their servers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Identities {
    pub(super) known: BTreeSet<IdentityId>,
    /// Those of identities that were removed stay until they are drained.
    pools: BTreeMap<IdentityId, Vec<(ServerId, ServerId)>>,
    last: u32,
    /// Whether there ever was one: then the limits of each server's pool are shared.
    are_shared: bool,
}

/// The limits of a server, and what its pools have of them together.
#[derive(Clone, Copy, Default)]
pub(super) struct SharedLimits {
    max_pool_size: u32,
    max_connecting: u32,
    used: Counts,
}

impl SharedLimits {
    /// Connections that the pools may have besides those that they have, when so many are `closed`.
    pub(super) fn left(self, closed: u32) -> u32 {
        let room = self.max_pool_size.saturating_add(closed).saturating_sub(self.used.total());
        room.min(self.max_connecting.saturating_sub(self.used.pending))
    }
}

impl Identities {
    /// The pools of identities at a server.
    pub(super) fn pools_at(&self, server: ServerId) -> impl Iterator<Item = ServerId> {
        self.pools.values().flatten().filter(move |(of, _)| *of == server).map(|&(_, pool)| pool)
    }
}

impl<C> Topology<C> {
    /// Adds an identity. Its check-outs say so by [`CheckOutRequest::identity`](crate::pool::CheckOutRequest::identity);
    /// the driver establishes their connections with its credential: [`identity_of`](Self::identity_of) says whose a
    /// connection is.
    pub fn add_identity(&mut self, now: Instant) -> IdentityId {
        self.advance(now);
        self.identities.last = self.identities.last.wrapping_add(1);
        let id = IdentityId(self.identities.last);
        self.identities.known.insert(id);
        self.identities.are_shared = true;
        self.usage.forget();
        self.share_budget();
        id
    }

    /// Removes an identity: closes its pools. Its check-outs that wait fail, its connections in use are closed when they come
    /// back. One that nobody knows is ignored.
    pub fn remove_identity(&mut self, now: Instant, identity: IdentityId) {
        self.advance(now);
        self.identities.known.remove(&identity);
        for pool in self.pools_of_identity(identity) {
            self.close_pool(pool);
        }
        for selection in self.selections.of_identity(identity) {
            self.fail_selection(selection, SelectionErrorKind::UnknownIdentity(identity));
        }
    }

    /// The identity whose credential a connection has; `None` is the credential of the options.
    pub fn identity_of(&self, connection: Handle) -> Option<IdentityId> {
        Some(self.servers.peek(connection.slot())?.of_identity?.identity)
    }

    /// The identity that a pool belongs to; `None` is the credential of the options.
    pub fn identity_of_pool(&self, pool: ServerId) -> Option<IdentityId> {
        Some(self.servers.get(pool)?.of_identity?.identity)
    }

    /// Connections of an identity, or without one those of the options' credential, are established with another credential from
    /// now on: those that exist retire, those of each server by themselves. A server that is unknown may have refused the
    /// options' old credential, so it is checked as soon as possible.
    pub fn renew_credential(&mut self, now: Instant, identity: Option<IdentityId>) {
        self.advance(now);
        let pools: Vec<ServerId> = match identity {
            None => self.servers.members().map(|(id, _)| id).collect(),
            Some(identity) => self.pools_of_identity(identity),
        };
        // All of them first: a connection that retires may let another pool create one, which has the new credential.
        for &pool in &pools {
            self.servers.pool_mut(pool).into_iter().for_each(Pool::outdate_connections);
        }
        for pool in pools {
            self.call_pool(pool, |pool| pool.retire_outdated(now));
            let is_unusable = |server: &Server<C>| {
                server.description.server_type == ServerType::Unknown && server.pool.state() == PoolState::Paused
            };
            if identity.is_none() && self.servers.get(pool).is_some_and(is_unusable) {
                self.call_monitor(pool, MonitorCall::Call(Call::RequestCheck));
            }
        }
    }

    /// The pools of an identity at all servers.
    fn pools_of_identity(&self, identity: IdentityId) -> Vec<ServerId> {
        self.identities.pools.get(&identity).into_iter().flatten().map(|&(_, pool)| pool).collect()
    }

    /// The identity that a check-out asks for and nobody knows.
    pub(super) fn unknown_identity(&self, request: &CheckOutRequest) -> Option<IdentityId> {
        request.identity.filter(|identity| !self.identities.known.contains(identity))
    }

    /// Whether the pools of a server share its limits.
    pub(super) fn shares_limits(&self) -> bool {
        self.identities.are_shared
    }

    /// The pool of an identity at a server; that of the server itself for the credential of the options.
    pub(super) fn pool_for(&mut self, server: ServerId, identity: Option<IdentityId>) -> ServerId {
        match (self.known_pool(server, identity), identity) {
            (None, Some(identity)) => self.add_pool(server, identity).unwrap_or(server),
            (known, _) => known.unwrap_or(server),
        }
    }

    /// The pool of an identity at a server, if there is one; that of the server itself for the credential of the options.
    pub(super) fn known_pool(&self, server: ServerId, identity: Option<IdentityId>) -> Option<ServerId> {
        let Some(identity) = identity else { return Some(server) };
        let known = self.identities.pools.get(&identity)?.iter().find(|(of, _)| *of == server);
        known.map(|&(_, pool)| pool)
    }

    /// The server that a pool belongs to: itself, unless it is an identity's.
    pub fn member_of(&self, pool: ServerId) -> ServerId {
        self.servers.get(pool).map_or(pool, |server| server.member(pool))
    }

    /// The pools at a server: its own, and those of identities.
    pub(super) fn pools_of(&self, server: ServerId) -> Vec<ServerId> {
        core::iter::once(server).chain(self.identities.pools_at(server)).collect()
    }

    /// Clears the pools at a server. Behind a load balancer each pool has services of its own, and only this one is meant.
    pub(super) fn clear_pools(&mut self, pool: ServerId, clear: &Clear) -> Result<(), ApiMisuse> {
        if self.options.load_balanced {
            return self.clear_pool(pool, clear);
        }
        self.pools_of(self.member_of(pool)).into_iter().try_for_each(|id| self.clear_pool(id, clear))
    }

    /// Does with the other pools of a server what a failure has done with one of them.
    pub(super) fn clear_siblings(&mut self, pool: ServerId, clear: &Clear) {
        let siblings = if self.options.load_balanced { Vec::new() } else { self.siblings_of(pool) };
        for sibling in siblings {
            let _ = self.clear_pool(sibling, clear);
        }
    }

    /// Clears a pool. What an identity that was removed has left there is older than that, and its errors are old news (SDAM-4).
    fn clear_pool(&mut self, id: ServerId, clear: &Clear) -> Result<(), ApiMisuse> {
        let now = self.now;
        if let Some(server) = self.servers.get_mut(id)
            && server.of_identity.is_some()
            && !self.options.load_balanced
        {
            server.pool.outdate_if_closed();
        }
        self.call_pool(id, |pool| pool.clear(now, clear.clone())).unwrap_or(Ok(()))
    }

    /// The pools at the server of this one, without it.
    fn siblings_of(&self, pool: ServerId) -> Vec<ServerId> {
        let mut pools = self.pools_of(self.member_of(pool));
        pools.retain(|&id| id != pool);
        pools
    }

    /// Whether the pools of a server have more connections together than maxPoolSize, which has become smaller.
    pub(super) fn has_too_many(&self, pool: ServerId) -> bool {
        self.shared_limits(pool).is_some_and(|limits| limits.used.total() > limits.max_pool_size)
    }

    /// Forgets the pools of a server that is forgotten.
    pub(super) fn forget_pool(&mut self, pool: ServerId) {
        self.identities.pools.retain(|_, pools| {
            pools.retain(|&(server, own)| server != pool && own != pool);
            !pools.is_empty()
        });
    }

    /// Whether one connection less at the server `member` would leave room for one of `needy`: none would, if too many are being
    /// established, or if there are more than maxPoolSize allows.
    pub(super) fn may_give(&self, member: ServerId, needy: ServerId) -> bool {
        match self.shared_limits(needy) {
            Some(limits) if limits.left(1) == 0 => false,
            Some(limits) if limits.left(0) == 0 => member == self.member_of(needy),
            _ => true,
        }
    }

    /// The pools of a server back off together, and have its limit of new connections together.
    pub(super) fn share_admission(&mut self, from: ServerId, admission: &Admission) {
        for sibling in self.siblings_of(from) {
            if let Some(pool) = self.servers.pool_mut(sibling) {
                pool.follow_admission(admission.clone());
            }
        }
    }

    /// Tells a pool how many wait in the others of its server, before a check-out that may join its queue.
    pub(super) fn note_waiting_elsewhere(&mut self, pool: ServerId) {
        if self.shares_limits() {
            self.count_usage();
            let of_server = self.usage.of_server(self.member_of(pool)).waiting;
            if let Some(pool) = self.servers.pool_mut(pool) {
                pool.note_waiting_elsewhere(of_server.saturating_sub(pool.counts().waiting));
            }
        }
    }

    /// What the pools of a server share, if they share limits: nothing, where the server is forgotten.
    pub(super) fn shared_limits(&self, pool: ServerId) -> Option<SharedLimits> {
        if !self.shares_limits() {
            return None;
        }
        let member = self.member_of(pool);
        let Some(server) = self.servers.get(member) else { return Some(SharedLimits::default()) };
        let (max_pool_size, max_connecting) = server.pool.room();
        Some(SharedLimits { max_pool_size, max_connecting, used: self.usage.of_server(member) })
    }

    fn add_pool(&mut self, server: ServerId, identity: IdentityId) -> Option<ServerId> {
        let owner = self.servers.pool(server)?;
        let (address, state, admission) = (Arc::clone(owner.shared_address()), owner.state(), owner.admission());
        let options = PoolOptions { min_pool_size: None, ..owner.options().clone() };
        let id = self.add_server(address, options, Membership::Used)?;
        let added = self.servers.get_mut(id)?;
        added.of_identity = Some(IdentityOfServer { server, identity });
        added.pool.follow_admission(admission);
        if state == PoolState::Ready {
            added.pool.ready(self.now);
        }
        self.identities.pools.entry(identity).or_default().push((server, id));
        Some(id)
    }
}

//! The laws of identities and their credentials.

use cmap_core::options::PoolOptions;
use cmap_core::pool::{Handle, IdentityId};
use cmap_core::server::ServerId;
use cmap_core::topology::CheckOut;

use super::super::ledger::{Connection, Outdated, State, Waiter};
use super::super::mark::{Mark, Marks};
use super::{Broken, Limits, Oracle, law};

/// What the oracle knows of identities.
#[derive(Debug)]
pub(super) struct Identities {
    /// Whether there ever was one: then the pools of a server share its limits.
    share_limits: bool,
    removed: Vec<IdentityId>,
    /// Whether the options' own pools keep outdated connections until their successors are there.
    keep_outdated: bool,
    /// How many there are.
    known: usize,
    /// A refusal is being told that speaks against no server.
    is_spared: bool,
}

impl Identities {
    pub(super) fn new(options: &PoolOptions) -> Self {
        let keep_outdated = options.min_pool_size.is_some_and(|least| least > 0);
        Self { share_limits: false, removed: Vec::new(), keep_outdated, known: 0, is_spared: false }
    }

    pub(super) fn share_limits(&self) -> bool {
        self.share_limits
    }

    pub(super) fn is_removed(&self, identity: IdentityId) -> bool {
        self.removed.contains(&identity)
    }

    pub(super) fn is_spared(&self) -> bool {
        self.is_spared
    }

    /// Judges whose connection a check-out gets, and with which credential.
    pub(super) fn judge_delivery(
        &self,
        waiter: Waiter,
        connection: &mut Connection,
        marks: &mut Marks,
    ) -> Result<(), Broken> {
        let is_own = waiter.identity == connection.identity;
        law("a connection belongs to the identity that asked", is_own, || format!("{waiter:?} got {connection:?}"))?;
        if let Some(identity) = waiter.identity {
            marks.meet(Mark::IdentityServed);
            let is_known = !self.removed.contains(&identity);
            law("an identity that was removed gets no connection", is_known, || format!("{waiter:?}"))?;
        }
        let Some(outdated) = connection.outdated.replace(Outdated::Borrowed) else {
            connection.outdated = None;
            return Ok(());
        };
        marks.meet(Mark::OutdatedServed);
        let is_kept = self.keep_outdated && connection.identity.is_none();
        let is_lawful = is_kept || outdated == Outdated::Unlent;
        law("a connection whose credential was replaced retires when it comes back", is_lawful, || {
            format!("{connection:?}")
        })
    }
}

impl Oracle {
    // What the driver does.

    pub(in super::super) fn identity_added(&mut self) {
        if !std::mem::replace(&mut self.identities.share_limits, true) {
            self.pools.begin_to_share();
        }
        self.identities.known += 1;
        self.pools.touch_all();
    }

    pub(in super::super) fn identity_removed(&mut self, identity: IdentityId) {
        if self.waiting.of(identity).next().is_some() {
            self.marks.meet(Mark::IdentityRemoved);
        }
        if !self.identities.is_removed(identity) {
            self.identities.removed.push(identity);
            self.identities.known = self.identities.known.saturating_sub(1);
        }
    }

    /// The driver logs in on a new connection.
    pub(in super::super) fn logs_in(&mut self, connection: Handle, identity: Option<IdentityId>) {
        if let Some(known) = self.connections.find(connection) {
            known.identity = identity;
        }
    }

    pub(in super::super) fn credential_renewed(&mut self, identity: Option<IdentityId>) {
        self.marks.meet(Mark::CredentialRenewed);
        self.connections.make_outdated(identity, &self.pools);
    }

    /// The server is about to refuse the login on a connection.
    pub(in super::super) fn refused(&mut self, connection: Handle) {
        let Some(known) = self.connections.find(connection) else { return };
        let (is_outdated, is_of_identity) = (known.outdated.is_some(), known.identity.is_some());
        if is_outdated {
            self.marks.meet(Mark::OutdatedRefused);
        }
        if is_of_identity {
            self.marks.meet(Mark::IdentityRefused);
        }
        // Of one user among several, it says nothing about the server.
        self.identities.is_spared = is_outdated || is_of_identity || self.identities.known > 0;
    }

    pub(in super::super) fn refusal_ended(&mut self) {
        self.identities.is_spared = false;
    }

    /// A pool at a server is an identity's.
    pub(in super::super) fn pool_belongs_to(&mut self, pool: ServerId, server: ServerId) {
        let place = self.pools.place(pool);
        if let Some(pool) = self.pools.at(place) {
            pool.of_server = Some(server);
        }
    }

    /// Whether the credential of a connection has been replaced.
    pub(in super::super) fn is_outdated(&mut self, connection: Handle) -> bool {
        self.connections.find(connection).is_some_and(|known| known.outdated.is_some())
    }

    /// Whether a connection is an identity's.
    pub(in super::super) fn is_of_identity(&mut self, connection: Handle) -> bool {
        self.connections.find(connection).is_some_and(|known| known.identity.is_some())
    }

    // The laws.

    /// Judges what a removal leaves behind.
    pub(in super::super) fn after_removal(&self, identity: IdentityId) -> Result<(), Broken> {
        let left = self.waiting.of(identity).find(|waiter| matches!(waiter.check_out, CheckOut::Started(_)));
        law("nobody waits in the pool of an identity that was removed", left.is_none(), || format!("{left:?}"))
    }

    /// Judges the machine's number of connections whose credential was replaced.
    pub(in super::super) fn compare_outdated(&self, told: u32) -> Result<(), Broken> {
        let seen = self.connections.there().filter(|known| known.outdated.is_some()).count();
        let is_right = u32::try_from(seen) == Ok(told);
        law("the client's number of outdated connections is what was seen", is_right, || {
            format!("saw {seen}, was told {told}")
        })
    }

    /// Judges the pools of a server together, for each at whose pools something has changed: they share its limits.
    pub(super) fn settle_servers(&mut self, touched: &[usize]) -> Result<(), Broken> {
        let Limits { max_pool_size: max, max_connecting, .. } = self.limits;
        for &place in touched {
            let Some(server) = self.pools.server_of(place) else { continue };
            let (mut total, mut pending, mut available) = (0, 0, 0);
            for (_, pool) in self.pools.at_server(server) {
                total += pool.total();
                pending += pool.number(State::Pending);
                available += pool.number(State::Available);
            }
            let place = self.pools.place(server);
            let Some(own) = self.pools.judged(place) else { continue };
            let (had, had_pending) = std::mem::replace(&mut own.before_together, (total, pending));
            let is_within = max == 0 || total <= max.max(had);
            law("the pools of a server have at most maxPoolSize connections together", is_within, || {
                format!("{total} of {max}")
            })?;
            let is_within = pending <= max_connecting.max(had_pending);
            law("the pools of a server establish at most maxConnecting at a time together", is_within, || {
                format!("{pending}")
            })?;
            let is_within = max == 0 || total <= max || available == 0;
            law("a server with too many connections keeps none available", is_within, || format!("{total} of {max}"))?;
            let may_create = (max == 0 || total < max) && pending < max_connecting;
            if may_create && self.plainness.is_prompt {
                let left_out = self.pools.at_server(server).find(|(_, pool)| {
                    let on_their_way = pool.number(State::Pending) + pool.number(State::Checking);
                    pool.is_ready && pool.queue.len() > on_their_way as usize
                });
                law("no identity waits while a connection could be created", left_out.is_none(), || {
                    format!("{left_out:?}")
                })?;
            }
        }
        Ok(())
    }
}

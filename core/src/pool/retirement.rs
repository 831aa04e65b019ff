//! Retirement: connections whose life is over are closed, never many at once.
//!
//! A life begins when a connection is established. It ends by age, by the number of uses, or because somebody asked for
//! it. Nothing is cut off: a connection in use is retired when it comes back, one that is available at once, and in
//! both cases only if minPoolSize connections are left. Otherwise it goes on serving until its replacement is
//! established: maintenance populates the pool beyond minPoolSize by one. Where maxPoolSize, or a limit that pools share,
//! leaves no room for that, one goes before its replacement comes.
//!
//! The ends of lives that are ahead, and those of available connections that wait for their replacement, are kept in
//! order. A connection whose end passes while it is in use leaves that order, and joins it again when it comes back.
//!
//! A **new credential** ends lives, too, without a clear. Connections keep the credential with which they were established. When that is
//! replaced, those that exist are outdated: by their ids, because later ones have later ids. They retire as above. One that is being
//! established serves the next waiter, and retires at its check-in. Where the server refuses it because of the old credential, that speaks
//! neither against the server nor against the caller: another connection takes its place.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::connections::{Slot, Stage};
use super::list::{Key, reach};
use super::settle::Due;
use super::timer::{Timeout, TimeoutReason};
use super::{ConnectionClosedReason, ConnectionId, Pool, PoolState};
use crate::options::Limits;
use crate::time::{Instant, nanos};

/// The lives of a pool's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retirement {
    /// By slot; of a vacant one it means nothing.
    lives: Vec<Life>,
    ends: BTreeSet<End>,
    /// Lives that end at some time.
    finite: u32,
}

/// The life of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Life {
    ends_at: Instant,
    uses: u32,
}

/// The end of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct End {
    at: Instant,
    key: Key,
}

impl Retirement {
    /// What a pool with these limits needs from the start.
    pub(super) fn of(limits: &Limits) -> Option<Box<Self>> {
        Self::is_needed(limits).then(Box::default)
    }

    fn is_needed(limits: &Limits) -> bool {
        limits.max_lifetime != u64::MAX || limits.max_uses != u32::MAX
    }

    fn life(&self, key: Key) -> Life {
        self.lives.get(key as usize).copied().unwrap_or(Life::ENDLESS)
    }

    /// Sets the life of a connection, and its place among the ends.
    fn set(&mut self, key: Key, life: Life) {
        self.take_end(key);
        let before = core::mem::replace(reach(&mut self.lives, key, Life::ENDLESS), life);
        self.finite -= u32::from(before.is_finite());
        self.finite += u32::from(life.is_finite());
        self.note_end(key);
    }

    fn note_end(&mut self, key: Key) {
        let at = self.life(key).ends_at;
        if at != Instant::END {
            self.ends.insert(End { at, key });
        }
    }

    fn take_end(&mut self, key: Key) {
        let at = self.life(key).ends_at;
        self.ends.remove(&End { at, key });
    }
}

impl Life {
    const ENDLESS: Self = Self { ends_at: Instant::END, uses: 0 };

    fn is_finite(self) -> bool {
        self.ends_at != Instant::END
    }
}

impl<C> Pool<C> {
    /// Ends the lives of all established connections, evenly over a time: the last one's when it has passed, all at
    /// once where it is zero. Each is closed as connections at the end of their lives are: not while it is in use, and
    /// minPoolSize connections stay.
    pub fn replace_connections(&mut self, now: Instant, over: Duration) {
        self.advance(now);
        if self.state == PoolState::Closed {
            return;
        }
        let slots = (0..).zip(&self.connections.slots);
        let keys: Vec<Key> = slots.filter(|(_, slot)| slot.stage.is_established()).map(|(key, _)| key).collect();
        let step = nanos(over) / (keys.len() as u64).max(1);
        let retirement = self.retirement.get_or_insert_default();
        let mut at = self.now;
        for key in keys {
            at = at.after(step);
            let Life { ends_at, uses } = retirement.life(key);
            retirement.set(key, Life { ends_at: ends_at.min(at), uses });
        }
        self.renew_attention();
        self.settle(Due::Spare);
    }

    /// A connection was established: its life begins. With a credential that has been replaced since, it has ended as well
    ///
    pub(super) fn begin_life(&mut self, key: Key) {
        let is_outdated = self.is_outdated(key);
        if self.retirement.is_none() && !is_outdated {
            return;
        }
        let lifetime = self.limits.max_lifetime;
        let longest = match lifetime {
            u64::MAX => Instant::END,
            _ => self.now.after(lifetime - self.random.up_to(lifetime / 4)),
        };
        let ends_at = if is_outdated { self.now } else { longest };
        self.retirement.get_or_insert_default().set(key, Life { ends_at, uses: 0 });
        self.renew_attention();
    }

    /// A connection comes back from a use: whether it is retired now. Its stage is still that of one in use.
    #[cold]
    pub(super) fn ends_life_at_check_in(&mut self, key: Key) -> bool {
        let Some(retirement) = &mut self.retirement else { return false };
        let mut life = retirement.life(key);
        life.uses = life.uses.saturating_add(1);
        if life.uses >= self.limits.max_uses {
            life.ends_at = life.ends_at.min(self.now);
        }
        retirement.set(key, life);
        life.ends_at <= self.now && self.may_retire()
    }

    /// A connection that was checked is available again.
    pub(super) fn note_return_from_check(&mut self, key: Key) {
        if let Some(retirement) = &mut self.retirement {
            retirement.note_end(key);
        }
    }

    /// A connection leaves the pool. With the last life that ends, a pool whose options end none takes the fast path again.
    pub(super) fn end_life(&mut self, key: Key) {
        let Some(retirement) = &mut self.retirement else { return };
        retirement.set(key, Life::ENDLESS);
        if retirement.finite == 0 && !Retirement::is_needed(&self.limits) {
            self.retirement = None;
        }
    }

    /// Retires the available connections whose lives are over, as far as minPoolSize allows. Returns whether there were any.
    pub(super) fn retire(&mut self) -> bool {
        if self.retirement.is_none() || self.state != PoolState::Ready {
            return false;
        }
        let (mut from, before) = (End { at: Instant::ORIGIN, key: 0 }, self.connections.total());
        while let Some(End { at, key }) = self.next_end(from).filter(|end| end.at <= self.now) {
            if !self.connections.is_available(key) {
                // It is retired when it comes back.
                self.retirement.iter_mut().for_each(|retirement| retirement.take_end(key));
            } else if self.may_retire() {
                let reason = self.perished(key).unwrap_or(ConnectionClosedReason::Idle);
                self.close_connection(key, reason);
                self.keep_permit();
            } else {
                from = End { at, key: key.saturating_add(1) };
            }
        }
        self.connections.total() < before
    }

    /// When the next life ends.
    pub(super) fn retirement_timeout(&self) -> Option<Timeout> {
        let retirement = self.retirement.as_ref().filter(|_| self.state == PoolState::Ready)?;
        let is_due = |end: &&End| end.at > self.now || (self.connections.is_available(end.key) && self.may_retire());
        let next = retirement.ends.iter().find(is_due)?;
        Some(Timeout { at: next.at.max(self.now), reason: TimeoutReason::Retire })
    }

    /// Whether an available connection waits for its replacement.
    pub(super) fn wants_replacement(&self) -> bool {
        self.retirement.as_ref().is_some_and(|retirement| {
            let mut over = retirement.ends.iter().take_while(|end| end.at <= self.now);
            over.any(|end| self.connections.is_available(end.key))
        })
    }

    /// Whether lives and their ends agree.
    pub(super) fn check_retirement(&self) -> bool {
        let is_right = |retirement: &Retirement| {
            let is_known = |end: &End| {
                let slot = self.connections.slots.get(end.key as usize);
                slot.is_some_and(|slot| slot.stage.is_established()) && retirement.life(end.key).ends_at == end.at
            };
            let available = (0..).zip(&self.connections.slots).filter(|(_, slot)| slot.is_available());
            let mut ends = available.map(|(key, _)| End { at: retirement.life(key).ends_at, key });
            let finite = retirement.lives.iter().filter(|life| life.is_finite()).count();
            finite == retirement.finite as usize
                && retirement.ends.iter().all(is_known)
                && ends.all(|end| end.at == Instant::END || retirement.ends.contains(&end))
        };
        self.retirement.as_deref().is_none_or(is_right)
    }

    /// Whether one more connection may be closed: minPoolSize connections are left, or there is no room for a
    /// replacement before.
    fn may_retire(&self) -> bool {
        let (pending, total) = (self.connections.pending, self.connections.total());
        let least = if self.limits.maintenance.is_some() { self.min_pool_size() } else { 0 };
        let is_full = total >= self.limits.max_pool_size || self.is_budget_full();
        total - pending > least || (pending == 0 && is_full)
    }

    fn next_end(&self, from: End) -> Option<End> {
        self.retirement.as_ref()?.ends.range(from..).next().copied()
    }

    /// The driver establishes connections with another credential from now on: all that exist retire. Tell the
    /// pool after the driver has changed. A population that has failed goes on, because the old one may be why.
    pub fn renew_credential(&mut self, now: Instant) {
        self.advance(now);
        self.outdate_connections();
        self.retire_outdated(now);
    }

    /// The connections that exist have an old credential.
    pub(crate) fn outdate_connections(&mut self) {
        if self.state != PoolState::Closed {
            self.outdated_until = ConnectionId(self.connections.last_id);
        }
    }

    /// Retires the connections that have an old credential, and goes on with a population that may have failed because of it.
    pub(crate) fn retire_outdated(&mut self, now: Instant) {
        if self.state != PoolState::Closed {
            self.replace_connections(now, Duration::ZERO);
            if core::mem::take(&mut self.population_failed) {
                self.settle(Due::Permit);
            }
        }
    }

    /// Connections whose credential has been replaced since, those that are being established included. At zero the old
    /// credential may be revoked.
    pub fn outdated(&self) -> u32 {
        let is_outdated = |slot: &&Slot<C>| slot.id <= self.outdated_until && !matches!(slot.stage, Stage::Closed);
        let outdated = self.connections.slots.iter().filter(is_outdated).count();
        u32::try_from(outdated).unwrap_or(u32::MAX)
    }

    pub(super) fn is_outdated(&self, key: Key) -> bool {
        self.connections.slot(key).id <= self.outdated_until
    }
}

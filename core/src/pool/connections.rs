//! The connections of a pool: their slots, their states, and the lists they are in.
//!
//! A connection lives in a slot from its creation to its closing. An established connection keeps its socket there;
//! delivery moves the socket out, check-in moves it back. Vacant slots are chained through their links and reused, so a
//! warm pool allocates nothing. The list of available connections is in the order of their return: the back is the
//! most recently used and is taken first; the front is the least recently used and is the first to reach maxIdleTimeMS. A stale connection
//! is never made available, so stale connections can only be a prefix of that list (except in load-balanced pools, where every service has
//! its own list of available connections next to it).

mod consistency;

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::generation::{Generation, Generations};
use super::handle::{ConnectionId, Handle};
use super::list::{AVAILABLE, Key, Linked, Links, List, NIL, OF_SERVICE};
use super::state::ConnectionState;
use crate::options::Limits;
use crate::service_id::ServiceId;
use crate::time::Instant;

/// All connections of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Connections<C> {
    pub(crate) slots: Vec<Slot<C>>,
    vacant: Key,
    /// The number of connections ever created.
    pub(super) last_id: u64,
    pub(crate) pending: u32,
    pub(crate) checking: u32,
    pub(crate) refreshing: u32,
    pub(crate) in_use: u32,
    /// Connections in use that were interrupted.
    interrupted: u32,
    /// Connections in use that cursors and transactions keep (LB-16).
    pub(super) kept_by_cursors: u32,
    pub(super) kept_by_transactions: u32,
    /// From the least recently used to the most recently used.
    pub(crate) available: List<AVAILABLE>,
}

/// One connection, or a vacant slot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slot<C> {
    pub(crate) id: ConnectionId,
    pub(crate) generation: Generation,
    pub(crate) service: Option<ServiceId>,
    pub(crate) stage: Stage<C>,
    links: Links,
    service_links: Links,
}

/// The state of a connection, with the data of that state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Stage<C> {
    /// No connection: closed, or not created yet.
    Closed,
    Pending {
        created_at: Instant,
        /// The check-out that caused it, while that check-out waits.
        origin: Option<Key>,
    },
    Available {
        since: Instant,
        socket: C,
    },
    Checking {
        socket: C,
    },
    /// The driver has the socket, to ask the server for a sign of life.
    Refreshing {
        /// Since when the connection has been idle: a refresh is no use.
        since: Instant,
    },
    InUse {
        check_out: Key,
        /// Its peer hung up, or its operation was interrupted: it is closed at check-in.
        perished: Option<Perished>,
        purpose: Purpose,
    },
}

/// What a connection in use is for (LB-16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// One operation, which gives it back.
    Other,
    /// A cursor, which keeps it until it is exhausted or closed (LB-13).
    Cursor,
    /// A transaction, which keeps it until it ends (LB-15).
    Transaction,
}

/// Connections in use by their purpose (LB-16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InUseBy {
    /// Kept by cursors.
    pub cursors: u32,
    /// Kept by transactions.
    pub transactions: u32,
    /// In use by other operations.
    pub others: u32,
}

/// Why a connection in use must not be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Perished {
    Interrupted,
    PeerClosed,
}

impl<C> Connections<C> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            vacant: NIL,
            last_id: 0,
            pending: 0,
            checking: 0,
            refreshing: 0,
            in_use: 0,
            interrupted: 0,
            kept_by_cursors: 0,
            kept_by_transactions: 0,
            available: List::EMPTY,
        }
    }

    pub(crate) fn total(&self) -> u32 {
        self.pending + self.checking + self.refreshing + self.in_use + self.available.len()
    }

    pub(crate) fn slot(&self, key: Key) -> &Slot<C> {
        &self.slots[key as usize]
    }

    pub(crate) fn slot_mut(&mut self, key: Key) -> &mut Slot<C> {
        &mut self.slots[key as usize]
    }

    /// Whether a slot has a connection that is available.
    #[inline(always)]
    pub(crate) fn is_available(&self, key: Key) -> bool {
        self.slots.get(key as usize).is_some_and(Slot::is_available)
    }

    /// The slot of a connection that has not been closed.
    #[inline]
    pub(crate) fn find(&self, handle: Handle) -> Option<Key> {
        let slot = self.slots.get(handle.key as usize)?;
        (slot.id == handle.id && !slot.is_vacant()).then_some(handle.key)
    }

    /// The slot of the connection with this id, unless it was closed.
    pub(crate) fn search(&self, id: ConnectionId) -> Option<Key> {
        let is_it = |slot: &Slot<C>| slot.id == id && !slot.is_vacant();
        (0..).zip(&self.slots).find_map(|(key, slot)| is_it(slot).then_some(key))
    }

    /// Creates a pending connection.
    pub(crate) fn create(&mut self, generation: Generation, created_at: Instant, origin: Option<Key>) -> Key {
        self.last_id = self.last_id.wrapping_add(1);
        let slot = Slot {
            id: ConnectionId(self.last_id),
            generation,
            service: None,
            stage: Stage::Pending { created_at, origin },
            links: Links::UNLINKED,
            service_links: Links::UNLINKED,
        };
        let key = self.vacant;
        let key = if key == NIL {
            self.slots.push(slot);
            #[expect(clippy::cast_possible_truncation, reason = "maxPoolSize has 32 bits")]
            let last = (self.slots.len() - 1) as Key;
            last
        } else {
            self.vacant = self.slot(key).links.next;
            *self.slot_mut(key) = slot;
            key
        };
        self.pending += 1;
        key
    }

    /// A pending connection learns its service, and takes that service's generation (LB-7).
    pub(crate) fn join_service(&mut self, generations: &mut Generations, key: Key, id: ServiceId) {
        let generation = generations.join(id);
        let slot = self.slot_mut(key);
        slot.service = Some(id);
        slot.generation = generation;
        self.link(generations, key);
    }

    /// An available connection, or the most recently used, is in use from now on; its socket moves out.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        generations: &mut Generations,
        check_out: Key,
        chosen: Option<Key>,
    ) -> Option<(Key, ConnectionId, C)> {
        let slots = self.slots.as_mut_slice();
        let key = chosen.or(self.available.back())?;
        let slot = &mut slots[key as usize];
        // Test the stage before the links change, so that it need not be loaded again.
        if !slot.is_available() {
            return None;
        }
        let in_use = Stage::InUse { check_out, perished: None, purpose: Purpose::Other };
        let Stage::Available { socket, .. } = core::mem::replace(&mut slot.stage, in_use) else { return None };
        let (id, is_of_service) = (slot.id, slot.service.is_some());
        match chosen {
            None => self.available.remove_back(slots, key),
            Some(_) => self.available.remove_inline(slots, key),
        }
        self.in_use += 1;
        if is_of_service {
            self.change_service_list(generations, key);
        }
        Some((key, id, socket))
    }

    /// A connection in use becomes the most recently used available one. Its socket comes with it.
    #[inline(always)]
    pub(crate) fn put_most_recent(&mut self, generations: &mut Generations, key: Key, since: Instant, socket: C) {
        let slots = self.slots.as_mut_slice();
        let slot = &mut slots[key as usize];
        debug_assert!(slot.stage.state().may_become(ConnectionState::Available));
        let before = core::mem::replace(&mut slot.stage, Stage::Available { since, socket });
        if let Stage::InUse { .. } = before {
            // A stage in use holds no socket: `forget` spares the code that would drop one.
            core::mem::forget(before);
        }
        let is_of_service = slot.service.is_some();
        self.available.push_back(slots, key);
        self.in_use -= 1;
        if is_of_service {
            self.change_service_list(generations, key);
        }
    }

    /// A pending connection becomes the most recently used available one. Its socket comes with it.
    pub(crate) fn make_available(&mut self, generations: &mut Generations, key: Key, since: Instant, socket: C) {
        let before = self.leave(generations, key);
        self.enter(key, before.state(), Stage::Available { since, socket });
        self.link(generations, key);
    }

    /// The driver gets the socket of an available connection, to refresh it.
    pub(crate) fn begin_refresh(&mut self, generations: &mut Generations, key: Key) -> Option<C> {
        let Stage::Available { since, .. } = self.slot(key).stage else { return None };
        let before = self.leave(generations, key);
        self.enter(key, before.state(), Stage::Refreshing { since });
        self.link(generations, key);
        before.into_socket()
    }

    /// A refreshed connection is available again, in its old place among the others: nobody has used it.
    pub(crate) fn end_refresh(&mut self, generations: &mut Generations, key: Key, socket: C) {
        let Stage::Refreshing { since } = self.slot(key).stage else { return };
        let before = self.leave(generations, key);
        self.enter(key, before.state(), Stage::Available { since, socket });
        let slots = self.slots.as_mut_slice();
        let is_later = |slot: &Slot<C>| slot.stage.unused_since().is_some_and(|other| other > since);
        self.available.insert_in_front_of_first(slots, key, is_later);
        if let Some(service) = slots[key as usize].service.and_then(|id| generations.services.get_mut(&id)) {
            service.available.insert_in_front_of_first(slots, key, is_later);
        }
    }

    /// A connection in use has another purpose from now on.
    pub(crate) fn set_purpose(&mut self, key: Key, new: Purpose) {
        if let Stage::InUse { purpose, .. } = &mut self.slot_mut(key).stage {
            let before = core::mem::replace(purpose, new);
            if let Some(kept) = self.kept_for(before) {
                *kept -= 1;
            }
            if let Some(kept) = self.kept_for(new) {
                *kept += 1;
            }
        }
    }

    fn kept_for(&mut self, purpose: Purpose) -> Option<&mut u32> {
        match purpose {
            Purpose::Other => None,
            Purpose::Cursor => Some(&mut self.kept_by_cursors),
            Purpose::Transaction => Some(&mut self.kept_by_transactions),
        }
    }

    /// A connection in use is interrupted: it leaves the list of those that can be.
    pub(crate) fn mark_interrupted(&mut self, generations: &mut Generations, key: Key) {
        self.unlink(generations, key);
        if let Stage::InUse { perished, .. } = &mut self.slot_mut(key).stage {
            *perished = Some(Perished::Interrupted);
            self.interrupted += 1;
        }
    }

    /// The connection leaves the pool; its socket, where it has one, moves out.
    pub(crate) fn close(&mut self, generations: &mut Generations, key: Key) -> Option<C> {
        let before = self.leave(generations, key);
        debug_assert!(before.state().may_become(ConnectionState::Closed));
        if let Stage::InUse { perished: Some(Perished::Interrupted), .. } = before {
            self.interrupted -= 1;
        }
        let slot = &mut self.slots[key as usize];
        if let Some(id) = slot.service.take() {
            generations.leave(id);
        }
        slot.links.next = core::mem::replace(&mut self.vacant, key);
        before.into_socket()
    }

    /// A connection of `service` that can be interrupted; without a service, the search starts at slot `from`.
    /// Interrupt or close each connection found before you ask for the next.
    ///
    /// A service has a list of its own. Without a service all slots are searched, once, if any of them holds such a
    /// connection: there are at most as many slots as there ever were connections at a time.
    pub(crate) fn next_occupied(
        &self,
        generations: &Generations,
        service: Option<ServiceId>,
        from: Key,
    ) -> Option<Key> {
        match service {
            Some(id) => generations.services.get(&id)?.occupied.front(),
            None if self.pending + self.checking + self.refreshing + self.in_use == self.interrupted => None,
            None => {
                (from..).zip(self.slots.get(from as usize..)?).find_map(|(key, slot)| slot.is_occupied().then_some(key))
            }
        }
    }

    /// Takes a connection out of its lists and counts; returns the stage in which it was. Now it is closed.
    fn leave(&mut self, generations: &mut Generations, key: Key) -> Stage<C> {
        self.unlink(generations, key);
        let before = core::mem::replace(&mut self.slot_mut(key).stage, Stage::Closed);
        if let Some(count) = self.count(before.state()) {
            *count -= 1;
        }
        before
    }

    /// A connection that has left the state `from` enters a new one, and its count.
    fn enter(&mut self, key: Key, from: ConnectionState, stage: Stage<C>) {
        let to = stage.state();
        debug_assert!(from.may_become(to), "no transition leads from {from:?} to {to:?}");
        if let Some(count) = self.count(to) {
            *count += 1;
        }
        self.slot_mut(key).stage = stage;
    }

    /// Enters a new state that keeps the socket. One that becomes available is the most recently used.
    pub(super) fn convert(&mut self, generations: &mut Generations, key: Key, stage: impl FnOnce(C) -> Stage<C>) {
        let before = self.leave(generations, key);
        let from = before.state();
        if let Some(socket) = before.into_socket() {
            self.enter(key, from, stage(socket));
            self.link(generations, key);
        }
    }

    fn count(&mut self, state: ConnectionState) -> Option<&mut u32> {
        match state {
            ConnectionState::Pending => Some(&mut self.pending),
            ConnectionState::Checking => Some(&mut self.checking),
            ConnectionState::Refreshing => Some(&mut self.refreshing),
            ConnectionState::InUse => Some(&mut self.in_use),
            // The list of available connections counts itself.
            ConnectionState::Closed | ConnectionState::Available => None,
        }
    }

    /// Puts a connection into the lists that its state puts it in.
    fn link(&mut self, generations: &mut Generations, key: Key) {
        if self.slot(key).is_available() {
            self.available.push_back(&mut self.slots, key);
        }
        if let Some(list) = self.slot(key).service_list(generations) {
            list.push_back(&mut self.slots, key);
        }
    }

    /// Takes a connection out of the lists that its state puts it in.
    fn unlink(&mut self, generations: &mut Generations, key: Key) {
        if self.slot(key).is_available() {
            self.available.remove(&mut self.slots, key);
        }
        if let Some(list) = self.slot(key).service_list(generations) {
            list.remove(&mut self.slots, key);
        }
    }

    /// A connection of a service became available or occupied: it moves from one of that service's lists to the other.
    #[cold]
    fn change_service_list(&mut self, generations: &mut Generations, key: Key) {
        let Some(service) = self.slot(key).service.and_then(|id| generations.services.get_mut(&id)) else { return };
        let (from, to) = if self.slot(key).is_available() {
            (&mut service.occupied, &mut service.available)
        } else {
            (&mut service.available, &mut service.occupied)
        };
        from.remove(&mut self.slots, key);
        to.push_back(&mut self.slots, key);
    }

    /// A copy without the sockets.
    pub(super) fn snapshot(&self) -> Connections<()> {
        Connections {
            slots: self.slots.iter().map(Slot::snapshot).collect(),
            vacant: self.vacant,
            last_id: self.last_id,
            pending: self.pending,
            checking: self.checking,
            refreshing: self.refreshing,
            in_use: self.in_use,
            interrupted: self.interrupted,
            kept_by_cursors: self.kept_by_cursors,
            kept_by_transactions: self.kept_by_transactions,
            available: self.available,
        }
    }
}

impl<C> Slot<C> {
    fn snapshot(&self) -> Slot<()> {
        let stage = match self.stage {
            Stage::Closed => Stage::Closed,
            Stage::Pending { created_at, origin } => Stage::Pending { created_at, origin },
            Stage::Available { since, .. } => Stage::Available { since, socket: () },
            Stage::Checking { .. } => Stage::Checking { socket: () },
            Stage::Refreshing { since } => Stage::Refreshing { since },
            Stage::InUse { check_out, perished, purpose } => Stage::InUse { check_out, perished, purpose },
        };
        Slot {
            id: self.id,
            generation: self.generation,
            service: self.service,
            stage,
            links: self.links,
            service_links: self.service_links,
        }
    }

    /// Whether it is available, and can be delivered at `now` as it is.
    #[inline(always)]
    pub(super) fn is_deliverable(&self, now: Instant, generations: &Generations, limits: &Limits) -> bool {
        let Stage::Available { since, .. } = self.stage else { return false };
        let idle_time = now.nanos_since(since);
        !generations.is_stale(self.generation, self.service.as_ref())
            && idle_time <= limits.max_idle
            && idle_time <= limits.check_after_idle
    }

    fn is_vacant(&self) -> bool {
        matches!(self.stage, Stage::Closed)
    }

    #[inline(always)]
    pub(super) fn is_available(&self) -> bool {
        matches!(self.stage, Stage::Available { .. })
    }

    /// Whether the connection can be interrupted.
    fn is_occupied(&self) -> bool {
        match self.stage {
            Stage::Pending { .. } | Stage::Checking { .. } | Stage::Refreshing { .. } => true,
            Stage::InUse { perished, .. } => perished != Some(Perished::Interrupted),
            Stage::Closed | Stage::Available { .. } => false,
        }
    }

    /// The list of its service's connections that its state puts it in.
    fn service_list<'a>(&self, generations: &'a mut Generations) -> Option<&'a mut List<OF_SERVICE>> {
        let service = generations.services.get_mut(&self.service?)?;
        if self.is_available() {
            return Some(&mut service.available);
        }
        self.is_occupied().then_some(&mut service.occupied)
    }
}

impl<C> Stage<C> {
    pub(super) fn state(&self) -> ConnectionState {
        match self {
            Self::Closed => ConnectionState::Closed,
            Self::Pending { .. } => ConnectionState::Pending,
            Self::Available { .. } => ConnectionState::Available,
            Self::Checking { .. } => ConnectionState::Checking,
            Self::Refreshing { .. } => ConnectionState::Refreshing,
            Self::InUse { .. } => ConnectionState::InUse,
        }
    }

    /// Whether the connection was established, and is not closed.
    pub(super) fn is_established(&self) -> bool {
        !matches!(self, Self::Closed | Self::Pending { .. })
    }

    /// Since when the connection has been without use; `None` if it is in use, or being established or checked.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        match *self {
            Self::Available { since, .. } | Self::Refreshing { since } => Some(since),
            Self::Closed | Self::Pending { .. } | Self::Checking { .. } | Self::InUse { .. } => None,
        }
    }

    /// The check-out that waits for the connection to be established, if one does.
    pub(super) fn origin(&self) -> Option<Key> {
        let Self::Pending { origin, .. } = *self else { return None };
        origin
    }

    /// The check-out that has the connection, if it is in use.
    pub(super) fn user(&self) -> Option<Key> {
        let Self::InUse { check_out, .. } = *self else { return None };
        Some(check_out)
    }

    fn into_socket(self) -> Option<C> {
        match self {
            Self::Available { socket, .. } | Self::Checking { socket } => Some(socket),
            Self::Closed | Self::Pending { .. } | Self::Refreshing { .. } | Self::InUse { .. } => None,
        }
    }
}

impl<C> Linked<AVAILABLE> for Slot<C> {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

#[expect(clippy::misnamed_getters, reason = "of the two links of a slot, these are the ones of this role")]
impl<C> Linked<OF_SERVICE> for Slot<C> {
    fn links(&self) -> &Links {
        &self.service_links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.service_links
    }
}

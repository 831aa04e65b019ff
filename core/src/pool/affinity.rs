//! Affinity: a key keeps the connection that it had last.
//!
//! A key is bound to a connection when one is delivered to it, and stays so until the connection is closed, the key takes
//! another one, or somebody ends it. What that means is the option's choice: see [`Affinity`](crate::options::Affinity).
//!
//! Check-outs that wait for the connection of their key are *sticky*. They are not in the queue but in a list of that
//! connection, in which they have the same deadlines as others. A connection that is available, has keys, and belongs to a
//! pool that holds them is *held*. Nothing is noted for that when it comes back: the available connections are in the order of
//! their return, so the first of them that has keys is the next whose time ends. Those before it that have none are passed over
//! once, up to [`Holds::free`].
//!
//! A key is in an ordered map, and in the list of its connection's keys. Both change only when a key is bound or let go of:
//! a pair of a key that finds its connection looks it up once, and allocates nothing.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::connections::{Connections, Slot, Stage};
use super::list::{Key, List, WAITERS, ensure, reach};
use super::output::{Action, Output};
use super::settle::Due;
use super::timer::{Timeout, TimeoutReason};
use super::{CheckOutRequest, ConnectionClosedReason, Pool};
use crate::options::{Affinity, Limits};
use crate::time::Instant;

/// Somebody who wants the connection again that it had last: a thread, a request, a user. The number is the caller's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AffinityKey(pub u64);

/// Most keys that are bound to one connection; the one that was bound first is forgotten.
pub(super) const MOST_KEYS: usize = 128;

/// The keys of a pool, and the check-outs that wait for their connections.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StickyKeys {
    pub(super) keys: BTreeMap<AffinityKey, Key>,
    /// By connection.
    pub(super) pins: Vec<Pin>,
    #[serde(skip)]
    pub(super) holds: Holds,
    /// The keys of check-outs that wait.
    asked_by: Vec<Option<AffinityKey>>,
    /// Check-outs that wait for the connection of their key.
    pub(super) sticky: u32,
}

/// What ties keys and check-outs to one connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Pin {
    /// The one that was bound first comes first.
    pub(super) keys: Vec<AffinityKey>,
    pub(super) waiters: List<WAITERS>,
}

/// How far the holds were looked at: at first nothing is known. It repeats what lists say, and is not part of a pool's state.
#[derive(Clone, Default)]
pub(super) struct Holds {
    /// The most recently used available connection of which it is known that neither it nor a less recently used one is held.
    pub(super) free: Option<Key>,
}

/// The connection of a key, for a check-out that arrives.
enum Own {
    /// It can be delivered.
    Ready(Key),
    /// It was idle for so long that it has to be checked first.
    Unchecked(Key),
    /// Somebody has it, or it is being checked or refreshed.
    Busy(Key),
    /// It must not be used any more.
    Perished(Key, ConnectionClosedReason),
    None,
}

impl<C> Pool<C> {
    /// Lets the pool forget the connection of a key. Its check-outs that wait for it go on waiting for it. Nothing
    /// happens if the key has none.
    pub fn end_affinity(&mut self, now: Instant, key: AffinityKey) {
        self.advance(now);
        if let Some(affinity) = &mut self.affinity {
            affinity.unbind(key);
            self.settle(Due::Queue);
        }
    }

    /// Whether a connection is bound to the key.
    pub(crate) fn is_bound(&self, key: AffinityKey) -> bool {
        self.affinity.as_ref().is_some_and(|affinity| affinity.keys.contains_key(&key))
    }

    /// The check-outs that wait for the connection of their key.
    pub(super) fn sticky_waiters(&self) -> impl Iterator<Item = Key> {
        let pins = self.affinity.iter().flat_map(|affinity| &affinity.pins);
        pins.flat_map(|pin| self.wait_queue.members(&pin.waiters))
    }

    /// All check-outs that wait, for any connection or for the one of their key.
    pub(super) fn waiting(&self) -> u32 {
        self.wait_queue.len() + self.affinity.as_ref().map_or(0, |affinity| affinity.sticky)
    }

    /// Connections that are being checked for the queue: not those that a sticky check-out will get.
    pub(super) fn checks(&self) -> u32 {
        let checking = self.connections.checking;
        let Some(affinity) = self.affinity.as_ref().filter(|affinity| affinity.sticky > 0 && checking > 0) else {
            return checking;
        };
        let is_claimed =
            |(pin, slot): &(&Pin, &Slot<C>)| !pin.waiters.is_empty() && matches!(slot.stage, Stage::Checking { .. });
        let claimed = affinity.pins.iter().zip(&self.connections.slots).filter(is_claimed);
        checking - claimed.fold(0, |number, _| number + 1)
    }

    /// Whether an available connection is held for its keys.
    pub(super) fn is_kept(&self, connection: Key) -> bool {
        self.holds() && self.affinity.as_ref().is_some_and(|affinity| affinity.has_keys(connection))
    }

    /// Available connections that any check-out may take.
    pub(super) fn free(&self) -> u32 {
        self.connections.least_recent_first(|key| !self.is_kept(key)).fold(0, |free, _| free + 1)
    }

    /// The one of them that was returned last.
    pub(super) fn most_recent_free(&self) -> Option<Key> {
        self.connections.most_recent_first(|key| !self.is_kept(key)).next()
    }

    /// Whether an arrival takes an available connection, however many wait: that of its key, or any, if those who wait want others.
    pub(super) fn can_serve_at_once(&mut self, request: &CheckOutRequest) -> bool {
        match self.own_of(request) {
            Own::Ready(_) => true,
            Own::Unchecked(_) | Own::Busy(_) => false,
            Own::Perished(..) | Own::None => {
                self.wait_queue.len() == 0 && self.next_usable().is_some_and(|key| self.is_usable(key))
            }
        }
    }

    /// Whether connections are held for their keys.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.limits.hold_time().is_some()
    }

    /// Whether a check-out waits for the connection of its key.
    pub(super) fn has_sticky_waiters(&self) -> bool {
        self.affinity.as_ref().is_some_and(|affinity| affinity.sticky > 0)
    }

    /// A check-out joins the queue, or those that wait for the connection of its key. One whose key's connection can be delivered gets it
    /// at once, however many wait.
    pub(super) fn arrive(&mut self, check_out: Key, request: CheckOutRequest) -> Due {
        match self.own_of(&request) {
            Own::Ready(connection) => self.deliver(connection, check_out),
            Own::Unchecked(connection) => {
                self.begin_check(connection);
                self.wait_for(connection, check_out, request);
            }
            Own::Busy(connection) => self.wait_for(connection, check_out, request),
            Own::Perished(connection, reason) => {
                self.close_connection(connection, reason);
                return self.join_queue(check_out, request);
            }
            Own::None => return self.join_queue(check_out, request),
        }
        Due::Queue
    }

    fn join_queue(&mut self, check_out: Key, request: CheckOutRequest) -> Due {
        if let Some(affinity) = &mut self.affinity {
            affinity.note_key(check_out, request.affinity);
        }
        self.wait_queue.enqueue(check_out, request.deadline, self.limits.wait_queue_timeout);
        Due::Arrival
    }

    /// The available connection for the head of the queue: that of its key, otherwise the least shared one for a key, and
    /// the next by the option `reuse` for all others.
    pub(super) fn next_for_head(&self) -> Option<Key> {
        let affinity = self.affinity.as_deref()?;
        let key = self.wait_queue.front().and_then(|head| affinity.key_of(head));
        let Some(key) = key else { return self.next_free() };
        let own = affinity.keys.get(&key).copied().filter(|&own| self.connections.is_available(own));
        own.or_else(|| affinity.least_shared(&self.connections, self.holds()))
    }

    /// The key of a check-out that waited, if it has one, is bound to the connection that it gets.
    pub(super) fn bind(&mut self, connection: Key, check_out: Key) {
        if let Some(affinity) = &mut self.affinity
            && let Some(key) = affinity.key_of(check_out)
        {
            affinity.bind(key, connection);
        }
    }

    /// Lends a held connection to the head of the queue, where nothing else serves it and none can be created. Returns
    /// whether anything has changed.
    pub(super) fn lend(&mut self) -> bool {
        let Some(Affinity::Hold { lend: true, .. }) = self.limits.affinity else { return false };
        let Some(head) = self.wait_queue.front() else { return false };
        if self.wait_queue.len() <= self.connections.pending + self.checks() {
            return false;
        }
        let Some(affinity) = &self.affinity else { return false };
        let Some(most_recent) = self.connections.most_recent_first(|key| affinity.has_keys(key)).next() else {
            return false;
        };
        if let Some(reason) = self.perished(most_recent) {
            self.close_connection(most_recent, reason);
        } else if self.needs_check(most_recent) {
            self.begin_check(most_recent);
        } else {
            self.leave_queue(head);
            self.deliver(most_recent, head);
        }
        true
    }

    /// A connection was checked in, or has passed its check, and is available: it goes to the first check-out that is sticky
    /// to it, or is held for its keys.
    pub(super) fn serve_sticky(&mut self, connection: Key) {
        let Some(affinity) = &self.affinity else { return };
        let Some(waiter) = affinity.first_sticky(connection) else { return };
        self.leave_sticky(waiter);
        self.bind(connection, waiter);
        self.deliver(connection, waiter);
    }

    /// A refreshed connection is available in its old place: it goes to the first check-out that is sticky to it, or is held
    /// for what is left of its time.
    pub(super) fn return_to_keys(&mut self, connection: Key) {
        if let Some(affinity) = &mut self.affinity {
            // Its place may be in front of those that were passed over.
            affinity.holds.free = None;
            self.serve_sticky(connection);
        }
    }

    /// A check-out that waits for the connection of its key does so no more.
    pub(super) fn leave_sticky(&mut self, check_out: Key) {
        if let Some(affinity) = &mut self.affinity
            && let Some(connection) = self.wait_queue.awaited(check_out)
            && let Some(pin) = affinity.pins.get_mut(connection as usize)
        {
            self.wait_queue.leave_list(&mut pin.waiters, check_out);
            affinity.sticky -= 1;
            self.renew_attention();
        }
    }

    /// A connection leaves the pool: its keys have none, and those who wait for it wait for any.
    pub(super) fn end_pins(&mut self, connection: Key) {
        self.send_to_queue(connection);
        self.release(connection);
        if let Some(affinity) = &mut self.affinity {
            affinity.unbind_all(connection);
        }
    }

    /// All who wait for the connection of their key wait for any: they are about to fail.
    pub(super) fn end_sticky_waits(&mut self) {
        let connections = self.affinity.as_ref().filter(|affinity| affinity.sticky > 0).map_or(0, |all| all.pins.len());
        for connection in (0..).take(connections) {
            self.send_to_queue(connection);
        }
    }

    /// at the end of the queue.
    fn send_to_queue(&mut self, connection: Key) {
        while let Some(waiter) = self.affinity.as_ref().and_then(|affinity| affinity.first_sticky(connection)) {
            self.leave_sticky(waiter);
            let deadline = self.wait_queue.own_deadline(waiter);
            self.wait_queue.enqueue(waiter, deadline, self.limits.wait_queue_timeout);
        }
    }

    /// Ends the holds whose time has passed.
    pub(super) fn end_holds(&mut self) {
        let Some(affinity) = &mut self.affinity else { return };
        let Some(time) = self.limits.hold_time() else { return };
        affinity.pass_free(&self.connections);
        let mut has_ended = false;
        while let Some((connection, _)) =
            affinity.next_hold(&self.connections, time).filter(|&(_, end)| end <= self.now)
        {
            affinity.unbind_all(connection);
            affinity.pass_free(&self.connections);
            has_ended = true;
        }
        if has_ended {
            self.settle(Due::Queue);
        }
    }

    /// When the next hold ends.
    pub(super) fn hold_timeout(&self) -> Option<Timeout> {
        let (_, end) = self.next_hold().filter(|&(_, end)| end != Instant::END)?;
        Some(Timeout { at: end.max(self.now), reason: TimeoutReason::Hold })
    }

    /// Whether keys, connections and those who wait agree.
    pub(super) fn check_affinity(&self) -> Result<(), &'static str> {
        let Some(affinity) = &self.affinity else {
            let has_none = self.limits.affinity.is_none() && self.wait_queue.sticky() == 0;
            return ensure(has_none, "a pool without affinity has what belongs to it");
        };
        ensure(self.limits.affinity.is_some(), "a pool has affinity though the option is not set")?;
        let bound: usize = affinity.pins.iter().map(|pin| pin.keys.len()).sum();
        let is_bound = |(key, &connection): (&AffinityKey, &Key)| {
            let pin = affinity.pins.get(connection as usize);
            pin.is_some_and(|pin| pin.keys.contains(key))
        };
        let are_bound = bound == affinity.keys.len() && affinity.keys.iter().all(is_bound);
        ensure(are_bound, "a key and its connection do not know each other")?;
        let mut sticky = 0;
        for (connection, pin) in (0..).zip(&affinity.pins) {
            let stage = self.connections.slots.get(connection as usize).map(|slot| &slot.stage);
            let is_occupied =
                matches!(stage, Some(Stage::InUse { .. } | Stage::Checking { .. } | Stage::Refreshing { .. }));
            let is_established = is_occupied || self.connections.is_available(connection);
            ensure(pin.keys.is_empty() || is_established, "a key has a connection that is not established")?;
            sticky += self.wait_queue.check_list(&pin.waiters, connection)?;
            let is_awaited_in_vain = !pin.waiters.is_empty() && !is_occupied;
            ensure(!is_awaited_in_vain, "a check-out waits for the connection of its key though nobody has it")?;
        }
        let is_free = affinity.holds.free.is_none_or(|free| self.connections.is_available(free));
        ensure(is_free, "a connection is passed over that is not available")?;
        let first = self.connections.least_recent_first(|key| affinity.has_keys(key)).next();
        let is_first = !self.holds() || first == affinity.first_held(&self.connections);
        ensure(is_first, "a held connection is passed over")?;
        let are_known = sticky == affinity.sticky as usize && sticky == self.wait_queue.sticky();
        ensure(are_known, "a check-out waits for no connection that is known")
    }

    fn own_of(&self, request: &CheckOutRequest) -> Own {
        let Some(key) = request.affinity else { return Own::None };
        let Some(&own) = self.affinity.as_ref().and_then(|affinity| affinity.keys.get(&key)) else { return Own::None };
        let slot = self.connections.slot(own);
        match slot.stage {
            Stage::Available { .. } => match self.perished(own) {
                Some(reason) => Own::Perished(own, reason),
                None if self.needs_check(own) => Own::Unchecked(own),
                None => Own::Ready(own),
            },
            _ if self.limits.affinity == Some(Affinity::Prefer) || self.is_stale_at(own) => Own::None,
            Stage::Checking { .. } | Stage::Refreshing { .. } | Stage::InUse { perished: None, .. } => Own::Busy(own),
            Stage::InUse { .. } | Stage::Closed | Stage::Pending { .. } => Own::None,
        }
    }

    /// A connection is about to be available no more.
    pub(super) fn release(&mut self, connection: Key) {
        if let Some(affinity) = &mut self.affinity
            && affinity.holds.free == Some(connection)
        {
            affinity.holds.free = self.connections.less_recent(connection);
        }
    }

    /// A connection is checked before its delivery.
    pub(super) fn begin_check(&mut self, connection: Key) {
        self.release(connection);
        self.record_idle(connection);
        self.connections.convert(&mut self.generations, connection, |socket| Stage::Checking { socket });
        self.end_suspicion(connection);
        let connection = self.handle(connection);
        self.outputs.push_back(Output::Action(Action::Check { connection }));
    }

    fn wait_for(&mut self, connection: Key, check_out: Key, request: CheckOutRequest) {
        let timeout = self.limits.wait_queue_timeout;
        if let Some(affinity) = &mut self.affinity {
            affinity.note_key(check_out, request.affinity);
            let pin = &mut affinity.pins[connection as usize];
            self.wait_queue.enqueue_for(connection, &mut pin.waiters, check_out, request.deadline, timeout);
            affinity.sticky += 1;
            self.renew_attention();
        }
        self.note_waiting();
    }

    fn next_hold(&self) -> Option<(Key, Instant)> {
        self.affinity.as_ref()?.next_hold(&self.connections, self.limits.hold_time()?)
    }
}

impl StickyKeys {
    /// What a pool with these limits needs from the start.
    pub(super) fn of(limits: &Limits) -> Option<Box<Self>> {
        limits.affinity.map(|_| Box::default())
    }

    /// A check-out is about to wait.
    fn note_key(&mut self, check_out: Key, key: Option<AffinityKey>) {
        *reach(&mut self.asked_by, check_out, None) = key;
    }

    fn key_of(&self, check_out: Key) -> Option<AffinityKey> {
        self.asked_by.get(check_out as usize).copied().flatten()
    }

    fn bind(&mut self, key: AffinityKey, connection: Key) {
        if self.keys.get(&key) == Some(&connection) {
            return;
        }
        self.unbind(key);
        let pin = reach(&mut self.pins, connection, Pin::default());
        if pin.keys.len() >= MOST_KEYS {
            let oldest = pin.keys.remove(0);
            self.keys.remove(&oldest);
        }
        pin.keys.push(key);
        self.keys.insert(key, connection);
    }

    fn unbind(&mut self, key: AffinityKey) {
        let Some(connection) = self.keys.remove(&key) else { return };
        let Some(pin) = self.pins.get_mut(connection as usize) else { return };
        pin.keys.retain(|&bound| bound != key);
    }

    fn unbind_all(&mut self, connection: Key) {
        let Some(pin) = self.pins.get_mut(connection as usize) else { return };
        for key in core::mem::take(&mut pin.keys) {
            self.keys.remove(&key);
        }
    }

    /// Whether a connection has keys: where connections are held, it is while it is available.
    fn has_keys(&self, connection: Key) -> bool {
        self.pins.get(connection as usize).is_some_and(|pin| !pin.keys.is_empty())
    }

    /// The least recently used of the available connections that have keys.
    fn first_held<C>(&self, connections: &Connections<C>) -> Option<Key> {
        if self.keys.is_empty() {
            return None;
        }
        connections.hotter_than(self.holds.free).find(|&key| self.has_keys(key))
    }

    /// The next connection that is held no more, and when that is.
    fn next_hold<C>(&self, connections: &Connections<C>, time: u64) -> Option<(Key, Instant)> {
        let first = self.first_held(connections)?;
        Some((first, connections.slot(first).stage.unused_since()?.after(time)))
    }

    /// Those before it are not looked at again.
    fn pass_free<C>(&mut self, connections: &Connections<C>) {
        if self.keys.is_empty() {
            return;
        }
        let free = connections.hotter_than(self.holds.free).take_while(|&key| !self.has_keys(key));
        self.holds.free = free.last().or(self.holds.free);
    }

    fn first_sticky(&self, connection: Key) -> Option<Key> {
        self.pins.get(connection as usize)?.waiters.front()
    }

    /// Of the available connections that are not held, the one with the fewest keys; among equals the most recently used.
    fn least_shared<C>(&self, connections: &Connections<C>, holds: bool) -> Option<Key> {
        let mut least: Option<(usize, Key)> = None;
        for key in connections.most_recent_first(|key| !(holds && self.has_keys(key))) {
            let number = self.pins.get(key as usize).map_or(0, |pin| pin.keys.len());
            if least.is_none_or(|(fewest, _)| number < fewest) {
                least = Some((number, key));
            }
            if number == 0 {
                break;
            }
        }
        least.map(|(_, key)| key)
    }
}

impl<C> Connections<C> {
    /// The available connections that are `meant`, from the least recently used on.
    pub(super) fn least_recent_first(&self, meant: impl Fn(Key) -> bool) -> impl Iterator<Item = Key> {
        self.hotter_than(None).filter(move |&key| meant(key))
    }

    /// The available connections that are `meant`, from the most recently used on.
    pub(super) fn most_recent_first(&self, meant: impl Fn(Key) -> bool) -> impl Iterator<Item = Key> {
        core::iter::successors(self.available.back(), |&key| self.less_recent(key)).filter(move |&key| meant(key))
    }

    /// The available connections that came back after one of them, or all.
    fn hotter_than(&self, key: Option<Key>) -> impl Iterator<Item = Key> {
        let first = key.map_or(self.available.front(), |key| self.available.next(&self.slots, key));
        core::iter::successors(first, |&key| self.available.next(&self.slots, key))
    }

    /// The available connection that came back before another one.
    fn less_recent(&self, key: Key) -> Option<Key> {
        self.available.previous(&self.slots, key)
    }
}

impl fmt::Debug for Holds {
    /// What is in it makes no difference between pools.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holds")
    }
}

#[cfg(test)]
mod tests;

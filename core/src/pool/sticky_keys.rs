//! Keys, the connections that they are bound to, and the check-outs that wait for these.
//!
//! A key is in an ordered map, and in the list of its connection's keys. Both change only when a key is bound or let go of:
//! a pair of a key that finds its connection looks it up once, and allocates nothing.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::connections::Connections;
use super::list::{Key, List, NIL, WAITERS};
use crate::options::Limits;
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

/// How far the holds were looked at. It repeats what lists say, and is not part of a pool's state.
#[derive(Clone)]
pub(super) struct Holds {
    /// Until when none ends, as far as is known. Those of connections that come back later end later.
    pub(super) until: Instant,
    /// The most recently used available connection of which it is known that neither it nor a less recently used one is held.
    pub(super) free: Key,
}

impl StickyKeys {
    /// What a pool with these limits needs from the start.
    pub(super) fn of(limits: &Limits) -> Option<Box<Self>> {
        limits.affinity.map(|_| Box::default())
    }

    /// A check-out is about to wait.
    pub(super) fn note_key(&mut self, check_out: Key, key: Option<AffinityKey>) {
        let place = check_out as usize;
        if self.asked_by.len() <= place {
            self.asked_by.resize(place + 1, None);
        }
        self.asked_by[place] = key;
    }

    pub(super) fn key_of(&self, check_out: Key) -> Option<AffinityKey> {
        self.asked_by.get(check_out as usize).copied().flatten()
    }

    pub(super) fn bind(&mut self, key: AffinityKey, connection: Key) {
        if self.keys.get(&key) == Some(&connection) {
            return;
        }
        self.unbind(key);
        let place = connection as usize;
        if self.pins.len() <= place {
            self.pins.resize_with(place + 1, Pin::default);
        }
        let pin = &mut self.pins[place];
        if pin.keys.len() >= MOST_KEYS {
            let oldest = pin.keys.remove(0);
            self.keys.remove(&oldest);
        }
        pin.keys.push(key);
        self.keys.insert(key, connection);
    }

    pub(super) fn unbind(&mut self, key: AffinityKey) {
        let Some(connection) = self.keys.remove(&key) else { return };
        let Some(pin) = self.pins.get_mut(connection as usize) else { return };
        pin.keys.retain(|&bound| bound != key);
    }

    pub(super) fn unbind_all(&mut self, connection: Key) {
        let Some(pin) = self.pins.get_mut(connection as usize) else { return };
        for key in core::mem::take(&mut pin.keys) {
            self.keys.remove(&key);
        }
    }

    /// A connection is about to leave the list of available ones.
    #[inline(always)]
    pub(super) fn release<C>(&mut self, connection: Key, connections: &Connections<C>) {
        if self.holds.free == connection {
            self.holds.free = connections.less_recent(connection).unwrap_or(NIL);
        }
    }

    /// Whether a connection has keys: where connections are held, it is while it is available.
    pub(super) fn has_keys(&self, connection: Key) -> bool {
        self.pins.get(connection as usize).is_some_and(|pin| !pin.keys.is_empty())
    }

    /// The least recently used of the available connections that have keys.
    pub(super) fn first_held<C>(&self, connections: &Connections<C>) -> Option<Key> {
        if self.keys.is_empty() {
            return None;
        }
        connections.hotter_than(self.holds.free).find(|&key| self.has_keys(key))
    }

    /// Those before it are not looked at again.
    pub(super) fn pass_free<C>(&mut self, connections: &Connections<C>) {
        if self.keys.is_empty() {
            return;
        }
        let free = connections.hotter_than(self.holds.free).take_while(|&key| !self.has_keys(key));
        self.holds.free = free.last().unwrap_or(self.holds.free);
    }

    pub(super) fn first_sticky(&self, connection: Key) -> Option<Key> {
        self.pins.get(connection as usize)?.waiters.front()
    }

    /// Of the available connections that are not held, the one with the fewest keys; among equals the most recently used.
    pub(super) fn least_shared<C>(&self, connections: &Connections<C>, holds: bool) -> Option<Key> {
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
        self.hotter_than(NIL).filter(move |&key| meant(key))
    }

    /// The available connections that are `meant`, from the most recently used on.
    pub(super) fn most_recent_first(&self, meant: impl Fn(Key) -> bool) -> impl Iterator<Item = Key> {
        core::iter::successors(self.available.back(), |&key| self.less_recent(key)).filter(move |&key| meant(key))
    }

    /// The available connections that came back after one of them, or all.
    fn hotter_than(&self, key: Key) -> impl Iterator<Item = Key> {
        let first = if key == NIL { self.available.front() } else { self.available.next(&self.slots, key) };
        core::iter::successors(first, |&key| self.available.next(&self.slots, key))
    }

    /// The available connection that came back before another one.
    fn less_recent(&self, key: Key) -> Option<Key> {
        self.available.previous(&self.slots, key)
    }
}

impl Default for Holds {
    /// Nothing is known.
    fn default() -> Self {
        Self { until: Instant::ORIGIN, free: NIL }
    }
}

impl fmt::Debug for Holds {
    /// What is in it makes no difference between pools.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holds")
    }
}

//! Keys, the connections that they are bound to, and the check-outs that wait for these.
//!
//! A key is in an ordered map, and in the list of its connection's keys. Both change only when a key is bound or let go of:
//! a pair of a key that finds its connection looks it up once, mostly among the [recent](RecentKeys) ones, and allocates nothing.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::connections::Connections;
use super::list::{Key, Linked, Links, List};
use super::recent_keys::RecentKeys;
use super::wait_queue::WAITERS;
use crate::options::Limits;

/// Somebody who wants the connection again that it had last: a thread, a request, a user. The number is the caller's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AffinityKey(pub u64);

/// Most keys that are bound to one connection; the one that was bound first is forgotten.
pub(super) const MOST_KEYS: usize = 128;

/// The one list of held connections.
const HELD: usize = 0;

/// The keys of a pool, and the check-outs that wait for their connections.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Bonds {
    pub(super) keys: BTreeMap<AffinityKey, Key>,
    #[serde(skip)]
    pub(super) recent: RecentKeys,
    /// By connection.
    pub(super) bonds: Vec<Bond>,
    pub(super) held: List<HELD>,
    /// The keys of check-outs that wait.
    asked_by: Vec<Option<AffinityKey>>,
    /// Check-outs that wait for the connection of their key.
    pub(super) loyal: u32,
}

/// What ties keys and check-outs to one connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Bond {
    /// The one that was bound first comes first.
    pub(super) keys: Vec<AffinityKey>,
    pub(super) waiters: List<WAITERS>,
    pub(super) is_held: bool,
    links: Links,
}

impl Bonds {
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
        if self.bonds.len() <= place {
            self.bonds.resize_with(place + 1, Bond::default);
        }
        let bond = &mut self.bonds[place];
        if bond.keys.len() >= MOST_KEYS {
            let oldest = bond.keys.remove(0);
            self.keys.remove(&oldest);
            self.recent.remove(oldest);
        }
        bond.keys.push(key);
        self.keys.insert(key, connection);
        self.recent.set(key, connection);
    }

    /// The connection of a key.
    #[inline(always)]
    pub(super) fn connection_of(&mut self, key: AffinityKey) -> Option<Key> {
        self.recent.get(key).or_else(|| self.search(key))
    }

    #[cold]
    fn search(&mut self, key: AffinityKey) -> Option<Key> {
        let connection = *self.keys.get(&key)?;
        self.recent.set(key, connection);
        Some(connection)
    }

    pub(super) fn unbind(&mut self, key: AffinityKey) {
        let Some(connection) = self.keys.remove(&key) else { return };
        self.recent.remove(key);
        let Some(bond) = self.bonds.get_mut(connection as usize) else { return };
        bond.keys.retain(|&bound| bound != key);
        if bond.keys.is_empty() {
            self.release(connection);
        }
    }

    pub(super) fn unbind_all(&mut self, connection: Key) {
        self.release(connection);
        let Some(bond) = self.bonds.get_mut(connection as usize) else { return };
        for key in core::mem::take(&mut bond.keys) {
            self.keys.remove(&key);
            self.recent.remove(key);
        }
    }

    /// An available connection is kept for its keys, if it has any.
    pub(super) fn hold(&mut self, connection: Key) {
        let Some(bond) = self.bonds.get_mut(connection as usize) else { return };
        if !bond.keys.is_empty() && !bond.is_held {
            bond.is_held = true;
            self.held.push_back(&mut self.bonds, connection);
        }
    }

    /// A held connection that was away returns to its place: in front of those that came back later.
    pub(super) fn put_back(&mut self, connection: Key, is_later: impl Fn(Key) -> bool) {
        if self.is_held(connection) {
            self.held.remove(&mut self.bonds, connection);
            let mut next = self.held.back();
            let mut later = None;
            while let Some(key) = next.filter(|&key| is_later(key)) {
                later = Some(key);
                next = self.held.previous(&self.bonds, key);
            }
            match later {
                Some(later) => self.held.insert_before(&mut self.bonds, later, connection),
                None => self.held.push_back(&mut self.bonds, connection),
            }
        }
    }

    /// A connection is held no more.
    pub(super) fn release(&mut self, connection: Key) {
        let Some(bond) = self.bonds.get_mut(connection as usize) else { return };
        if core::mem::take(&mut bond.is_held) {
            self.held.remove(&mut self.bonds, connection);
        }
    }

    pub(super) fn is_held(&self, connection: Key) -> bool {
        self.bonds.get(connection as usize).is_some_and(|bond| bond.is_held)
    }

    pub(super) fn first_loyal(&self, connection: Key) -> Option<Key> {
        self.bonds.get(connection as usize)?.waiters.front()
    }

    /// Of the available connections that are not held, the one with the fewest keys; among equals the hottest.
    pub(super) fn least_shared<C>(&self, connections: &Connections<C>) -> Option<Key> {
        let mut least: Option<(usize, Key)> = None;
        let mut next = connections.available.back();
        while let Some(key) = next {
            let number = self.bonds.get(key as usize).map_or(0, |bond| bond.keys.len());
            if !self.is_held(key) && least.is_none_or(|(fewest, _)| number < fewest) {
                least = Some((number, key));
            }
            next = if least.is_some_and(|(fewest, _)| fewest == 0) { None } else { connections.colder(key) };
        }
        least.map(|(_, key)| key)
    }
}

impl<C> Connections<C> {
    /// The available connection at `place` among those that are `meant`, from the coldest on.
    pub(super) fn available_from(&self, meant: impl Fn(Key) -> bool, place: u32) -> Option<Key> {
        let all = core::iter::successors(self.available.front(), |&key| self.available.next(&self.slots, key));
        all.filter(|&key| meant(key)).nth(place as usize)
    }

    /// The available connection that came back before another one.
    pub(super) fn colder(&self, key: Key) -> Option<Key> {
        self.available.previous(&self.slots, key)
    }
}

impl Linked<HELD> for Bond {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

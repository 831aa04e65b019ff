//! The keys that were asked for lately, with their connections, so that a pair of a key need not search the map of all keys.
//!
//! A key has one place here, by its hash, and shares it with others: who comes last has it. So keys that are chosen to collide cost
//! a search each time, and nothing else. The map is what counts; this repeats some of it, and is not part of a pool's state.

use core::fmt;

use super::bonds::AffinityKey;
use super::list::{Key, NIL};

/// A table of fixed size: 2 KiB.
#[derive(Clone)]
pub(super) struct RecentKeys([(AffinityKey, Key); PLACES]);

const PLACES: usize = 1 << BITS;

const BITS: u32 = 7;

impl RecentKeys {
    /// The connection of a key, if it is known here.
    #[inline(always)]
    pub(super) fn get(&self, key: AffinityKey) -> Option<Key> {
        let (own, connection) = self.0[place(key)];
        (own == key && connection != NIL).then_some(connection)
    }

    /// A key has this connection.
    pub(super) fn set(&mut self, key: AffinityKey, connection: Key) {
        self.0[place(key)] = (key, connection);
    }

    /// A key has none any more.
    pub(super) fn remove(&mut self, key: AffinityKey) {
        let there = &mut self.0[place(key)];
        if there.0 == key {
            there.1 = NIL;
        }
    }

    /// All that are known.
    pub(super) fn iter(&self) -> impl Iterator<Item = (AffinityKey, Key)> {
        self.0.iter().copied().filter(|(_, connection)| *connection != NIL)
    }
}

impl fmt::Debug for RecentKeys {
    /// What is in it makes no difference between pools.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecentKeys")
    }
}

impl Default for RecentKeys {
    fn default() -> Self {
        Self([(AffinityKey(0), NIL); PLACES])
    }
}

/// By Fibonacci hashing: the highest bits of a product.
#[inline(always)]
fn place(key: AffinityKey) -> usize {
    (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_until_another_one_takes_its_place() {
        let mut recent = RecentKeys::default();
        let one = AffinityKey(1);
        let other = (2..).map(AffinityKey).find(|other| place(*other) == place(one)).unwrap();
        recent.set(one, 7);
        assert_eq!((recent.get(one), recent.get(other)), (Some(7), None));

        recent.set(other, 8);
        recent.remove(one);

        assert_eq!((recent.get(one), recent.get(other)), (None, Some(8)));
    }

    #[test]
    fn a_key_that_was_removed_is_not_known() {
        let mut recent = RecentKeys::default();
        recent.set(AffinityKey(0), 3);

        recent.remove(AffinityKey(0));

        assert_eq!((recent.get(AffinityKey(0)), recent.iter().count()), (None, 0));
    }
}

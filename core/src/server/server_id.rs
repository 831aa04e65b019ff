//! The name of a server among those of its topology.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::pool::PoolOwner;

/// A server of a topology; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId {
    number: u32,
    slot: u32,
}

impl ServerId {
    /// The `number`-th server of a topology, from 1, which is kept in `slot`. Slots are used again; numbers are not.
    pub(crate) fn new(number: u32, slot: u32) -> Self {
        Self { number, slot }
    }

    /// The number of servers that its topology had had with this one: from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// The place in which it is kept.
    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.slot
    }

    /// The server's number and slot, as its pool keeps them.
    pub(crate) fn pool_owner(self) -> PoolOwner {
        PoolOwner { number: self.number, slot: self.slot }
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

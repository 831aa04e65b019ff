//! Names that callers use: a connection's number in events and logs, its handle in calls, a check-out, a warm-up, and an identity
//! besides that of the options.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::list::Key;
use crate::address::ServerAddress;
use crate::time::Instant;

/// A connection's number in its pool: from 1, in the order of creation, never reused (CMAP-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConnectionId(pub(crate) u64);

/// Identifies one pool among others. Handles remember it, so that a connection cannot be checked in to a pool it does
/// not belong to (CMAP-35), and reaches its server without a search. Two pools differ if their address, the moment of
/// their creation, their server or their number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct PoolId {
    pub(crate) digest: u32,
    /// Where its topology keeps its server.
    pub(crate) slot: u32,
}

/// The server that a pool belongs to: its number, and where its topology keeps it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolOwner {
    pub(crate) number: u32,
    pub(crate) slot: u32,
}

/// A caller's reference to a connection: opaque, cheap to copy, and resolved without a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle {
    pub(crate) id: ConnectionId,
    pub(crate) key: Key,
    pub(crate) pool: PoolId,
}

/// One warm-up; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WarmUpId {
    pub(crate) pool: PoolId,
    pub(super) number: u64,
}

/// An identity of a client besides the credential of its options, by its number: from 1, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdentityId(pub(crate) u32);

impl PoolId {
    /// FNV-1a over all of it: the same pool in a replay has the same id.
    pub(crate) fn new(address: &ServerAddress, created_at: Instant, server: PoolOwner, number: u32) -> Self {
        let text = alloc::format!("{address}");
        let numbers = server.number.to_le_bytes().into_iter().chain(number.to_le_bytes());
        let bytes = text.bytes().chain(created_at.as_nanos().to_le_bytes()).chain(numbers);
        let digest = bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self { digest, slot: server.slot }
    }
}

impl ConnectionId {
    /// The number itself, from 1.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the bits of a handle begin with, so that those of a check-out are not taken for one.
const HANDLE: u32 = 0x6861_6e64;

impl Handle {
    /// The handle as numbers, for a caller that cannot keep it as it is.
    pub fn to_bits(self) -> [u64; 3] {
        let PoolId { digest, slot } = self.pool;
        [self.id.0, u64::from(self.key) << 32 | u64::from(slot), u64::from(HANDLE) << 32 | u64::from(digest)]
    }

    /// The handle of these [numbers](Self::to_bits); `None` if they are none. Numbers that nobody was given name no connection,
    /// and are refused by every call.
    pub fn from_bits([id, place, pool]: [u64; 3]) -> Option<Self> {
        let ((key, slot), (kind, digest)) = (halves(place), halves(pool));
        (kind == HANDLE).then_some(Self { id: ConnectionId(id), key, pool: PoolId { digest, slot } })
    }

    /// The connection's id.
    pub fn id(self) -> ConnectionId {
        self.id
    }

    /// Where the topology keeps the connection's server.
    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.pool.slot
    }
}

/// The upper and the lower half of a number.
fn halves(bits: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = bits.to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

/// One check-out; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CheckOutId {
    pub(crate) sequence: u64,
    pub(crate) key: Key,
    pub(crate) pool: PoolId,
}

/// What the bits of a check-out begin with, so that those of a connection are not taken for one.
const CHECK_OUT: u32 = 0x6f75_7400;

impl CheckOutId {
    /// The check-out as numbers, for a caller that cannot keep it as it is.
    pub fn to_bits(self) -> [u64; 3] {
        let PoolId { digest, slot } = self.pool;
        [self.sequence, u64::from(self.key) << 32 | u64::from(slot), u64::from(CHECK_OUT) << 32 | u64::from(digest)]
    }

    /// The check-out of these [numbers](Self::to_bits); `None` if they are none. Numbers that nobody was given name no check-out,
    /// and are refused by every call.
    pub fn from_bits([sequence, place, pool]: [u64; 3]) -> Option<Self> {
        let ((key, slot), (kind, digest)) = (halves(place), halves(pool));
        (kind == CHECK_OUT).then_some(Self { sequence, key, pool: PoolId { digest, slot } })
    }

    /// A small number that no other check-out has before this one has ended, by its failure, by its cancellation or by the
    /// check-in of its connection: callers can index their own table of waiters by it.
    ///
    /// It is free again as soon as the call that fails the check-out was made: its [`Action::Fail`](super::Action::Fail) may still
    /// be among the outputs. Call [`handle_timeout`](super::Pool::handle_timeout) and drain at the same `now` before
    /// [`check_out`](super::Pool::check_out), or compare the whole ids.
    pub fn index(self) -> usize {
        self.key as usize
    }

    /// A small number of its server among those of a topology, which no other server has before this one was drained.
    pub fn server_index(self) -> usize {
        self.pool.slot as usize
    }

    /// Where the topology keeps the server of the check-out's pool.
    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.pool.slot
    }
}

impl WarmUpId {
    /// The warm-up's number in its pool, from 1.
    pub fn get(self) -> u64 {
        self.number
    }
}

impl fmt::Display for IdentityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::CheckOutId;

    #[test]
    fn handles_and_check_outs_come_back_from_their_numbers_and_not_from_each_others() {
        let pool = PoolId { digest: u32::MAX, slot: 7 };
        let handle = Handle { id: ConnectionId(u64::MAX), key: 3, pool };
        let check_out = CheckOutId { sequence: u64::MAX, key: 3, pool };

        assert_eq!(Handle::from_bits(handle.to_bits()), Some(handle));
        assert_eq!(CheckOutId::from_bits(check_out.to_bits()), Some(check_out));
        assert_eq!(Handle::from_bits(check_out.to_bits()), None);
        assert_eq!(CheckOutId::from_bits(handle.to_bits()), None);
        assert_eq!(Handle::from_bits([1, 0, 0]), None);
    }
}

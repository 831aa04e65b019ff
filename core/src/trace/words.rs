//! Calls in memory: the frequent ones as one to five words, so that recording them costs little; the others serialised.
//!
//! The first word of each is its head: a kind in the lowest byte, a part of the digest in the next, the outputs polled since
//! the call before it in 16 bits, and the nanoseconds since then in 32. A call whose numbers do not fit there is kept as a rare
//! one.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::digest::Digest;
use super::item::{Call, Item, Note};
use crate::pool::{CheckOutId, CheckOutRequest, Condition, ConnectionId, Handle, PoolId};
use crate::time::Instant;
use crate::topology::Input;

const CHECK_OUT: u64 = 0;
const CHECK_OUT_UNTIL: u64 = 1;
const CHECK_IN: u64 = 2;
const HOLDER: u64 = 3;
const CHECK: u64 = 4;
const RARE: u64 = 5;

/// Most words of a frequent call.
pub(super) const FREQUENT: usize = 5;

/// What stands next to a call.
#[derive(Clone, Copy)]
pub(super) struct Margin {
    pub(super) polled: u32,
    pub(super) digest: Digest,
    pub(super) after: i64,
}

impl Margin {
    /// The head of a frequent call, if its numbers fit.
    #[inline]
    fn head(self, kind: u64) -> Option<u64> {
        let after = i32::try_from(self.after).ok()?;
        let polled = u16::try_from(self.polled).ok()?;
        let after = u64::from(after.cast_unsigned()) << 32;
        Some(after | u64::from(polled) << 16 | u64::from(self.digest.part()) << 8 | kind)
    }
}

/// Frequent calls that are not in their segment yet: a place of fixed size, which needs no code that could make it larger.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    words: [u64; STAGED],
    /// So small that its sum with a call's words needs no check.
    len: u16,
}

/// The words that are staged at most: those of the calls between two checks, and of their holders.
const STAGED: usize = 64 * (FREQUENT + 1);

impl Staged {
    pub(super) fn new() -> Self {
        Self { words: [0; STAGED], len: 0 }
    }

    /// What is staged.
    pub(super) fn words(&self) -> &[u64] {
        self.words.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Moves it to its segment.
    pub(super) fn flush(&mut self, into: &mut Vec<u64>) {
        into.extend_from_slice(self.words());
        self.len = 0;
    }

    /// Adds a check-out of any server that takes writes, without key and identity, if its numbers fit and there is room.
    #[inline]
    pub(super) fn push_check_out(&mut self, margin: Margin, deadline: Option<Instant>) -> bool {
        match deadline {
            Some(at) => margin.head(CHECK_OUT_UNTIL).is_some_and(|head| self.push([head, at.as_nanos()])),
            None => margin.head(CHECK_OUT).is_some_and(|head| self.push([head])),
        }
    }

    /// Adds the check-in of a usable connection, if its numbers fit and there is room.
    #[inline]
    pub(super) fn push_check_in(&mut self, margin: Margin, check_out: CheckOutId, connection: Handle) -> bool {
        let Some(head) = margin.head(CHECK_IN).filter(|_| check_out.pool == connection.pool) else { return false };
        let digest = u64::from(check_out.key) << 32 | u64::from(connection.pool.digest);
        self.push([head, connection.id.0, place_of(connection), digest, check_out.sequence])
    }

    /// Adds the number of a holder's text, if there is room.
    #[inline]
    pub(super) fn push_holder(&mut self, text: u32) -> bool {
        self.push([u64::from(text) << 32 | HOLDER])
    }

    #[inline]
    fn push<const N: usize>(&mut self, words: [u64; N]) -> bool {
        let Ok(added) = u16::try_from(N) else { return false };
        let start = usize::from(self.len);
        let Some(place) = self.words.get_mut(start..start + N) else { return false };
        place.copy_from_slice(&words);
        self.len += added;
        true
    }
}

/// Where a connection is kept: its slot in the pool, and the pool's in the topology.
#[inline]
pub(super) fn place_of(connection: Handle) -> u64 {
    u64::from(connection.key) << 32 | u64::from(connection.pool.slot)
}

/// Adds what is known of the state.
pub(super) fn push_check(words: &mut Vec<u64>, digest: Digest, timeout: Option<Instant>) {
    words.extend_from_slice(&[CHECK, digest.get(), timeout.map_or(u64::MAX, Instant::as_nanos)]);
}

/// The words of anything else.
pub(super) fn of_rare(item: &Item) -> Option<Vec<u64>> {
    let bytes = postcard::to_allocvec(item).ok()?;
    let head = u64::try_from(bytes.len()).ok()? << 8 | RARE;
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    });
    Some(core::iter::once(head).chain(words).collect())
}

/// Reads what was added, in its order.
pub(super) fn items(mut words: &[u64]) -> impl Iterator<Item = Item> {
    core::iter::from_fn(move || next(&mut words))
}

fn next(words: &mut &[u64]) -> Option<Item> {
    let head = take(words)?;
    let call = |input| Item::Call(Call { polled: polled(head), digest: part(head), after: after(head), input });
    Some(match head & 0xff {
        CHECK_OUT => call(Input::CheckOut(Box::default(), CheckOutRequest::default())),
        CHECK_OUT_UNTIL => {
            let deadline = Some(Instant::from_nanos(take(words)?));
            call(Input::CheckOut(Box::default(), CheckOutRequest { deadline, ..CheckOutRequest::default() }))
        }
        CHECK_IN => {
            let (id, place) = (ConnectionId(take(words)?), take(words)?);
            let (digest, sequence) = (take(words)?, take(words)?);
            let pool = PoolId { digest: low(digest), slot: low(place) };
            let check_out = CheckOutId { sequence, key: low(digest >> 32), pool };
            call(Input::CheckIn(check_out, Handle { id, key: low(place >> 32), pool }, Condition::Usable))
        }
        HOLDER => Item::Note(Note::Holder(low(head >> 32))),
        CHECK => {
            let (digest, timeout) = (take(words)?, take(words)?);
            Item::Check { digest, timeout: (timeout != u64::MAX).then(|| Instant::from_nanos(timeout)) }
        }
        _ => {
            let length = usize::try_from(head >> 8).ok()?;
            let (bytes, rest) = words.split_at_checked(length.div_ceil(8))?;
            *words = rest;
            let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
            postcard::from_bytes(&bytes).ok()?
        }
    })
}

fn take(words: &mut &[u64]) -> Option<u64> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    Some(*first)
}

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).unwrap_or(u32::MAX)
}

fn polled(head: u64) -> u32 {
    low(head >> 16) & 0xffff
}

fn part(head: u64) -> u8 {
    head.to_le_bytes()[1]
}

fn after(head: u64) -> i64 {
    i64::from(low(head >> 32).cast_signed())
}

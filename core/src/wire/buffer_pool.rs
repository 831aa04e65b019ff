//! Spare memory: large buffers and coders between two uses.
//!
//! A pool has many connections, and few of them handle a large message at the same time. So a connection keeps at most
//! [`KEPT`] of each of its buffers, and no coder. What it needs beyond that it borrows from the [`BufferPool`] of its client
//! for one use. It takes what is there; otherwise it allocates, and gives back what it allocated.
//!
//! Nothing here is a lock. Threads that share pooled buffers implement [`Lender`] by one, which is held for a look-up only: what
//! has no room is handed out as [`Excess`], to be freed once the lock is released.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::{fmt, mem};

use super::compression::{Compression, Compressor, Decompressor};

/// How many bytes of a buffer stay with a connection from one message to the next.
pub const KEPT: usize = 256 * 1024;

/// Memory that nobody uses at the moment, at most [`BufferPool::LIMIT`] bytes. When there is no room, what has been here the
/// longest makes way, so that the pooled buffers follow what is needed.
#[derive(Default)]
pub struct BufferPool {
    limit: usize,
    held: usize,
    /// The one that has been here the longest is the first.
    buffers: VecDeque<Spare>,
}

enum Spare {
    /// Longer than [`KEPT`], empty, and overwritten by zeros.
    Buffer(Vec<u8>),
    Compressor(Compressor),
    Decompressor(Decompressor),
}

/// Pooled buffers for which there is no room. Dropping them frees them.
#[must_use = "free it outside of the lock"]
#[derive(Default)]
pub struct Excess {
    buffers: Vec<Spare>,
}

/// Who lends pooled buffers: the pooled buffers themselves, or a lock around them.
pub trait Lender {
    /// Calls `visit` with the pooled buffers.
    fn visit<T>(&mut self, visit: impl FnOnce(&mut BufferPool) -> T) -> T;

    /// Replaces `buffer` by a spare of at least `needed` bytes, if that is more than it has and more than [`KEPT`], and if
    /// there is one. What `buffer` holds is copied.
    #[inline]
    fn lend(&mut self, buffer: &mut Vec<u8>, needed: usize) {
        if needed > KEPT && needed > buffer.capacity() {
            replace(self, buffer, needed);
        }
    }

    /// Takes `buffer`, if it is larger than [`KEPT`]; an empty one is left in its place. What it held is overwritten.
    #[inline]
    fn take_back(&mut self, buffer: &mut Vec<u8>) {
        if buffer.capacity() > KEPT {
            take(self, mem::take(buffer));
        }
    }
}

impl Lender for BufferPool {
    fn visit<T>(&mut self, visit: impl FnOnce(&mut BufferPool) -> T) -> T {
        visit(self)
    }
}

#[cold]
fn replace<L: Lender + ?Sized>(lender: &mut L, buffer: &mut Vec<u8>, needed: usize) {
    if let Some(mut spare) = lender.visit(|buffers| buffers.take_buffer(needed)) {
        spare.extend_from_slice(buffer);
        *buffer = spare;
    }
}

#[cold]
fn take<L: Lender + ?Sized>(lender: &mut L, mut buffer: Vec<u8>) {
    if buffer.capacity() <= BufferPool::LIMIT {
        // A spare must not carry one user's data to another one's use, nor keep it for as long as the client lives.
        overwrite(&mut buffer);
        drop(lender.visit(|buffers| buffers.put_buffer(buffer)));
    }
}

/// Fills `buffer` with zeros, up to its capacity.
fn overwrite(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(buffer.capacity(), 0);
}

impl BufferPool {
    /// How many bytes of spares a client keeps, coders included.
    pub const LIMIT: usize = 8 * 1024 * 1024;

    /// Pooled buffers of up to [`LIMIT`](Self::LIMIT) bytes; none yet.
    pub fn new() -> Self {
        Self { limit: Self::LIMIT, ..Self::default() }
    }

    /// Pooled buffers that stay empty: what is borrowed is allocated, what is given back is freed.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// How many bytes there are.
    pub fn held(&self) -> usize {
        self.held
    }

    /// The smallest buffer of at least so many bytes, if there is one. It is empty.
    pub fn take_buffer(&mut self, at_least: usize) -> Option<Vec<u8>> {
        let fitting = self.buffers.iter().enumerate().filter_map(|(at, spare)| match spare {
            Spare::Buffer(buffer) if buffer.capacity() >= at_least => Some((buffer.capacity(), at)),
            Spare::Buffer(_) | Spare::Compressor(_) | Spare::Decompressor(_) => None,
        });
        let (_, at) = fitting.min()?;
        match self.remove(at)? {
            Spare::Buffer(buffer) => Some(buffer),
            Spare::Compressor(_) | Spare::Decompressor(_) => None,
        }
    }

    /// A compressor that compresses so, if there is one.
    pub fn take_compressor(&mut self, compression: Compression) -> Option<Compressor> {
        let is_one = |spare: &Spare| matches!(spare, Spare::Compressor(it) if it.compression() == compression);
        match self.remove(self.buffers.iter().position(is_one)?)? {
            Spare::Compressor(compressor) => Some(compressor),
            Spare::Buffer(_) | Spare::Decompressor(_) => None,
        }
    }

    /// A decompressor, if there is one.
    pub fn take_decompressor(&mut self) -> Option<Decompressor> {
        let is_one = |spare: &Spare| matches!(spare, Spare::Decompressor(_));
        match self.remove(self.buffers.iter().position(is_one)?)? {
            Spare::Decompressor(decompressor) => Some(decompressor),
            Spare::Buffer(_) | Spare::Compressor(_) => None,
        }
    }

    /// Keeps a buffer. Its bytes are whatever they are: [`Lender::take_back`] overwrites them first.
    pub fn put_buffer(&mut self, mut buffer: Vec<u8>) -> Excess {
        buffer.clear();
        self.put(Spare::Buffer(buffer))
    }

    /// Keeps a compressor.
    pub fn put_compressor(&mut self, compressor: Compressor) -> Excess {
        self.put(Spare::Compressor(compressor))
    }

    /// Keeps a decompressor.
    pub fn put_decompressor(&mut self, decompressor: Decompressor) -> Excess {
        self.put(Spare::Decompressor(decompressor))
    }

    fn put(&mut self, spare: Spare) -> Excess {
        let mut excess = Excess::default();
        let size = spare.size();
        if size > self.limit {
            excess.buffers.push(spare);
            return excess;
        }
        while self.held + size > self.limit
            && let Some(oldest) = self.remove(0)
        {
            excess.buffers.push(oldest);
        }
        self.held += size;
        self.buffers.push_back(spare);
        excess
    }

    fn remove(&mut self, at: usize) -> Option<Spare> {
        let spare = self.buffers.remove(at)?;
        self.held -= spare.size();
        Some(spare)
    }
}

impl Spare {
    /// How many bytes it takes.
    fn size(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.capacity(),
            Self::Compressor(compressor) => compressor.size(),
            Self::Decompressor(decompressor) => decompressor.size(),
        }
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("held", &self.held).finish_non_exhaustive()
    }
}

impl fmt::Debug for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Excess").field("count", &self.buffers.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn buffer(capacity: usize) -> Vec<u8> {
        Vec::with_capacity(capacity)
    }

    #[test]
    fn the_smallest_buffer_that_fits_is_lent() {
        let mut buffers = BufferPool::new();
        for mib in [3, 1, 2] {
            drop(buffers.put_buffer(buffer(mib * MIB)));
        }

        let lent = [MIB + 1, MIB, 4 * MIB].map(|needed| buffers.take_buffer(needed).map(|it| it.capacity() / MIB));

        assert_eq!(lent, [Some(2), Some(1), None]);
        assert_eq!(buffers.held(), 3 * MIB);
    }

    #[test]
    fn what_was_given_back_first_makes_way() {
        let mut buffers = BufferPool::new();
        for _ in 0..8 {
            drop(buffers.put_buffer(buffer(MIB)));
        }

        let excess = buffers.put_buffer(buffer(2 * MIB));

        assert_eq!(excess.buffers.len(), 2);
        assert_eq!(buffers.held(), BufferPool::LIMIT);
        assert!(buffers.take_buffer(2 * MIB).is_some());
    }

    #[test]
    fn a_buffer_larger_than_all_spares_together_is_freed_and_costs_no_other_its_place() {
        let mut buffers = BufferPool::new();
        drop(buffers.put_buffer(buffer(MIB)));

        buffers.take_back(&mut buffer(BufferPool::LIMIT + 1));
        drop(buffers.put_buffer(buffer(BufferPool::LIMIT + 1)));

        assert_eq!(buffers.held(), MIB);
    }

    #[test]
    fn a_buffer_is_overwritten_beyond_its_length() {
        let mut used = buffer(100);
        used.extend_from_slice(b"a secret");
        used.truncate(2);

        overwrite(&mut used);

        assert_eq!(used, [0; 100]);
    }

    #[test]
    fn a_small_buffer_stays_where_it_is() {
        let (mut buffers, mut small) = (BufferPool::new(), buffer(KEPT));
        drop(buffers.put_buffer(buffer(MIB)));

        buffers.lend(&mut small, KEPT);
        buffers.take_back(&mut small);

        assert_eq!((small.capacity(), buffers.held()), (KEPT, MIB));
    }

    #[test]
    fn what_a_buffer_holds_moves_to_the_spare_that_replaces_it() {
        let (mut buffers, mut message) = (BufferPool::new(), b"begun".to_vec());
        drop(buffers.put_buffer(buffer(MIB)));

        buffers.lend(&mut message, MIB);

        assert_eq!((message.as_slice(), message.capacity()), (&b"begun"[..], MIB));
    }

    #[test]
    fn no_spares_lend_and_keep_nothing() {
        let (mut none, mut large) = (BufferPool::none(), buffer(MIB));

        none.take_back(&mut large);

        assert_eq!((large.capacity(), none.held()), (0, 0));
    }

    #[cfg(feature = "zlib")]
    #[test]
    fn a_compressor_is_lent_for_its_own_level_only() {
        use super::super::compression::ZlibLevel;
        let [fast, best] = [1, 9].map(|level| Compression::Zlib(ZlibLevel::new(level).unwrap()));
        let mut buffers = BufferPool::new();
        drop(buffers.put_compressor(Compressor::new(fast).unwrap()));

        let lent = [best, fast, fast].map(|wanted| buffers.take_compressor(wanted).map(|it| it.compression()));

        assert_eq!(lent, [None, Some(fast), None]);
        assert_eq!(buffers.held(), 0);
    }
}

//! The pooled buffers of one client, which its connections share.
//!
//! A lock of their own guards them, and is held for a look-up: the pool's is never involved, and commands that are small and
//! not compressed need no pooled buffers.

use std::sync::{Mutex, PoisonError};

use cmap_core::wire::{BufferPool, Lender};

/// Spare memory of one client; all of it is freed with the client.
#[derive(Debug)]
pub(crate) struct SharedBufferPool(Mutex<BufferPool>);

impl Default for SharedBufferPool {
    fn default() -> Self {
        Self(Mutex::new(BufferPool::new()))
    }
}

impl Lender for &SharedBufferPool {
    fn visit<T>(&mut self, visit: impl FnOnce(&mut BufferPool) -> T) -> T {
        visit(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

//! The spares of one client, which its connections share.
//!
//! A lock of their own guards them, and is held for a look-up: the pool's is never involved, and commands that are small and
//! not compressed need no spares.

use std::sync::{Mutex, PoisonError};

use cmap_core::wire::{Lender, Spares};

/// Spare memory of one client; all of it is freed with the client.
#[derive(Debug)]
pub(crate) struct SharedSpares(Mutex<Spares>);

impl Default for SharedSpares {
    fn default() -> Self {
        Self(Mutex::new(Spares::new()))
    }
}

impl Lender for &SharedSpares {
    fn visit<T>(&mut self, visit: impl FnOnce(&mut Spares) -> T) -> T {
        visit(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

//! What connections have in common: sessions and doors, behind one lock that nobody holds for long.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::doors::Doors;
use super::sessions::Sessions;

/// The state that all connections share.
#[derive(Debug)]
pub struct Common {
    /// All sessions.
    pub sessions: Sessions,
    /// All connections.
    pub doors: Doors,
}

pub(super) fn lock(common: &Mutex<Common>) -> MutexGuard<'_, Common> {
    // Nothing under the lock panics.
    common.lock().unwrap_or_else(PoisonError::into_inner)
}

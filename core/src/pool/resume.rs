//! Resuming: the machine was suspended, and a clock that stood still meanwhile tells nothing of it.
//!
//! Nobody knows then how long the available connections have been idle. Each is checked for life before its next delivery,
//! whatever `check_after_idle` says; until the last of them was, no check-out takes the fast path.

use super::Pool;
use super::connections::Stage;
use super::list::Key;
use crate::time::Instant;

impl<C> Pool<C> {
    /// The process goes on after its machine was suspended: every connection that is available now is checked for life
    /// before its next delivery.
    pub fn resume(&mut self, now: Instant) {
        self.advance(now);
        let slots = (0..).zip(&self.connections.slots);
        let available = slots.filter(|(_, slot)| matches!(slot.stage, Stage::Available { .. }));
        self.suspects = available.map(|(key, _)| key).collect();
        self.renew_attention();
    }

    /// Whether an available connection has to be checked, however short it was idle as far as the clock knows.
    pub(super) fn is_suspect(&self, key: Key) -> bool {
        self.suspects.contains(&key)
    }

    /// A connection is looked at, or closed.
    pub(super) fn end_suspicion(&mut self, key: Key) {
        if self.suspects.remove(&key) && self.suspects.is_empty() {
            self.renew_attention();
        }
    }

    /// Whether all suspects are available.
    pub(super) fn check_suspects(&self) -> bool {
        let is_available = |&key: &Key| {
            let slot = self.connections.slots.get(key as usize);
            slot.is_some_and(|slot| matches!(slot.stage, Stage::Available { .. }))
        };
        self.suspects.iter().all(is_available)
    }
}

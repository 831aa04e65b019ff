//! An available connection is taken: its socket moves out.

use super::{Connections, Purpose, Slot, Stage};
use crate::options::Limits;
use crate::pool::generation::Generations;
use crate::pool::handle::ConnectionId;
use crate::pool::list::Key;
use crate::time::Instant;

impl<C> Connections<C> {
    /// An available connection, or the most recently used, is in use from now on; its socket moves out.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        generations: &mut Generations,
        check_out: Key,
        chosen: Option<Key>,
    ) -> Option<(Key, ConnectionId, C)> {
        let slots = self.slots.as_mut_slice();
        let key = chosen.or(self.available.back())?;
        let slot = &mut slots[key as usize];
        // Test the stage before the links change, so that it need not be loaded again.
        if !slot.is_available() {
            return None;
        }
        let in_use = Stage::InUse { check_out, perished: None, purpose: Purpose::Other };
        let Stage::Available { socket, .. } = core::mem::replace(&mut slot.stage, in_use) else { return None };
        let (id, is_of_service) = (slot.id, slot.service.is_some());
        match chosen {
            None => self.available.remove_back(slots, key),
            Some(_) => self.available.remove_inline(slots, key),
        }
        self.in_use += 1;
        if is_of_service {
            self.change_service_list(generations, key);
        }
        Some((key, id, socket))
    }
}

impl<C> Slot<C> {
    /// For how long it has been available, if it can be delivered at `now` as it is.
    #[inline(always)]
    pub(crate) fn idle_time_if_deliverable(
        &self,
        now: Instant,
        generations: &Generations,
        limits: &Limits,
    ) -> Option<u64> {
        let Stage::Available { since, .. } = self.stage else { return None };
        let idle_time = now.nanos_since(since);
        let is_deliverable = !generations.is_stale(self.generation, self.service.as_ref())
            && idle_time <= limits.max_idle
            && idle_time <= limits.check_after_idle;
        is_deliverable.then_some(idle_time)
    }
}

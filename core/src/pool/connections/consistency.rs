//! Whether the counts and lists of a pool's connections agree with their slots.

use super::{Connections, Perished, Purpose, Slot, Stage};
use crate::pool::generation::Generations;
use crate::pool::list::{Key, NIL, ensure};

impl<C> Connections<C> {
    /// Whether counts and lists agree with the slots.
    pub(crate) fn check(&self, generations: &Generations) -> Result<(), &'static str> {
        let count = |wanted: fn(&Stage<C>) -> bool| self.slots.iter().filter(|slot| wanted(&slot.stage)).count();
        let counts = [
            (count(|stage| matches!(stage, Stage::Pending { .. })), self.pending),
            (count(|stage| matches!(stage, Stage::Checking { .. })), self.checking),
            (count(|stage| matches!(stage, Stage::Refreshing { .. })), self.refreshing),
            (count(|stage| matches!(stage, Stage::InUse { .. })), self.in_use),
            (
                count(|stage| matches!(stage, Stage::InUse { perished: Some(Perished::Interrupted), .. })),
                self.interrupted,
            ),
            (count(|stage| matches!(stage, Stage::InUse { purpose: Purpose::Cursor, .. })), self.kept_by_cursors),
            (
                count(|stage| matches!(stage, Stage::InUse { purpose: Purpose::Transaction, .. })),
                self.kept_by_transactions,
            ),
        ];
        let are_right = counts.into_iter().all(|(found, noted)| found == noted as usize);
        ensure(are_right, "a count differs from the connections in that state")?;
        let available = self.available.check(&self.slots)?;
        self.check_members(&available, Slot::is_available)?;
        let since = |&key: &Key| self.slot(key).stage.unused_since();
        let are_in_order = available.iter().map(since).is_sorted();
        ensure(are_in_order, "available connections are not in the order of their return")?;
        for (&id, service) in &generations.services {
            let available = service.available.check(&self.slots)?;
            self.check_members(&available, |slot| slot.service == Some(id) && slot.is_available())?;
            let occupied = service.occupied.check(&self.slots)?;
            self.check_members(&occupied, |slot| slot.service == Some(id) && slot.is_occupied())?;
        }
        let are_older = self.slots.iter().all(|slot| slot.id.0 <= self.last_id);
        ensure(are_older, "a connection is newer than the last one")?;
        let mut next = self.vacant;
        for _ in 0..self.slots.iter().filter(|slot| slot.is_vacant()).count() {
            match self.slots.get(next as usize) {
                Some(slot) if slot.is_vacant() => next = slot.links.next,
                _ => return Err("an occupied slot counts as vacant"),
            }
        }
        ensure(next == NIL, "a vacant slot is chained twice")
    }

    /// Whether `members` are exactly the connections for which `belongs` holds.
    fn check_members(&self, members: &[Key], belongs: impl Fn(&Slot<C>) -> bool) -> Result<(), &'static str> {
        let expected = self.slots.iter().filter(|slot| belongs(slot)).count();
        let are_right = expected == members.len() && members.iter().all(|&key| belongs(self.slot(key)));
        ensure(are_right, "a list of connections has other members than it should")
    }
}

//! Whether the counts and lists of a pool's connections agree with their slots.

use super::{Connections, Purpose, Slot, Stage};
use crate::pool::connections::Perished;
use crate::pool::generation::Generations;
use crate::pool::list::{Key, NIL};

impl<C> Connections<C> {
    /// Whether counts and lists agree with the slots.
    pub(crate) fn check(&self, generations: &Generations) -> Result<(), &'static str> {
        let count = |wanted: fn(&Stage<C>) -> bool| self.slots.iter().filter(|slot| wanted(&slot.stage)).count();
        if count(|stage| matches!(stage, Stage::Pending { .. })) != self.pending as usize
            || count(|stage| matches!(stage, Stage::Checking { .. })) != self.checking as usize
            || count(|stage| matches!(stage, Stage::Refreshing { .. })) != self.refreshing as usize
            || count(|stage| matches!(stage, Stage::InUse { .. })) != self.in_use as usize
            || count(|stage| matches!(stage, Stage::InUse { perished: Some(Perished::Interrupted), .. }))
                != self.interrupted as usize
            || count(|stage| matches!(stage, Stage::InUse { purpose: Purpose::Cursor, .. }))
                != self.kept_by_cursors as usize
            || count(|stage| matches!(stage, Stage::InUse { purpose: Purpose::Transaction, .. }))
                != self.kept_by_transactions as usize
        {
            return Err("a count differs from the connections in that state");
        }
        let available = self.available.check(&self.slots)?;
        self.check_members(&available, Slot::is_available)?;
        let since = |&key: &Key| match self.slots[key as usize].stage {
            Stage::Available { since, .. } => Some(since),
            Stage::Closed
            | Stage::Pending { .. }
            | Stage::Checking { .. }
            | Stage::Refreshing { .. }
            | Stage::InUse { .. } => None,
        };
        if !available.iter().map(since).is_sorted() {
            return Err("available connections are not in the order of their return");
        }
        for (id, service) in generations.services() {
            let available = service.available.check(&self.slots)?;
            self.check_members(&available, |slot| slot.service == Some(id) && slot.is_available())?;
            let occupied = service.occupied.check(&self.slots)?;
            self.check_members(&occupied, |slot| slot.service == Some(id) && slot.is_occupied())?;
        }
        if self.slots.iter().any(|slot| slot.id.0 > self.last_id) {
            return Err("a connection is newer than the last one");
        }
        let vacant = self.slots.iter().filter(|slot| matches!(slot.stage, Stage::Closed)).count();
        let mut next = self.vacant;
        for _ in 0..vacant {
            match self.slots.get(next as usize) {
                Some(slot) if matches!(slot.stage, Stage::Closed) => next = slot.links.next,
                _ => return Err("an occupied slot counts as vacant"),
            }
        }
        if next == NIL { Ok(()) } else { Err("a vacant slot is chained twice") }
    }

    /// Whether `members` are exactly the connections for which `belongs` holds.
    fn check_members(&self, members: &[Key], belongs: impl Fn(&Slot<C>) -> bool) -> Result<(), &'static str> {
        let expected = self.slots.iter().filter(|slot| belongs(slot)).count();
        if expected != members.len() || members.iter().any(|&key| !belongs(&self.slots[key as usize])) {
            return Err("a list of connections has other members than it should");
        }
        Ok(())
    }
}

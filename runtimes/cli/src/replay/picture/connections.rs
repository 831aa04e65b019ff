//! What the connections of one pool are at, compared with what they were at before.

use cmap_core::pool::{ConnectionState, Kept, Pool};
use cmap_core::time::Instant;

/// What each slot's connection is at, and since when.
#[derive(Default)]
pub(super) struct Slots(Vec<Option<(Kept, Instant)>>);

impl Slots {
    /// Looks at a pool again; without one, at nothing. Returns what has ended, with its beginning.
    pub(super) fn look(&mut self, pool: Option<&Pool<()>>, now: Instant) -> Vec<(Kept, Instant)> {
        let mut ended = Vec::new();
        let mut unseen = 0;
        for kept in pool.into_iter().flat_map(Pool::connections) {
            let Ok(slot) = usize::try_from(kept.slot) else { continue };
            if self.0.len() <= slot {
                self.0.resize(slot + 1, None);
            }
            self.vacate(unseen..slot, &mut ended);
            unseen = slot + 1;
            if let Some(place) = self.0.get_mut(slot)
                && !place.is_some_and(|(before, _)| before == kept)
            {
                ended.extend(place.replace((kept, now)));
            }
        }
        self.vacate(unseen..self.0.len(), &mut ended);
        ended
    }

    fn vacate(&mut self, slots: core::ops::Range<usize>, ended: &mut Vec<(Kept, Instant)>) {
        ended.extend(self.0.get_mut(slots).into_iter().flatten().filter_map(Option::take));
    }

    /// Whether the slot has a connection that goes on from what has ended.
    pub(super) fn goes_on(&self, ended: &Kept) -> bool {
        let now = usize::try_from(ended.slot).ok().and_then(|slot| self.0.get(slot)).copied().flatten();
        now.is_some_and(|(kept, _)| kept.connection == ended.connection && kept.state != ConnectionState::Closed)
    }

    /// All that goes on at the end.
    pub(super) fn rest(&mut self) -> Vec<(Kept, Instant)> {
        self.0.drain(..).flatten().collect()
    }
}

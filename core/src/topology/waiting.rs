//! Waiting for a suitable server (SEL-15 to SEL-17, CSOT-4), together with at most maxWaitQueueDepth others.
//!
//! Check-outs wait in groups, one for each thing that is wanted; in each they wait in the order of their arrival, for at
//! most serverSelectionTimeoutMS and until their own deadlines. When the servers change, each group is looked at once, and
//! all check-outs of a group that a server suits go on.
//!
//! A check-out that waits in a pool is remembered here, too, with what it wants and how much time it has: if its server fails it,
//! it goes back.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::selection::Criteria;
use crate::pool::{CheckOutId, CheckOutRequest, IdentityId, reach};
use crate::time::Instant;

/// One check-out's wait for a server; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SelectionId(u64);

/// A check-out that a caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CheckOut {
    /// It began in the pool of a server.
    Started(CheckOutId),
    /// It waits for a server: [`Output::Selected`](super::Output::Selected) or
    /// [`Output::SelectionFailed`](super::Output::SelectionFailed) follows.
    Selecting(SelectionId),
}

/// The check-outs that wait.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Selections {
    last: u64,
    waiting: BTreeMap<SelectionId, Waiter>,
    deadlines: BTreeSet<(Instant, SelectionId)>,
    groups: Vec<Group>,
    /// Whether one has come back from a pool since the groups were last looked at.
    pub(super) has_returned: bool,
}

/// The check-outs that want the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Group {
    criteria: Criteria,
    members: BTreeSet<SelectionId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub(super) criteria: Criteria,
    pub(super) request: CheckOutRequest,
    pub(super) arrived_at: Instant,
    /// The end of its time in all.
    pub(super) limit: Instant,
    /// Whether an event said that it waits.
    pub(super) is_told: bool,
}

impl Selections {
    /// Adds a waiter.
    pub(super) fn add(&mut self, waiter: Waiter) -> SelectionId {
        self.last = self.last.wrapping_add(1);
        let id = SelectionId(self.last);
        self.insert(id, waiter);
        id
    }

    fn insert(&mut self, id: SelectionId, waiter: Waiter) {
        self.deadlines.insert((waiter.limit, id));
        match self.groups.iter_mut().find(|group| group.criteria.wants_same(&waiter.criteria)) {
            Some(group) => {
                group.members.insert(id);
            }
            None => {
                let criteria = waiter.criteria.clone();
                self.groups.push(Group { criteria, members: BTreeSet::from([id]) });
            }
        }
        self.waiting.insert(id, waiter);
    }

    /// Removes a waiter.
    pub(super) fn remove(&mut self, id: SelectionId) -> Option<Waiter> {
        let waiter = self.waiting.remove(&id)?;
        self.deadlines.remove(&(waiter.limit, id));
        if let Some(group) = self.groups.iter_mut().find(|group| group.criteria.wants_same(&waiter.criteria)) {
            group.members.remove(&id);
        }
        self.groups.retain(|group| !group.members.is_empty());
        Some(waiter)
    }

    /// The waiters of whom it was not told that they wait.
    pub(super) fn untold(&self) -> Vec<SelectionId> {
        self.waiting.iter().filter(|(_, waiter)| !waiter.is_told).map(|(&id, _)| id).collect()
    }

    pub(super) fn get_mut(&mut self, id: SelectionId) -> Option<&mut Waiter> {
        self.waiting.get_mut(&id)
    }

    /// Lets a waiter want something else; it waits as long as before. Returns whether it waits.
    pub(super) fn change(&mut self, id: SelectionId, criteria: &Criteria) -> bool {
        let Some(mut waiter) = self.remove(id) else { return false };
        waiter.criteria = criteria.clone();
        self.insert(id, waiter);
        true
    }

    /// The longest waiter.
    pub(super) fn first(&self) -> Option<SelectionId> {
        self.waiting.keys().next().copied()
    }

    /// The waiters that asked for a connection of an identity.
    pub(super) fn of_identity(&self, identity: IdentityId) -> Vec<SelectionId> {
        let of_identity = self.waiting.iter().filter(|(_, waiter)| waiter.request.identity == Some(identity));
        of_identity.map(|(&id, _)| id).collect()
    }

    /// What is wanted, once for each group.
    pub(super) fn criteria(&self) -> Vec<Criteria> {
        self.groups.iter().map(|group| group.criteria.clone()).collect()
    }

    /// The longest waiter of those that want this, and what it asked for.
    pub(super) fn first_of(&self, criteria: &Criteria) -> Option<(SelectionId, CheckOutRequest)> {
        let group = self.groups.iter().find(|group| group.criteria.wants_same(criteria))?;
        let first = *group.members.first()?;
        Some((first, self.waiting.get(&first)?.request))
    }

    /// Whether it waits.
    pub(super) fn has(&self, id: SelectionId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// The waiter whose time ends first, and when.
    pub(super) fn next_deadline(&self) -> Option<(Instant, SelectionId)> {
        self.deadlines.first().copied()
    }

    /// Those who wait, and when they came.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = (SelectionId, Instant)> {
        self.waiting.iter().map(|(&id, waiter)| (id, waiter.arrived_at))
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl SelectionId {
    /// The number itself.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The check-outs that wait in a server's pool, by their index there. An entry may be out of date: it counts for its own
/// check-out alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Origins(Vec<Option<(CheckOutId, Waiter)>>);

impl Origins {
    /// A check-out begins to wait. What it wants is copied only where the entry that is used again wants something else.
    #[inline]
    pub(super) fn begin(
        &mut self,
        check_out: CheckOutId,
        criteria: &Criteria,
        request: CheckOutRequest,
        arrived_at: Instant,
        limit: Instant,
    ) {
        match self.0.get_mut(check_out.index()) {
            Some(Some((own, waiter))) if waiter.criteria == *criteria => {
                *own = check_out;
                (waiter.request, waiter.arrived_at, waiter.limit, waiter.is_told) = (request, arrived_at, limit, false);
            }
            _ => {
                let criteria = criteria.clone();
                self.note(check_out, Waiter { criteria, request, arrived_at, limit, is_told: false });
            }
        }
    }

    /// A check-out waits.
    pub(super) fn note(&mut self, check_out: CheckOutId, waiter: Waiter) {
        *reach(&mut self.0, check_out.key, None) = Some((check_out, waiter));
    }

    /// Takes the entry of a check-out.
    pub(super) fn take(&mut self, check_out: CheckOutId) -> Option<Waiter> {
        let entry = self.0.get_mut(check_out.index())?;
        entry.take_if(|(own, _)| *own == check_out).map(|(_, waiter)| waiter)
    }

    /// Takes all entries.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (CheckOutId, Waiter)> + use<> {
        core::mem::take(&mut self.0).into_iter().flatten()
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// No check-out waits in the pool: the memory of a burst is given back.
    pub(super) fn give_back(&mut self) {
        /// The number of entries that are kept.
        const KEPT: usize = 1024;
        if self.0.len() > KEPT {
            self.0 = Vec::new();
        }
    }
}

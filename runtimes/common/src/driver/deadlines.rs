//! The time limits of the operations and establishments at connections.
//!
//! One timer serves them all: commands need none of their own, which only their home runtime could run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use cmap_core::time::Instant;

use crate::socket::abort::{Abort, AbortReason};

/// The times at which operations are aborted, the earliest first.
#[derive(Default)]
pub(crate) struct Deadlines {
    aborts: BTreeMap<Entry, Arc<Abort>>,
    last_number: u64,
}

/// An entry among [`Deadlines`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    at: Instant,
    number: u64,
}

impl Deadlines {
    pub(crate) fn insert(&mut self, at: Instant, abort: Arc<Abort>) -> Entry {
        self.last_number = self.last_number.wrapping_add(1);
        let entry = Entry { at, number: self.last_number };
        self.aborts.insert(entry, abort);
        entry
    }

    pub(crate) fn remove(&mut self, entry: Entry) {
        self.aborts.remove(&entry);
    }

    /// Aborts everything whose time is up; returns the tasks to wake.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Waker> {
        let mut wake = Vec::new();
        while let Some(entry) = self.aborts.first_entry()
            && entry.key().at <= now
        {
            wake.extend(entry.remove().abort(AbortReason::TimedOut));
        }
        wake
    }

    /// Aborts everything that has a limit; returns the tasks to wake.
    pub(crate) fn abort_all(&mut self, reason: AbortReason) -> Vec<Waker> {
        self.aborts.values().filter_map(|abort| abort.abort(reason)).collect()
    }

    pub(crate) fn entries(&self) -> usize {
        self.aborts.len()
    }

    pub(crate) fn first(&self) -> Option<Instant> {
        self.aborts.keys().next().map(|entry| entry.at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_limits_of_one_moment_pass_together() {
        let (mut deadlines, at) = (Deadlines::default(), Instant::ORIGIN + Duration::from_secs(1));
        let aborts = [Arc::default(), Arc::default()];
        let [_, lifted, _] =
            [&aborts[0], &Arc::default(), &aborts[1]].map(|abort| deadlines.insert(at, Arc::clone(abort)));
        deadlines.remove(lifted);

        let _ = deadlines.expire(at);

        assert_eq!(aborts.map(|abort| abort.get()), [Some(AbortReason::TimedOut); 2]);
        assert_eq!(deadlines.first(), None);
    }
}

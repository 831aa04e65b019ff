//! Limits of time on what goes on at connections, and on what else waits.
//!
//! One timer serves them all: commands need none of their own, which only their home runtime could run, and any task of any runtime can
//! wait.

use std::collections::BTreeMap;
use std::future::Future;
use std::task::Waker;
use std::time::Duration;

use cmap_core::time::Instant;

use super::Driver;
use crate::runtime::Runtime;
use crate::runtime::sync::Arc;
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

/// A limit on what goes on at a connection. Dropping it lifts the limit.
pub(crate) struct Limited<'a, R: Runtime> {
    driver: &'a Driver<R>,
    abort: Arc<Abort>,
    entry: Entry,
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

impl<R: Runtime> Driver<R> {
    /// Aborts what goes on after `limit`, or at once if no task will ever do that; `None` means never.
    pub(crate) fn limit(self: &Arc<Self>, limit: Option<Duration>, abort: &Arc<Abort>) -> Option<Limited<'_, R>> {
        let at = self.clock.deadline(limit)?;
        let mut state = self.lock();
        if state.runtime_gone {
            drop(state);
            abort.abort(AbortReason::RuntimeGone).into_iter().for_each(Waker::wake);
            return None;
        }
        let entry = state.deadlines.insert(at, Arc::clone(abort));
        let is_first = state.arm(at);
        drop(state);
        if is_first {
            self.alarm.ring();
        }
        Some(Limited { driver: self, abort: Arc::clone(abort), entry })
    }

    /// The output of `work`, unless `limit` passes or the client's runtime ends before.
    pub(crate) async fn within<T>(
        self: &Arc<Self>,
        limit: Option<Duration>,
        work: impl Future<Output = T>,
    ) -> Result<T, AbortReason> {
        let end = Arc::new(Abort::default());
        let _limited = self.limit(limit, &end);
        end.during(work).await
    }
}

impl<R: Runtime> Drop for Limited<'_, R> {
    fn drop(&mut self) {
        self.driver.lock().deadlines.remove(self.entry);
        // A limit that passed when its work was just done in time must not abort what comes next.
        self.abort.forget_timeout();
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

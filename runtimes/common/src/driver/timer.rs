//! The one task of a client that sleeps: it comes back when the machine or a monitor says so.
//!
//! Whenever it wakes it sees whether the machine was suspended meanwhile: the wall clock went on, and the monotonic one stood
//! still. If it wakes late, because the executor stood still, it gives way to the tasks of sockets first: what they can read has come in
//! time. It holds the driver weakly and ends with it. When its runtime ends first, the task is dropped, and that tells the driver that its
//! home is gone.
//!
//! It serves all limits of time on what goes on at connections, and on what else waits: commands need no timer of their own, which only
//! their home runtime could run, and any task of any runtime can wait.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::topology::Input;

use super::{Driver, Work};
use crate::establish::Requester;
use crate::runtime::Runtime;
use crate::runtime::sync::{Arc, AtomicBool, AtomicWaker, Ordering, Weak};
use crate::socket::abort::{Abort, AbortReason};
use crate::time::Clock;

/// The timer comes later than this only if the executor stood still.
const LATE: Duration = Duration::from_millis(100);

/// How long it then gives way to other tasks.
const A_TURN: Duration = Duration::from_millis(5);

/// The wall clock may be set while the process runs, by less than this as a rule. A step that is taken for a suspension
/// costs one look at each idle connection.
const SUSPENSION: Duration = Duration::from_secs(5);

/// Wakes the timer before its time.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rings: AtomicBool,
    waker: AtomicWaker,
}

struct Timer<R: Runtime>(Weak<Driver<R>>);

/// The two clocks when they were last compared.
struct Suspension {
    now: Instant,
    unix_time: Duration,
}

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

/// Starts the timer of `driver`.
pub(super) fn start<R: Runtime>(driver: &Arc<Driver<R>>) {
    let (alarm, clock) = (Arc::clone(&driver.alarm), driver.clock.clone());
    driver.clock.runtime().spawn(Timer(Arc::downgrade(driver)).run(alarm, clock));
}

impl<R: Runtime> Driver<R> {
    /// Time has passed, or the alarm rang. Returns when the timer has to come back.
    pub(super) fn handle_timeout(self: &Arc<Self>) -> Option<Instant> {
        let now = self.clock.now();
        // A reader of the log may have come since the last look.
        let are_logged = self.listeners.are_logged();
        let selection_detail = self.listeners.selection_detail();
        let mut work = Work::none();
        let mut state = self.lock();
        if are_logged {
            state.machine.call(now, Input::Observe(true), None);
        }
        state.machine.call(now, Input::ObserveSelections(selection_detail), None);
        work.wake_all(state.deadlines.expire(now));
        state.machine.call(now, Input::Timeout, None);
        state.tell_possible_leaks(now);
        state.drain(now, &mut work);
        let next = state.arm_timer();
        drop(state);
        // The timer is awake.
        work.rings_alarm = false;
        self.finish(work);
        // Afterwards, so that a server that has just joined is checked. What a finding leads to earlier rings the alarm.
        next.into_iter().chain(self.handle_monitors()).min()
    }

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

impl Alarm {
    pub(crate) fn ring(&self) {
        self.rings.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl<R: Runtime> Timer<R> {
    async fn run(self, alarm: Arc<Alarm>, clock: Clock<R>) {
        let mut suspension = Suspension::watch(&clock);
        // Only the caller's handles keep the driver alive.
        while let Some(driver) = self.0.upgrade() {
            if suspension.has_ended(&clock) {
                driver.call(Input::Resume);
            }
            let next = driver.handle_timeout();
            #[cfg(feature = "trace")]
            driver.report_if_broken();
            drop(driver);
            let rung = poll_fn(|cx| {
                alarm.waker.register(cx.waker());
                if alarm.rings.swap(false, Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
            });
            clock.before(next, rung).await;
            let now = clock.now();
            if next.is_some_and(|at| now.saturating_since(at) > LATE) {
                // Else a check whose answer lies in its socket would fail, and all connections be closed.
                clock.sleep_until(now + A_TURN).await;
            }
        }
    }
}

impl<R: Runtime> Drop for Timer<R> {
    fn drop(&mut self) {
        if let Some(driver) = self.0.upgrade() {
            driver.handle_runtime_gone();
        }
    }
}

impl Suspension {
    fn watch<R: Runtime>(clock: &Clock<R>) -> Self {
        Self { now: clock.now(), unix_time: clock.runtime().unix_time() }
    }

    /// Whether the machine was suspended since the last call.
    fn has_ended<R: Runtime>(&mut self, clock: &Clock<R>) -> bool {
        let before = std::mem::replace(self, Self::watch(clock));
        let counted = self.now.saturating_since(before.now);
        self.unix_time.saturating_sub(before.unix_time) > counted.saturating_add(SUSPENSION)
    }
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

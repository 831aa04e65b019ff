//! Uses of connections: which of them are slow, and what those took that are over.
//!
//! The timer looks when the first use in progress may be due. A use that begins later is due later, so a check-out has nothing
//! to arm but the first look after a time without uses; and no look follows while nobody uses a connection or waits for one.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::pool::{Handle, InUse};
use cmap_core::time::Instant;

use super::Driver;
use super::state::State;
use crate::events::Event;
use crate::runtime::Runtime;
use crate::watch::{NotedUse, PastUse, Place, PossibleLeak, Tag, UseReport, Uses};

impl<R: Runtime> Driver<R> {
    /// The first byte of a reply has come, which counts where possible leaks are reported.
    pub(crate) fn note_reply(&self, connection: Handle) {
        if self.settings.leak_detection_threshold.is_none() {
            return;
        }
        let now = self.clock.now();
        if let Some(activity) = self.lock().activity(connection) {
            activity.replied = Some(now);
        }
    }

    /// What uses took.
    pub(crate) fn uses(&self) -> UseReport {
        let now = self.clock.now();
        self.lock().use_report(now)
    }

    /// Tells the log what uses took, once, and what was not given back.
    pub(crate) fn log_uses(&self, is_over: bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        let Some(uses) = state.uses() else { return };
        if std::mem::replace(&mut uses.was_told, true) && !is_over {
            return;
        }
        let report = state.use_report(now);
        drop(state);
        #[cfg(feature = "tracing")]
        crate::events::logging::uses(&report, is_over);
        #[cfg(not(feature = "tracing"))]
        drop(report);
    }
}

impl<R: Runtime> State<R> {
    /// When to look for possible leaks.
    #[inline]
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.watch.as_ref()?.uses.as_ref()?.next_look
    }

    /// The uses, where possible leaks are watched.
    #[inline(always)]
    fn uses(&mut self) -> Option<&mut Uses> {
        self.watch.as_mut()?.uses.as_mut()
    }

    /// Tells of the uses that have become slow.
    pub(super) fn tell_possible_leaks(&mut self, now: Instant) {
        if self.next_look().is_none_or(|at| at > now) {
            return;
        }
        let Some(limit) = self.uses().map(|uses| uses.limit) else { return };
        let (mut slow, mut next, mut is_busy) = (Vec::new(), now + limit, false);
        for (server, pool) in self.machine.pools() {
            is_busy |= pool.counts().waiting > 0;
            for held in pool.connections_in_use() {
                is_busy = true;
                let activity = self.activities.get(&(server, held.connection.id()));
                if activity.is_some_and(|activity| activity.told == Some(held.check_out)) {
                    continue;
                }
                let replied = activity.and_then(|activity| activity.replied).unwrap_or(Instant::ORIGIN);
                let due = held.since.max(replied) + limit;
                if due > now {
                    next = next.min(due);
                } else {
                    slow.push((server, held));
                }
            }
        }
        is_busy |= self.machine.waiting_for_servers().next().is_some();
        for (server, held) in slow {
            let holder = self.holder(now, server, &held);
            if let Some(activity) = self.activities.get_mut(&(server, held.connection.id())) {
                activity.told = Some(held.check_out);
            }
            let address = Arc::clone(&holder.address);
            self.events.push(&address, Event::PossibleLeak(Arc::new(PossibleLeak { limit, holder })));
        }
        if let Some(uses) = self.uses() {
            uses.next_look = is_busy.then_some(next);
        }
    }

    /// The connection is about to come back.
    #[inline]
    pub(super) fn note_end_of_use(&mut self, now: Instant, connection: Handle, tag: Tag) {
        if self.watch.is_some() {
            self.note_use(now, connection, tag);
        }
    }

    #[inline(never)]
    fn note_use(&mut self, now: Instant, connection: Handle, tag: Tag) {
        let Some(server) = self.machine.pool_of(connection) else { return };
        let pool = self.machine.server(server).map(|server| server.pool());
        if let Some(InUse { since, .. }) = pool.and_then(|pool| pool.use_of(connection)) {
            let took = now.as_nanos().saturating_sub(since.as_nanos());
            if self.uses().is_some_and(|uses| uses.count(tag.label, took)) {
                self.note_long_use(connection, tag, since, took);
            }
        }
    }

    /// It is the longest of its label, or one of the slowest.
    fn note_long_use(&mut self, connection: Handle, tag: Tag, since: Instant, took: u64) {
        if !self.uses().is_some_and(|uses| uses.note_long(tag.label, took)) {
            return;
        }
        let Some((server, id)) = self.place(connection) else { return };
        let command = self.activities.get(&(server, id)).and_then(|activity| activity.command);
        // One before the delivery was an earlier holder's.
        let command = command.filter(|command| command.began >= since).map(|command| command.name);
        let took = Duration::from_nanos(took);
        let over = NotedUse { server, connection: id, took, tag, command: command.unwrap_or_default() };
        self.uses().into_iter().for_each(|uses| uses.note_slow(over));
    }

    fn use_report(&self, now: Instant) -> UseReport {
        let Some(watch) = &self.watch else { return UseReport::default() };
        let slowest = watch.slowest_uses().iter().map(|over| PastUse {
            address: self.address_of(over.server),
            connection_id: over.connection,
            took: over.took,
            label: watch.label_text(over.tag.label),
            place: over.tag.place.map(Place::from),
            command: watch.command_text(over.command),
        });
        UseReport {
            labels: watch.uses_by_label(),
            slowest: slowest.collect(),
            in_use: self.holders(now),
            folded_labels: watch.folded_labels(),
        }
    }
}

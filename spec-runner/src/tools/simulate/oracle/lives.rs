//! How long connections live, and in what state they are delivered (CMAP-3, X-84, X-97).

use std::time::Duration;

use cmap_core::options::PoolOptions;
use cmap_core::pool::Handle;
use cmap_core::time::Instant;

use super::super::ledger::Connection;
use super::super::mark::Mark;
use super::{Broken, Oracle, law};

/// The limits of a connection's life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lives {
    max_idle_time: Option<Duration>,
    /// These two hold at a delivery where minPoolSize keeps nothing alive.
    max_lifetime: Option<Duration>,
    max_uses: Option<u32>,
}

impl Lives {
    pub(super) fn of(options: &PoolOptions) -> Self {
        let keeps_none = options.min_pool_size.unwrap_or_default() == 0;
        Self {
            max_idle_time: options.max_idle_time.filter(|time| !time.is_zero()),
            max_lifetime: options.max_lifetime.filter(|_| keeps_none),
            max_uses: options.max_uses.filter(|_| keeps_none),
        }
    }

    /// Judges a connection that is delivered, and counts the use.
    pub(super) fn judge_delivery(self, connection: &mut Connection, now: Instant) -> Result<(), Broken> {
        let Connection { established_at, available_since, uses, answered_at, is_suspect, .. } = *connection;
        connection.uses += 1;
        law("after a suspension a connection is looked at before it is delivered", !is_suspect, || {
            format!("{connection:?}")
        })?;
        let is_young = self.max_uses.is_none_or(|max| uses < max);
        law("a connection serves no more than maxUses check-outs", is_young, || format!("{connection:?}"))?;
        // A look and a ping take time, in which it may grow too old.
        let has_just_answered = answered_at == Some(now);
        let is_fresh = |since: Instant, max: Option<Duration>| {
            has_just_answered || max.is_none_or(|max| now.saturating_since(since) <= max)
        };
        law(
            "a connection that was idle for too long is not delivered",
            is_fresh(available_since, self.max_idle_time),
            || format!("{connection:?} at {now:?}"),
        )?;
        law(
            "a connection that lives for too long is not delivered",
            is_fresh(established_at, self.max_lifetime),
            || format!("{connection:?} at {now:?}"),
        )
    }
}

impl Oracle {
    // What the driver does.

    /// The process goes on after a suspension that its clock has not counted.
    pub(in super::super) fn resumed(&mut self) {
        self.marks.meet(Mark::Resumed);
        self.connections.suspect_available();
    }

    /// A connection becomes available, with a use or its establishment behind it.
    pub(super) fn rests_from_now(&mut self, connection: Handle, is_new: bool) {
        let now = self.now;
        if let Some(known) = self.connections.find(connection) {
            known.available_since = now;
            if is_new {
                known.established_at = now;
            }
        }
    }

    /// It has answered to a look or a ping.
    pub(super) fn answered(&mut self, connection: Handle) {
        let now = self.now;
        self.connections.find(connection).into_iter().for_each(|known| known.answered_at = Some(now));
    }

    // What the machine does.

    /// A connection is looked at, or pinged.
    pub(super) fn looked_at(&mut self, connection: Handle) {
        self.connections.find(connection).into_iter().for_each(|known| known.is_suspect = false);
    }
}

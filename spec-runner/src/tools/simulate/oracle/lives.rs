//! How long connections live, and in what state they are delivered (CMAP-3, X-84, X-97).

use std::time::Duration;

use cmap_core::options::PoolOptions;
use cmap_core::time::Instant;

use super::super::ledger::{Connection, State};
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
    /// Those of a client whose timeouts are handled so late.
    pub(super) fn of(options: &PoolOptions, lateness: Duration) -> Self {
        let keeps_none = options.min_pool_size.unwrap_or_default() == 0;
        Self {
            max_idle_time: options.max_idle_time.filter(|time| !time.is_zero()),
            // A timeout ends it.
            max_lifetime: options.max_lifetime.filter(|_| keeps_none).map(|lifetime| lifetime + lateness),
            max_uses: options.max_uses.filter(|_| keeps_none),
        }
    }

    /// A connection leaves the state that it was in.
    pub(super) fn leave(connection: &mut Connection, state: State, now: Instant) {
        match state {
            State::Pending => (connection.established_at, connection.available_since) = (now, now),
            State::InUse => connection.available_since = now,
            // One that was alive a moment ago begins to idle anew.
            State::Checking => (connection.available_since, connection.answered_at) = (now, Some(now)),
            // A ping changes nothing of that.
            State::Refreshing => connection.answered_at = Some(now),
            State::Available => connection.is_suspect = false,
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
}

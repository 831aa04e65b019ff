//! How long check-outs wait, establishments take, connections are used and lie idle.
//!
//! The state has it all: an entry of the wait queue knows when its check-out began and when its use did, a connection since when
//! it has been available. So a duration is recorded where the state changes that it belongs to, and nothing is noted for it.
//! Nobody who listens to events is needed, and none can be missed.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::connections::Stage;
use super::list::Key;
use super::phases::PhaseDurations;
use super::{ClosedTotals, FailedTotals, Pool, Stats};
use crate::statistics::Histogram;
use crate::time::Instant;

/// What a pool has done over a period: its counts and totals and, where they are [recorded](Pool::record_durations), how long
/// all of it took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Statistics {
    /// The period: until the moment at which this was asked for, and from the caller's origin of time, or from the
    /// [earlier](Self::since) moment.
    pub period: Duration,
    /// Counts at the end of the period, high-water marks since the beginning, and the totals of the period.
    pub stats: Stats,
    /// `None` if they are not recorded.
    pub durations: Option<Box<Durations>>,
}

/// How long it took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Durations {
    /// From the start of a check-out to its delivery; those that failed are not in it.
    pub wait: Histogram,
    /// From the creation of a connection until it was established, successfully.
    pub establishment: Histogram,
    /// What of that each phase took, as far as the driver says: of a [pool](Pool::note_phases) alone, or of all pools of a
    /// [topology](crate::topology::Topology::note_phases) together, however many these are.
    pub phases: Option<Box<PhaseDurations>>,
    /// From a delivery to the check-in. Connections that never came back are not in it.
    pub in_use: Histogram,
    /// From a connection's return, or its establishment, until it is taken again: delivered, or checked before that. One that
    /// is taken at once was not idle.
    pub idle: Histogram,
}

/// Pools of one topology that have histograms: those in its first places, so that all of them together have a limit.
const MOST: u32 = 4;

impl Durations {
    pub(crate) fn add(&mut self, other: &Self) {
        self.add_phases(other.phases.as_deref());
        let Self { wait, establishment, phases: _, in_use, idle } = self;
        wait.add(&other.wait);
        establishment.add(&other.establishment);
        in_use.add(&other.in_use);
        idle.add(&other.idle);
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            wait: self.wait.since(&earlier.wait),
            establishment: self.establishment.since(&earlier.establishment),
            phases: self.phases_since(earlier),
            in_use: self.in_use.since(&earlier.in_use),
            idle: self.idle.since(&earlier.idle),
        }
    }
}

impl Statistics {
    /// What happened after `earlier`, which was asked of the same pool. Counts and high-water marks are the later ones.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let durations = match (&self.durations, &earlier.durations) {
            (Some(later), Some(earlier)) => Some(Box::new(later.since(earlier))),
            (later, _) => later.clone(),
        };
        let period = self.period.saturating_sub(earlier.period);
        Self { period, stats: self.stats.since(&earlier.stats), durations }
    }

    /// A total of the period as a number per second; 0 for a period without length.
    pub fn per_second(&self, total: u64) -> f64 {
        let seconds = self.period.as_secs_f64();
        if seconds > 0.0 { total as f64 / seconds } else { 0.0 }
    }
}

impl Stats {
    /// The totals of the time after `earlier`. Counts and high-water marks stay.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let (closed, failed) = (&self.closed, &self.check_outs_failed);
        Self {
            counts: self.counts,
            high_water: self.high_water,
            high_water_total: self.high_water_total,
            created: self.created.saturating_sub(earlier.created),
            established: self.established.saturating_sub(earlier.established),
            closed: ClosedTotals {
                stale: closed.stale.saturating_sub(earlier.closed.stale),
                idle: closed.idle.saturating_sub(earlier.closed.idle),
                error: closed.error.saturating_sub(earlier.closed.error),
                pool_closed: closed.pool_closed.saturating_sub(earlier.closed.pool_closed),
                surplus: closed.surplus.saturating_sub(earlier.closed.surplus),
            },
            check_outs_started: self.check_outs_started.saturating_sub(earlier.check_outs_started),
            checked_out: self.checked_out.saturating_sub(earlier.checked_out),
            check_outs_failed: FailedTotals {
                pool_closed: failed.pool_closed.saturating_sub(earlier.check_outs_failed.pool_closed),
                timeout: failed.timeout.saturating_sub(earlier.check_outs_failed.timeout),
                connection_error: failed.connection_error.saturating_sub(earlier.check_outs_failed.connection_error),
            },
            cancelled: self.cancelled.saturating_sub(earlier.cancelled),
            checked_in: self.checked_in.saturating_sub(earlier.checked_in),
            cleared: self.cleared.saturating_sub(earlier.cleared),
        }
    }
}

impl<C> Pool<C> {
    /// Records from now on how long everything takes, or forgets what was recorded. Off at first. Four kilobytes; a pool that
    /// is not among the first four of its topology ignores it.
    pub fn record_durations(&mut self, on: bool) {
        if self.durations.is_some() != on {
            self.durations = (on && self.id.slot < MOST).then(Box::default);
        }
        self.renew_attention();
    }

    /// What the pool has done until `now`.
    pub fn statistics(&self, now: Instant) -> Statistics {
        let period = self.now.max(now).saturating_since(Instant::ORIGIN);
        Statistics { period, stats: self.stats(), durations: self.durations.clone() }
    }

    /// minPoolSize and maxPoolSize as they are now; no maximum where there is none.
    pub fn sizes(&self) -> (u32, Option<u32>) {
        let max = self.limits.max_pool_size;
        (self.limits.min_pool_size, (max != u32::MAX).then_some(max))
    }

    pub(crate) fn durations(&self) -> Option<&Durations> {
        self.durations.as_deref()
    }

    /// A check-out has its connection.
    #[inline]
    pub(super) fn record_wait(&mut self, check_out: Key) {
        if let Some(durations) = &mut self.durations {
            durations.wait.record_nanos(self.now.nanos_since(self.wait_queue.started_at(check_out)));
        }
    }

    /// An available connection is taken.
    #[inline]
    pub(super) fn record_idle(&mut self, connection: Key) {
        if let Some(durations) = &mut self.durations
            && let Stage::Available { since, .. } = self.connections.slot(connection).stage
            && since < self.now
        {
            durations.idle.record_nanos(self.now.nanos_since(since));
        }
    }

    /// The use of a connection ends.
    #[inline]
    pub(super) fn record_use(&mut self, connection: Key) {
        if let Some(durations) = &mut self.durations
            && let Stage::InUse { check_out, .. } = self.connections.slot(connection).stage
        {
            durations.in_use.record_nanos(self.now.nanos_since(self.wait_queue.in_use_since(check_out)));
        }
    }

    /// A connection was established.
    pub(super) fn record_establishment(&mut self, duration: Duration) {
        if let Some(durations) = &mut self.durations {
            durations.establishment.record(duration);
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { period, stats, durations } = self;
        let (rate, high) = (self.per_second(stats.checked_out), stats.high_water);
        writeln!(f, "in {period:.3?}: {} check-outs, {rate} a second", stats.checked_out)?;
        writeln!(
            f,
            "at most {} in use, {} waiting, {} pending, {} connections",
            high.in_use, high.waiting, high.pending, stats.high_water_total
        )?;
        durations.as_ref().map_or(Ok(()), |durations| durations.fmt(f))
    }
}

impl fmt::Display for Durations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wait, establishment, phases, in_use, idle } = self;
        writeln!(f, "wait           {wait}")?;
        writeln!(f, "establishment  {establishment}")?;
        phases.iter().try_for_each(|phases| write!(f, "{phases}"))?;
        writeln!(f, "in use         {in_use}")?;
        writeln!(f, "idle           {idle}")
    }
}

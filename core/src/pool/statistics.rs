//! What a pool has done: counts, totals and high-water marks, and how long check-outs wait, establishments and their phases take,
//! connections are used and lie idle.
//!
//! The state has it all: an entry of the wait queue knows when its check-out began and when its use did, a connection since when
//! it has been available. So a duration is recorded where the state changes that it belongs to, and nothing is noted for it.
//! Nobody who listens to events is needed, and none can be missed.
//!
//! A pool sees the creation of a connection and its end; what goes on in between is the driver's. So the driver measures the phases
//! and hands them in with the connection. A topology has one set of their histograms for all its pools, so that they take
//! little memory.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::list::Key;
use super::output::{CheckOutFailedReason, ConnectionClosedReason};
use super::{Handle, Pool};
use crate::connection::Phase;
use crate::statistics::Histogram;
use crate::time::Instant;

/// A pool's connections by state (CMAP-12), and its waiters, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Being established.
    pub pending: u32,
    /// Established and not in use; those being checked before their delivery, or refreshed, included.
    pub available: u32,
    /// Checked out.
    pub in_use: u32,
    /// Check-outs that wait.
    pub waiting: u32,
}

/// A snapshot of the pool: [`Counts`] now, high-water marks, and totals since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stats {
    /// Now.
    pub counts: Counts,
    /// The highest number of each, not necessarily at the same time.
    pub high_water: Counts,
    /// The highest number of connections.
    pub high_water_total: u32,
    /// Connections created.
    pub created: u64,
    /// Connections established.
    pub established: u64,
    /// Connections closed, by reason.
    pub closed: ClosedTotals,
    /// Check-outs started.
    pub check_outs_started: u64,
    /// Check-outs that got a connection.
    pub checked_out: u64,
    /// Check-outs that failed, by reason; cancelled ones included.
    pub check_outs_failed: FailedTotals,
    /// Check-outs that their callers cancelled.
    pub cancelled: u64,
    /// Connections checked in.
    pub checked_in: u64,
    /// Times that the pool, or a service's part of it, was cleared.
    pub cleared: u64,
}

/// What is counted as it happens; the rest of [`Stats`] follows from the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) high_water: Counts,
    pub(crate) high_water_total: u32,
    pub(crate) established: u64,
    pub(crate) closed: ClosedTotals,
    pub(crate) check_outs_failed: FailedTotals,
    pub(crate) cancelled: u64,
    pub(crate) cleared: u64,
}

/// Connections closed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClosedTotals {
    /// The pool had been cleared.
    pub stale: u64,
    /// Available for longer than maxIdleTimeMS.
    pub idle: u64,
    /// Establishing or using it failed.
    pub error: u64,
    /// The pool was closed.
    pub pool_closed: u64,
    /// There were more than the limits allow.
    pub surplus: u64,
}

/// Check-outs that failed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedTotals {
    /// The pool was closed.
    pub pool_closed: u64,
    /// Time was up.
    pub timeout: u64,
    /// Anything else.
    pub connection_error: u64,
}

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

/// How long the phases of one establishment took; those that it had none of are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTimes([Option<Duration>; 4]);

/// How long the phases of establishments took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PhaseDurations {
    /// Until there was a socket: the host's name, the proxy and the connection together.
    pub connect: Histogram,
    /// The TLS handshake, where there was one.
    pub tls: Histogram,
    /// The first hello.
    pub hello: Histogram,
    /// Authentication, where there was one, with the derivation of keys.
    pub authenticate: Histogram,
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
    /// What has happened in a pool that is gone: its high-water marks say nothing of what is there.
    pub(crate) fn without_marks(self) -> Self {
        Self { counts: Counts::default(), high_water: Counts::default(), high_water_total: 0, ..self }
    }

    /// Those of two pools together. High-water marks are added, though the pools may not have reached them at the same time.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            counts: self.counts.with(other.counts, u32::saturating_add),
            high_water: self.high_water.with(other.high_water, u32::saturating_add),
            high_water_total: self.high_water_total.saturating_add(other.high_water_total),
            ..self.with_totals(&other, u64::saturating_add)
        }
    }

    /// The totals of the time after `earlier`. Counts and high-water marks stay.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with_totals(earlier, u64::saturating_sub)
    }

    /// Each total combined with the `other` one. Counts and high-water marks stay.
    fn with_totals(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            counts: self.counts,
            high_water: self.high_water,
            high_water_total: self.high_water_total,
            created: combine(self.created, other.created),
            established: combine(self.established, other.established),
            closed: self.closed.with(other.closed, combine),
            check_outs_started: combine(self.check_outs_started, other.check_outs_started),
            checked_out: combine(self.checked_out, other.checked_out),
            check_outs_failed: self.check_outs_failed.with(other.check_outs_failed, combine),
            cancelled: combine(self.cancelled, other.cancelled),
            checked_in: combine(self.checked_in, other.checked_in),
            cleared: combine(self.cleared, other.cleared),
        }
    }
}

impl Counts {
    /// Each count combined with the `other` one.
    pub(crate) fn with(self, other: Self, combine: fn(u32, u32) -> u32) -> Self {
        Self {
            pending: combine(self.pending, other.pending),
            available: combine(self.available, other.available),
            in_use: combine(self.in_use, other.in_use),
            waiting: combine(self.waiting, other.waiting),
        }
    }

    /// Connections in all (CMAP-12).
    pub fn total(&self) -> u32 {
        self.pending.saturating_add(self.available).saturating_add(self.in_use)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pending, available, in_use, waiting } = self;
        write!(f, "{in_use} in use, {available} available, {pending} pending, {waiting} waiting")
    }
}

impl ClosedTotals {
    fn with(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            stale: combine(self.stale, other.stale),
            idle: combine(self.idle, other.idle),
            error: combine(self.error, other.error),
            pool_closed: combine(self.pool_closed, other.pool_closed),
            surplus: combine(self.surplus, other.surplus),
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        let Self { stale, idle, error, pool_closed, surplus } = *self;
        [stale, idle, error, pool_closed, surplus].into_iter().fold(0, u64::saturating_add)
    }

    pub(crate) fn count(&mut self, reason: ConnectionClosedReason) {
        match reason {
            ConnectionClosedReason::Stale => self.stale = self.stale.saturating_add(1),
            ConnectionClosedReason::Idle => self.idle = self.idle.saturating_add(1),
            ConnectionClosedReason::Error => self.error = self.error.saturating_add(1),
            ConnectionClosedReason::PoolClosed => self.pool_closed = self.pool_closed.saturating_add(1),
            ConnectionClosedReason::Surplus => self.surplus = self.surplus.saturating_add(1),
        }
    }
}

impl FailedTotals {
    fn with(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            pool_closed: combine(self.pool_closed, other.pool_closed),
            timeout: combine(self.timeout, other.timeout),
            connection_error: combine(self.connection_error, other.connection_error),
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.pool_closed.saturating_add(self.timeout).saturating_add(self.connection_error)
    }

    pub(crate) fn count(&mut self, reason: CheckOutFailedReason) {
        match reason {
            CheckOutFailedReason::PoolClosed => self.pool_closed = self.pool_closed.saturating_add(1),
            CheckOutFailedReason::Timeout => self.timeout = self.timeout.saturating_add(1),
            CheckOutFailedReason::ConnectionError => self.connection_error = self.connection_error.saturating_add(1),
        }
    }
}

impl Durations {
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { wait, establishment, phases, in_use, idle } = other;
        self.wait.add(wait);
        self.establishment.add(establishment);
        if let Some(phases) = phases {
            self.phases.get_or_insert_default().add(phases);
        }
        self.in_use.add(in_use);
        self.idle.add(idle);
    }

    pub(crate) fn record_phases(&mut self, times: &PhaseTimes) {
        self.phases.get_or_insert_default().record(times);
    }

    fn since(&self, earlier: &Self) -> Self {
        let phases = match (&self.phases, &earlier.phases) {
            (Some(later), Some(earlier)) => Some(Box::new(later.since(earlier))),
            (later, _) => later.clone(),
        };
        Self {
            wait: self.wait.since(&earlier.wait),
            establishment: self.establishment.since(&earlier.establishment),
            phases,
            in_use: self.in_use.since(&earlier.in_use),
            idle: self.idle.since(&earlier.idle),
        }
    }
}

impl PhaseTimes {
    /// Adds a part of a phase.
    pub fn add(&mut self, phase: Phase, took: Duration) {
        let Self([connect, tls, hello, authenticate]) = self;
        let all = match phase {
            // What comes before there is a socket is one to those who wait.
            Phase::Resolve | Phase::Proxy | Phase::Connect => connect,
            Phase::Tls => tls,
            Phase::Hello => hello,
            Phase::Authenticate => authenticate,
        };
        *all = Some(all.unwrap_or_default().saturating_add(took));
    }
}

impl PhaseDurations {
    fn record(&mut self, times: &PhaseTimes) {
        let Self { connect, tls, hello, authenticate } = self;
        for (histogram, took) in [connect, tls, hello, authenticate].into_iter().zip(times.0) {
            took.into_iter().for_each(|took| histogram.record(took));
        }
    }

    fn add(&mut self, other: &Self) {
        let Self { connect, tls, hello, authenticate } = self;
        connect.add(&other.connect);
        tls.add(&other.tls);
        hello.add(&other.hello);
        authenticate.add(&other.authenticate);
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            connect: self.connect.since(&earlier.connect),
            tls: self.tls.since(&earlier.tls),
            hello: self.hello.since(&earlier.hello),
            authenticate: self.authenticate.since(&earlier.authenticate),
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

    /// Records how long the phases of an establishment took that has ended well. Call it before
    /// [`handle_established`](Self::handle_established). Nothing happens where durations are [not
    /// recorded](Self::record_durations), or if the connection is not this pool's.
    pub fn note_phases(&mut self, connection: Handle, times: &PhaseTimes) {
        if connection.pool == self.id
            && let Some(durations) = &mut self.durations
        {
            durations.record_phases(times);
        }
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
            && let Some(since) = self.connections.slot(connection).stage.unused_since()
            && since < self.now
        {
            durations.idle.record_nanos(self.now.nanos_since(since));
        }
    }

    /// The use of a connection ends.
    #[inline]
    pub(super) fn record_use(&mut self, connection: Key) {
        if let Some(durations) = &mut self.durations
            && let Some(check_out) = self.connections.slot(connection).stage.user()
        {
            durations.in_use.record_nanos(self.now.nanos_since(self.wait_queue.started_at(check_out)));
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

impl fmt::Display for PhaseDurations {
    /// A line for each phase that there was.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connect, tls, hello, authenticate } = self;
        let lines =
            [("  connect", connect), ("  TLS", tls), ("  hello", hello), ("  authenticate", authenticate)].into_iter();
        lines
            .filter(|(_, histogram)| histogram.count() > 0)
            .try_for_each(|(name, took)| writeln!(f, "{name:14} {took}"))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn parts_of_a_phase_are_one_and_phases_that_were_not_are_left_out() {
        let mut times = PhaseTimes::default();
        times.add(Phase::Resolve, 2 * MS);
        times.add(Phase::Connect, 3 * MS);
        times.add(Phase::Hello, 7 * MS);
        let mut durations = PhaseDurations::default();

        durations.record(&times);

        let counts =
            [&durations.connect, &durations.tls, &durations.hello, &durations.authenticate].map(Histogram::count);
        assert_eq!((counts, durations.connect.longest(), durations.hello.longest()), ([1, 0, 1, 0], 5 * MS, 7 * MS));
        let text = durations.to_string();
        assert!(text.lines().count() == 2 && text.starts_with("  connect      1 times, mean 5.000ms"), "{text}");
    }

    #[test]
    fn the_histograms_of_a_client_take_24_kibibytes_at_most() {
        // Those of four pools, and of servers that have left; and the phases of all.
        assert!(5 * size_of::<Durations>() + size_of::<PhaseDurations>() <= 24 << 10);
    }
}

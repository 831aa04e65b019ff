//! How long the phases of establishments took.
//!
//! A pool sees the creation of a connection and its end; what goes on in between is the driver's. So the driver measures it,
//! and hands it in with the connection. A topology has one set of histograms for all its pools, so that they take little memory.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Durations, Handle, Pool};
use crate::connection::Phase;
use crate::statistics::Histogram;

/// How long the phases of one establishment took; those that it had none of are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTimes([Option<Duration>; PHASES]);

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

const PHASES: usize = 4;

impl PhaseTimes {
    /// Adds a part of a phase.
    pub fn add(&mut self, phase: Phase, took: Duration) {
        if let Some(all) = self.0.get_mut(place(phase)) {
            *all = Some(all.unwrap_or_default().saturating_add(took));
        }
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
}

impl Durations {
    pub(crate) fn record_phases(&mut self, times: &PhaseTimes) {
        self.phases.get_or_insert_default().record(times);
    }

    pub(super) fn add_phases(&mut self, other: Option<&PhaseDurations>) {
        if let Some(other) = other {
            self.phases.get_or_insert_default().add(other);
        }
    }

    pub(super) fn phases_since(&self, earlier: &Self) -> Option<Box<PhaseDurations>> {
        match (&self.phases, &earlier.phases) {
            (Some(later), Some(earlier)) => Some(Box::new(later.since(earlier))),
            (later, _) => later.clone(),
        }
    }
}

/// The histogram of a phase. What comes before there is a socket is one to those who wait.
fn place(phase: Phase) -> usize {
    match phase {
        Phase::Resolve | Phase::Proxy | Phase::Connect => 0,
        Phase::Tls => 1,
        Phase::Hello => 2,
        Phase::Authenticate => 3,
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

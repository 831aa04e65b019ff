//! What is counted: what callers saw in each scene, and what the pool says at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use cmap_core::pool::Stats;

use crate::soak::failure::{Failure, Kind, Surroundings};

/// What callers saw while a scene was played.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    /// How long each check-out waited that led to a ping.
    waits: Vec<Duration>,
    pub(super) errors: BTreeMap<Kind, Seen>,
}

/// Errors of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) count: u64,
    /// The first of them, in its own words.
    pub(super) example: String,
}

/// A scene that is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    pub(super) time: Duration,
    pub(super) scene: Scene,
    /// Check-outs that waited just before the end.
    pub(super) waiting: u32,
    /// Connections that were in use then.
    pub(super) in_use: u32,
}

/// What happened on one runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) busy: Played,
    pub(super) kept: Played,
    /// The outage and what came after it, if the server was stopped.
    pub(super) outage: Option<(Played, Played)>,
    /// From the server's return to the first ping.
    pub(super) recovery: Option<Duration>,
    pub(super) restarts: u64,
    /// What the server does that explains errors.
    pub(super) surroundings: Surroundings,
    /// The pool after its close.
    pub(super) end: Stats,
    /// Tasks that did not come to their end.
    pub(super) stuck: u32,
    /// Connections whose work the close had to cut off.
    pub(super) cut_off: u32,
}

impl Scene {
    pub(super) fn succeeded(&mut self, waited: Duration) {
        self.waits.push(waited);
    }

    pub(super) fn failed(&mut self, failure: &Failure) {
        let seen = self.errors.entry(failure.kind()).or_insert_with(|| Seen { count: 0, example: failure.to_string() });
        seen.count += 1;
    }

    pub(super) fn pings(&self) -> usize {
        self.waits.len()
    }

    pub(super) fn failures(&self) -> u64 {
        self.errors.values().map(|seen| seen.count).sum()
    }
}

impl Played {
    pub(super) fn pings_per_second(&self) -> f64 {
        self.scene.pings() as f64 / self.time.as_secs_f64().max(0.001)
    }

    /// The median, 99 % and the longest of the waits.
    pub(super) fn waits(&self) -> [Duration; 3] {
        let mut waits = self.scene.waits.clone();
        waits.sort_unstable();
        let last = waits.len().saturating_sub(1);
        [last / 2, last * 99 / 100, last].map(|index| waits.get(index).copied().unwrap_or_default())
    }
}

impl Outcome {
    /// Errors of all scenes.
    pub(super) fn errors(&self) -> BTreeMap<Kind, u64> {
        let outage = self.outage.iter().flat_map(|(outage, after)| [outage, after]);
        let scenes = [&self.busy, &self.kept].into_iter().chain(outage);
        let mut errors = BTreeMap::new();
        for (kind, seen) in scenes.flat_map(|played| &played.scene.errors) {
            *errors.entry(*kind).or_default() += seen.count;
        }
        errors
    }

    /// Everything that is missing, or should not have happened.
    pub(super) fn problems(&self) -> Vec<String> {
        let end = &self.end;
        let missing = [
            ("check-outs that never ended", end.check_outs_started, end.checked_out + end.check_outs_failed.total()),
            ("connections that never came back", end.checked_out, end.checked_in),
            ("connections that were never closed", end.created, end.closed.total()),
            ("tasks that did not come to their end", self.stuck.into(), 0),
            ("connections that the close had to cut off", self.cut_off.into(), 0),
            ("recoveries after a restart", self.restarts, self.recovery.iter().count() as u64),
        ];
        let missing = missing.into_iter().filter(|(_, all, found)| all != found);
        let missing = missing.map(|(what, all, found)| format!("{} {what}", all.abs_diff(found)));
        let strange = self.errors().into_iter().filter(|(kind, _)| !kind.is_expected(self.surroundings));
        missing.chain(strange.map(|(kind, count)| format!("{count} errors without a cause: {kind}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waits_are_told_by_their_quantiles() {
        let mut scene = Scene::default();
        (0..=100).rev().for_each(|wait| scene.succeeded(wait * MS));

        let played = Played { time: 1000 * MS, scene, ..Played::default() };

        assert_eq!(played.waits(), [50 * MS, 99 * MS, 100 * MS]);
        assert_eq!(played.pings_per_second(), 101.0);
    }

    #[test]
    fn a_check_out_that_never_ended_is_missing() {
        let mut result = Outcome::default();
        result.end.check_outs_started = 3;
        result.end.checked_out = 2;
        result.end.checked_in = 2;

        assert_eq!(result.problems(), ["1 check-outs that never ended"]);
    }

    #[test]
    fn an_error_without_an_outage_is_a_problem() {
        let mut result = Outcome::default();
        result.busy.scene.failed(&Failure::WrongReply);

        assert_eq!(result.problems(), ["1 errors without a cause: command: wrong reply"]);
    }
}

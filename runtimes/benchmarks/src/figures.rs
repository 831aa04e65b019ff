//! Figures of several rounds, and how they are written.

use std::fmt;
use std::time::Duration;

use crate::cpu::worked;
use crate::tasks::clock;

/// The figures of all rounds.
#[derive(Clone, Debug, Default)]
pub struct Rounds(Vec<f64>);

/// What operations cost, and how fast they go, round by round.
#[derive(Debug, Default)]
pub struct Effort {
    /// Microseconds of work for each: user and system time of this process, on all its threads.
    pub work: Rounds,
    /// Thousands a second.
    pub rate: Rounds,
}

/// The waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantiles {
    pub median: Duration,
    /// Ninety-nine in a hundred waited no longer.
    pub p99: Duration,
    pub max: Duration,
}

impl Rounds {
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    pub fn median(&self) -> f64 {
        self.quartile(2)
    }

    /// Round by round, how many times `other` this is.
    #[must_use]
    pub fn ratio_to(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(own, other)| own / other).collect())
    }

    /// The median, and the range of half of the rounds, with `decimals`; a dash if there were none.
    pub fn show(&self, decimals: usize) -> String {
        if self.0.is_empty() {
            return "–".into();
        }
        let [low, median, high] = [1, 2, 3].map(|number| self.quartile(number));
        format!("{median:.decimals$} ({low:.decimals$}–{high:.decimals$})")
    }

    /// The value that this many quarters of the rounds do not exceed.
    fn quartile(&self, number: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() * number / 4).copied().unwrap_or(f64::NAN)
    }
}

impl Effort {
    /// Adds a round of the operations that `run` counts.
    pub fn round(&mut self, run: impl FnOnce() -> u32) {
        let (start, worked_before) = (clock(), worked());
        let count = f64::from(run());
        let (work, time) = (worked() - worked_before, start.elapsed());
        self.work.push(work.as_secs_f64() * 1e6 / count);
        self.rate.push(count / 1e3 / time.as_secs_f64());
    }
}

impl Quantiles {
    pub fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at = |percent: usize| all.get(all.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default();
        Self { median: at(50), p99: at(99), max: at(100) }
    }
}

/// In microseconds, or in milliseconds from one on.
impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for time in [self.median, self.p99, self.max] {
            let micros = time.as_secs_f64() * 1e6;
            match micros {
                ..10.0 => write!(f, "{separator}{micros:.1} µs"),
                ..1000.0 => write!(f, "{separator}{micros:.0} µs"),
                _ => write!(f, "{separator}{:.1} ms", micros / 1000.0),
            }?;
            separator = " / ";
        }
        Ok(())
    }
}

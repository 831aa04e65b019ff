//! The outcome of a test, in any suite.

use core::fmt;

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As expected, in every round.
    Passed,
    /// Not as expected.
    Failed {
        /// The first round that failed; `None` for a deterministic test, which has no rounds.
        round: Option<Round>,
        /// The faults, one line each; at least one.
        reasons: Vec<String>,
    },
    /// Not carried out, or not to its end.
    Skipped {
        /// The missing feature that it needs.
        reason: String,
    },
}

/// One of the runs of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// The run under this seed, which can be repeated exactly.
    Seed(u64),
    /// The run with this number, from 1; the machine decided its order.
    Run(u64),
}

impl Outcome {
    /// Passed if there are no faults, else failed. For tests without rounds.
    pub fn of(reasons: Vec<String>) -> Self {
        if reasons.is_empty() { Self::Passed } else { Self::Failed { round: None, reasons } }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed(seed) => write!(f, "seed {seed}"),
            Self::Run(number) => write!(f, "run {number}"),
        }
    }
}

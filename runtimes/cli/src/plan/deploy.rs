//! The processes that run at the same time while a new version replaces the old one.

use std::fmt;

use serde::Serialize;

/// How a new version replaces the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Deploy {
    /// The share of new processes that start before old ones stop, in percent of all.
    Rolling {
        /// 1 to 100.
        surge_percent: u32,
    },
    /// All new processes run before the old ones stop.
    BlueGreen,
    /// All old processes stop before the new ones start.
    Recreate,
}

impl Deploy {
    /// The processes that run besides the usual number at most.
    pub(crate) fn additional(self, processes: u32) -> u32 {
        match self {
            // Rounded up, as Kubernetes does.
            Self::Rolling { surge_percent } => {
                let surge = (u64::from(processes) * u64::from(surge_percent)).div_ceil(100);
                u32::try_from(surge).unwrap_or(u32::MAX)
            }
            Self::BlueGreen => processes,
            Self::Recreate => 0,
        }
    }
}

impl fmt::Display for Deploy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rolling { surge_percent } => write!(f, "rolling, {surge_percent} % at a time"),
            Self::BlueGreen => f.write_str("blue-green"),
            Self::Recreate => f.write_str("recreate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_adds_its_processes() {
        let rolling = Deploy::Rolling { surge_percent: 25 };

        assert_eq!([1, 4, 10].map(|processes| rolling.additional(processes)), [1, 1, 3], "rounded up");
        assert_eq!(Deploy::BlueGreen.additional(10), 10);
        assert_eq!(Deploy::Recreate.additional(10), 0);
    }
}

//! What does not fit: limits that are passed, and pools that are too small or have no end.

use std::fmt;

use serde::Serialize;

use super::deployment::{Deployment, Load};
use super::sizes::PoolSizes;

/// Something to change before it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Warning {
    /// The servers take fewer connections than the pools may open.
    LimitPassed {
        /// When.
        phase: Phase,
        /// The connections at each server.
        connections: u64,
        /// What it takes.
        limit: u32,
        /// The largest maxPoolSize that fits; `None` if none does.
        fitting_max_pool_size: Option<u64>,
    },
    /// maxPoolSize is 0: only the load limits the number of connections.
    NoMaxPoolSize,
    /// The measured load needs a larger pool than there may be.
    PoolTooSmall {
        /// What it needs.
        needed: u32,
        /// What the options allow.
        max_pool_size: u32,
    },
    /// The measured load needs a larger pool than the servers' limit leaves room for.
    NeedPassesLimit {
        /// What it needs.
        needed: u32,
        /// The largest maxPoolSize that fits; `None` if none does.
        fitting_max_pool_size: Option<u64>,
    },
}

/// When a limit is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// At any time.
    Always,
    /// Only while a new version replaces the old one.
    WhileDeploying,
}

/// The warnings about a deployment.
pub(super) fn of(deployment: &Deployment, load: Load, needed: Option<PoolSizes>) -> Vec<Warning> {
    let fitting = |limit| deployment.fitting_size(deployment.clients_while_deploying(), limit);
    let mut warnings = Vec::new();
    if let Some(limit) = deployment.limit {
        let passes = |connections: Option<u64>| connections.filter(|count| *count > u64::from(limit));
        let passed = match (passes(load.at_most), passes(load.while_deploying)) {
            (Some(connections), _) => Some((Phase::Always, connections)),
            (None, Some(connections)) => Some((Phase::WhileDeploying, connections)),
            (None, None) => None,
        };
        warnings.extend(passed.map(|(phase, connections)| Warning::LimitPassed {
            phase,
            connections,
            limit,
            fitting_max_pool_size: fitting(limit),
        }));
    }
    let Some(max_pool_size) = deployment.full_pool() else {
        warnings.push(Warning::NoMaxPoolSize);
        return warnings;
    };
    if let Some(PoolSizes { max_pool_size: needed, .. }) = needed {
        if needed > max_pool_size {
            warnings.push(Warning::PoolTooSmall { needed, max_pool_size });
        }
        if let Some(limit) = deployment.limit
            && fitting(limit) < Some(needed.into())
        {
            warnings.push(Warning::NeedPassesLimit { needed, fitting_max_pool_size: fitting(limit) });
        }
    }
    warnings
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LimitPassed { phase, connections, limit, fitting_max_pool_size } => {
                write!(f, "{phase} up to {connections} connections come to a server that takes {limit}: ")?;
                match fitting_max_pool_size {
                    Some(size) => write!(f, "set maxPoolSize to at most {size}, or run fewer processes"),
                    None => f.write_str(
                        "run fewer processes, or put mongos or a proxy between; no maxPoolSize is small enough",
                    ),
                }
            }
            Self::NoMaxPoolSize => {
                f.write_str("maxPoolSize=0 sets no limit, so a slow server gets ever more connections: set one")
            }
            Self::PoolTooSmall { needed, max_pool_size } => {
                write!(
                    f,
                    "the measured load needs maxPoolSize {needed}, and {max_pool_size} is set: check-outs wait; raise it"
                )
            }
            Self::NeedPassesLimit { needed, fitting_max_pool_size } => {
                let fits = fitting_max_pool_size.unwrap_or(0);
                write!(
                    f,
                    "the measured load needs maxPoolSize {needed}, and the servers' limit leaves room for {fits}: "
                )?;
                f.write_str("run fewer processes with larger pools, or raise the limit")
            }
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "at any time",
            Self::WhileDeploying => "while deploying,",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::deployment::tests::deployment;
    use super::super::{Concurrency, Plan};
    use super::*;

    fn warnings(deployment: Deployment) -> Vec<Warning> {
        Plan::new(deployment, None).warnings
    }

    fn of_measured(deployment: Deployment, mean: f64) -> Vec<Warning> {
        Plan::new(deployment, Some(Concurrency::of_mean(mean))).warnings
    }

    #[test]
    fn what_fits_is_not_warned_of() {
        assert_eq!(warnings(deployment()), [], "without a limit");
        assert_eq!(warnings(Deployment { limit: Some(2040), ..deployment() }), [], "with exactly as many");
        assert_eq!(of_measured(Deployment { limit: Some(2040), ..deployment() }, 50.0), []);
    }

    #[test]
    fn a_limit_that_only_a_deployment_passes_is_told_with_the_size_that_fits() {
        let warnings = warnings(Deployment { limit: Some(2039), ..deployment() });

        let [warning @ Warning::LimitPassed { phase: Phase::WhileDeploying, connections: 2040, .. }] = warnings[..]
        else {
            panic!("{warnings:?}");
        };
        let text = warning.to_string();
        assert!(
            text.starts_with("while deploying, up to 2040") && text.contains("maxPoolSize to at most 99"),
            "{text}"
        );
    }

    #[test]
    fn a_limit_that_is_always_passed_is_told_so() {
        let warnings = warnings(Deployment { limit: Some(30), ..deployment() });

        let [Warning::LimitPassed { phase: Phase::Always, fitting_max_pool_size: None, .. }] = warnings[..] else {
            panic!("{warnings:?}");
        };
        assert!(warnings[0].to_string().contains("no maxPoolSize is small enough"), "{}", warnings[0]);
    }

    #[test]
    fn pools_without_an_end_are_told() {
        assert_eq!(warnings(Deployment { max_pool_size: None, ..deployment() }), [Warning::NoMaxPoolSize]);
    }

    #[test]
    fn a_load_that_no_allowed_pool_serves_is_told() {
        let small = Deployment { max_pool_size: Some(10), limit: Some(400), ..deployment() };

        let warnings = of_measured(small, 20.0);

        assert_eq!(
            warnings,
            [
                Warning::PoolTooSmall { needed: 36, max_pool_size: 10 },
                Warning::NeedPassesLimit { needed: 36, fitting_max_pool_size: Some(18) },
            ]
        );
    }
}

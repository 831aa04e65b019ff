//! The options of one pool: their names, defaults and limits (CMAP-1 to CMAP-7).
//!
//! [`PoolOptions`] keeps the options that the user set apart from the defaults, because events and log messages show
//! only the former (CMAP-52, LOG-11). `Limits` is the same after validation, in the units the machine counts in.

use alloc::string::String;
use alloc::string::ToString;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::affinity::Affinity;
use super::error::PoolOptionsError;
use super::profile::Profile;
use super::waiting::{QueueDepth, Reuse};
use crate::time::nanos;

/// Options of a pool; `None` means the default that the field names.
///
/// They are the same for all pools of a client (CMAP-6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PoolOptions {
    /// Most connections at a time: pending, available and in use together; 0 = unlimited. Default 100 (CMAP-1).
    pub max_pool_size: Option<u32>,
    /// Connections that maintenance keeps up while the pool is ready. Default 0 (CMAP-2).
    pub min_pool_size: Option<u32>,
    /// How long a connection may be available before it is closed; zero = forever. Default zero (CMAP-3).
    pub max_idle_time: Option<Duration>,
    /// Most connections that are being established at a time, at least 1. Default 2 (CMAP-4), with [`Profile::Cmap1_1`]
    /// unlimited.
    pub max_connecting: Option<u32>,
    /// How long a check-out waits for a connection or for the permit to create one; zero = forever. Default zero
    /// (CMAP-5).
    pub wait_queue_timeout: Option<Duration>,
    /// When the pool prunes and populates on its own. Default every 500 ms (CMAP-47).
    pub maintenance: Option<Maintenance>,
    /// A connection that was available for longer than this is checked before it is delivered, in case its peer has
    /// hung up. `Duration::MAX` = never. Default 1 s.
    pub check_after_idle: Option<Duration>,
    /// A host that nobody has used for this long has no connections and keeps up none, until it is used again; zero =
    /// forever. Default zero.
    pub host_timeout: Option<Duration>,
    /// Whether the next connection to a server that could not take one (SystemOverloadedError, CMAP-50) is created after a
    /// pause, one at a time, until one has been established. Default true.
    pub backoff: Option<bool>,
    /// Most check-outs that wait at a time in a pool, and most that wait for a server; one more fails at once. Default
    /// unlimited.
    pub max_wait_queue_depth: Option<QueueDepth>,
    /// Which available connection serves next. Default the one returned last.
    pub reuse: Option<Reuse>,
    /// Most connections created in a second, in the long run; as many as may be established at a time (maxConnecting) can be
    /// created at once after a quiet time. At least 1. Default unlimited.
    pub max_new_connections_per_second: Option<u32>,
    /// How long a connection is used after it was established; up to a quarter less, by chance, so that connections
    /// that came together do not go together. Then it is retired. Zero = forever. Default zero.
    pub max_lifetime: Option<Duration>,
    /// How often a connection is used before it is retired; at least 1. Default unlimited.
    pub max_uses: Option<u32>,
    /// What a check-out with a key may rely on: the connection that the key had last. Default nothing: no key has
    /// a connection.
    pub affinity: Option<Affinity>,
    /// A connection that has been idle for this long is used for a `ping` between its uses; zero = never. Default
    /// never.
    pub refresh_requirement: Option<Duration>,
    /// How long such a `ping` may take; less than `refresh_requirement`. Default 20 s, or half of `refresh_requirement`
    /// where that is less.
    pub refresh_timeout: Option<Duration>,
    /// The edition of the specification by which the pool behaves. Default the current one.
    pub profile: Profile,
    /// The seed of all that the pool does by chance: a random number, different for each pool. Default 0.
    pub seed: u64,
    /// Tells pools of one address apart that are made at the same moment, so that each refuses the connections of the
    /// other (CMAP-35). The driver numbers them; users do not set this.
    pub pool_number: u32,
    /// Whether a load balancer stands between: generations are then kept per service (LB-7) and the pool as a whole is
    /// never cleared (LB-8). Default false.
    pub load_balanced: bool,
}

/// When maintenance (CMAP-47) runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Maintenance {
    /// When there is something to do, but never sooner than this after the last run; greater than zero.
    Every(Duration),
    /// Never: nothing is populated, and perished connections are closed only when a check-out meets them.
    Off,
}

/// [`PoolOptions`] after validation: defaults filled in, "unlimited" and "never" as the greatest value, durations in
/// nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) max_pool_size: u32,
    pub(crate) min_pool_size: u32,
    pub(crate) max_connecting: u32,
    pub(crate) max_idle: u64,
    pub(crate) wait_queue_timeout: u64,
    /// Nanoseconds between two runs, or none if maintenance is off.
    pub(crate) maintenance: Option<u64>,
    pub(crate) check_after_idle: u64,
    pub(crate) host_timeout: u64,
    pub(crate) backoff: bool,
    pub(crate) max_wait_queue_depth: u32,
    pub(crate) reuse: Reuse,
    /// Nanoseconds between two new connections in the long run; 0 = no limit.
    pub(crate) creation_interval: u64,
    pub(crate) max_lifetime: u64,
    pub(crate) max_uses: u32,
    pub(crate) affinity: Option<Affinity>,
    pub(crate) refresh_requirement: u64,
    pub(crate) refresh_timeout: u64,
    pub(crate) profile: Profile,
    pub(crate) load_balanced: bool,
}

impl Limits {
    /// For how many nanoseconds connections are held for their keys, where they are.
    #[inline(always)]
    pub(crate) fn hold_time(&self) -> Option<u64> {
        self.affinity?.hold_time()
    }
}

/// A second in nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// As in mongos.
const DEFAULT_REFRESH_TIMEOUT: u64 = 20 * SECOND;

/// "Unlimited" for sizes and "never" for durations.
const NEVER: u64 = u64::MAX;

impl PoolOptions {
    /// CMAP-1.
    pub(crate) const DEFAULT_MAX_POOL_SIZE: u32 = 100;

    /// The options that the user set, under the specification's names, times in milliseconds (CMAP-52, LOG-11).
    pub fn set_by_user(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        [
            ("maxIdleTimeMS", self.max_idle_time.map(millis)),
            ("minPoolSize", self.min_pool_size.map(u64::from)),
            ("maxPoolSize", self.max_pool_size.map(u64::from)),
            ("maxConnecting", self.max_connecting.map(u64::from)),
            ("waitQueueTimeoutMS", self.wait_queue_timeout.map(millis)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }

    /// Whether a pool could be made with these options.
    ///
    /// # Errors
    /// The first option that has a value that it cannot have.
    pub fn validate(&self) -> Result<(), PoolOptionsError> {
        self.limits().map(drop)
    }

    pub(crate) fn limits(&self) -> Result<Limits, PoolOptionsError> {
        let error = |option, value: &dyn ToString, rule: &str| PoolOptionsError {
            option,
            value: value.to_string(),
            rule: rule.to_string(),
        };
        let max = self.max_pool_size.unwrap_or(Self::DEFAULT_MAX_POOL_SIZE);
        let min = self.min_pool_size.unwrap_or(0);
        if max > 0 && min > max {
            let rule = alloc::format!("it must not be greater than maxPoolSize, which is {max}");
            return Err(error("minPoolSize", &min, &rule));
        }
        let max_connecting = self.max_connecting.unwrap_or(self.profile.default_max_connecting());
        if max_connecting == 0 {
            return Err(error("maxConnecting", &max_connecting, "it must be greater than 0"));
        }
        let max_wait_queue_depth = match self.max_wait_queue_depth {
            None => u32::MAX,
            Some(QueueDepth::Waiters(0) | QueueDepth::TimesMaxPoolSize(0)) => {
                return Err(error("maxWaitQueueDepth", &0, "it must be greater than 0"));
            }
            Some(QueueDepth::Waiters(waiters)) => waiters,
            Some(QueueDepth::TimesMaxPoolSize(times)) if max == 0 => {
                let value = alloc::format!("{times} times maxPoolSize");
                return Err(error("maxWaitQueueDepth", &value, "maxPoolSize is 0, which is unlimited"));
            }
            Some(QueueDepth::TimesMaxPoolSize(times)) => times.saturating_mul(max),
        };
        let creation_interval = match self.max_new_connections_per_second {
            None => 0,
            Some(0) => return Err(error("maxNewConnectionsPerSecond", &0, "it must be greater than 0")),
            Some(number) => SECOND.div_ceil(number.into()),
        };
        let maintenance = match self.maintenance.unwrap_or(Maintenance::Every(Duration::from_millis(500))) {
            Maintenance::Off => None,
            Maintenance::Every(Duration::ZERO) => {
                return Err(error("maintenance", &"every 0 ms", "the interval must be greater than 0"));
            }
            Maintenance::Every(interval) => Some(nanos(interval)),
        };
        if self.max_uses == Some(0) {
            return Err(error("maxUses", &0, "it must be greater than 0"));
        }
        let or_never = |duration: Option<Duration>| match duration.map_or(0, nanos) {
            0 => NEVER,
            nanos => nanos,
        };
        let refresh_requirement = or_never(self.refresh_requirement);
        let refresh_timeout = match self.refresh_timeout {
            None => (refresh_requirement / 2).min(DEFAULT_REFRESH_TIMEOUT),
            Some(Duration::ZERO) => return Err(error("refreshTimeout", &"0 ms", "it must be greater than 0")),
            Some(timeout) if nanos(timeout) >= refresh_requirement => {
                let requirement = Duration::from_nanos(refresh_requirement);
                let rule = alloc::format!("it must be less than refreshRequirement, which is {requirement:?}");
                return Err(error("refreshTimeout", &alloc::format!("{timeout:?}"), &rule));
            }
            Some(timeout) => nanos(timeout),
        };
        Ok(Limits {
            max_pool_size: if max == 0 { u32::MAX } else { max },
            min_pool_size: min,
            max_connecting,
            max_idle: or_never(self.max_idle_time),
            wait_queue_timeout: or_never(self.wait_queue_timeout),
            maintenance,
            check_after_idle: nanos(self.check_after_idle.unwrap_or(Duration::from_secs(1))),
            host_timeout: or_never(self.host_timeout),
            backoff: self.backoff.unwrap_or(true),
            max_wait_queue_depth,
            reuse: self.reuse.unwrap_or_default(),
            creation_interval,
            max_lifetime: or_never(self.max_lifetime),
            max_uses: self.max_uses.unwrap_or(u32::MAX),
            affinity: self.affinity.map(Affinity::validate).transpose()?,
            refresh_requirement,
            refresh_timeout,
            profile: self.checked_profile()?,
            load_balanced: self.load_balanced,
        })
    }

    /// # Errors
    /// Another option needs what the edition does not have.
    fn checked_profile(&self) -> Result<Profile, PoolOptionsError> {
        let refused =
            |option, value: String, rule: &str| Err(PoolOptionsError { option, value, rule: rule.to_string() });
        match (self.profile, self.max_new_connections_per_second) {
            (Profile::Cmap1_1, _) if self.load_balanced => {
                refused("loadBalanced", "true".to_string(), "profile is Cmap1_1, which knows no load balancers")
            }
            (Profile::Cmap1_1, Some(rate)) if self.max_connecting.is_none() => {
                let rule =
                    "profile is Cmap1_1, where as many may be created at once as long as maxConnecting is not set";
                refused("maxNewConnectionsPerSecond", rate.to_string(), rule)
            }
            (Profile::Current | Profile::Cmap1_1, _) => Ok(self.profile),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_specification() {
        let limits = PoolOptions::default().limits().unwrap();

        assert_eq!((limits.max_pool_size, limits.min_pool_size, limits.max_connecting), (100, 0, 2));
        assert_eq!((limits.max_idle, limits.wait_queue_timeout), (NEVER, NEVER));
        assert_eq!(limits.maintenance, Some(500_000_000));
    }

    #[test]
    fn a_size_of_zero_is_unlimited() {
        let options = PoolOptions { max_pool_size: Some(0), min_pool_size: Some(1000), ..PoolOptions::default() };

        assert_eq!(options.limits().unwrap().max_pool_size, u32::MAX);
    }

    #[test]
    fn the_older_edition_does_not_limit_new_connections_unless_told_to_x_99() {
        let options = PoolOptions { profile: Profile::Cmap1_1, ..PoolOptions::default() };
        let limited = PoolOptions { max_connecting: Some(3), ..options.clone() };

        assert_eq!(options.limits().unwrap().max_connecting, u32::MAX);
        assert_eq!(limited.limits().unwrap().max_connecting, 3);
    }

    #[test]
    fn an_unusable_option_is_named_with_its_value_and_the_rule() {
        let base = PoolOptions::default;
        for (options, text) in [
            (
                PoolOptions { max_pool_size: Some(10), min_pool_size: Some(20), ..base() },
                "option minPoolSize is 20, but it must not be greater than maxPoolSize, which is 10",
            ),
            (
                PoolOptions { max_connecting: Some(0), ..base() },
                "option maxConnecting is 0, but it must be greater than 0",
            ),
            (
                PoolOptions { maintenance: Some(Maintenance::Every(Duration::ZERO)), ..base() },
                "option maintenance is every 0 ms, but the interval must be greater than 0",
            ),
            (
                PoolOptions { max_wait_queue_depth: Some(QueueDepth::Waiters(0)), ..base() },
                "option maxWaitQueueDepth is 0, but it must be greater than 0",
            ),
            (
                PoolOptions {
                    max_pool_size: Some(0),
                    max_wait_queue_depth: Some(QueueDepth::TimesMaxPoolSize(2)),
                    ..base()
                },
                "option maxWaitQueueDepth is 2 times maxPoolSize, but maxPoolSize is 0, which is unlimited",
            ),
            (
                PoolOptions { affinity: Some(Affinity::Hold { time: Duration::ZERO, lend: true }), ..base() },
                "option affinity is a hold of 0ns, but the time must be greater than 0",
            ),
            (
                PoolOptions { profile: Profile::Cmap1_1, load_balanced: true, ..base() },
                "option loadBalanced is true, but profile is Cmap1_1, which knows no load balancers",
            ),
            (
                PoolOptions { profile: Profile::Cmap1_1, max_new_connections_per_second: Some(20), ..base() },
                "option maxNewConnectionsPerSecond is 20, but profile is Cmap1_1, where as many may be created at once as \
                 long as maxConnecting is not set",
            ),
            (PoolOptions { max_uses: Some(0), ..base() }, "option maxUses is 0, but it must be greater than 0"),
            (
                PoolOptions {
                    refresh_requirement: Some(Duration::from_secs(5)),
                    refresh_timeout: Some(Duration::from_secs(5)),
                    ..base()
                },
                "option refreshTimeout is 5s, but it must be less than refreshRequirement, which is 5s",
            ),
            (
                PoolOptions { max_new_connections_per_second: Some(0), ..base() },
                "option maxNewConnectionsPerSecond is 0, but it must be greater than 0",
            ),
        ] {
            assert_eq!(options.limits().unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn only_what_the_user_set_is_shown() {
        let options = PoolOptions {
            max_pool_size: Some(100),
            max_idle_time: Some(Duration::from_millis(100)),
            ..PoolOptions::default()
        };

        let shown: alloc::vec::Vec<_> = options.set_by_user().collect();
        assert_eq!(shown, [("maxIdleTimeMS", 100), ("maxPoolSize", 100)]);
    }
}

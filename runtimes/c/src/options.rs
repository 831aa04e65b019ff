//! Options and limits as JSON: the connection string's names, and names in the same manner for what a connection string lacks.
//!
//! Times are in milliseconds. A name that is unknown, or that is there twice, is refused.

use core::time::Duration;

use cmap_core::options::{
    Affinity, Maintenance, NewLimit, PoolLimits, PoolOptions, PoolSizes, Profile, QueueDepth, Reuse,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::code::{CMAP_ERROR_OPTIONS, Failure};

/// The options of a pool.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Options {
    max_pool_size: Option<u32>,
    min_pool_size: Option<u32>,
    #[serde(rename = "maxIdleTimeMS")]
    max_idle_time: Option<Millis>,
    max_connecting: Option<u32>,
    #[serde(rename = "waitQueueTimeoutMS")]
    wait_queue_timeout: Option<Millis>,
    load_balanced: bool,
    #[serde(rename = "maintenanceMS")]
    maintenance: Option<MillisOrNever>,
    #[serde(rename = "checkAfterIdleMS")]
    check_after_idle: Option<MillisOrNever>,
    #[serde(rename = "hostTimeoutMS")]
    host_timeout: Option<Millis>,
    backoff: Option<bool>,
    max_wait_queue_depth: Option<Depth>,
    reuse: Option<Choice>,
    max_new_connections_per_second: Option<u32>,
    #[serde(rename = "maxLifetimeMS")]
    max_lifetime: Option<Millis>,
    max_uses: Option<u32>,
    affinity: Option<Keys>,
    #[serde(rename = "refreshRequirementMS")]
    refresh_requirement: Option<Millis>,
    #[serde(rename = "refreshTimeoutMS")]
    refresh_timeout: Option<Millis>,
    profile: Option<Edition>,
    seed: u64,
    pool_number: u32,
}

/// The limits that can be changed.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Limits {
    max_pool_size: Option<u32>,
    min_pool_size: Option<u32>,
    max_connecting: Option<u32>,
    /// 0 is no limit.
    max_wait_queue_depth: Option<Depth>,
    /// 0 is no limit.
    max_new_connections_per_second: Option<u32>,
    #[serde(rename = "checkAfterIdleMS")]
    check_after_idle: Option<MillisOrNever>,
}

#[derive(Clone, Copy, Deserialize)]
struct Millis(u64);

/// -1 is never.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "i64")]
enum MillisOrNever {
    Millis(u64),
    Never,
}

/// A number, or a text such as "2x" for twice maxPoolSize.
#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a text such as \"2x\" for twice maxPoolSize")]
enum Depth {
    Waiters(u32),
    Multiple(Multiple),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Multiple(u32);

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Choice {
    Lifo,
    Fifo,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Keys {
    Prefer,
    Require,
    Hold {
        ms: u64,
        #[serde(default)]
        lend: bool,
    },
}

#[derive(Clone, Copy, Deserialize)]
enum Edition {
    #[serde(rename = "current")]
    Current,
    #[serde(rename = "1.1")]
    Cmap1_1,
}

/// The options in a text; all are the default if it is empty.
pub(crate) fn of_pool(text: &str) -> Result<PoolOptions, Failure> {
    let given: Options = read(text)?;
    let mut options = PoolOptions::default();
    options.max_pool_size = given.max_pool_size;
    options.min_pool_size = given.min_pool_size;
    options.max_idle_time = given.max_idle_time.map(Duration::from);
    options.max_connecting = given.max_connecting;
    options.wait_queue_timeout = given.wait_queue_timeout.map(Duration::from);
    options.maintenance = given.maintenance.map(|interval| match interval {
        MillisOrNever::Millis(millis) => Maintenance::Every(Duration::from_millis(millis)),
        MillisOrNever::Never => Maintenance::Off,
    });
    options.check_after_idle = given.check_after_idle.map(Duration::from);
    options.host_timeout = given.host_timeout.map(Duration::from);
    options.backoff = given.backoff;
    options.max_wait_queue_depth = given.max_wait_queue_depth.map(QueueDepth::from);
    options.reuse = given.reuse.map(|choice| match choice {
        Choice::Lifo => Reuse::Lifo,
        Choice::Fifo => Reuse::Fifo,
    });
    options.max_new_connections_per_second = given.max_new_connections_per_second;
    options.max_lifetime = given.max_lifetime.map(Duration::from);
    options.max_uses = given.max_uses;
    options.affinity = given.affinity.map(|keys| match keys {
        Keys::Prefer => Affinity::Prefer,
        Keys::Require => Affinity::Require,
        Keys::Hold { ms, lend } => Affinity::Hold { time: Duration::from_millis(ms), lend },
    });
    options.refresh_requirement = given.refresh_requirement.map(Duration::from);
    options.refresh_timeout = given.refresh_timeout.map(Duration::from);
    options.profile = match given.profile {
        Some(Edition::Cmap1_1) => Profile::Cmap1_1,
        Some(Edition::Current) | None => Profile::Current,
    };
    options.seed = given.seed;
    options.pool_number = given.pool_number;
    options.load_balanced = given.load_balanced;
    Ok(options)
}

/// The limits in a text.
pub(crate) fn limits(text: &str) -> Result<PoolLimits, Failure> {
    let given: Limits = read(text)?;
    let mut sizes = PoolSizes::default();
    sizes.max_pool_size = given.max_pool_size;
    sizes.min_pool_size = given.min_pool_size;
    sizes.max_connecting = given.max_connecting;
    let mut limits = PoolLimits::from(sizes);
    limits.max_wait_queue_depth = match given.max_wait_queue_depth {
        None => NewLimit::AsItIs,
        Some(Depth::Waiters(0)) => NewLimit::Unlimited,
        Some(depth) => NewLimit::At(depth.into()),
    };
    limits.max_new_connections_per_second = match given.max_new_connections_per_second {
        None => NewLimit::AsItIs,
        Some(0) => NewLimit::Unlimited,
        Some(connections) => NewLimit::At(connections),
    };
    limits.check_after_idle = given.check_after_idle.map(Duration::from);
    Ok(limits)
}

fn read<T: DeserializeOwned + Default>(text: &str) -> Result<T, Failure> {
    if text.is_empty() {
        return Ok(T::default());
    }
    // A list would be read as the values of all options in their order.
    if !text.trim_start().starts_with('{') {
        return Err(Failure::new(CMAP_ERROR_OPTIONS, "a JSON object is expected, as in {\"maxPoolSize\": 5}"));
    }
    serde_json::from_str(text).map_err(|error| Failure::new(CMAP_ERROR_OPTIONS, error.to_string()))
}

impl From<Millis> for Duration {
    fn from(Millis(millis): Millis) -> Self {
        Self::from_millis(millis)
    }
}

impl From<MillisOrNever> for Duration {
    fn from(time: MillisOrNever) -> Self {
        match time {
            MillisOrNever::Millis(millis) => Self::from_millis(millis),
            MillisOrNever::Never => Self::MAX,
        }
    }
}

impl TryFrom<i64> for MillisOrNever {
    type Error = String;

    fn try_from(millis: i64) -> Result<Self, String> {
        match millis {
            -1 => Ok(Self::Never),
            _ => {
                u64::try_from(millis).map(Self::Millis).map_err(|_| format!("{millis} is neither a time nor -1, never"))
            }
        }
    }
}

impl TryFrom<String> for Multiple {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let times = text.strip_suffix('x').and_then(|times| times.parse().ok());
        times.map(Self).ok_or_else(|| format!("`{text}` is no multiple such as \"2x\""))
    }
}

impl From<Depth> for QueueDepth {
    fn from(depth: Depth) -> Self {
        match depth {
            Depth::Waiters(waiters) => Self::Waiters(waiters),
            Depth::Multiple(Multiple(times)) => Self::TimesMaxPoolSize(times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_strings_names_and_our_own_set_what_they_name() {
        let options = of_pool(
            r#"{"maxPoolSize": 5, "maxIdleTimeMS": 1000, "loadBalanced": true, "maintenanceMS": -1, "checkAfterIdleMS": 0,
                "maxWaitQueueDepth": "2x", "reuse": "fifo", "affinity": {"hold": {"ms": 50}}, "profile": "current"}"#,
        )
        .unwrap();

        let mut expected = PoolOptions::default();
        expected.max_pool_size = Some(5);
        expected.max_idle_time = Some(Duration::from_secs(1));
        expected.load_balanced = true;
        expected.maintenance = Some(Maintenance::Off);
        expected.check_after_idle = Some(Duration::ZERO);
        expected.max_wait_queue_depth = Some(QueueDepth::TimesMaxPoolSize(2));
        expected.reuse = Some(Reuse::Fifo);
        expected.affinity = Some(Affinity::Hold { time: Duration::from_millis(50), lend: false });
        assert_eq!(options, expected);
    }

    #[test]
    fn what_is_unknown_twice_or_of_another_type_is_refused_and_named() {
        for (text, word) in [
            (r#"{"maxPoolsize": 5}"#, "unknown field `maxPoolsize`"),
            (r#"{"maxPoolSize": 5, "maxPoolSize": 6}"#, "duplicate field `maxPoolSize`"),
            (r#"{"maxPoolSize": "5"}"#, "expected u32"),
            (r#"{"maintenanceMS": -2}"#, "neither a time nor -1"),
            (r#"{"maxWaitQueueDepth": "2"}"#, "such as \"2x\""),
            ("[]", "a JSON object is expected"),
            ("{", "EOF"),
        ] {
            let refused = of_pool(text).err().unwrap();
            assert_eq!(refused.code, CMAP_ERROR_OPTIONS);
            assert!(refused.text.contains(word), "{text}: {}", refused.text);
        }
    }

    #[test]
    fn a_limit_that_is_left_out_stays_and_zero_lifts_it() {
        let limits = limits(r#"{"maxConnecting": 3, "maxWaitQueueDepth": 0, "checkAfterIdleMS": -1}"#).unwrap();

        assert_eq!((limits.sizes.max_pool_size, limits.sizes.max_connecting), (None, Some(3)));
        assert_eq!(limits.max_wait_queue_depth, NewLimit::Unlimited);
        assert_eq!(limits.max_new_connections_per_second, NewLimit::AsItIs);
        assert_eq!(limits.check_after_idle, Some(Duration::MAX));
    }
}

//! The options of the pool, and of the server that it connects to.

use core::time::Duration;

use cmap_core::options::Maintenance;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// `poolOptions`: what the test sets; everything else keeps the pool's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct PoolOptions {
    /// `maxPoolSize`; 0 means no limit.
    pub max_pool_size: Option<u32>,
    /// `minPoolSize`.
    pub min_pool_size: Option<u32>,
    /// `maxIdleTimeMS`; 0 means no limit.
    #[serde(rename = "maxIdleTimeMS")]
    pub max_idle_time_ms: Option<u32>,
    /// `maxConnecting`.
    pub max_connecting: Option<u32>,
    /// `waitQueueTimeoutMS`; 0 means no limit.
    #[serde(rename = "waitQueueTimeoutMS")]
    pub wait_queue_timeout_ms: Option<u32>,
    /// `backgroundThreadIntervalMS`: how often the pool maintains itself (FMT-5).
    #[serde(rename = "backgroundThreadIntervalMS", default, deserialize_with = "not_zero")]
    pub background_thread_interval: Option<Interval>,
    /// `appName`, which a fail point may ask for.
    pub app_name: Option<String>,
    /// `loadBalanced`: the server is a load balancer. Style "scenario".
    pub load_balanced: Option<bool>,
    /// `checkAfterIdleMS`: how long a connection lies idle before it is checked for life. Style "scenario".
    #[serde(rename = "checkAfterIdleMS")]
    pub check_after_idle: Option<Interval>,
    /// `backoff`: whether connections are created after pauses once the server could not take one. Style "scenario".
    pub backoff: Option<bool>,
}

/// A time in milliseconds, or never. Files write "never" as a negative number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub enum Interval {
    /// Not at all.
    Never,
    /// After this many milliseconds, or every this many.
    Millis(u32),
}

/// `server`: what the pool connects to. Style "scenario".
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object", default)]
pub struct ServerOptions {
    /// Whether the client has to authenticate.
    pub auth: bool,
    /// The services behind a load balancer, by names of the test's own.
    pub service_ids: Vec<String>,
    /// `connectTimeoutMS`: how long establishing a connection may take; 0 means no limit.
    #[serde(rename = "connectTimeoutMS")]
    pub connect_timeout_ms: Option<u32>,
}

impl PoolOptions {
    /// The keys that events may show in `options`.
    pub(super) const NAMES: [&'static str; 10] = [
        "maxPoolSize",
        "minPoolSize",
        "maxIdleTimeMS",
        "maxConnecting",
        "waitQueueTimeoutMS",
        "backgroundThreadIntervalMS",
        "appName",
        "loadBalanced",
        "checkAfterIdleMS",
        "backoff",
    ];

    /// The options that the test set and that are not the pool's own, as events show them.
    pub fn beyond_the_pool(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let interval = |interval: Interval| match interval {
            Interval::Never => Value::from(-1),
            Interval::Millis(millis) => Value::from(millis),
        };
        let options = [
            ("backgroundThreadIntervalMS", self.background_thread_interval.map(interval)),
            ("appName", self.app_name.clone().map(Value::from)),
            ("loadBalanced", self.load_balanced.map(Value::from)),
            ("checkAfterIdleMS", self.check_after_idle.map(interval)),
            ("backoff", self.backoff.map(Value::from)),
        ];
        options.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// The same as the pool takes them.
    pub fn to_core(&self) -> cmap_core::options::PoolOptions {
        let millis = |millis: u32| Duration::from_millis(millis.into());
        let mut options = cmap_core::options::PoolOptions::default();
        options.max_pool_size = self.max_pool_size;
        options.min_pool_size = self.min_pool_size;
        options.max_idle_time = self.max_idle_time_ms.map(millis);
        options.max_connecting = self.max_connecting;
        options.wait_queue_timeout = self.wait_queue_timeout_ms.map(millis);
        options.maintenance = self.background_thread_interval.map(|interval| match interval {
            Interval::Never => Maintenance::Off,
            Interval::Millis(interval) => Maintenance::Every(millis(interval)),
        });
        options.check_after_idle = self.check_after_idle.map(|interval| match interval {
            Interval::Never => Duration::MAX,
            Interval::Millis(interval) => millis(interval),
        });
        options.backoff = self.backoff;
        options.load_balanced = self.load_balanced.unwrap_or_default();
        options
    }

    /// An option in use that only style "scenario" has.
    pub(super) fn extension(&self) -> Option<&'static str> {
        if self.load_balanced.is_some() {
            Some("loadBalanced")
        } else if self.check_after_idle.is_some() {
            Some("checkAfterIdleMS")
        } else if self.backoff.is_some() {
            Some("backoff")
        } else {
            None
        }
    }
}

impl TryFrom<i64> for Interval {
    type Error = String;

    fn try_from(millis: i64) -> Result<Self, String> {
        if millis < 0 {
            return Ok(Self::Never);
        }
        let too_long = |_| format!("invalid value: integer `{millis}`, expected at most {}", u32::MAX);
        u32::try_from(millis).map(Self::Millis).map_err(too_long)
    }
}

/// A pool that maintained itself every 0 ms would never get to anything else.
fn not_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Interval>, D::Error> {
    match Interval::deserialize(deserializer)? {
        Interval::Millis(0) => Err(de::Error::custom("0 is not allowed: positive is an interval, negative is never")),
        interval @ (Interval::Never | Interval::Millis(_)) => Ok(Some(interval)),
    }
}

//! The options of the pool, and of the server that it connects to.

use core::time::Duration;
use std::collections::BTreeMap;

use cmap_core::options::{self as core_options, Maintenance, QueueDepth, Reuse};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::affinity::Affinity;

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
    /// `maxWaitQueueDepth`: how many check-outs may wait, or `"2x"` for twice maxPoolSize. Style "scenario".
    pub max_wait_queue_depth: Option<Depth>,
    /// `reuse`: which available connection serves next. Style "scenario".
    pub reuse: Option<Choice>,
    /// `maxNewConnectionsPerSecond`: how many connections may be created in a second. Style "scenario".
    pub max_new_connections_per_second: Option<u32>,
    /// `maxLifetimeMS`: how long a connection is used; 0 means forever. Style "scenario".
    #[serde(rename = "maxLifetimeMS")]
    pub max_lifetime_ms: Option<u32>,
    /// `maxUses`: how often a connection is used. Style "scenario".
    pub max_uses: Option<u32>,
    /// `affinity`: what a check-out with a key may rely on. Style "scenario".
    pub affinity: Option<Affinity>,
    /// `refreshRequirementMS`: how long a connection may be idle without a ping; 0 means forever. Style "scenario".
    #[serde(rename = "refreshRequirementMS")]
    pub refresh_requirement_ms: Option<u32>,
    /// `refreshTimeoutMS`: how long such a ping may take. Style "scenario".
    #[serde(rename = "refreshTimeoutMS")]
    pub refresh_timeout_ms: Option<u32>,
    /// `profile`: the edition by which the pool behaves. Style "scenario".
    pub profile: Option<Profile>,
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

/// How many check-outs may wait.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a text such as \"2x\" for twice maxPoolSize")]
pub enum Depth {
    /// So many.
    Waiters(u32),
    /// A multiple of maxPoolSize.
    Multiple(Multiple),
}

/// A multiple, written as a number and an x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Multiple(u32);

/// Which available connection serves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Choice {
    /// The one returned last.
    Lifo,
    /// The one returned first.
    Fifo,
}

/// An edition of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Profile {
    /// The current one.
    #[serde(rename = "current")]
    Current,
    /// The last one without paused pools.
    #[serde(rename = "1.1")]
    Cmap1_1,
}

/// What the server says to a user's login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Login {
    /// That the user may come in.
    Accepted,
    /// That the password is wrong.
    Refused,
}

/// `server`: what the pool connects to. Style "scenario".
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object", default)]
pub struct ServerOptions {
    /// Whether the client has to authenticate.
    pub auth: bool,
    /// The users of the pool beside that of its options, by names of the test's own.
    pub users: BTreeMap<String, Login>,
    /// The services behind a load balancer, by names of the test's own.
    pub service_ids: Vec<String>,
    /// `connectTimeoutMS`: how long establishing a connection may take; 0 means no limit.
    #[serde(rename = "connectTimeoutMS")]
    pub connect_timeout_ms: Option<u32>,
}

impl PoolOptions {
    /// The keys that events may show in `options`.
    pub(super) const NAMES: [&'static str; 19] = [
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
        "maxWaitQueueDepth",
        "reuse",
        "maxNewConnectionsPerSecond",
        "maxLifetimeMS",
        "maxUses",
        "affinity",
        "refreshRequirementMS",
        "refreshTimeoutMS",
        "profile",
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
            ("maxWaitQueueDepth", self.max_wait_queue_depth.as_ref().map(Depth::shown)),
            ("reuse", self.reuse.map(|choice| Value::from(choice.name()))),
            ("maxNewConnectionsPerSecond", self.max_new_connections_per_second.map(Value::from)),
            ("maxLifetimeMS", self.max_lifetime_ms.map(Value::from)),
            ("maxUses", self.max_uses.map(Value::from)),
            ("affinity", self.affinity.map(Affinity::shown)),
            ("refreshRequirementMS", self.refresh_requirement_ms.map(Value::from)),
            ("refreshTimeoutMS", self.refresh_timeout_ms.map(Value::from)),
            ("profile", self.profile.map(|profile| Value::from(profile.name()))),
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
        options.max_wait_queue_depth = self.max_wait_queue_depth.as_ref().map(|depth| match depth {
            Depth::Waiters(waiters) => QueueDepth::Waiters(*waiters),
            Depth::Multiple(Multiple(times)) => QueueDepth::TimesMaxPoolSize(*times),
        });
        options.reuse = self.reuse.map(|choice| match choice {
            Choice::Lifo => Reuse::Lifo,
            Choice::Fifo => Reuse::Fifo,
        });
        options.max_new_connections_per_second = self.max_new_connections_per_second;
        options.max_lifetime = self.max_lifetime_ms.map(millis);
        options.max_uses = self.max_uses;
        options.affinity = self.affinity.map(Affinity::to_core);
        options.refresh_requirement = self.refresh_requirement_ms.map(millis);
        options.refresh_timeout = self.refresh_timeout_ms.map(millis);
        options.profile = match self.profile {
            Some(Profile::Cmap1_1) => core_options::Profile::Cmap1_1,
            Some(Profile::Current) | None => core_options::Profile::Current,
        };
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
        } else if self.max_wait_queue_depth.is_some() {
            Some("maxWaitQueueDepth")
        } else if self.reuse.is_some() {
            Some("reuse")
        } else if self.max_new_connections_per_second.is_some() {
            Some("maxNewConnectionsPerSecond")
        } else if self.max_lifetime_ms.is_some() {
            Some("maxLifetimeMS")
        } else if self.max_uses.is_some() {
            Some("maxUses")
        } else if self.affinity.is_some() {
            Some("affinity")
        } else if self.refresh_requirement_ms.is_some() {
            Some("refreshRequirementMS")
        } else if self.refresh_timeout_ms.is_some() {
            Some("refreshTimeoutMS")
        } else if self.profile.is_some() {
            Some("profile")
        } else {
            None
        }
    }
}

impl Depth {
    fn shown(&self) -> Value {
        match self {
            Self::Waiters(waiters) => Value::from(*waiters),
            Self::Multiple(Multiple(times)) => Value::from(format!("{times}x")),
        }
    }
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Cmap1_1 => "1.1",
        }
    }
}

impl Choice {
    fn name(self) -> &'static str {
        match self {
            Self::Lifo => "lifo",
            Self::Fifo => "fifo",
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

//! What can happen to a client, as data: a script of steps is all that a run was.
//!
//! A step names connections and check-outs by their place among those that it could mean, oldest first, and places wrap
//! around. So every script can be played on every client, whatever was left out of it: that makes it easy to shrink.

use std::fmt;
use std::time::Duration;

use cmap_core::options::PoolOptions;
use cmap_core::time::Instant;
use serde_json::{Map, Value};

/// A client, and what happened to it.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) client: ClientCase,
    /// Each with its time; those times never go back.
    pub(super) steps: Vec<(Instant, Step)>,
    /// Until when timeouts are handled after the last step, before all calms down.
    pub(super) until: Instant,
}

/// A client and its deployment.
#[derive(Clone, Debug)]
pub(super) struct ClientCase {
    pub(super) deployment: Deployment,
    pub(super) pool: PoolOptions,
    /// The limit of all pools together; 0 = none.
    pub(super) max_connections: u32,
    /// srvMaxHosts, where the servers stand in DNS.
    pub(super) srv_max_hosts: Option<u8>,
    /// How late the client calls on a timeout.
    pub(super) lateness: Duration,
    pub(super) twin: Twin,
}

/// Whether a machine without events has the same calls, and has to do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twin {
    None,
    Plain,
    /// It records how long everything takes.
    Timed,
}

impl Twin {
    /// That of a seed: one seed in eight has one.
    pub(super) fn of_seed(seed: u64) -> Self {
        match seed % 16 {
            5 => Self::Plain,
            13 => Self::Timed,
            _ => Self::None,
        }
    }
}

/// The kind of deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deployment {
    Standalone,
    ReplicaSet,
    Sharded,
    /// Behind a load balancer, which has several services.
    LoadBalanced,
    /// A sharded cluster whose routers stand in DNS, which is looked up again and again.
    SeedList,
}

impl Deployment {
    pub(super) const ALL: [Self; 5] =
        [Self::Standalone, Self::ReplicaSet, Self::Sharded, Self::LoadBalanced, Self::SeedList];

    /// Those whose servers the client is told.
    pub(super) const WITHOUT_DNS: [Self; 4] = [Self::Standalone, Self::ReplicaSet, Self::Sharded, Self::LoadBalanced];

    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::ReplicaSet => "replica-set",
            Self::Sharded => "sharded",
            Self::LoadBalanced => "load-balanced",
            Self::SeedList => "seed-list",
        }
    }

    /// The hosts of its servers.
    pub(super) fn hosts(self) -> &'static [&'static str] {
        match self {
            Self::Standalone => &["db"],
            Self::ReplicaSet => &["a", "b", "c"],
            Self::Sharded => &["router-1", "router-2"],
            Self::LoadBalanced => &["balancer"],
            Self::SeedList => {
                &["router-1.example.com", "router-2.example.com", "router-3.example.com", "router-4.example.com"]
            }
        }
    }

    /// How many of these hosts the client knows at first.
    pub(super) fn seeds(self) -> usize {
        if self == Self::SeedList { 2 } else { self.hosts().len() }
    }

    pub(super) fn is_replica_set(self) -> bool {
        self == Self::ReplicaSet
    }
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A caller asks for a connection.
    CheckOut { purpose: Purpose, limit: Option<Duration>, key: Option<u64>, identity: Option<usize> },
    /// A caller that waits gives up.
    Cancel(usize),
    /// A caller returns a connection.
    CheckIn { nth: usize, is_usable: bool },
    /// An establishment ends.
    Establish { nth: usize, end: Establishment },
    /// The look at an idle connection ends.
    Check { nth: usize, is_alive: bool },
    /// A ping of an idle connection ends.
    Refresh { nth: usize, is_alive: bool },
    /// The server hangs up a connection in use.
    HangUp(usize),
    /// An operation fails on a connection in use.
    OperationFailed { nth: usize, fault: FaultKind },
    /// The monitor of a server has checked it.
    Heard { member: usize, finding: Heard },
    /// The user changes limits.
    Resize { max_pool_size: u32, max_connecting: u32 },
    /// The user changes limits beside the sizes; `None` is none.
    Limit { max_wait_queue_depth: Option<u32>, max_new_connections_per_second: Option<u32> },
    /// The user replaces all connections within this time.
    ReplaceConnections(Duration),
    /// A key is not used any more.
    EndAffinity(u64),
    /// The user wants this many connections to be established, or minPoolSize.
    WarmUp(Option<u32>),
    /// A warm-up is given up.
    CancelWarmUp(usize),
    /// An identity is added.
    AddIdentity,
    /// An identity is removed; it may have been removed before.
    RemoveIdentity(usize),
    /// The credential of an identity is replaced, or that of the options, if one connection has proven the new one.
    RenewCredential { identity: Option<usize>, is_proven: bool },
    /// The lookup of the seed list ends.
    Resolve(Lookup),
    /// The process is suspended: it calls on no timeout meanwhile.
    Suspend(Duration),
    /// The process goes on after a suspension that its clock has not counted.
    Resume,
}

/// What a caller wants a connection for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Write,
    /// To read from any server.
    Read,
}

/// The end of an establishment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Establishment {
    Done,
    /// The same behind a load balancer, which chose this service.
    DoneBy(u8),
    /// Nobody listens.
    Refused,
    /// The server hangs up in the hello: it is overloaded.
    HungUp,
    /// The server does not answer.
    TimedOut,
    /// The server refuses the credential.
    Unauthorized,
}

/// What DNS says of a seed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// These are the records.
    Found {
        /// A bit for each router that has one.
        routers: u8,
        /// Whether there is one of a host in another domain.
        has_stranger: bool,
        time_to_live: Duration,
    },
    /// Nobody answers.
    Failed,
}

/// The failure of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    Network,
    Timeout,
    NotWritablePrimary,
    ShuttingDown,
    Overload,
}

/// What a monitor heard of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It answered: in a set it is the primary of this election, or else a secondary.
    Answer { primary_of: Option<u64>, round_trip_millis: u8 },
    /// Its connection failed.
    Failure,
    /// It did not answer in time.
    Timeout,
}

impl Step {
    /// Makes it mean the oldest of what it could mean. Whether it meant another one.
    pub(super) fn mean_first(&mut self) -> bool {
        match self {
            Self::Cancel(nth)
            | Self::CancelWarmUp(nth)
            | Self::RemoveIdentity(nth)
            | Self::HangUp(nth)
            | Self::CheckIn { nth, .. }
            | Self::Establish { nth, .. }
            | Self::Check { nth, .. }
            | Self::Refresh { nth, .. }
            | Self::OperationFailed { nth, .. } => std::mem::take(nth) != 0,
            Self::CheckOut { identity: Some(nth), .. } | Self::RenewCredential { identity: Some(nth), .. } => {
                std::mem::take(nth) != 0
            }
            Self::CheckOut { identity: None, .. }
            | Self::RenewCredential { identity: None, .. }
            | Self::AddIdentity
            | Self::Resolve(_)
            | Self::Heard { .. }
            | Self::Resize { .. }
            | Self::Limit { .. }
            | Self::Resume
            | Self::ReplaceConnections(_)
            | Self::EndAffinity(_)
            | Self::WarmUp(_)
            | Self::Suspend(_) => false,
        }
    }
}

impl fmt::Display for Script {
    /// The options that are not the defaults, and one line for each step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientCase { deployment, pool, max_connections, srv_max_hosts, lateness, twin } = &self.client;
        writeln!(f, "  {} with {}", deployment.name(), options(pool))?;
        if *max_connections > 0 {
            writeln!(f, "  at most {max_connections} connections in all pools")?;
        }
        if let Some(most) = srv_max_hosts {
            writeln!(f, "  at most {most} of the routers in DNS")?;
        }
        if !lateness.is_zero() {
            writeln!(f, "  timeouts are handled {lateness:?} late")?;
        }
        match twin {
            Twin::None => {}
            Twin::Plain => writeln!(f, "  beside a twin that nobody observes")?,
            Twin::Timed => writeln!(f, "  beside a twin that nobody observes, and that records durations")?,
        }
        self.steps.iter().try_for_each(|(at, step)| {
            let at = at.saturating_since(Instant::ORIGIN);
            writeln!(f, "  at {at:?}: {step:?}")
        })?;
        writeln!(f, "  until {:?}", self.until.saturating_since(Instant::ORIGIN))
    }
}

/// Those that are not the defaults.
fn options(pool: &PoolOptions) -> String {
    let fields = |pool: &PoolOptions| match serde_json::to_value(pool) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let defaults = fields(&PoolOptions::default());
    let set = fields(pool).into_iter().filter(|(name, value)| defaults.get(name) != Some(value));
    let words: Vec<_> = set.map(|(name, value)| format!("{name} {value}")).collect();
    if words.is_empty() { "the default options".to_owned() } else { words.join(", ") }
}

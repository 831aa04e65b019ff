//! The figures of a client's pools as metrics of the crate `metrics` (feature `metrics`), by OpenTelemetry's names.
//!
//! They are taken from the state when they are recorded: nothing is counted along the way, and a client whose metrics nobody
//! records pays nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::pool::{Counts, Statistics};
use cmap_core::server::ServerId;
use cmap_core::statistics::Histogram;
use metrics::{SharedString, Unit};

use super::Holder;
use super::status::pool_name;

/// Records the metrics of a client whenever the program says so: before a scrape, or every few seconds.
///
/// | metric | what |
/// |---|---|
/// | `db.client.connection.count`, with `db.client.connection.state` = `idle` or `used` | connections |
/// | `db.client.connection.idle.max`, `.idle.min`, `.max` | maxPoolSize, where there is one; minPoolSize; maxPoolSize |
/// | `db.client.connection.pending_requests` | check-outs that wait for a connection |
/// | `db.client.connection.timeouts` | check-outs whose time was up while they waited for a connection |
/// | `db.client.connection.create_time`, `.wait_time`, `.use_time` | histograms in seconds, where [holders are watched](crate::Builder::watch_holders) |
/// | `cmap.selection.pending_requests` | check-outs of the client that wait for a server, as all do in an outage |
/// | `cmap.connection.longest_use`, with `cmap.label`, `code.file.path`, `code.line.number` | seconds for which the longest use of this label and place has lasted, where holders are watched; 0 once there is none (X-146) |
///
/// Each has the attribute `db.client.connection.pool.name`: the server's address, and `as` a user where that is not the one of the options
/// `cmap.connection.longest_use` has the address alone, and `cmap.selection.pending_requests` the client's first host. The gauges of
/// a pool that has gone are 0. What a histogram is given has been rounded up, by a quarter at most.
#[derive(Default)]
pub struct Metrics {
    /// What was recorded last.
    last: BTreeMap<ServerId, Recorded>,
    /// Who was recorded last to hold connections.
    holders: BTreeSet<HeldBy>,
}

/// What was recorded of a pool.
struct Recorded {
    name: SharedString,
    has_max_pool_size: bool,
    statistics: Statistics,
}

/// Who holds connections of a pool.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct HeldBy {
    pool: String,
    label: Arc<str>,
    file: &'static str,
    line: u32,
}

/// One pool at one moment.
pub(crate) struct PoolFigures {
    pub(crate) id: ServerId,
    pub(crate) address: Arc<ServerAddress>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) statistics: Statistics,
    pub(crate) max_pool_size: Option<u32>,
    pub(crate) min_pool_size: u32,
}

const POOL: &str = "db.client.connection.pool.name";

const STATE: &str = "db.client.connection.state";

const SELECTING: &str = "cmap.selection.pending_requests";

const LONGEST_USE: &str = "cmap.connection.longest_use";

impl Metrics {
    /// For one client. Describes the metrics to the recorder that is installed.
    pub fn new() -> Self {
        metrics::describe_gauge!("db.client.connection.count", "Connections by state.");
        metrics::describe_gauge!("db.client.connection.idle.max", "Most idle connections.");
        metrics::describe_gauge!("db.client.connection.idle.min", "Fewest idle connections.");
        metrics::describe_gauge!("db.client.connection.max", "Most connections.");
        metrics::describe_gauge!("db.client.connection.pending_requests", "Check-outs that wait for a connection.");
        metrics::describe_counter!(
            "db.client.connection.timeouts",
            "Check-outs whose time was up while they waited for a connection."
        );
        metrics::describe_gauge!(SELECTING, "Check-outs that wait for a server.");
        metrics::describe_histogram!(
            "db.client.connection.create_time",
            Unit::Seconds,
            "How long establishments took."
        );
        metrics::describe_histogram!("db.client.connection.wait_time", Unit::Seconds, "How long check-outs waited.");
        metrics::describe_histogram!("db.client.connection.use_time", Unit::Seconds, "How long connections were used.");
        metrics::describe_gauge!(LONGEST_USE, Unit::Seconds, "For how long the longest use has lasted, by its holder.");
        Self::default()
    }

    pub(crate) fn record_pools(&mut self, pools: Vec<PoolFigures>) {
        let before = std::mem::take(&mut self.last);
        for pool in pools {
            let (id, last) = (pool.id, before.get(&pool.id).map(|last| &last.statistics));
            self.last.insert(id, record_pool(pool, last));
        }
        let present: BTreeSet<_> = self.last.values().map(|pool| &pool.name).collect();
        for gone in before.values().filter(|pool| !present.contains(&pool.name)) {
            record_gauges(&gone.name, Counts::default(), gone.has_max_pool_size.then_some(0), 0);
        }
    }

    /// Records how many check-outs of a client wait for a server. They have no pool yet: `first_host` stands for it.
    pub(crate) fn record_selecting(first_host: &ServerAddress, check_outs: usize) {
        let check_outs = u32::try_from(check_outs).unwrap_or(u32::MAX);
        metrics::gauge!(SELECTING, POOL => first_host.to_string()).set(f64::from(check_outs));
    }

    /// Who held connections the last time, and holds none any more, is recorded once again.
    pub(crate) fn record_holders(&mut self, in_use: &[Holder]) {
        let before = std::mem::take(&mut self.holders);
        let mut longest: BTreeMap<_, _> = before.into_iter().map(|by| (by, Duration::ZERO)).collect();
        for holder in in_use {
            let longest = longest.entry(HeldBy::of(holder)).or_default();
            *longest = holder.held_for.max(*longest);
        }
        for (by, longest) in longest {
            by.gauge().set(longest.as_secs_f64());
            if !longest.is_zero() {
                self.holders.insert(by);
            }
        }
    }
}

/// Records a pool, of which `last` was recorded before.
fn record_pool(pool: PoolFigures, last: Option<&Statistics>) -> Recorded {
    let PoolFigures { address, user, statistics, max_pool_size, min_pool_size, .. } = pool;
    let name = SharedString::from(pool_name(&address, user.as_deref()));
    record_gauges(&name, statistics.stats.counts, max_pool_size, min_pool_size);
    let between = last.map(|last| statistics.since(last));
    let between = between.as_ref().unwrap_or(&statistics);
    // A server that returns begins at 0: what it has counted anew is added.
    metrics::counter!("db.client.connection.timeouts", POOL => name.clone())
        .increment(between.stats.check_outs_failed.timeout);
    if let Some(took) = &between.durations {
        let histogram = metrics::histogram!("db.client.connection.create_time", POOL => name.clone());
        record_all(&histogram, &took.establishment);
        let histogram = metrics::histogram!("db.client.connection.wait_time", POOL => name.clone());
        record_all(&histogram, &took.wait);
        let histogram = metrics::histogram!("db.client.connection.use_time", POOL => name.clone());
        record_all(&histogram, &took.in_use);
    }
    Recorded { name, has_max_pool_size: max_pool_size.is_some(), statistics }
}

fn record_gauges(name: &SharedString, counts: Counts, max_pool_size: Option<u32>, min_pool_size: u32) {
    metrics::gauge!("db.client.connection.count", POOL => name.clone(), STATE => "idle")
        .set(f64::from(counts.available));
    metrics::gauge!("db.client.connection.count", POOL => name.clone(), STATE => "used").set(f64::from(counts.in_use));
    if let Some(max) = max_pool_size {
        metrics::gauge!("db.client.connection.idle.max", POOL => name.clone()).set(f64::from(max));
        metrics::gauge!("db.client.connection.max", POOL => name.clone()).set(f64::from(max));
    }
    metrics::gauge!("db.client.connection.idle.min", POOL => name.clone()).set(f64::from(min_pool_size));
    metrics::gauge!("db.client.connection.pending_requests", POOL => name.clone()).set(f64::from(counts.waiting));
}

impl HeldBy {
    fn of(Holder { address, label, place, .. }: &Holder) -> Self {
        Self {
            pool: address.to_string(),
            label: label.clone().unwrap_or_default(),
            file: place.map_or("", |place| place.file),
            line: place.map_or(0, |place| place.line),
        }
    }

    fn gauge(&self) -> metrics::Gauge {
        let Self { pool, label, file, line } = self;
        metrics::gauge!(
            LONGEST_USE,
            POOL => pool.clone(),
            "cmap.label" => SharedString::from(Arc::clone(label)),
            "code.file.path" => *file,
            "code.line.number" => line.to_string()
        )
    }
}

fn record_all(metric: &metrics::Histogram, took: &Histogram) {
    for (duration, count) in took.buckets() {
        metric.record_many(duration.as_secs_f64(), usize::try_from(count).unwrap_or(usize::MAX));
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

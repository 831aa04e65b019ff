//! What a pool tells of itself, as JSON. Times are in nanoseconds.

use core::time::Duration;

use cmap_core::pool::{Counts, Pool, PoolState, Purpose};
use cmap_core::statistics::Histogram;
use cmap_core::time::Instant;
use cmap_core::topology::Topology;
use serde_json::{Value, json};

use crate::code::{CMAP_ERROR_MISUSE, Failure};
use crate::output::nanos;

/// Counts, totals and durations.
pub(crate) fn statistics(pool: &Pool<u64>, now: Instant) -> Value {
    let statistics = pool.statistics(now);
    let (stats, closed, failed) = (statistics.stats, statistics.stats.closed, statistics.stats.check_outs_failed);
    let durations = statistics.durations.map(|durations| {
        json!({
            "wait": histogram(&durations.wait),
            "establishment": histogram(&durations.establishment),
            "inUse": histogram(&durations.in_use),
            "idle": histogram(&durations.idle),
        })
    });
    json!({
        "state": match pool.state() {
            PoolState::Paused => "paused",
            PoolState::Ready => "ready",
            PoolState::Closed => "closed",
        },
        "generation": pool.generation().get(),
        "periodNanos": nanos(statistics.period),
        "counts": counts(&stats.counts),
        "highWater": counts(&stats.high_water),
        "highWaterTotal": stats.high_water_total,
        "created": stats.created,
        "established": stats.established,
        "closed": {
            "stale": closed.stale,
            "idle": closed.idle,
            "error": closed.error,
            "poolClosed": closed.pool_closed,
            "surplus": closed.surplus,
        },
        "checkOutsStarted": stats.check_outs_started,
        "checkedOut": stats.checked_out,
        "checkOutsFailed": {
            "poolClosed": failed.pool_closed,
            "timeout": failed.timeout,
            "connectionError": failed.connection_error,
        },
        "cancelled": stats.cancelled,
        "checkedIn": stats.checked_in,
        "cleared": stats.cleared,
        "durations": durations,
    })
}

/// Who holds what, who waits, and what is being established.
pub(crate) fn holders(pool: &Pool<u64>) -> Value {
    let in_use = pool.connections_in_use().map(|held| {
        json!({
            "connection": held.connection.id().get(),
            "checkOut": held.check_out.index(),
            "sinceNanos": held.since.as_nanos(),
            "purpose": match held.purpose {
                Purpose::Other => "other",
                Purpose::Cursor => "cursor",
                Purpose::Transaction => "transaction",
            },
            "isInterrupted": held.is_interrupted,
        })
    });
    let waiting = pool.waiting_check_outs().map(|waiting| {
        json!({
            "checkOut": waiting.check_out.index(),
            "sinceNanos": waiting.since.as_nanos(),
            "deadlineNanos": waiting.deadline.map(Instant::as_nanos),
            "establishing": waiting.establishing.map(cmap_core::pool::ConnectionId::get),
        })
    });
    let establishing = pool.establishing().map(|establishing| {
        json!({ "connection": establishing.connection.get(), "elapsedNanos": nanos(establishing.elapsed) })
    });
    json!({
        "inUse": in_use.collect::<Vec<_>>(),
        "waiting": waiting.collect::<Vec<_>>(),
        "establishing": establishing.collect::<Vec<_>>(),
    })
}

/// The state of the machine, in the form in which it is serialised.
pub(crate) fn snapshot(machine: &Topology<u64>) -> Result<String, Failure> {
    serde_json::to_string(&machine.snapshot()).map_err(|error| Failure::new(CMAP_ERROR_MISUSE, error.to_string()))
}

fn counts(counts: &Counts) -> Value {
    json!({
        "pending": counts.pending,
        "available": counts.available,
        "inUse": counts.in_use,
        "waiting": counts.waiting,
    })
}

fn histogram(histogram: &Histogram) -> Value {
    let quantile = |of_thousand| histogram.quantile(of_thousand).map(nanos);
    json!({
        "count": histogram.count(),
        "meanNanos": histogram.mean().map(nanos),
        "medianNanos": quantile(500),
        "p99Nanos": quantile(990),
        "longestNanos": nanos(if histogram.count() == 0 { Duration::ZERO } else { histogram.longest() }),
    })
}

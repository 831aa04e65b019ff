//! What the hub is at, and what has changed since an earlier look.

use std::collections::BTreeMap;
use std::sync::Arc;

use cmap_tokio::ClientStatus;
use serde::Serialize;
use thiserror::Error;

use super::super::activity::{ActivityReport, UserCounts};
use super::super::history::{Difference, Marks, Snapshot, SnapshotId};
use super::super::shared::Shared;

/// What the hub is at, at one moment.
#[derive(Serialize)]
pub(in crate::hub) struct Report {
    /// Names this look: `?since=` asks for the difference to it. None if nobody can ask for that.
    pub(super) snapshot: Option<SnapshotId>,
    /// Seconds since the start.
    pub(super) uptime: f64,
    pub(super) connections: usize,
    pub(super) most_connections: usize,
    /// Those of the connections that may not run commands yet.
    pub(super) strangers: usize,
    pub(super) sessions: usize,
    pub(super) queue: QueueReport,
    pub(super) memory: MemoryReport,
    pub(in crate::hub) users: BTreeMap<Arc<str>, UserReport>,
    #[serde(flatten)]
    pub(super) activity: ActivityReport,
    /// The servers that agents have dialled for; not there where the hub dials itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agents: Option<Vec<AgentReport>>,
    pub(super) upstream: ClientStatus,
    /// What has changed since the snapshot that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) difference: Option<Difference>,
}

#[derive(Serialize)]
pub(super) struct QueueReport {
    /// Whether an operator has told the hub to give no turns.
    pub(super) paused: bool,
    pub(super) running: usize,
    pub(super) most_running: usize,
    pub(super) waiting: usize,
    pub(super) most_waiting: usize,
    pub(super) waiting_bytes: usize,
    pub(super) most_waiting_bytes: usize,
}

/// Bytes of clients: of messages that are being read, of commands that wait or run, and of replies that are not taken yet.
#[derive(Serialize)]
pub(super) struct MemoryReport {
    pub(super) budget: usize,
    pub(super) held: usize,
    pub(super) most_held: usize,
    /// How many wait: clients to be read from, and commands for room for their replies.
    pub(super) waiting: usize,
    /// How many connections were ended, because they held much and did not go on.
    pub(super) gave_way: u64,
}

#[derive(Default, Serialize)]
pub(in crate::hub) struct UserReport {
    pub(super) connections: usize,
    pub(super) running: usize,
    pub(super) waiting: usize,
    #[serde(flatten)]
    pub(super) counts: UserCounts,
}

#[derive(Serialize)]
pub(super) struct AgentReport {
    pub(super) member: String,
    /// Sockets that wait to become connections.
    pub(super) parked: usize,
}

/// There is no such snapshot.
#[derive(Debug, Error)]
#[error(
    "the snapshot {since:?} is not kept: it is of another run of the hub, or a hundred looks ago; look without `since`"
)]
pub(super) struct SnapshotGone {
    since: String,
}

impl Report {
    /// Looks at the hub without leaving a snapshot.
    pub(in crate::hub) fn take(shared: &Shared) -> Self {
        let activity = shared.activity.report(shared.now());
        let mut users: BTreeMap<Arc<str>, UserReport> = BTreeMap::new();
        for (user, connections) in shared.connections_of_users() {
            users.entry(user).or_default().connections = connections;
        }
        for (user, counts) in &activity.of_user {
            users.entry(Arc::clone(user)).or_default().counts = *counts;
        }
        let queue = shared.gate.look(|queue| {
            for (user, report) in &mut users {
                report.waiting = queue.waiting_of(user);
                report.running = queue.running_of(user);
            }
            let (running, waiting, bytes) = (*queue.running(), *queue.waiting(), *queue.waiting_bytes());
            QueueReport {
                paused: queue.is_paused(),
                running: running.now(),
                most_running: running.most(),
                waiting: waiting.now(),
                most_waiting: waiting.most(),
                waiting_bytes: bytes.now(),
                most_waiting_bytes: bytes.most(),
            }
        });
        let memory = shared.purse.look(|held, waiting, gave_way| MemoryReport {
            budget: shared.settings().limits.memory.budget,
            held: held.now(),
            most_held: held.most(),
            waiting,
            gave_way,
        });
        let connections = shared.look_at_connections(|connections| *connections);
        Self {
            snapshot: None,
            uptime: shared.uptime().as_secs_f64(),
            connections: connections.now(),
            most_connections: connections.most(),
            strangers: shared.strangers(),
            sessions: shared.sessions(),
            queue,
            memory,
            users,
            activity,
            agents: shared.upstream.agents.as_ref().map(|agents| {
                let members = agents.members().into_iter();
                members.map(|(member, parked)| AgentReport { member: member.to_string(), parked }).collect()
            }),
            upstream: shared.upstream.client.status(),
            difference: None,
        }
    }

    /// Looks at the hub and keeps a snapshot. `query` may ask for the difference to an earlier one: `since=ID`. With `from=ID` it is a further
    /// look of one who has looked then, and leaves no snapshot.
    ///
    /// # Errors
    /// The snapshot is not kept.
    pub(super) fn look(shared: &Shared, query: Option<&str>) -> Result<Self, SnapshotGone> {
        let mut report = Self::take(shared);
        let asked = |key: &str| {
            let mut pairs =
                query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, value)| *name == key && !value.is_empty()).map(|(_, value)| value)
        };
        if let Some(id) = asked("from").and_then(|id| id.parse().ok())
            && shared.history.has(id)
        {
            report.snapshot = Some(id);
            return Ok(report);
        }
        let marks = shared.gate.look(|queue| Marks {
            connections: 0,
            running: queue.running().take_most_lately(),
            waiting: queue.waiting().take_most_lately(),
            waiting_bytes: queue.waiting_bytes().take_most_lately(),
        });
        let connections = shared.look_at_connections(|connections| connections.take_most_lately());
        report.snapshot = Some(shared.history.keep(Snapshot {
            uptime: shared.uptime(),
            counts: report.activity.counts,
            commands_of_user: commands_of(&report.activity.of_user),
            marks: Marks { connections, ..marks },
            slowest: shared.activity.take_slowest_lately(),
        }));
        if let Some(since) = asked("since") {
            let difference = since.parse().ok().and_then(|id| shared.history.difference(id));
            report.difference = Some(difference.ok_or_else(|| SnapshotGone { since: since.to_owned() })?);
        }
        Ok(report)
    }
}

fn commands_of(users: &BTreeMap<Arc<str>, UserCounts>) -> BTreeMap<Arc<str>, u64> {
    users.iter().map(|(user, counts)| (Arc::clone(user), counts.commands)).collect()
}

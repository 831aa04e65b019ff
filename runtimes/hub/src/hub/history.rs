//! What has changed between two looks at the hub: counts, high-water marks and slow commands.
//!
//! Each look is a snapshot, of which the last hundred are kept. One remembers what was counted until then, and what was highest
//! and slowest since the snapshot before it. So the difference to any of them is the stretch that an operator asks for.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Serialize, Serializer};

use super::activity::{CommandLine, Counts, Slowest};

/// How many snapshots are kept.
const KEPT: usize = 100;

/// The snapshots of one run of the hub.
#[derive(Debug)]
pub(super) struct History {
    run: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// The oldest first.
    kept: VecDeque<(SnapshotId, Snapshot)>,
}

/// Names a snapshot: the hub's run, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotId {
    run: u32,
    number: u64,
}

/// What a look has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) uptime: Duration,
    pub(super) counts: Counts,
    pub(super) commands_of_user: BTreeMap<Arc<str>, u64>,
    /// Since the snapshot before it.
    pub(super) marks: Marks,
    /// Since the snapshot before it.
    pub(super) slowest: Slowest,
}

/// The most that there were at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Marks {
    pub(super) connections: usize,
    pub(super) running: usize,
    pub(super) waiting: usize,
    pub(super) waiting_bytes: usize,
}

/// What has changed since a snapshot.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Difference {
    pub(super) since: SnapshotId,
    /// How long that was.
    pub(super) seconds: f64,
    pub(super) counts: Counts,
    /// Commands of each user; those without any are left out.
    pub(super) users: BTreeMap<Arc<str>, u64>,
    pub(super) most: Marks,
    pub(super) slowest: Vec<CommandLine>,
}

impl History {
    /// No snapshot yet. `run` tells this run of the hub from others.
    pub(super) fn new(run: u32) -> Self {
        Self { run, state: Mutex::default() }
    }

    /// Keeps a snapshot.
    pub(super) fn keep(&self, snapshot: Snapshot) -> SnapshotId {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.next += 1;
        let id = SnapshotId { run: self.run, number: state.next };
        state.kept.push_back((id, snapshot));
        if state.kept.len() > KEPT {
            state.kept.pop_front();
        }
        id
    }

    /// Whether a snapshot is kept.
    pub(super) fn has(&self, id: SnapshotId) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.kept.iter().any(|(kept, _)| *kept == id)
    }

    /// What has changed from one snapshot to the latest; `None` if it is not kept.
    pub(super) fn difference(&self, since: SnapshotId) -> Option<Difference> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let place = state.kept.iter().position(|(id, _)| *id == since)?;
        let (_, first) = state.kept.get(place)?;
        let (_, last) = state.kept.back()?;
        let (mut most, mut slowest) = (Marks::default(), Slowest::default());
        for (_, snapshot) in state.kept.iter().skip(place + 1) {
            most = most.max(snapshot.marks);
            snapshot.slowest.iter().for_each(|line| slowest.add(line.took, || line.clone()));
        }
        let users = last.commands_of_user.iter().filter_map(|(user, count)| {
            let since = count.saturating_sub(first.commands_of_user.get(user).copied().unwrap_or_default());
            (since > 0).then(|| (Arc::clone(user), since))
        });
        Some(Difference {
            since,
            seconds: last.uptime.saturating_sub(first.uptime).as_secs_f64(),
            counts: last.counts.since(first.counts),
            users: users.collect(),
            most,
            slowest: slowest.iter().cloned().collect(),
        })
    }
}

impl Marks {
    fn max(self, other: Self) -> Self {
        Self {
            connections: self.connections.max(other.connections),
            running: self.running.max(other.running),
            waiting: self.waiting.max(other.waiting),
            waiting_bytes: self.waiting_bytes.max(other.waiting_bytes),
        }
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}", self.run, self.number)
    }
}

impl FromStr for SnapshotId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (run, number) = text.split_once('-').ok_or(())?;
        Ok(Self { run: u32::from_str_radix(run, 16).map_err(drop)?, number: number.parse().map_err(drop)? })
    }
}

impl Serialize for SnapshotId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(seconds: u64, commands: u64, waiting: usize) -> Snapshot {
        Snapshot {
            uptime: Duration::from_secs(seconds),
            counts: Counts { commands, ..Counts::default() },
            commands_of_user: [("anna".into(), commands), ("ben".into(), 1)].into(),
            marks: Marks { waiting, ..Marks::default() },
            slowest: Slowest::default(),
        }
    }

    #[test]
    fn a_difference_has_what_was_counted_and_highest_since_its_snapshot_x_139() {
        let history = History::new(7);
        history.keep(snapshot(0, 0, 90));
        let first = history.keep(snapshot(10, 5, 50));
        history.keep(snapshot(20, 6, 8));
        history.keep(snapshot(30, 9, 3));

        let difference = history.difference(first).unwrap();

        assert_eq!((difference.seconds, difference.counts.commands, difference.most.waiting), (20.0, 4, 8));
        assert_eq!(difference.users, [("anna".into(), 4)].into(), "ben did nothing meanwhile");
    }

    #[test]
    fn snapshots_of_another_run_and_old_ones_are_not_kept_x_139() {
        let history = History::new(7);
        let first = history.keep(snapshot(0, 0, 0));
        (0..KEPT).for_each(|_| _ = history.keep(snapshot(1, 1, 1)));

        assert!(history.difference(first).is_none());
        assert!(history.difference("00000008-50".parse().unwrap()).is_none());
        assert!(history.difference("00000007-50".parse().unwrap()).is_some());
        assert!("50".parse::<SnapshotId>().is_err());
    }
}

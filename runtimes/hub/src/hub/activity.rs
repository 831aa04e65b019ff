//! What runs since when and by whom, what took longest, and how often what happened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmap_core::time::Instant;
use serde::Serialize;
use tokio::sync::oneshot;

use super::failures::{FailureLine, Failures, Why};
use super::histograms::{self, OfUser};
use super::track::{Phase, Times, Track};
use crate::protocol::{Operation, OperationId, Operations, Refusal, Request, Whose};

/// How many commands the list of the slowest has.
const SLOWEST: usize = 10;

/// How many users' commands are counted apart.
const MOST_NAMES: usize = 1_000;

/// The hub's memory of commands.
#[derive(Debug)]
pub(super) struct Activity {
    /// Whether histograms are kept.
    has_histograms: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    running: BTreeMap<OperationId, Running>,
    slowest: Slowest,
    /// The slowest since the last snapshot.
    slowest_lately: Slowest,
    counts: Counts,
    of_user: BTreeMap<Arc<str>, UserCounts>,
    histograms: BTreeMap<Arc<str>, OfUser>,
    refused: BTreeMap<(Arc<str>, Reason), u64>,
    failures: Failures,
}

/// What was counted of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct UserCounts {
    pub(super) commands: u64,
    /// Of those that have ended.
    pub(super) ok: u64,
    pub(super) failed: u64,
    pub(super) cut_off: u64,
    /// How long its commands were where, all together.
    pub(super) times: Times,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    QueueFull,
    TooLong,
    Memory,
    RunningPerUser,
    Rule,
}

/// A command that waits or runs.
#[derive(Debug)]
struct Running {
    user: Arc<str>,
    connection: i64,
    request: Arc<Request>,
    track: Track,
    /// Tells its connection to end it.
    kill: Option<oneshot::Sender<()>>,
}

/// How often what has happened, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) commands: u64,
    pub(super) failed: u64,
    pub(super) cut_off: u64,
    pub(super) retries: u64,
    pub(super) overloads: u64,
    pub(super) refused: u64,
    pub(super) failed_logins: u64,
    pub(super) turned_away: u64,
}

/// A command, as the status shows it: without what it contains.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CommandLine {
    /// The number by which `killOp` ends it.
    pub(super) operation: u64,
    /// The number of its client's connection, by which an operator can hang up on that.
    pub(super) connection: i64,
    pub(super) user: Arc<str>,
    pub(super) database: String,
    pub(super) command: String,
    /// Seconds: so far, or in all.
    pub(super) took: f64,
    /// Of these, where.
    pub(super) seconds: Times,
    /// Where it is, or was last.
    pub(super) at: Phase,
    /// Where it was sent; none yet while it waits.
    pub(super) server: Option<String>,
}

/// All of it, at one moment.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ActivityReport {
    pub(super) counts: Counts,
    /// The status shows them with the users.
    #[serde(skip)]
    pub(super) of_user: BTreeMap<Arc<str>, UserCounts>,
    #[serde(skip)]
    pub(super) refused: BTreeMap<(Arc<str>, Reason), u64>,
    pub(super) running: Vec<CommandLine>,
    pub(super) slowest: Slowest,
    /// What has failed or was refused, the latest first.
    pub(super) failures: Vec<FailureLine>,
}

/// The commands that took longest, the slowest first.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Slowest(Vec<CommandLine>);

/// A command that was noted. Dropping it before its end means that it was cut off.
#[derive(Debug)]
pub(super) struct Noted {
    activity: Arc<Activity>,
    id: OperationId,
}

impl Activity {
    pub(super) fn new(has_histograms: bool) -> Self {
        Self { has_histograms: AtomicBool::new(has_histograms), state: Mutex::default() }
    }

    /// Keeps histograms from now on, or keeps those that there are as they are.
    pub(super) fn set_histograms(&self, has_histograms: bool) {
        self.has_histograms.store(has_histograms, Ordering::Relaxed);
    }

    /// A command of `user` begins, on a connection of this number. The receiver hears when it is killed.
    pub(super) fn begin(
        self: &Arc<Self>,
        request: &Arc<Request>,
        user: &Arc<str>,
        connection: i64,
        track: &Track,
    ) -> (Noted, oneshot::Receiver<()>) {
        let mut state = self.lock();
        state.next += 1;
        let id = OperationId(state.next);
        let (kill, killed) = oneshot::channel();
        let (user, request, track) = (Arc::clone(user), Arc::clone(request), track.clone());
        state.with_counts(&user, |counts| counts.commands += 1);
        state.counts.commands += 1;
        state.running.insert(id, Running { user, connection, request, track, kill: Some(kill) });
        (Noted { activity: Arc::clone(self), id }, killed)
    }

    pub(super) fn count_retry(&self) {
        self.lock().counts.retries += 1;
    }

    pub(super) fn count_overload(&self, user: &Arc<str>, reason: Reason) {
        let mut state = self.lock();
        state.counts.overloads += 1;
        state.count_refused(user, reason);
    }

    /// A command of `user`, if somebody has logged in, was refused.
    pub(super) fn count_refusal(&self, now: Instant, user: Option<&Arc<str>>, command: &str, refusal: &Refusal) {
        let mut state = self.lock();
        let code = refusal.code;
        if let Some(user) = user {
            state.failures.note(now, user, command, Why::new(Some(code), refusal.name));
            if matches!(code, 13 | 59) {
                state.count_refused(user, Reason::Rule);
            }
        }
        state.counts.refused += 1;
        state.counts.failed_logins += u64::from(code == 18);
    }

    pub(super) fn count_turned_away(&self) {
        self.lock().counts.turned_away += 1;
    }

    pub(super) fn report(&self, now: Instant) -> ActivityReport {
        let state = self.lock();
        ActivityReport {
            counts: state.counts,
            of_user: state.of_user.clone(),
            refused: state.refused.clone(),
            running: state.running.iter().map(|(id, running)| running.line(*id, now)).collect(),
            slowest: state.slowest.clone(),
            failures: state.failures.report(now),
        }
    }

    /// The histograms, as Prometheus reads them.
    pub(super) fn histograms(&self) -> String {
        let state = self.lock();
        let seconds: Vec<_> =
            state.of_user.iter().map(|(user, counts)| (Arc::clone(user), counts.times.server)).collect();
        let histograms = state.histograms.clone();
        drop(state);
        histograms::text_of(&histograms, &seconds)
    }

    /// The slowest since the last call.
    pub(super) fn take_slowest_lately(&self) -> Slowest {
        std::mem::take(&mut self.lock().slowest_lately)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Operations for Activity {
    fn list(&self, now: Instant, whose: Whose<'_>) -> Vec<Operation> {
        let state = self.lock();
        let those = state.running.iter().filter(|(_, running)| whose.includes(&running.user));
        those.map(|(id, running)| running.operation(*id, now)).collect()
    }

    fn kill(&self, id: OperationId, whose: Whose<'_>) -> bool {
        let mut state = self.lock();
        let Some(running) = state.running.get_mut(&id).filter(|running| whose.includes(&running.user)) else {
            return false;
        };
        // One that has ended meanwhile needs no end. A second time it is on its way to one.
        running.kill.take().is_none_or(|kill| kill.send(()).is_ok())
    }
}

impl Running {
    fn operation(&self, id: OperationId, now: Instant) -> Operation {
        Operation {
            id,
            user: Arc::clone(&self.user),
            connection: self.connection,
            request: Arc::clone(&self.request),
            took: self.track.times(now).1.total(),
            server: self.track.server().map(|server| server.to_string()),
        }
    }

    fn line(&self, id: OperationId, now: Instant) -> CommandLine {
        let (at, seconds) = self.track.times(now);
        CommandLine {
            operation: id.0,
            connection: self.connection,
            user: Arc::clone(&self.user),
            database: self.request.database.clone(),
            command: self.request.name.clone(),
            took: seconds.total().as_secs_f64(),
            seconds,
            at,
            server: self.track.server().map(|server| server.to_string()),
        }
    }
}

impl Reason {
    pub(super) const ALL: [Self; 5] = [Self::QueueFull, Self::TooLong, Self::Memory, Self::RunningPerUser, Self::Rule];

    /// Its name in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::TooLong => "too-long",
            Self::Memory => "memory",
            Self::RunningPerUser => "running-per-user",
            Self::Rule => "rule",
        }
    }
}

impl Counts {
    /// What was counted since an earlier moment.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(earlier.commands),
            failed: self.failed.saturating_sub(earlier.failed),
            cut_off: self.cut_off.saturating_sub(earlier.cut_off),
            retries: self.retries.saturating_sub(earlier.retries),
            overloads: self.overloads.saturating_sub(earlier.overloads),
            refused: self.refused.saturating_sub(earlier.refused),
            failed_logins: self.failed_logins.saturating_sub(earlier.failed_logins),
            turned_away: self.turned_away.saturating_sub(earlier.turned_away),
        }
    }
}

impl Slowest {
    /// Adds a command that took so many seconds, if it is one of the slowest.
    pub(super) fn add(&mut self, took: f64, line: impl FnOnce() -> CommandLine) {
        let place = self.0.partition_point(|other| other.took >= took);
        if place < SLOWEST {
            self.0.insert(place, line());
            self.0.truncate(SLOWEST);
        }
    }

    /// The slowest first.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, CommandLine> {
        self.0.iter()
    }
}

impl State {
    /// Where nobody logs in the names are addresses, of which there are many: the first ones have a line of their own.
    fn with_counts(&mut self, user: &Arc<str>, change: impl FnOnce(&mut UserCounts)) {
        if let Some(counts) = self.of_user.get_mut(user) {
            change(counts);
        } else if self.of_user.len() < MOST_NAMES {
            change(self.of_user.entry(Arc::clone(user)).or_default());
        }
    }

    fn count_refused(&mut self, user: &Arc<str>, reason: Reason) {
        if self.of_user.contains_key(user) || self.refused.len() < MOST_NAMES {
            *self.refused.entry((Arc::clone(user), reason)).or_default() += 1;
        }
    }

    fn note_times(&mut self, user: &Arc<str>, command: &str, times: &Times) {
        if let Some(histograms) = self.histograms.get_mut(user) {
            histograms.note(command, times);
        } else if self.histograms.len() < MOST_NAMES {
            self.histograms.entry(Arc::clone(user)).or_default().note(command, times);
        }
    }
}

impl Noted {
    /// It has ended, by a failure if there is a reason.
    pub(super) fn end(self, now: Instant, failed: Option<Why>) {
        let mut state = self.activity.lock();
        let Some(running) = state.running.remove(&self.id) else { return };
        let ok = failed.is_none();
        state.counts.failed += u64::from(!ok);
        if let Some(why) = failed {
            state.failures.note(now, &running.user, &running.request.name, why);
        }
        let (_, times) = running.track.times(now);
        state.with_counts(&running.user, |counts| {
            counts.ok += u64::from(ok);
            counts.failed += u64::from(!ok);
            counts.times.add(&times);
        });
        if self.activity.has_histograms.load(Ordering::Relaxed) {
            state.note_times(&running.user, &running.request.name, &times);
        }
        let took = times.total().as_secs_f64();
        state.slowest.add(took, || running.line(self.id, now));
        state.slowest_lately.add(took, || running.line(self.id, now));
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        if let Some(running) = state.running.remove(&self.id) {
            state.counts.cut_off += 1;
            state.with_counts(&running.user, |counts| counts.cut_off += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_number_of_names_is_counted_apart() {
        let mut state = State::default();
        for number in 0..2 * MOST_NAMES {
            state.with_counts(&number.to_string().into(), |counts| counts.commands += 1);
        }
        state.with_counts(&"0".into(), |counts| counts.commands += 1);

        assert_eq!((state.of_user.len(), state.of_user["0"].commands), (MOST_NAMES, 2));
    }
}

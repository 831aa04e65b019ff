//! What runs since when and by whom, what took longest, and how often what happened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmap_core::address::ServerAddress;
use cmap_core::time::Instant;
use serde::Serialize;

use crate::protocol::Request;

/// How many commands the list of the slowest has.
const SLOWEST: usize = 10;

/// How many users' commands are counted apart.
const MOST_NAMES: usize = 1_000;

/// The hub's memory of commands.
#[derive(Debug, Default)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    running: BTreeMap<u64, Command>,
    /// The slowest first.
    slowest: Vec<(f64, Command, Option<String>)>,
    counts: Counts,
    of_user: BTreeMap<Arc<str>, u64>,
}

/// A command, without its contents.
#[derive(Clone, Debug)]
struct Command {
    user: Arc<str>,
    database: String,
    name: String,
    since: Instant,
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

/// A command, as the status shows it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CommandLine {
    pub(super) user: Arc<str>,
    pub(super) database: String,
    pub(super) command: String,
    /// Seconds: so far, or in all.
    pub(super) took: f64,
    pub(super) server: Option<String>,
}

/// All of it, at one moment.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ActivityReport {
    pub(super) counts: Counts,
    pub(super) commands_of_user: BTreeMap<Arc<str>, u64>,
    pub(super) running: Vec<CommandLine>,
    pub(super) slowest: Vec<CommandLine>,
}

/// A command that was noted. Dropping it before its end means that it was cut off.
#[derive(Debug)]
pub(super) struct Noted {
    activity: Arc<Activity>,
    number: u64,
}

impl Activity {
    pub(super) fn begin(self: &Arc<Self>, request: &Request, user: &Arc<str>, now: Instant) -> Noted {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        let (database, name) = (request.database.clone(), request.name.clone());
        state.running.insert(number, Command { user: Arc::clone(user), database, name, since: now });
        state.counts.commands += 1;
        state.count_of_user(user);
        Noted { activity: Arc::clone(self), number }
    }

    pub(super) fn count_retry(&self) {
        self.lock().counts.retries += 1;
    }

    pub(super) fn count_overload(&self) {
        self.lock().counts.overloads += 1;
    }

    pub(super) fn count_refusal(&self, code: i32) {
        let mut state = self.lock();
        state.counts.refused += 1;
        state.counts.failed_logins += u64::from(code == 18);
    }

    pub(super) fn count_turned_away(&self) {
        self.lock().counts.turned_away += 1;
    }

    pub(super) fn report(&self, now: Instant) -> ActivityReport {
        let state = self.lock();
        let line = |command: &Command, took: f64, server: Option<String>| CommandLine {
            user: Arc::clone(&command.user),
            database: command.database.clone(),
            command: command.name.clone(),
            took,
            server,
        };
        ActivityReport {
            counts: state.counts,
            commands_of_user: state.of_user.clone(),
            running: state
                .running
                .values()
                .map(|command| line(command, now.saturating_since(command.since).as_secs_f64(), None))
                .collect(),
            slowest: state.slowest.iter().map(|(took, command, server)| line(command, *took, server.clone())).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Where nobody logs in the names are addresses, of which there are many: the first ones have a line of their own.
    fn count_of_user(&mut self, user: &Arc<str>) {
        if let Some(count) = self.of_user.get_mut(user) {
            *count += 1;
        } else if self.of_user.len() < MOST_NAMES {
            self.of_user.insert(Arc::clone(user), 1);
        }
    }
}

impl Noted {
    /// It has ended, at this server.
    pub(super) fn end(self, server: Option<&ServerAddress>, now: Instant, ok: bool) {
        let mut state = self.activity.lock();
        let Some(command) = state.running.remove(&self.number) else { return };
        state.counts.failed += u64::from(!ok);
        let took = now.saturating_since(command.since).as_secs_f64();
        let place = state.slowest.partition_point(|(other, _, _)| *other >= took);
        if place < SLOWEST {
            state.slowest.insert(place, (took, command, server.map(ToString::to_string)));
            state.slowest.truncate(SLOWEST);
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        if state.running.remove(&self.number).is_some() {
            state.counts.cut_off += 1;
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
            state.count_of_user(&number.to_string().into());
        }
        state.count_of_user(&"0".into());

        assert_eq!((state.of_user.len(), state.of_user["0"]), (MOST_NAMES, 2));
    }
}

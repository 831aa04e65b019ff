//! The audit log: who has logged in, who has failed to, who was refused what, who has gone and why, and what operators order. Records at level INFO of a target of
//! their own, with limits of their own, so that nothing else takes their room.

use cmap_core::time::Instant;

use super::log_limit::LogLimit;
use crate::protocol::shown;

/// The target of its records.
pub(super) const TARGET: &str = "cmap::hub::audit";

/// How many lines a second users have, and those who fail to log in.
const OF_USERS: u32 = 200;
const OF_STRANGERS: u32 = 10;

/// What was left out is counted in the next line of the same limit.
#[derive(Debug)]
pub(super) struct Audit {
    users: LogLimit,
    strangers: LogLimit,
    /// What is refused takes no room of who comes and goes.
    refused: LogLimit,
    refused_strangers: LogLimit,
}

/// The client that a record is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whom<'a> {
    pub(super) address: &'a str,
    /// The number of its connection.
    pub(super) connection: i64,
}

impl Audit {
    pub(super) fn new() -> Self {
        let [users, refused] = [OF_USERS; 2].map(LogLimit::of);
        let [strangers, refused_strangers] = [OF_STRANGERS; 2].map(LogLimit::of);
        Self { users, strangers, refused, refused_strangers }
    }

    pub(super) fn logged_in(&self, now: Instant, user: &str, Whom { address, connection }: Whom<'_>) {
        if let Some(left_out) = self.users.admit(now) {
            tracing::info!(target: TARGET, user, address, connection, left_out, "logged in");
        }
    }

    /// A login has failed; `tried` is the name that it was for, if it named one.
    pub(super) fn failed(&self, now: Instant, tried: Option<&str>, Whom { address, connection }: Whom<'_>) {
        if let Some(left_out) = self.strangers.admit(now) {
            let tried = tried.map(|name| tracing::field::display(shown(name)));
            tracing::info!(target: TARGET, tried, address, connection, left_out, "failed to log in");
        }
    }

    /// A user's command was refused by a rule, or a stranger's for want of a login.
    pub(super) fn refused(&self, now: Instant, user: Option<&str>, whom: Whom<'_>, command: &str, why: &str) {
        let limit = if user.is_some() { &self.refused } else { &self.refused_strangers };
        if let Some(left_out) = limit.admit(now) {
            let (Whom { address, connection }, command) = (whom, tracing::field::display(shown(command)));
            tracing::info!(target: TARGET, user, address, connection, command, left_out, "refused: {why}");
        }
    }

    pub(super) fn gone(&self, now: Instant, user: &str, Whom { address, connection }: Whom<'_>, why: &str) {
        if let Some(left_out) = self.users.admit(now) {
            tracing::info!(target: TARGET, user, address, connection, left_out, "gone: {why}");
        }
    }
}

//! How long a command may take, and how much of that time is sent to the server.

use std::fmt;
use std::time::Duration;

use cmap_core::connection::{Addition, ClientField, Command, Outline};
use cmap_core::options::ClientOptions;

use super::deadline::without_zero;
use crate::error::CommandErrorKind;

/// The limit on a command's time, and who set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// socketTimeoutMS: when it is over, this side hangs up; the server is not told the limit.
    Socket(Duration),
    /// timeoutMS: the server learns how long it may work (CSOT-9).
    Operation(Duration),
    /// That of one iteration of a cursor: the server is not told, because it would end the cursor then.
    Iteration(Duration),
    /// The caller's own, such as what was left of a [`Deadline`](crate::Deadline); the server learns it, too.
    Caller(Duration),
}

impl TimeLimit {
    /// The limit that the options set, where zero sets none. timeoutMS replaces socketTimeoutMS (CSOT-3).
    pub(crate) fn of_client(options: &ClientOptions) -> Option<Self> {
        match options.timeout {
            Some(timeout) => without_zero(Some(timeout)).map(Self::Operation),
            None => without_zero(options.socket_timeout).map(Self::Socket),
        }
    }

    /// Whether it takes the place of `wtimeout`: that of an operation does (CSOT-3).
    pub(crate) fn is_of_operation(self) -> bool {
        !matches!(self, Self::Socket(_))
    }

    /// What is left of it once `time` has passed.
    pub(crate) fn after(self, time: Duration) -> Self {
        let left = self.duration().saturating_sub(time);
        match self {
            Self::Socket(_) => Self::Socket(left),
            Self::Operation(_) => Self::Operation(left),
            Self::Iteration(_) => Self::Iteration(left),
            Self::Caller(_) => Self::Caller(left),
        }
    }

    /// The time itself.
    pub fn duration(self) -> Duration {
        match self {
            Self::Socket(limit) | Self::Operation(limit) | Self::Iteration(limit) | Self::Caller(limit) => limit,
        }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All but the first are for other work as well, and what that took is gone.
        let set_by = match self {
            Self::Socket(_) => "socketTimeoutMS",
            Self::Operation(_) => "left of timeoutMS",
            Self::Iteration(_) => "left of the limit of an iteration",
            Self::Caller(_) => "left of the caller's limit",
        };
        write!(f, "{:?} ({set_by})", self.duration())
    }
}

/// `command` as it is sent: with the server's share of the time, which is all of it except a round trip.
///
/// # Errors
/// The time left is too short for a round trip: nothing is sent, and the connection stays usable (CSOT-9, CSOT-10).
pub(crate) fn apply<'c>(
    limit: Option<TimeLimit>,
    command: &Command<'c>,
    min_round_trip_time: impl FnOnce() -> Duration,
) -> Result<Command<'c>, CommandErrorKind> {
    let mut command = *command;
    if let Some(limit @ (TimeLimit::Operation(left) | TimeLimit::Iteration(left) | TimeLimit::Caller(left))) = limit {
        let round_trip = min_round_trip_time();
        let time = left.saturating_sub(round_trip);
        if time.is_zero() {
            return Err(CommandErrorKind::NoTimeLeft { left: limit, round_trip });
        }
        let is_told = !matches!(limit, TimeLimit::Iteration(_));
        if is_told && command.max_time.is_none() && !has_time_of_its_own(&command) {
            command.max_time = Some(time);
        }
    }
    Ok(command)
}

/// Whether the server's time limit for the command comes from elsewhere: its caller has set it, or the command takes none. A getMore
/// takes one only where its cursor waits for data.
fn has_time_of_its_own(command: &Command<'_>) -> bool {
    let outline = Outline::of(command);
    !outline.takes(Addition::MaxTime) || outline.has(ClientField::MaxTime)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn told(limit: Option<TimeLimit>, body: &bson::RawDocument, round_trip: Duration) -> Option<Option<Duration>> {
        apply(limit, &Command::new("db", body), || round_trip).ok().map(|command| command.max_time)
    }

    #[test]
    fn timeout_ms_replaces_socket_timeout_ms_csot_3() {
        for (uri, expected) in [
            ("mongodb://h/", None),
            ("mongodb://h/?socketTimeoutMS=0", None),
            ("mongodb://h/?socketTimeoutMS=5", Some(TimeLimit::Socket(5 * MS))),
            ("mongodb://h/?socketTimeoutMS=5&timeoutMS=7", Some(TimeLimit::Operation(7 * MS))),
            ("mongodb://h/?socketTimeoutMS=5&timeoutMS=0", None),
        ] {
            let (options, _) = ClientOptions::parse(uri).unwrap();
            assert_eq!(TimeLimit::of_client(&options), expected, "{uri}");
        }
    }

    #[test]
    fn the_server_gets_all_but_a_round_trip_csot_9() {
        let ping = rawdoc! { "ping": 1 };

        assert_eq!(told(Some(TimeLimit::Operation(50 * MS)), &ping, 20 * MS), Some(Some(30 * MS)));
        assert_eq!(told(Some(TimeLimit::Socket(50 * MS)), &ping, 20 * MS), Some(None));
        assert_eq!(told(Some(TimeLimit::Iteration(50 * MS)), &ping, 20 * MS), Some(None));
        assert_eq!(told(None, &ping, 20 * MS), Some(None));
    }

    #[test]
    fn nothing_is_sent_when_there_is_no_time_for_a_round_trip_csot_9() {
        let ping = rawdoc! { "ping": 1 };

        assert_eq!(told(Some(TimeLimit::Caller(Duration::ZERO)), &ping, Duration::ZERO), None, "time is up");
        for round_trip in [50 * MS, 51 * MS, Duration::MAX] {
            assert_eq!(told(Some(TimeLimit::Operation(50 * MS)), &ping, round_trip), None, "{round_trip:?}");
        }
    }

    #[test]
    fn a_limit_of_the_callers_own_stays() {
        for body in [rawdoc! { "find": "c", "maxTimeMS": 5 }, rawdoc! { "getMore": 5_i64, "collection": "c" }] {
            assert_eq!(told(Some(TimeLimit::Operation(50 * MS)), &body, MS), Some(None), "{body:?}");
        }
    }

    #[test]
    fn a_limit_names_who_set_it() {
        let limits = [TimeLimit::Socket(5 * MS), TimeLimit::Operation(5 * MS), TimeLimit::Caller(5 * MS)];

        let named = limits.map(|limit| limit.to_string());

        assert_eq!(named, ["5ms (socketTimeoutMS)", "5ms (left of timeoutMS)", "5ms (left of the caller's limit)"]);
    }
}

//! How long a command may take, and how much of that time the server is told.

use std::time::Duration;

use cmap_core::connection::Command;
use cmap_core::options::ClientOptions;

use crate::error::CommandErrorKind;

/// The time limit of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandLimit {
    /// No limit.
    None,
    /// socketTimeoutMS: when it is over, this side hangs up; the server is not told the limit.
    Socket(Duration),
    /// The rest of an operation's time, of timeoutMS: the server is told how long it may work (CSOT-9).
    Operation(Duration),
}

impl CommandLimit {
    /// The limit that the options set. timeoutMS replaces socketTimeoutMS (CSOT-3).
    pub(crate) fn of_client(options: &ClientOptions) -> Self {
        match (options.timeout, options.socket_timeout) {
            (Some(timeout), _) => Self::operation(Some(timeout)),
            (None, Some(timeout)) if !timeout.is_zero() => Self::Socket(timeout),
            (None, _) => Self::None,
        }
    }

    /// The limit of an operation; zero and `None` mean forever (CSOT-2).
    pub(crate) fn operation(left: Option<Duration>) -> Self {
        left.filter(|left| !left.is_zero()).map_or(Self::None, Self::Operation)
    }

    pub(crate) fn duration(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Socket(limit) | Self::Operation(limit) => Some(limit),
        }
    }

    /// `command` as it is sent: with the server's share of the time, which is all of it except a round trip.
    ///
    /// # Errors
    /// The time left is too short for a round trip: nothing is sent, and the connection stays usable (CSOT-9, CSOT-10).
    pub(crate) fn apply<'c>(
        self,
        command: &Command<'c>,
        min_round_trip_time: impl FnOnce() -> Duration,
    ) -> Result<Command<'c>, CommandErrorKind> {
        let mut command = *command;
        if let Self::Operation(left) = self {
            let round_trip = min_round_trip_time();
            let time = left.saturating_sub(round_trip);
            if time.is_zero() {
                return Err(CommandErrorKind::NoTimeLeft { left, round_trip });
            }
            if command.max_time.is_none() && !has_time_of_its_own(&command) {
                command.max_time = Some(time);
            }
        }
        Ok(command)
    }
}

/// Whether the server's time limit for the command comes from elsewhere: its caller has set it, or the command belongs
/// to a cursor, for which getMore takes none unless the cursor waits for data.
fn has_time_of_its_own(command: &Command<'_>) -> bool {
    let mut fields = command.body.iter().map_while(Result::ok).map(|(name, _)| name.as_str());
    let further = command.fields.into_iter().flatten().map_while(Result::ok).map(|(name, _)| name.as_str());
    fields.next() == Some("getMore") || fields.chain(further).any(|name| name == "maxTimeMS")
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn told(limit: CommandLimit, body: &bson::RawDocument, round_trip: Duration) -> Option<Option<Duration>> {
        limit.apply(&Command::new("db", body), || round_trip).ok().map(|command| command.max_time)
    }

    #[test]
    fn timeout_ms_replaces_socket_timeout_ms_csot_3() {
        for (uri, expected) in [
            ("mongodb://h/", CommandLimit::None),
            ("mongodb://h/?socketTimeoutMS=0", CommandLimit::None),
            ("mongodb://h/?socketTimeoutMS=5", CommandLimit::Socket(5 * MS)),
            ("mongodb://h/?socketTimeoutMS=5&timeoutMS=7", CommandLimit::Operation(7 * MS)),
            ("mongodb://h/?socketTimeoutMS=5&timeoutMS=0", CommandLimit::None),
        ] {
            let (options, _) = ClientOptions::parse(uri).unwrap();
            assert_eq!(CommandLimit::of_client(&options), expected, "{uri}");
        }
    }

    #[test]
    fn the_server_gets_all_but_a_round_trip_csot_9() {
        let ping = rawdoc! { "ping": 1 };

        assert_eq!(told(CommandLimit::Operation(50 * MS), &ping, 20 * MS), Some(Some(30 * MS)));
        assert_eq!(told(CommandLimit::Socket(50 * MS), &ping, 20 * MS), Some(None));
        assert_eq!(told(CommandLimit::None, &ping, 20 * MS), Some(None));
    }

    #[test]
    fn nothing_is_sent_when_there_is_no_time_for_a_round_trip_csot_9() {
        let ping = rawdoc! { "ping": 1 };

        for round_trip in [50 * MS, 51 * MS, Duration::MAX] {
            assert_eq!(told(CommandLimit::Operation(50 * MS), &ping, round_trip), None, "{round_trip:?}");
        }
    }

    #[test]
    fn a_limit_of_the_callers_own_stays() {
        for body in [rawdoc! { "find": "c", "maxTimeMS": 5 }, rawdoc! { "getMore": 5_i64, "collection": "c" }] {
            assert_eq!(told(CommandLimit::Operation(50 * MS), &body, MS), Some(None), "{body:?}");
        }
    }
}

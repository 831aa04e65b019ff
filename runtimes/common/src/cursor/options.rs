//! What goes along with a cursor's getMores, what its command says about it, and what its limit of time is for: its life, or one iteration
//! (CSOT, *Cursors*).

use std::time::Duration;

use bson::{RawBson, RawDocument};
use cmap_core::connection::{Command, Outline};
use cmap_core::wire::integer;

use crate::error::CursorError;
use crate::operation::Context;
use crate::runtime::Runtime;
use crate::time::{Budget, Limit};

/// What goes along with the getMores of a cursor. By default they take over what the command says itself: see
/// [`of_command`](Self::of_command).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CursorOptions {
    /// How many documents a batch has, at most. `None`: as many as the server likes, which is up to 16 MiB. The first batch is
    /// the command's affair.
    pub batch_size: Option<u32>,
    /// A comment for the server's logs.
    pub comment: Option<RawBson>,
    /// How long the server waits for data in a getMore that finds none (maxAwaitTimeMS): for tailable cursors with `awaitData`
    /// only. `None`: one second, the server's own wait. It must be shorter than the limit of an iteration: set it if that is a second
    /// or less.
    pub max_await_time: Option<Duration>,
    /// What the operation's limit of time is for. `None`: one iteration of a tailable cursor, and the life of any other.
    pub timeout_mode: Option<TimeoutMode>,
}

/// What a command says about the cursor that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CursorKind {
    /// Whether it goes on when it has no more documents at present.
    pub(super) is_tailable: bool,
    /// Whether a getMore that finds no document waits for one.
    pub(super) awaits_data: bool,
    /// Whether it writes its result, which is no document of the cursor's.
    pub(super) writes: bool,
}

/// What the limit of time of a cursor's operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutMode {
    /// All of the cursor's life, from the command that makes it to the last getMore. The server learns the limit, too. For
    /// cursors that are not tailable, and their default.
    CursorLifetime,
    /// The command that makes the cursor, and each iteration. The server is not told the limit, which it would take for that of
    /// the cursor's life. The default of tailable cursors, and the only mode that they have.
    Iteration,
}

/// The limits of a cursor's commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct CursorTime {
    pub(super) mode: TimeoutMode,
    /// The user's; `None` is timeoutMS.
    limit: Option<Limit>,
    /// For the command that makes the cursor, and the cursor's life.
    pub(super) first: Budget,
    /// Whether the last wait was made shorter for the end of its iteration: another one would be shorter still.
    pub(super) was_short: bool,
}

/// How long the server waits for data in a getMore, if nobody tells it.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// How much later an empty batch may come than the wait and the round trip say, where half of what is left is not less.
const SLACK: Duration = Duration::from_millis(100);

/// A wait that is not worth another getMore, unless the user has chosen it.
const SHORT: Duration = Duration::from_millis(30);

/// How long a getMore that awaits data may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// The user's; `None` leaves it to the server.
    pub(super) longest: Option<Duration>,
    /// The shortest recent round trip to the server.
    pub(super) round_trip: Duration,
}

impl CursorOptions {
    /// The options that a command says itself: `batchSize`, at its top or in `cursor`, and `comment`.
    pub fn of_command(command: &RawDocument) -> Self {
        let of_find = command.get("batchSize").ok().flatten();
        let of_others = || command.get_document("cursor").ok()?.get("batchSize").ok().flatten();
        let batch_size = of_find.or_else(of_others).and_then(integer);
        Self {
            // A first batch of none asks for the cursor alone.
            batch_size: batch_size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0),
            comment: command.get("comment").ok().flatten().map(RawBson::from),
            max_await_time: None,
            timeout_mode: None,
        }
    }
}

impl CursorKind {
    pub(super) fn of_command(command: &RawDocument) -> Self {
        let says = |field: &str| command.get_bool(field).unwrap_or_default();
        let pipeline = command.get_array("pipeline").ok();
        let first = pipeline.and_then(|pipeline| pipeline.into_iter().next()?.ok()?.as_document());
        let is_change_stream = first.is_some_and(|stage| stage.get("$changeStream").is_ok_and(|field| field.is_some()));
        Self {
            is_tailable: says("tailable") || is_change_stream,
            awaits_data: says("tailable") && says("awaitData") || is_change_stream,
            writes: Outline::of(&Command::new("", command)).writes_result(),
        }
    }
}

impl Wait {
    /// How long it is, if nothing limits it.
    pub(super) fn duration(self) -> Duration {
        self.longest.unwrap_or(DEFAULT_WAIT)
    }

    /// Whether an empty batch comes before the end of an iteration that has so much time left. One that comes too late costs the
    /// connection, and the cursor.
    pub(super) fn fits(self, left: Duration) -> bool {
        match self.told(Some(left)) {
            Some(told) => told >= self.duration().min(SHORT),
            None => left > DEFAULT_WAIT.saturating_add(self.round_trip).saturating_add(SLACK),
        }
    }

    /// Whether so much time is left that the wait has to be shorter.
    pub(super) fn is_shortened(self, left: Option<Duration>) -> bool {
        self.told(left) < self.longest
    }

    /// The `maxTimeMS` to send, when so much time is left; `None` is no limit.
    pub(super) fn told(self, left: Option<Duration>) -> Option<Duration> {
        let longest = self.longest?;
        let fitting = |left: Duration| left.saturating_sub(self.round_trip.saturating_add(SLACK.min(left / 2)));
        Some(left.map_or(longest, |left| fitting(left).min(longest)))
    }
}

impl CursorTime {
    /// The time of a cursor that is about to be made: `limit` is the user's.
    pub(super) fn begin<R: Runtime>(
        context: &Context<R>,
        limit: Option<Limit>,
        kind: CursorKind,
        options: &CursorOptions,
    ) -> Result<Self, CursorError> {
        let length = length(context, limit);
        let is_limited = length.is_some() || matches!(limit, Some(Limit::Until(_)));
        let mode = match (options.timeout_mode, kind.is_tailable) {
            (Some(TimeoutMode::Iteration), false) if kind.writes => return Err(CursorError::IterationOfWriting),
            (Some(TimeoutMode::CursorLifetime), true) if is_limited => return Err(CursorError::LifetimeOfTailable),
            (_, true) => TimeoutMode::Iteration,
            (mode, false) => mode.unwrap_or(TimeoutMode::CursorLifetime),
        };
        if let (Some(wait), Some(limit)) = (options.max_await_time, length)
            && wait >= limit
        {
            return Err(CursorError::WaitTooLong { wait, limit });
        }
        // A server that waits for data takes the limit for that of this command alone.
        let is_told = mode == TimeoutMode::CursorLifetime || kind.awaits_data;
        Ok(Self { mode, limit, first: Budget { is_told, ..context.budget(limit) }, was_short: false })
    }

    /// For an iteration that begins now.
    pub(super) fn iteration<R: Runtime>(&self, context: &Context<R>) -> Budget {
        match self.mode {
            TimeoutMode::CursorLifetime => self.first,
            TimeoutMode::Iteration => Budget { is_told: false, ..context.budget(self.limit) },
        }
    }

    /// The close that comes now has another limit, if there is one: the time until a deadline is left to it.
    pub(super) fn set_limit<R: Runtime>(&mut self, context: &Context<R>, limit: Option<Limit>) {
        let left = |limit: Limit| limit.left(context.driver.clock.runtime()).map_or(Limit::None, Limit::Within);
        self.limit = limit.map(left).or(self.limit);
    }

    /// The limit of a killCursors, which begins anew, and whether the user or the options have set it.
    pub(super) fn refreshed<R: Runtime>(&self, context: &Context<R>, most: Duration) -> (Duration, bool) {
        let length = length(context, self.limit);
        (length.map_or(most, |length| length.min(most)), length.is_some())
    }
}

/// How long an operation may take that begins now, where its user or the options say that.
fn length<R: Runtime>(context: &Context<R>, limit: Option<Limit>) -> Option<Duration> {
    match limit {
        None => context.timeout,
        Some(Limit::Within(limit)) => Some(limit),
        Some(Limit::None | Limit::Until(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn wait(longest: Option<Duration>) -> Wait {
        Wait { longest, round_trip: 20 * MS }
    }

    #[test]
    fn a_command_says_how_large_a_batch_is_in_either_place() {
        let batch_size = |command: &RawDocument| CursorOptions::of_command(command).batch_size;

        assert_eq!(batch_size(&rawdoc! { "find": "c", "batchSize": 3 }), Some(3));
        assert_eq!(batch_size(&rawdoc! { "aggregate": "c", "cursor": { "batchSize": 4_i64 } }), Some(4));
        assert_eq!(batch_size(&rawdoc! { "find": "c", "batchSize": 0 }), None);
        assert_eq!(batch_size(&rawdoc! { "find": "c", "batchSize": -1 }), None);
        assert_eq!(batch_size(&rawdoc! { "listIndexes": "c" }), None);
    }

    #[test]
    fn a_change_stream_is_tailable_and_waits_for_data() {
        let kind = |command: &RawDocument| {
            let kind = CursorKind::of_command(command);
            (kind.is_tailable, kind.awaits_data)
        };

        assert_eq!(kind(&rawdoc! { "find": "c", "tailable": true }), (true, false));
        assert_eq!(kind(&rawdoc! { "find": "c", "tailable": true, "awaitData": true }), (true, true));
        assert_eq!(kind(&rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }] }), (true, true));
        assert_eq!(kind(&rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }] }), (false, false));
    }

    #[test]
    fn a_wait_fits_into_an_iteration_that_leaves_time_for_the_reply_x_152() {
        for (longest, left, fits) in [
            (None, 1000 * MS, false),
            (None, 1120 * MS, false),
            (None, 1121 * MS, true),
            (Some(300 * MS), 420 * MS, true),
            (Some(300 * MS), 100 * MS, true),
            (Some(300 * MS), 99 * MS, false),
            (Some(5 * MS), 50 * MS, true),
            (Some(5 * MS), 49 * MS, false),
            (Some(Duration::MAX), Duration::MAX, true),
        ] {
            assert_eq!(wait(longest).fits(left), fits, "{longest:?} in {left:?}");
        }
    }

    #[test]
    fn the_server_is_told_no_longer_wait_than_leaves_time_for_its_reply_csot_21() {
        for (longest, left, expected) in [
            (None, Some(500 * MS), None),
            (Some(300 * MS), None, Some(300 * MS)),
            (Some(300 * MS), Some(500 * MS), Some(300 * MS)),
            (Some(300 * MS), Some(310 * MS), Some(190 * MS)),
            (Some(300 * MS), Some(100 * MS), Some(30 * MS)),
        ] {
            assert_eq!(wait(longest).told(left), expected, "{longest:?} in {left:?}");
        }
    }
}

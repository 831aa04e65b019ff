//! What goes along with a cursor's getMores, and what its command says about it.

use std::time::Duration;

use bson::{RawBson, RawDocument};
use cmap_core::connection::{Command, Outline};
use cmap_core::wire::integer;

use super::time::TimeoutMode;

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

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

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
}

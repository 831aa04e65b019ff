//! The limits of a store: of memory, of cursors, and of the work of one command.

use std::time::Duration;

/// What clients may use of a store.
///
/// Memory is reckoned, not measured: bytes of BSON, with a constant for what surrounds them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreLimits {
    /// Bytes of all documents, those that only a cursor still has included, of unique keys, and of what describes
    /// collections and indexes. Beyond them, writes fail with error 14031, `OutOfDiskSpace`.
    pub bytes: usize,
    /// Bytes of the changes that change streams can still read, on a server of a cluster. Beyond them the oldest are forgotten,
    /// and a change stream that needs them fails with error 286, `ChangeStreamHistoryLost`. Their documents count as documents.
    pub history_bytes: usize,
    /// Bytes that one command may gather: what a stage of a pipeline makes, a sort's keys, an update's document.
    /// Beyond them it fails with error 146, `ExceededMemoryLimit`; a sort with 292.
    pub command_bytes: usize,
    /// Open cursors. Beyond them, commands that would leave one open fail with error 146.
    pub cursors: usize,
    /// Bytes of the results that wait in open cursors; documents that are in a collection, too, count as pointers.
    /// Beyond them, commands that would leave a cursor open fail with error 146.
    pub cursor_bytes: usize,
    /// How long a cursor may be idle. One with `noCursorTimeout` lives as long as its session or its connection.
    pub cursor_timeout: Duration,
    /// The most work of one command, and the `maxTimeMS` of those that have none or a longer one: more fails with
    /// error 50, `MaxTimeMSExpired`. A store has no clock, but counts steps, [`STEPS_PER_MILLISECOND`] of them to the
    /// millisecond.
    pub command_time: Duration,
    /// The most writes of one command, which a hello names as `maxWriteBatchSize`: more are refused.
    pub write_batch: usize,
}

/// How many steps of work count as a millisecond: a step is a value looked at, or [`BYTES_PER_STEP`] bytes copied.
///
/// Measured in a release build on a busy core of a cloud machine, where a step took 10 to 60 ns.
pub const STEPS_PER_MILLISECOND: u64 = 30_000;
/// How many bytes are copied, or compared, in one step.
pub const BYTES_PER_STEP: usize = 64;

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            bytes: 1 << 30,
            history_bytes: 64 << 20,
            command_bytes: 100 << 20,
            cursors: 10_000,
            cursor_bytes: 256 << 20,
            cursor_timeout: Duration::from_secs(600),
            command_time: Duration::from_secs(1),
            write_batch: 100_000,
        }
    }
}

//! Why a cursor cannot be made, or cannot go on, apart from the errors of its commands.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::change_stream::NoResumeToken;

/// Why a cursor cannot be made, or cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CursorError {
    /// The command was carried out, and makes no cursor.
    #[error("the reply has no cursor; use `run` for commands that make none")]
    NoCursor,
    /// The command is no change stream: an aggregate whose first stage is `$changeStream`. Nothing was sent.
    #[error("the command is no aggregate whose first stage is $changeStream; use `cursor` for any other")]
    NoChangeStream,
    /// A document of a change stream has no resume token; the stream has ended (CS-8).
    #[error(transparent)]
    NoResumeToken(#[from] NoResumeToken),
    /// A batch is not a list of documents.
    #[error("the server sent a batch that is not a list of documents; the cursor cannot go on")]
    MalformedBatch,
    /// A session was passed that is not the one in which the cursor was made. The cursor is as before.
    #[error("the cursor was made in another session; pass the session in which it was made")]
    OtherSession,
    /// The future of a getMore was dropped before its reply came, which may have had documents.
    #[error("a getMore was dropped before its reply came, and documents may be lost; run the command again")]
    CutOff,
    /// The server that made the cursor does not belong to the deployment any more.
    #[error("the server {0}, which made the cursor, has left the deployment; run the command again")]
    ServerGone(Arc<ServerAddress>),
    /// A limit was set on the life of a tailable cursor, which has no end of its own. Nothing was sent.
    #[error("a tailable cursor lives as long as it is read; limit its iterations instead (`TimeoutMode::Iteration`)")]
    LifetimeOfTailable,
    /// The options say what a limit is for, and there is none (CSOT-16). Nothing was sent.
    #[error("`timeout_mode` says what a limit is for, and there is none; set timeoutMS, or use `within`")]
    ModeWithoutLimit,
    /// Iterations were to be limited of an aggregate that writes its result by `$out` or `$merge`, which has no iterations (CSOT-19).
    /// Nothing was sent.
    #[error("an aggregate with $out or $merge has no iterations; use `TimeoutMode::CursorLifetime`, or no mode")]
    IterationOfWriting,
    /// No document came in an iteration, and the server would wait for the next one longer than is left. The cursor is as before.
    #[error(
        "no document came, and the server would wait for one for {wait:?}, with {left:?} left of the iteration; call again"
    )]
    NothingCame {
        /// The time that was left.
        left: Duration,
        /// `max_await_time`, or the server's own.
        wait: Duration,
    },
    /// The server would wait for data as long as the whole iteration may take, or longer. Nothing was sent.
    #[error(
        "the server may wait for data for {wait:?}, and the iteration is limited to {limit:?}; choose a shorter wait"
    )]
    WaitTooLong {
        /// `max_await_time`.
        wait: Duration,
        /// The limit of an iteration.
        limit: Duration,
    },
}

impl CursorError {
    /// Whether time was up (CSOT-15).
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::NothingCame { .. })
    }
}

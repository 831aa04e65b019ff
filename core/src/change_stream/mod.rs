//! Change streams: an aggregate whose cursor is opened again after an error that passes, behind the last document that was handed out.
//!
//! A [`ChangeStream`] goes along with one stream. It makes the commands that open its cursor, keeps the resume token, and says what follows
//! a failure; it neither waits nor sends.
//!
//! | a command has failed | getMore | aggregate that opens the cursor again |
//! |---|---|---|
//! | in no time, of a step that has a limit | [`Report`](Decision::Report) | [`Report`](Decision::Report) |
//! | on the way, or for want of a server | [`Resume`](Decision::Resume) | [`Report`](Decision::Report) |
//! | server's error that can be resumed (CS-10) | [`Resume`](Decision::Resume) | [`Close`](Decision::Close) |
//! | any other | [`Close`](Decision::Close) | [`Close`](Decision::Close) |
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the stream |
//! | `command` | its command, with another start point |
//! | `failure` | why its commands fail, and which failures pass |

mod command;
mod failure;

use alloc::borrow::ToOwned;
use core::time::Duration;

use bson::{RawDocument, RawDocumentBuf, Timestamp};
use thiserror::Error;

use self::command::StartPoint;
pub use self::failure::StreamFailure;
use crate::random::Random;
use crate::retry;

/// A change stream.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeStream {
    /// The user's.
    command: RawDocumentBuf,
    /// Whether it began with `startAfter`.
    begins_after: bool,
    token: Option<RawDocumentBuf>,
    /// `postBatchResumeToken` of the batch at hand, until its last document is handed out.
    token_of_batch: Option<RawDocumentBuf>,
    /// Where to begin without a token: `startAtOperationTime`, or the time of the first aggregate (CS-9).
    time: Option<Timestamp>,
    /// Whether an aggregate has opened it.
    is_open: bool,
    has_handed_out: bool,
    /// How often its cursor was opened again since a batch or a document came.
    resumes: u32,
    random: Random,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Open the cursor again, and tell nobody.
    Resume,
    /// Tell the error. The next step opens the cursor again.
    Report,
    /// Tell the error. The stream has ended.
    Close,
}

/// A document has no resume token: a stage of the pipeline has removed its `_id` (CS-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "Cannot provide resume functionality when the resume token is missing; let the pipeline keep the `_id` of each document"
)]
pub struct NoResumeToken;

impl ChangeStream {
    /// The stream of an aggregate whose first stage is `$changeStream`; `None` if the command is no such aggregate. `seed` is the chance
    /// of its pauses.
    pub fn of_command(command: &RawDocument, seed: u64) -> Option<Self> {
        let stage = command::stage(command)?;
        let token = |name| stage.get_document(name).ok().map(RawDocument::to_owned);
        let after = token("startAfter");
        Some(Self {
            command: command::with_cursor(command),
            begins_after: after.is_some(),
            token: after.or_else(|| token("resumeAfter")),
            token_of_batch: None,
            time: stage.get_timestamp("startAtOperationTime").ok(),
            is_open: false,
            has_handed_out: false,
            resumes: 0,
            random: Random::new(seed),
        })
    }

    /// The user's command, with `cursor: {}` if it has no such field (CS-1).
    pub fn command(&self) -> &RawDocument {
        &self.command
    }

    /// The token of the place behind what was handed out (CS-7): pass it as `startAfter` or `resumeAfter` to go on there with another
    /// stream. `None` before the first document or empty batch of a stream that began without a token.
    pub fn resume_token(&self) -> Option<&RawDocument> {
        self.token.as_deref()
    }

    /// A command has succeeded: the aggregate that opens the cursor, or a getMore. This is its reply.
    pub fn handle_reply(&mut self, reply: &RawDocument) {
        let batch = BatchSaid::of(reply);
        let begins_anywhere = self.token.is_none() && self.time.is_none();
        if !self.is_open && begins_anywhere && batch.is_empty && batch.token.is_none() {
            self.time = reply.get_timestamp("operationTime").ok();
        }
        self.is_open = true;
        if !batch.is_first {
            self.resumes = 0;
        }
        self.handle_batch(batch);
    }

    fn handle_batch(&mut self, batch: BatchSaid<'_>) {
        let token = batch.token.map(RawDocument::to_owned);
        if !batch.is_empty {
            self.token_of_batch = token;
            return;
        }
        self.token_of_batch = None;
        if token.is_some() {
            self.token = token;
        }
    }

    /// A document is handed out, which may be the last of its batch.
    ///
    /// # Errors
    /// The document has no resume token. It must not be handed out, and the stream has to be closed (CS-8).
    pub fn hand_out(&mut self, document: &RawDocument, is_last: bool) -> Result<(), NoResumeToken> {
        let own = document.get_document("_id").map_err(|_| NoResumeToken)?;
        let of_batch = if is_last { self.token_of_batch.take() } else { None };
        self.token = Some(of_batch.unwrap_or_else(|| own.to_owned()));
        (self.has_handed_out, self.resumes) = (true, 0);
        Ok(())
    }

    /// A getMore has failed, at a server that speaks this version of the protocol. `is_late`: its step had a limit of time, and that was the
    /// reason (CSOT-25).
    pub fn handle_failed_get_more(&self, failure: StreamFailure, max_wire_version: i32, is_late: bool) -> Decision {
        if is_late {
            Decision::Report
        } else if failure.can_be_resumed(max_wire_version) {
            Decision::Resume
        } else {
            Decision::Close
        }
    }

    /// An aggregate that was to open the cursor again has failed, after its own retries (CS-11, X-162). `is_late`: its step had a limit of
    /// time, and that was the reason.
    pub fn handle_failed_resume(&self, failure: StreamFailure, is_late: bool) -> Decision {
        if is_late || failure == StreamFailure::Unreached { Decision::Report } else { Decision::Close }
    }

    /// The command that opens the cursor again, and how long to rest before: those that follow each other without success rest.
    pub fn resume(&mut self) -> (RawDocumentBuf, Duration) {
        let rest = retry::rest(self.resumes, &mut self.random);
        self.resumes = self.resumes.saturating_add(1);
        self.token_of_batch = None;
        (command::starting_at(&self.command, self.start_point()), rest)
    }

    /// CS-13.
    fn start_point(&self) -> Option<StartPoint<'_>> {
        match (&self.token, self.time) {
            (Some(token), _) if self.begins_after && !self.has_handed_out => Some(StartPoint::StartAfter(token)),
            (Some(token), _) => Some(StartPoint::ResumeAfter(token)),
            (None, Some(time)) => Some(StartPoint::AtOperationTime(time)),
            (None, None) => None,
        }
    }
}

/// What a reply says about its batch.
struct BatchSaid<'r> {
    /// Whether it is that of the aggregate.
    is_first: bool,
    is_empty: bool,
    /// `postBatchResumeToken`.
    token: Option<&'r RawDocument>,
}

impl<'r> BatchSaid<'r> {
    fn of(reply: &'r RawDocument) -> Self {
        let cursor = reply.get_document("cursor").ok();
        let array = |name| cursor.and_then(|cursor| cursor.get_array(name).ok());
        let first = array("firstBatch");
        Self {
            is_first: first.is_some(),
            is_empty: first.or_else(|| array("nextBatch")).is_none_or(|batch| batch.is_empty()),
            token: cursor.and_then(|cursor| cursor.get_document("postBatchResumeToken").ok()),
        }
    }
}

#[cfg(test)]
mod tests;

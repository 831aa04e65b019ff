//! Change streams: the stage `$changeStream`, and the cursors that hand out what it finds in the history.
//!
//! `options` reads the stage, `event` makes the document of a change, `description` that of an update's difference, `split` cuts one
//! that is too large, and `token` is the place of each in the history, from which another stream can go on.

mod description;
mod event;
mod options;
mod split;
mod token;

use std::collections::VecDeque;
use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use cmap_core::wire::Limits;

use self::options::{Options, Start};
use self::token::Token;
use super::arguments::{Arguments, fields};
use super::call::Call;
use super::catalog::Catalog;
use super::failure::{CommandFailure, code};
use super::history::{Event, History, Point};
use super::meter::Stored;
use super::pipeline::{self, Pipeline, Stage};
use super::work::Work;

/// The steps for each event of the history that a stream looks at.
const STEPS_PER_EVENT: u64 = 8;

/// The label of an error after which no stream can go on from the same place.
const NON_RESUMABLE: &str = "NonResumableChangeStreamError";

/// A change stream.
#[derive(Debug)]
pub(super) struct ChangeStream {
    options: Options,
    /// The stages behind `$changeStream`.
    stages: Vec<Stage>,
    /// Whether events that are too large come in parts.
    splits: bool,
    /// Everything up to here was looked at.
    position: Point,
    /// The documents of the last event that were not handed out yet, with their tokens.
    ready: VecDeque<(Arc<Stored>, Token)>,
    /// The place after everything that was handed out, or left out.
    token: Token,
    /// Whether nothing follows what is ready: the stream is invalid.
    has_ended: bool,
}

/// Whether a pipeline begins with the stage.
pub(super) fn is_first_of(stages: &[&RawDocument]) -> bool {
    stages.first().and_then(|stage| fields(stage).next()).is_some_and(|(name, _)| name == "$changeStream")
}

impl ChangeStream {
    /// Opens the stream of an `aggregate` with these stages.
    pub(super) fn open(call: &Call<'_>, stages: &[&RawDocument], catalog: &Catalog) -> Result<Self, CommandFailure> {
        let concern = call.arguments().document("readConcern")?.and_then(|concern| concern.get_str("level").ok());
        if let Some(level) = concern.filter(|level| *level != "majority") {
            let message = format!(
                "$changeStream cannot run with a readConcern other than 'majority'. Current readConcern: {level}"
            );
            return Err(CommandFailure::new(code::INVALID_OPTIONS, message));
        }
        if !catalog.history.is_kept() {
            let message = "The $changeStream stage is only supported on replica sets";
            return Err(CommandFailure::new(code::ONLY_ON_REPLICA_SETS, message));
        }
        let (first, behind) = stages.split_first().map_or((None, stages), |(first, behind)| (Some(*first), behind));
        let argument = first.and_then(|stage| stage.get_document("$changeStream").ok()).ok_or_else(|| {
            let message = "the $changeStream stage must be specified as an object";
            CommandFailure::new(code::CHANGE_STREAM_IS_NO_OBJECT, message)
        })?;
        let options = Options::read(call, &Arguments::new("$changeStream", argument))?;
        let (stages, splits) = Pipeline::of_change_stream(behind)?;
        let history = &catalog.history;
        let token = match options.start {
            Start::Now => Token::of(history.end()),
            Start::At(time) => Token::of(Point::before(time)),
            Start::After(token) => token,
        };
        if !history.reaches_back_to(token.point) {
            return Err(history_lost());
        }
        let (position, ready) = (token.point, VecDeque::new());
        let mut stream = Self { options, stages, splits, position, ready, token, has_ended: false };
        stream.end_if_resumed_before_its_end(history, &call.work)?;
        Ok(stream)
    }

    /// A stream that goes on after the event which made another one invalid ends at once, unless its token is the end itself.
    fn end_if_resumed_before_its_end(&mut self, history: &History, work: &Work) -> Result<(), CommandFailure> {
        let ends = |event: &&Arc<Event>| self.options.scope.is_ended_by(event);
        match history.ending_at(self.position).filter(ends).filter(|_| !self.token.is_of_end) {
            Some(event) => self.end(&Arc::clone(event), work),
            None => Ok(()),
        }
    }

    /// The namespace of its cursor.
    pub(super) fn namespace(&self) -> String {
        self.options.scope.namespace()
    }

    /// The next document, if there is one.
    pub(super) fn peek(&mut self, catalog: &Catalog, work: &Work) -> Result<Option<Arc<Stored>>, CommandFailure> {
        loop {
            if let Some((document, _)) = self.ready.front() {
                return Ok(Some(Arc::clone(document)));
            }
            if self.has_ended {
                return Ok(None);
            }
            let history = &catalog.history;
            if !history.reaches_back_to(self.position) {
                return Err(history_lost());
            }
            work.step(STEPS_PER_EVENT);
            work.check()?;
            let Some(event) = history.after(self.position).next().map(Arc::clone) else {
                self.position = self.position.max(history.end());
                self.token = Token::of(self.position);
                return Ok(None);
            };
            self.look_at(&event, catalog, work)?;
        }
    }

    /// The next document was handed out.
    pub(super) fn advance(&mut self) {
        if let Some((_, token)) = self.ready.pop_front() {
            self.token = token;
        }
    }

    /// Whether nothing will follow.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended && self.ready.is_empty()
    }

    /// The place after everything that was handed out.
    pub(super) fn resume_token(&self) -> RawDocumentBuf {
        self.token.to_document()
    }

    fn look_at(&mut self, event: &Event, catalog: &Catalog, work: &Work) -> Result<(), CommandFailure> {
        // The place of a part lies before the event's end.
        let parts = if self.position > event.part(0) { self.position.parts } else { 0 };
        if self.options.shows(event) {
            let token = Token::of(event.end());
            let document = event::document(event, &token.to_document(), &self.options, catalog, work)?;
            self.add(event, token, document, parts, work)?;
        }
        if self.options.scope.is_ended_by(event) {
            self.end(event, work)?;
        }
        self.position = event.end();
        if self.ready.is_empty() {
            self.token = Token::of(self.position);
        }
        Ok(())
    }

    /// The stream becomes invalid by an event.
    fn end(&mut self, event: &Event, work: &Work) -> Result<(), CommandFailure> {
        let token = Token::of_end(event.end());
        let document = event::invalidation(event, &token.to_document());
        self.add(event, token, document, 0, work)?;
        self.has_ended = true;
        Ok(())
    }

    /// Adds what the stages make of a document, but for its first `parts`.
    fn add(
        &mut self,
        event: &Event,
        token: Token,
        document: RawDocumentBuf,
        parts: u32,
        work: &Work,
    ) -> Result<(), CommandFailure> {
        let made = pipeline::run(&self.stages, vec![Arc::new(Stored::computed(document))], work)?;
        for document in made {
            check_id(&document, &token)?;
            let size = document.as_bytes().len();
            if size <= Limits::DEFAULT.max_document_size as usize {
                self.ready.push_back((document, token));
                continue;
            }
            if !self.splits {
                let message = format!("BSONObj size: {size} is invalid. Size must be between 0 and 16793600(16MB)");
                return Err(non_resumable(code::BSON_OBJECT_TOO_LARGE, message));
            }
            let fragments = split::split(&document, |part| Token::of(event.part(part)), work)?;
            self.ready.extend(fragments.into_iter().skip(parts as usize));
        }
        Ok(())
    }
}

/// Fails if the stages have changed the `_id`, by which a stream could go on.
fn check_id(document: &RawDocument, token: &Token) -> Result<(), CommandFailure> {
    let expected = token.to_document();
    let found = document.get("_id").ok().flatten();
    if found.and_then(|id| id.as_document()).is_some_and(|id| id.as_bytes() == expected.as_bytes()) {
        return Ok(());
    }
    let message = "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. \
                   Modifying the _id field of an event makes it impossible to resume the stream from that point. Only \
                   transformations that retain the unmodified _id field are allowed.";
    Err(non_resumable(code::CHANGE_STREAM_FATAL_ERROR, message))
}

fn history_lost() -> CommandFailure {
    let message = "Resume of change stream was not possible, as the resume point may no longer be in the oplog.";
    non_resumable(code::CHANGE_STREAM_HISTORY_LOST, message)
}

fn non_resumable(code: i32, message: impl Into<String>) -> CommandFailure {
    CommandFailure { labels: vec![NON_RESUMABLE.into()], ..CommandFailure::new(code, message) }
}

//! What a topology's calls are recorded by: a dense recorder, or a sparse one.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::history::History;
use super::item::Note;
use super::recorder::{Kept, Recorder};
use super::sparse::{self, Sparse};
use super::words::place_of;
use crate::pool::{BrokenInvariant, CheckOutId, CheckOutRequest, Condition, Delivery, Handle};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Input, Output, Topology};

/// How much a recorder keeps, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderOptions {
    /// What is kept. Default every call.
    pub detail: Detail,
    /// The bytes that it may take. Default a mebibyte: some 35,000 calls, or hours without them. A topology whose state takes more
    /// than a 64th of it gets more for its calls: a segment is at least 16 times its snapshot, so that taking snapshots stays a
    /// small part of the work.
    pub bytes: usize,
}

/// What a recorder keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Every call: what it kept can be repeated.
    #[default]
    Dense,
    /// Each check-out that waited, explained, and counts of the others: hours of it, which cannot be repeated.
    Sparse,
}

/// A recorder.
#[derive(Clone, Debug)]
pub(super) struct Tape {
    /// How many more calls can be made before something is due.
    left: u32,
    /// How many could be when that was looked for.
    granted: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a client has one at most, and a second box would cost each call a step")]
enum Kind {
    Dense(Recorder),
    Sparse(Sparse),
}

/// What a recorder keeps at one moment: cheap to take, and made into a file without the topology.
#[derive(Clone, Debug)]
pub struct Contents {
    pub(super) kept: ContentsKept,
    pub(super) texts: Vec<(u32, String)>,
}

/// See [`Contents`].
#[derive(Clone, Debug)]
pub(super) enum ContentsKept {
    Segments(Vec<Arc<Kept>>),
    History(Box<sparse::Kept>),
}

impl Tape {
    /// One that begins with the present state of `machine`.
    pub(super) fn new<C>(options: RecorderOptions, machine: &Topology<C>) -> Self {
        let kind = match options.detail {
            Detail::Dense => Kind::Dense(Recorder::new(options.bytes, machine)),
            Detail::Sparse => Kind::Sparse(Sparse::new(options.bytes, machine)),
        };
        Self { left: 0, granted: 0, kind }
    }

    /// Whether something is due before the next call; see [`prepare`](Self::prepare).
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        self.left == 0
    }

    /// Is ready for a call at `now`.
    ///
    /// # Errors
    /// A segment would begin with a state that contradicts itself. Such a state cannot be read again.
    pub(super) fn prepare<C>(&mut self, machine: &Topology<C>, now: Instant) -> Result<(), BrokenInvariant> {
        let made = self.granted - self.left;
        let left = match &mut self.kind {
            Kind::Dense(recorder) => recorder.prepare(machine, made)?,
            Kind::Sparse(sparse) => sparse.prepare(machine, now),
        };
        self.grant(left);
        Ok(())
    }

    /// Records a check-out that was served at once.
    #[inline(always)]
    pub(super) fn record_served<C>(
        &mut self,
        machine: &Topology<C>,
        now: Instant,
        request: &CheckOutRequest,
        check_out: CheckOutId,
        connection: Handle,
    ) {
        match &mut self.kind {
            Kind::Dense(recorder) => {
                let is_recorded = request.affinity.is_none()
                    && request.identity.is_none()
                    && recorder.record_served(
                        now,
                        request.deadline,
                        check_out.sequence,
                        connection.id(),
                        place_of(connection),
                    );
                if is_recorded {
                    self.left -= 1;
                } else {
                    let delivery = Delivery { check_out, connection, socket: () };
                    let answer = Answer::CheckOut(CheckOut::Started(check_out), Some(delivery));
                    self.record_check_out(machine, now, *request, &answer);
                }
            }
            Kind::Sparse(sparse) => {
                if sparse.count_served(now) {
                    self.left = 0;
                }
            }
        }
    }

    /// Records a usable connection that came back and is available.
    #[inline(always)]
    pub(super) fn record_returned<C>(
        &mut self,
        machine: &Topology<C>,
        now: Instant,
        check_out: CheckOutId,
        connection: Handle,
    ) {
        match &mut self.kind {
            Kind::Dense(recorder) => {
                if recorder.record_returned(now, check_out, connection) {
                    self.left -= 1;
                } else {
                    let made = (check_out, connection, Condition::Usable);
                    self.record_check_in(machine, now, made, &Answer::CheckedIn(None));
                }
            }
            Kind::Sparse(sparse) => {
                if sparse.count_returned(now) {
                    self.left = 0;
                }
            }
        }
    }

    /// Records any check-out for a server that takes writes that was made.
    pub(super) fn record_check_out<C>(
        &mut self,
        machine: &Topology<C>,
        now: Instant,
        request: CheckOutRequest,
        answer: &Answer<()>,
    ) {
        let made = self.granted - self.left;
        let left = match &mut self.kind {
            Kind::Dense(recorder) => recorder.record_check_out(machine, now, request, answer, made),
            Kind::Sparse(sparse) => sparse.take_frequent(now, answer),
        };
        self.grant(left);
    }

    /// Records any check-in that was made.
    pub(super) fn record_check_in<C>(
        &mut self,
        machine: &Topology<C>,
        now: Instant,
        check_in: (CheckOutId, Handle, Condition),
        answer: &Answer<()>,
    ) {
        let made = self.granted - self.left;
        let left = match &mut self.kind {
            Kind::Dense(recorder) => recorder.record_check_in(machine, now, check_in, answer, made),
            Kind::Sparse(sparse) => sparse.take_frequent(now, answer),
        };
        self.grant(left);
    }

    /// Records any other call, before it is made.
    pub(super) fn record<C>(&mut self, machine: &Topology<C>, now: Instant, input: Input) {
        let made = self.granted - self.left;
        let left = match &mut self.kind {
            Kind::Dense(recorder) => recorder.record(machine, now, input, made),
            Kind::Sparse(sparse) => sparse.take(now, input),
        };
        self.grant(left);
    }

    /// Records what a call returned.
    pub(super) fn take_answer<C>(&mut self, answer: &Answer<C>) {
        match &mut self.kind {
            Kind::Dense(recorder) => recorder.take_answer(answer),
            Kind::Sparse(sparse) => sparse.take_answer(answer),
        }
    }

    /// Records that an output was polled.
    pub(super) fn take_output<C>(&mut self, machine: &Topology<C>, output: &Output<C>) {
        match &mut self.kind {
            Kind::Dense(recorder) => recorder.take_output(output),
            Kind::Sparse(sparse) => sparse.take_output(machine.now(), output),
        }
    }

    /// Records who made the last call, which began a check-out.
    #[inline]
    pub(super) fn note_holder(&mut self, check_out: CheckOut, text: u32) {
        match &mut self.kind {
            Kind::Dense(recorder) => recorder.note_holder(text),
            Kind::Sparse(sparse) => sparse.note_holder(check_out, text),
        }
    }

    /// Records that a task has taken what was delivered to it.
    pub(super) fn note_taken<C>(&mut self, machine: &Topology<C>, now: Instant, check_out: CheckOut) {
        let made = self.granted - self.left;
        match &mut self.kind {
            Kind::Dense(recorder) => {
                let left = recorder.note(machine, Note::Taken(check_out, now), made);
                self.grant(left);
            }
            Kind::Sparse(sparse) => sparse.note_taken(now, check_out),
        }
    }

    /// What is kept now.
    pub(super) fn contents<C>(&self, machine: &Topology<C>) -> Contents {
        let kept = match &self.kind {
            Kind::Dense(recorder) => ContentsKept::Segments(recorder.segments(machine)),
            Kind::Sparse(sparse) => ContentsKept::History(Box::new(sparse.contents(machine))),
        };
        Contents { kept, texts: Vec::new() }
    }

    /// The bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Dense(recorder) => recorder.bytes(),
            Kind::Sparse(sparse) => sparse.bytes(),
        }
    }

    fn grant(&mut self, calls: u32) {
        (self.left, self.granted) = (calls, calls);
    }
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self { detail: Detail::default(), bytes: 1 << 20 }
    }
}

impl Contents {
    /// What a sparse recorder kept.
    pub(super) fn history(&self) -> Option<History> {
        match &self.kept {
            ContentsKept::Segments(_) => None,
            ContentsKept::History(kept) => Some(kept.history()),
        }
    }

    /// Adds the texts of [holders](Note::Holder).
    #[must_use]
    pub fn with_texts(mut self, texts: impl IntoIterator<Item = (u32, String)>) -> Self {
        self.texts.extend(texts);
        self.texts.sort_unstable();
        self
    }
}

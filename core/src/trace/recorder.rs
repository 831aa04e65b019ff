//! Segments in bounded memory: each begins with a copy of the state, and whole ones are dropped.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::digest::Digest;
use super::item::{Call, Item, Note};
use super::words::{self, Margin, Staged};
use crate::pool::{BrokenInvariant, CheckOutId, CheckOutRequest, Condition, ConnectionId, Handle};
use crate::time::Instant;
use crate::topology::{Answer, Input, Output, Topology};

/// Records the calls of a topology.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    /// The bytes that its segments may take together.
    limit: usize,
    closed: VecDeque<Arc<Kept>>,
    current: Kept,
    /// The last calls of the current segment.
    staged: Staged,
    /// The time of the last call.
    last: Instant,
    /// The outputs polled since.
    polled: u32,
    digest: Digest,
    until_check: u32,
}

/// A segment as it is kept in memory.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) first: u64,
    pub(super) begun_at: Instant,
    /// The state, serialised.
    pub(super) snapshot: Vec<u8>,
    pub(super) words: Vec<u64>,
    calls: u64,
    /// How many words it may have.
    room: usize,
}

/// How many segments share the memory.
const SEGMENTS: usize = 4;

/// How many times its snapshot a segment is at least.
const SNAPSHOTS: usize = 16;

/// The calls between two checks.
const CHECK_EVERY: u32 = 64;

/// The words that there is always room for: a check, a check-out or check-in of any kind, its holder, and the end of the segment.
const ROOM: usize = 8 * words::FREQUENT;

/// The bytes of a word.
const WORD: usize = size_of::<u64>();

impl Recorder {
    /// A recorder whose first segment begins with the present state of `machine`.
    pub(super) fn new<C>(limit: usize, machine: &Topology<C>) -> Self {
        let mut recorder = Self {
            limit,
            closed: VecDeque::with_capacity(SEGMENTS),
            current: Kept::empty(),
            staged: Staged::new(),
            last: machine.now(),
            polled: 0,
            digest: Digest::default(),
            until_check: CHECK_EVERY,
        };
        recorder.begin_segment(machine, 0, Vec::new());
        recorder
    }

    /// Has room for a call after so many frequent ones, and knows the state before it where that is due. Returns how many frequent
    /// calls can be recorded before something is due again.
    ///
    /// # Errors
    /// A segment would begin with a state that contradicts itself. Such a state cannot be read again.
    #[cold]
    #[inline(never)]
    pub(super) fn prepare<C>(&mut self, machine: &Topology<C>, made: u32) -> Result<u32, BrokenInvariant> {
        self.settle(made);
        if self.current.words.len() + ROOM > self.current.room {
            machine.pools().try_for_each(|(_, pool)| pool.check_invariants())?;
            self.change_segment(machine, 0);
        }
        if self.until_check == 0 {
            self.check(machine);
        }
        // There is room for a call beside the check.
        Ok(self.grant().max(1))
    }

    /// Records a check-out that was served at once and [prepared](Self::prepare) for, if it is a frequent one. Takes numbers
    /// instead of what they are of, so that all of it stays in registers.
    #[inline(always)]
    pub(super) fn record_served(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        check_out: u64,
        connection: ConnectionId,
        place: u64,
    ) -> bool {
        let is_frequent = self.polled == 0 && self.staged.push_check_out(self.bare_margin(now), deadline);
        if is_frequent {
            self.last = now;
            self.digest.take_delivery(check_out, connection, place);
        }
        is_frequent
    }

    /// Records a usable connection that came back and is available, if its numbers fit. It was [prepared](Self::prepare) for.
    #[inline(always)]
    pub(super) fn record_returned(&mut self, now: Instant, check_out: CheckOutId, connection: Handle) -> bool {
        let is_frequent = self.polled == 0 && self.staged.push_check_in(self.bare_margin(now), check_out, connection);
        if is_frequent {
            // Its answer leaves the digest as it is.
            self.last = now;
        }
        is_frequent
    }

    /// Records a check-out of any kind for a server that takes writes, which was made and [prepared](Self::prepare) for, after so many
    /// frequent calls. Returns how many frequent calls can be recorded before something is due again.
    #[cold]
    #[inline(never)]
    pub(super) fn record_check_out<C>(
        &mut self,
        machine: &Topology<C>,
        now: Instant,
        request: CheckOutRequest,
        answer: &Answer<()>,
        made: u32,
    ) -> u32 {
        self.flush();
        let margin = self.margin(now);
        let is_frequent = request.affinity.is_none()
            && request.identity.is_none()
            && self.staged.push_check_out(margin, request.deadline);
        if !is_frequent {
            self.record_rare(machine, margin, Input::CheckOut(Box::default(), request));
        }
        self.last = now;
        self.polled = 0;
        self.digest.take_answer(answer);
        self.settle(made + 1);
        self.grant()
    }

    /// Records a check-in of any kind that was made, after so many frequent calls. Returns how many frequent calls can be recorded
    /// before something is due again.
    #[cold]
    #[inline(never)]
    pub(super) fn record_check_in<C>(
        &mut self,
        machine: &Topology<C>,
        now: Instant,
        (check_out, connection, condition): (CheckOutId, Handle, Condition),
        answer: &Answer<()>,
        made: u32,
    ) -> u32 {
        self.flush();
        let margin = self.margin(now);
        let is_frequent = condition == Condition::Usable && self.staged.push_check_in(margin, check_out, connection);
        if !is_frequent {
            self.record_rare(machine, margin, Input::CheckIn(check_out, connection, condition));
        }
        self.last = now;
        self.polled = 0;
        self.digest.take_answer(answer);
        self.settle(made + 1);
        self.grant()
    }

    /// Records any other call, before it is made. Returns how many frequent calls can be recorded before something is due again.
    #[cold]
    pub(super) fn record<C>(&mut self, machine: &Topology<C>, now: Instant, input: Input, made: u32) -> u32 {
        let margin = self.margin(now);
        self.record_rare(machine, margin, input);
        self.last = now;
        self.polled = 0;
        self.settle(made + 1);
        self.grant()
    }

    /// Records what a call returned.
    #[inline]
    pub(super) fn take_answer<C>(&mut self, answer: &Answer<C>) {
        self.digest.take_answer(answer);
    }

    /// Records that an output was polled.
    pub(super) fn take_output<C>(&mut self, output: &Output<C>) {
        self.digest.take_output(output);
        self.polled = self.polled.saturating_add(1);
    }

    /// Records who made the last call.
    #[inline]
    pub(super) fn note_holder(&mut self, text: u32) {
        if !self.staged.push_holder(text) {
            self.flush();
            self.staged.push_holder(text);
        }
    }

    /// Records what the machine does not see. Returns how many frequent calls can be recorded before something is due again.
    #[cold]
    pub(super) fn note<C>(&mut self, machine: &Topology<C>, note: Note, made: u32) -> u32 {
        self.settle(made);
        self.push(machine, &Item::Note(note));
        self.grant()
    }

    /// What is kept now. Copies the last segment only. It ends with a check, so that the last call, too, has to lead to the same.
    pub(super) fn segments<C>(&self, machine: &Topology<C>) -> Vec<Arc<Kept>> {
        let mut current = self.current.clone();
        current.words.extend_from_slice(self.staged.words());
        // Where the driver found nothing more, a replay that finds something differs.
        current.end(self.polled.saturating_add(u32::from(machine.is_drained())));
        let mut digest = self.digest;
        let timeout = machine.poll_timeout().map(|timeout| timeout.at);
        digest.take_timeout(timeout);
        words::push_check(&mut current.words, digest, timeout);
        self.closed.iter().map(Arc::clone).chain([Arc::new(current)]).collect()
    }

    /// The bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.closed.iter().map(|kept| kept.bytes()).sum::<usize>() + self.current.bytes()
    }

    /// What stands next to a call before which no outputs were polled.
    #[inline]
    fn bare_margin(&self, now: Instant) -> Margin {
        Margin { polled: 0, ..self.margin(now) }
    }

    #[inline]
    fn margin(&self, now: Instant) -> Margin {
        let after = now.as_nanos().wrapping_sub(self.last.as_nanos()).cast_signed();
        Margin { polled: self.polled, digest: self.digest, after }
    }

    fn flush(&mut self) {
        self.staged.flush(&mut self.current.words);
    }

    /// Counts the calls that were made since frequent ones were granted.
    fn settle(&mut self, made: u32) {
        self.flush();
        self.current.calls += u64::from(made);
        self.until_check -= made;
    }

    /// How many frequent calls can be recorded before something else is due: a check, or a new segment.
    fn grant(&self) -> u32 {
        let room = self.current.room.saturating_sub(self.current.words.len()) / ROOM;
        u32::try_from(room).unwrap_or(u32::MAX).min(self.until_check)
    }

    #[cold]
    fn record_rare<C>(&mut self, machine: &Topology<C>, margin: Margin, input: Input) {
        let Margin { polled, digest, after } = margin;
        self.push(machine, &Item::Call(Call { polled, digest: digest.part(), after, input }));
    }

    /// Adds what is not frequent. A new segment begins without anything polled, and with a digest of its own.
    fn push<C>(&mut self, machine: &Topology<C>, item: &Item) {
        let Some(mut words) = words::of_rare(item) else { return };
        if self.current.words.len() + words.len() + ROOM / 2 > self.current.room {
            self.change_segment(machine, words.len());
            if let Item::Call(call) = item {
                let anew = Call { polled: 0, digest: self.digest.part(), ..call.clone() };
                words = words::of_rare(&Item::Call(anew)).unwrap_or(words);
            }
        }
        self.current.words.append(&mut words);
    }

    #[cold]
    #[inline(never)]
    fn check<C>(&mut self, machine: &Topology<C>) {
        self.until_check = CHECK_EVERY;
        let timeout = machine.poll_timeout().map(|timeout| timeout.at);
        self.digest.take_timeout(timeout);
        let polled = core::mem::take(&mut self.polled);
        if polled > 0 {
            self.push(machine, &Item::Polled(polled));
        }
        words::push_check(&mut self.current.words, self.digest, timeout);
    }

    /// Ends a segment, and begins the next one, in the memory of the one that has to go.
    #[cold]
    #[inline(never)]
    fn change_segment<C>(&mut self, machine: &Topology<C>, needed: usize) {
        let polled = core::mem::take(&mut self.polled);
        self.current.end(polled);
        let first = self.current.first + self.current.calls;
        let ended = core::mem::replace(&mut self.current, Kept::empty());
        self.closed.push_back(Arc::new(ended));
        let mut memory = Vec::new();
        while self.closed.len() >= SEGMENTS
            && let Some(dropped) = self.closed.pop_front()
        {
            memory = Arc::try_unwrap(dropped).map(|kept| kept.words).unwrap_or_default();
        }
        memory.clear();
        self.begin_segment(machine, first, memory);
        self.current.make_room(needed);
    }

    fn begin_segment<C>(&mut self, machine: &Topology<C>, first: u64, mut memory: Vec<u64>) {
        // States have no maps of unknown length, which alone would be refused.
        let snapshot = postcard::to_allocvec(&machine.snapshot()).unwrap_or_default();
        let room = (self.limit / SEGMENTS).max(SNAPSHOTS * snapshot.len()) / WORD;
        memory.reserve_exact(room);
        if memory.capacity() > 2 * room {
            memory.shrink_to(room);
        }
        self.digest = Digest::default();
        self.until_check = CHECK_EVERY;
        self.current = Kept { first, begun_at: self.last, snapshot, words: memory, calls: 0, room };
    }
}

impl Kept {
    fn empty() -> Self {
        Self { first: 0, begun_at: Instant::ORIGIN, snapshot: Vec::new(), words: Vec::new(), calls: 0, room: 0 }
    }

    /// Notes the outputs that were polled after the last call.
    fn end(&mut self, polled: u32) {
        if polled > 0 {
            self.words.extend(words::of_rare(&Item::Polled(polled)).into_iter().flatten());
        }
    }

    /// Makes room for an item that is larger than a segment.
    fn make_room(&mut self, needed: usize) {
        let needed = needed + 2 * ROOM;
        if self.room < needed {
            self.room = needed;
            self.words.reserve_exact(needed);
        }
    }

    fn bytes(&self) -> usize {
        self.snapshot.capacity() + self.words.capacity() * WORD
    }
}

//! Makes the calls of a trace again, and compares what they lead to with what they led to when they were recorded.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;

use super::digest::Digest;
use super::item::{Call, Item, Note, Segment, Trace};
use crate::time::Instant;
use crate::topology::{Answer, Input, Output, Topology};

/// A trace that is repeated call by call.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    trace: &'a Trace,
    segment: usize,
    item: usize,
    /// Whether what precedes the present call has been polled and compared.
    is_reached: bool,
    machine: Topology<()>,
    digest: Digest,
    /// The number of the last call, from 1, and its time.
    number: u64,
    at: Instant,
}

/// One call that was repeated, and all that followed until the next one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step<'a> {
    /// The number of the call, from 1, those included that the trace has no longer.
    pub number: u64,
    /// When the call was made.
    pub at: Instant,
    /// The call.
    pub input: &'a Input,
    /// What the call returned.
    pub answer: Answer<()>,
    /// The outputs that were polled after the call.
    pub outputs: Vec<Output<()>>,
    /// What else was noted.
    pub notes: Vec<&'a Note>,
}

/// The repeated calls led to something else than when they were recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub struct Divergence {
    /// The number of the call after which it was found; it is that call's unless its first eight bits are equal by chance.
    pub number: u64,
    /// When the call was made.
    pub at: Instant,
    /// What differs.
    pub difference: Difference,
    /// The call; `None` before the first one of a segment.
    pub input: Option<Box<Input>>,
    /// What it returns here.
    pub answer: Option<Box<Answer<()>>>,
    /// The outputs that it has here.
    pub outputs: Vec<Output<()>>,
}

/// What differs from the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The digest of answers and outputs, its first eight bits if no more are known.
    Digest {
        /// As it was recorded.
        recorded: u64,
        /// As it is here.
        found: u64,
    },
    /// When the machine wants to be called.
    Timeout {
        /// As it was recorded.
        recorded: Option<Instant>,
        /// As it is here.
        found: Option<Instant>,
    },
    /// The state from which the next segment goes on.
    State,
}

impl<'a> Replay<'a> {
    /// From the beginning of what the trace holds. `None` if it has no segment.
    pub fn new(trace: &'a Trace) -> Option<Self> {
        let first = trace.segments.first()?;
        Some(Self {
            trace,
            segment: 0,
            item: 0,
            is_reached: false,
            machine: first.snapshot.clone(),
            digest: Digest::default(),
            number: first.first,
            at: first.begun_at,
        })
    }

    /// The state after the last step.
    pub fn machine(&self) -> &Topology<()> {
        &self.machine
    }

    /// The time of the last step.
    pub fn now(&self) -> Instant {
        self.at
    }

    /// The time of the next step. `None` at the end.
    pub fn next_at(&self) -> Option<Instant> {
        let mut segments = self.trace.segments.iter().skip(self.segment);
        let rest = segments.next()?.items.get(self.item..).unwrap_or_default();
        let later = segments.map(|segment| (segment.begun_at, segment.items.as_slice()));
        core::iter::once((self.at, rest)).chain(later).find_map(|(before, items)| {
            items.iter().find_map(|item| match item {
                Item::Call(call) => Some(time_of(call, before)),
                Item::Polled(_) | Item::Check { .. } | Item::Note(_) => None,
            })
        })
    }

    /// Makes the next call. `None` at the end.
    ///
    /// # Errors
    /// The calls until here lead to something else than when they were recorded.
    pub fn step(&mut self) -> Result<Option<Step<'a>>, Box<Divergence>> {
        let mut step = None;
        loop {
            match self.item() {
                Some(Item::Call(call)) => {
                    if !self.is_reached {
                        self.reach(call, &mut step)?;
                    }
                    if step.is_some() {
                        break;
                    }
                    step = Some(self.make(call));
                    self.is_reached = false;
                }
                Some(Item::Check { digest, timeout }) => self.check(*digest, *timeout, step.as_ref())?,
                Some(Item::Note(note)) => step.iter_mut().for_each(|step| step.notes.push(note)),
                Some(Item::Polled(outputs)) => self.poll(*outputs, &mut step),
                None if step.is_some() => break,
                None => {
                    if !self.begin_next_segment()? {
                        break;
                    }
                    continue;
                }
            }
            self.item += 1;
        }
        Ok(step)
    }

    fn item(&self) -> Option<&'a Item> {
        self.trace.segments.get(self.segment)?.items.get(self.item)
    }

    fn make(&mut self, call: &'a Call) -> Step<'a> {
        self.at = time_of(call, self.at);
        // A file may begin at any number.
        self.number = self.number.wrapping_add(1);
        let answer = self.machine.call(self.at, call.input.clone(), Some(()));
        self.digest.take_answer(&answer);
        let (outputs, notes) = (Vec::new(), Vec::new());
        Step { number: self.number, at: self.at, input: &call.input, answer, outputs, notes }
    }

    /// Does what precedes a call.
    fn reach(&mut self, call: &Call, step: &mut Option<Step<'a>>) -> Result<(), Box<Divergence>> {
        self.poll(call.polled, step);
        self.is_reached = true;
        if call.digest == self.digest.part() {
            return Ok(());
        }
        let recorded = u64::from(call.digest) << 56;
        Err(self.divergence(Difference::Digest { recorded, found: self.digest.get() }, step.as_ref()))
    }

    fn poll(&mut self, outputs: u32, step: &mut Option<Step<'a>>) {
        for _ in 0..outputs {
            let Some(output) = self.machine.poll_output() else { break };
            self.digest.take_output(&output);
            step.iter_mut().for_each(|step| step.outputs.push(output.clone()));
        }
    }

    fn check(
        &mut self,
        recorded: u64,
        timeout: Option<Instant>,
        step: Option<&Step<'a>>,
    ) -> Result<(), Box<Divergence>> {
        let found = self.machine.poll_timeout().map(|timeout| timeout.at);
        self.digest.take_timeout(found);
        if found != timeout {
            return Err(self.divergence(Difference::Timeout { recorded: timeout, found }, step));
        }
        let found = self.digest.get();
        if found == recorded { Ok(()) } else { Err(self.divergence(Difference::Digest { recorded, found }, step)) }
    }

    fn begin_next_segment(&mut self) -> Result<bool, Box<Divergence>> {
        let Some(next) = self.trace.segments.get(self.segment + 1) else { return Ok(false) };
        if next.first == self.number && !is_same_state(&self.machine, &next.snapshot) {
            return Err(self.divergence(Difference::State, None));
        }
        let Segment { first, begun_at, snapshot, .. } = next;
        (self.number, self.at, self.machine) = (*first, *begun_at, snapshot.clone());
        (self.segment, self.item, self.is_reached, self.digest) = (self.segment + 1, 0, false, Digest::default());
        Ok(true)
    }

    fn divergence(&self, difference: Difference, step: Option<&Step<'a>>) -> Box<Divergence> {
        Box::new(Divergence {
            number: self.number,
            at: self.at,
            difference,
            input: step.map(|step| Box::new(step.input.clone())),
            answer: step.map(|step| Box::new(step.answer.clone())),
            outputs: step.map(|step| step.outputs.clone()).unwrap_or_default(),
        })
    }
}

/// When a call was made, after one at `before`.
fn time_of(call: &Call, before: Instant) -> Instant {
    Instant::from_nanos(before.as_nanos().wrapping_add_signed(call.after))
}

/// Whether both states are the same to a serialiser, and so to everybody.
fn is_same_state(one: &Topology<()>, other: &Topology<()>) -> bool {
    let bytes = |machine: &Topology<()>| postcard::to_allocvec(machine);
    bytes(one) == bytes(other)
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, at, .. } = self;
        write!(
            f,
            "the replay differs from the recording after call {number}, at {:?}: ",
            at.saturating_since(Instant::ORIGIN)
        )?;
        match self.difference {
            Difference::Digest { recorded, found } => {
                write!(f, "the digest of answers and outputs was {recorded:016x}, and is {found:016x}")?;
            }
            Difference::Timeout { recorded, found } => {
                write!(f, "the machine wanted to be called at {recorded:?}, and wants it at {found:?}")?;
            }
            Difference::State => f.write_str("the state is not the one from which the next segment goes on")?,
        }
        if let (Some(input), Some(answer)) = (&self.input, &self.answer) {
            let names: Vec<String> = self.outputs.iter().map(|output| alloc::format!("{output:?}")).collect();
            write!(f, "; the call was {input:?}, its answer here {answer:?}, its outputs here [{}]", names.join(", "))?;
        }
        f.write_str("; replay it with the version that recorded it")
    }
}

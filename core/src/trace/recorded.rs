//! A topology whose calls are recorded.
//!
//! Every call that changes something goes through [`Recorded::call`]. It is recorded before it is made, and its answer
//! afterwards; the frequent ones, which `frequent` holds, are recorded when they have been made. Without a recorder a call is just
//! made. The questions are the topology's own, by `Deref`.
//!
//! A pool without a topology is recorded as the one server of [`Topology::unmonitored`].

mod frequent;

use alloc::boxed::Box;
use alloc::string::String;
use core::ops::Deref;

use super::history::History;
use super::tape::{Contents, RecorderOptions, Tape};
use crate::pool::{CheckOutRequest, Delivery, IdentityId, Refused};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Criteria, Input, Topology, WarmUpId};

/// A topology, and the recorder of its calls, if there is one.
#[derive(Clone, Debug)]
pub struct Recorded<C> {
    machine: Topology<C>,
    tape: Option<Box<Tape>>,
    frozen: Option<Box<Frozen>>,
}

/// What was recorded until something led to the end of it.
#[derive(Clone, Debug)]
struct Frozen {
    contents: Contents,
    reason: String,
    is_told: bool,
}

impl<C> From<Topology<C>> for Recorded<C> {
    /// Without a recorder.
    fn from(machine: Topology<C>) -> Self {
        Self { machine, tape: None, frozen: None }
    }
}

impl<C> Deref for Recorded<C> {
    type Target = Topology<C>;

    #[inline]
    fn deref(&self) -> &Topology<C> {
        &self.machine
    }
}

impl<C> Recorded<C> {
    // The recorder.

    /// Records from now on, and forgets what was recorded before.
    pub fn start_recording(&mut self, options: RecorderOptions) {
        self.tape = Some(Box::new(Tape::new(options, &self.machine)));
        self.frozen = None;
    }

    /// Stops recording, and keeps what was recorded until here: it led to what `reason` tells. By itself this happens when a pool
    /// is found to contradict itself, for which each new segment looks.
    pub fn freeze(&mut self, reason: String) {
        if let Some(tape) = self.tape.take() {
            let contents = tape.contents(&self.machine);
            self.frozen = Some(Box::new(Frozen { contents, reason, is_told: false }));
        }
    }

    /// Why recording was frozen, once.
    pub fn take_reason(&mut self) -> Option<String> {
        let frozen = self.frozen.as_mut().filter(|frozen| !frozen.is_told)?;
        frozen.is_told = true;
        Some(frozen.reason.clone())
    }

    /// Stops, and returns what was recorded until now, or until recording was frozen. It is not kept.
    pub fn stop_recording(&mut self) -> Option<Contents> {
        let frozen = self.frozen.take().map(|frozen| frozen.contents);
        self.tape.take().map(|tape| tape.contents(&self.machine)).or(frozen)
    }

    /// Whether there is a recorder.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.tape.is_some()
    }

    /// What is recorded now, or was until recording was frozen. Copies at most one segment.
    pub fn recording(&self) -> Option<Contents> {
        let now = self.tape.as_ref().map(|tape| tape.contents(&self.machine));
        now.or_else(|| self.frozen.as_ref().map(|frozen| frozen.contents.clone()))
    }

    /// What a sparse recorder keeps now.
    pub(super) fn history(&self) -> Option<History> {
        self.tape.as_ref()?.contents(&self.machine).history()
    }

    /// The bytes that the recorder keeps.
    pub fn recorded_bytes(&self) -> usize {
        self.tape.as_ref().map_or(0, |tape| tape.bytes())
    }

    /// Records who made the last call, which began this check-out: the number of a text.
    #[inline]
    pub fn note_holder(&mut self, check_out: CheckOut, text: u32) {
        if let Some(tape) = &mut self.tape {
            tape.note_holder(check_out, text);
        }
    }

    /// Records that the task of a check-out that waited has taken its answer.
    pub fn note_taken(&mut self, now: Instant, check_out: CheckOut) {
        if let Some(tape) = &mut self.tape {
            tape.note_taken(&self.machine, now, check_out);
        }
    }

    // The calls.

    /// [`Topology::call`]: any call. The frequent ones, [`check_out`](Self::check_out) and [`check_in`](Self::check_in), and those
    /// whose answers are ids have a typed method, too.
    pub fn call(&mut self, now: Instant, input: Input, socket: Option<C>) -> Answer<C> {
        match (input, socket) {
            // Drivers ask for it again and again: what changes nothing is not recorded.
            (Input::Observe(on), _) if self.machine.observation().0 == on => Answer::Done,
            (Input::ObserveSelections(detail), _) if self.machine.observation().1 == detail => Answer::Done,
            (Input::CheckOut(criteria, request), _) => {
                let (check_out, delivery) = self.check_out(now, &criteria, request);
                Answer::CheckOut(check_out, delivery)
            }
            (Input::CheckIn(check_out, connection, condition), Some(socket)) => {
                match self.check_in(now, check_out, connection, socket, condition) {
                    Ok(checked_in) => Answer::CheckedIn(checked_in.delivery()),
                    Err(Refused { misuse, socket }) => Answer::Misuse(misuse, Some(socket)),
                }
            }
            (input, socket) => {
                self.record(now, || input.clone());
                let answer = self.machine.call(now, input, socket);
                self.take_answer(&answer);
                answer
            }
        }
    }

    /// [`Topology::add_identity`].
    pub fn add_identity(&mut self, now: Instant) -> IdentityId {
        self.record(now, || Input::AddIdentity);
        let identity = self.machine.add_identity(now);
        self.take_answer(&Answer::<()>::Identity(identity));
        identity
    }

    /// [`Topology::warm_up`].
    pub fn warm_up(&mut self, now: Instant, criteria: &Criteria, connections: Option<u32>) -> WarmUpId {
        self.record(now, || Input::WarmUp(Box::new(criteria.clone()), connections));
        let warm_up = self.machine.warm_up(now, criteria, connections);
        self.take_answer(&Answer::<()>::WarmUp(warm_up));
        warm_up
    }

    /// Criteria can be long: room is made for them before the call.
    #[inline(never)]
    fn check_out_for(
        &mut self,
        now: Instant,
        criteria: &Criteria,
        request: CheckOutRequest,
    ) -> (CheckOut, Option<Delivery<C>>) {
        self.record(now, || Input::CheckOut(Box::new(criteria.clone()), request));
        let (check_out, delivery) = self.machine.check_out(now, criteria, request);
        self.take_answer(&Answer::CheckOut(check_out, delivery.as_ref().map(Delivery::snapshot)));
        (check_out, delivery)
    }

    fn record(&mut self, now: Instant, input: impl FnOnce() -> Input) {
        if self.tape.is_some() {
            self.prepare_now(now);
        }
        if let Some(tape) = &mut self.tape {
            tape.record(&self.machine, now, input());
        }
    }

    fn take_answer<S>(&mut self, answer: &Answer<S>) {
        if let Some(tape) = &mut self.tape {
            tape.take_answer(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::{Header, Replay, Trace};
    use super::*;
    use crate::address::ServerAddress;
    use crate::options::PoolOptions;
    use crate::topology::TopologyOptions;

    #[test]
    fn recording_stops_before_a_state_that_contradicts_itself() {
        let options = TopologyOptions::of_seeds(vec![ServerAddress::tcp("a", 27017)]);
        let mut recorded: Recorded<()> = Topology::new(options, PoolOptions::default()).unwrap().into();
        recorded.start_recording(RecorderOptions { bytes: 0, ..RecorderOptions::default() });
        recorded.call(Instant::ORIGIN, Input::Open, None);
        recorded.machine.break_invariant();

        for millis in 0..2000 {
            recorded.call(Instant::from_millis(millis), Input::Timeout, None);
        }

        assert!(!recorded.is_recording());
        assert!(recorded.take_reason().unwrap().contains("contradicts itself"));
        assert_eq!(recorded.take_reason(), None);
        let trace = Trace::read(&recorded.recording().unwrap().encode(&Header::default())).unwrap();
        assert!(Replay::new(&trace).unwrap().step().unwrap().is_some());
    }

    #[test]
    fn what_was_recorded_until_it_was_frozen_is_returned_once_when_recording_stops() {
        let options = TopologyOptions::of_seeds(vec![ServerAddress::tcp("a", 27017)]);
        let mut recorded: Recorded<()> = Topology::new(options, PoolOptions::default()).unwrap().into();
        recorded.start_recording(RecorderOptions::default());
        recorded.freeze("a bug".into());

        let stopped = recorded.stop_recording();

        assert!(stopped.is_some());
        assert!(recorded.recording().is_none());
        assert!(recorded.stop_recording().is_none());
    }
}

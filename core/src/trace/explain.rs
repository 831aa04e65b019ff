//! Why check-outs waited: each wait cut into intervals, each with the one limit that bound.
//!
//! The calls are made again twice. The first time it is found out who waited, and for how long; the second time the waits that
//! are asked for are followed: after every call the state says what binds them. So an interval begins and ends with calls, and the
//! intervals of a wait add up to it. A [history](super::History) has its waits explained already.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::follow::Following;
use super::item::{Note, Trace};
use super::occurrence::Occurrences;
use super::replay::{Divergence, Replay, Step};
use super::wait::{Wait, WaitEnd};
use crate::pool::{self, Action, Cancellation, CheckOutId, Delivery, Handle};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Input, Output, Topology};

/// Which waits are explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The longest ones, so many at most.
    Slowest(usize),
    /// Those that ended with an error, so many at most, the longest first.
    Failures(usize),
    /// The one that a call began.
    Call(u64),
}

/// All waits of a trace, in the order of their beginnings. Those of a replay are without their intervals.
///
/// # Errors
/// The replay differs from the recording.
pub fn waits(trace: &Trace) -> Result<Vec<Wait>, Box<Divergence>> {
    match &trace.history {
        Some(history) => Ok(history.explained(trace.header.written_at, |number| trace.text(number))),
        None => Observer::observe(trace, None),
    }
}

/// The waits that are asked for, explained, the longest first.
///
/// # Errors
/// The replay differs from the recording.
pub fn explain(trace: &Trace, question: Question) -> Result<Vec<Wait>, Box<Divergence>> {
    let mut waits = waits(trace)?;
    let mut chosen: Vec<usize> =
        (0..waits.len()).filter(|&at| waits.get(at).is_some_and(|it| question.is_about(it))).collect();
    chosen.sort_by_key(|&at| core::cmp::Reverse(waits.get(at).map(Wait::duration)));
    chosen.truncate(question.most());
    if trace.history.is_none() {
        let mut followed = chosen.clone();
        followed.sort_unstable();
        waits = Observer::observe(trace, Some(&followed))?;
    }
    Ok(chosen.into_iter().filter_map(|at| waits.get(at).cloned()).collect())
}

impl Question {
    fn is_about(self, wait: &Wait) -> bool {
        match self {
            Self::Slowest(_) => true,
            Self::Failures(_) => matches!(wait.end, WaitEnd::Failed { .. }),
            Self::Call(number) => wait.call == Some(number),
        }
    }

    fn most(self) -> usize {
        match self {
            Self::Slowest(most) | Self::Failures(most) => most,
            Self::Call(_) => 1,
        }
    }
}

/// Watches a replay for waits.
struct Observer<'a> {
    /// The waits to follow, by their places, sorted.
    chosen: Option<&'a [usize]>,
    /// How many have begun: the place of the next one.
    begun: usize,
    /// Those that have not ended, with their places.
    open: BTreeMap<CheckOut, (usize, Following)>,
    /// Those whose tasks have not taken their connections.
    delivered: BTreeMap<CheckOut, (usize, Following)>,
    /// Those that have ended, by their places.
    ended: BTreeMap<usize, Wait<u32>>,
    /// The numbers of holders' texts.
    holders: BTreeMap<CheckOut, u32>,
    occurrences: Occurrences,
    now: Instant,
}

impl<'a> Observer<'a> {
    /// The waits of a replay, those explained that are chosen.
    fn observe(trace: &Trace, chosen: Option<&'a [usize]>) -> Result<Vec<Wait>, Box<Divergence>> {
        let Some(mut replay) = Replay::new(trace) else { return Ok(Vec::new()) };
        let mut observer = Self {
            chosen,
            begun: 0,
            open: BTreeMap::new(),
            delivered: BTreeMap::new(),
            ended: BTreeMap::new(),
            holders: BTreeMap::new(),
            occurrences: Occurrences::new(replay.machine(), usize::MAX),
            now: replay.machine().now(),
        };
        observer.begin_with_those_who_wait(replay.machine());
        observer.follow(replay.machine());
        while let Some(step) = replay.step()? {
            observer.now = replay.machine().now();
            observer.occurrences.observe(step.number, step.at, step.input, replay.machine());
            observer.look_at(&step);
            observer.follow(replay.machine());
        }
        let waits = observer.finish(trace.header.written_at);
        Ok(waits.into_values().map(|wait| wait.named(&|number| trace.text(number).map(ToString::to_string))).collect())
    }

    /// Those that wait at the beginning of the trace.
    fn begin_with_those_who_wait(&mut self, machine: &Topology<()>) {
        for (check_out, since) in waiting(machine) {
            let now = self.now;
            if let Some((_, wait)) = self.begin(None, check_out, since) {
                wait.begin_unseen(now);
            }
        }
    }

    fn look_at(&mut self, step: &Step<'_>) {
        if let Answer::CheckOut(check_out, None) = step.answer {
            self.begin(Some(step.number), check_out, self.now);
        }
        if let Answer::CheckedIn(Some(Delivery { check_out, connection, .. })) = step.answer {
            self.deliver(check_out, connection);
        }
        if let (Answer::Cancellation(Cancellation::Cancelled), Input::CancelCheckOut(check_out)) =
            (&step.answer, step.input)
        {
            self.end(*check_out, WaitEnd::Cancelled);
        }
        // Who called is noted before outputs are polled, which may give the check-out another name.
        for note in &step.notes {
            if let (Note::Holder(text), Answer::CheckOut(check_out, _)) = (note, &step.answer) {
                self.hold(*check_out, *text);
            }
        }
        for output in &step.outputs {
            self.look_at_output(output);
        }
        for note in &step.notes {
            if let Note::Taken(check_out, at) = note {
                self.take(*check_out, *at);
            }
        }
    }

    fn look_at_output(&mut self, output: &Output<()>) {
        match output {
            Output::Pool { output: pool::Output::Action(Action::Deliver { check_out, connection, .. }), .. } => {
                self.deliver(*check_out, *connection);
            }
            Output::Pool { output: pool::Output::Action(Action::Fail { check_out, error }), .. } => {
                self.end(CheckOut::Started(*check_out), WaitEnd::Failed { error: error.to_string() });
            }
            Output::SelectionFailed { selection, error } => {
                self.end(CheckOut::Selecting(*selection), WaitEnd::Failed { error: error.to_string() });
            }
            Output::Selected { selection, check_out } => {
                self.rename(CheckOut::Selecting(*selection), CheckOut::Started(*check_out));
            }
            Output::Reselecting { check_out, selection } => {
                self.rename(CheckOut::Started(*check_out), CheckOut::Selecting(*selection));
            }
            Output::Pool { .. }
            | Output::WarmedUp { .. }
            | Output::Selection(_)
            | Output::ResolveSrv { .. }
            | Output::Topology(_)
            | Output::Server { .. }
            | Output::Monitor { .. } => {}
        }
    }

    fn hold(&mut self, check_out: CheckOut, holder: u32) {
        self.holders.insert(check_out, holder);
        if let Some((_, waiting)) = self.open.get_mut(&check_out) {
            waiting.wait.holder = Some(holder);
        }
    }

    fn take(&mut self, check_out: CheckOut, at: Instant) {
        if let Some((place, mut taken)) = self.delivered.remove(&check_out) {
            taken.take(at);
            self.ended.insert(place, taken.wait);
        }
    }

    fn begin(&mut self, call: Option<u64>, check_out: CheckOut, began: Instant) -> Option<&mut (usize, Following)> {
        let place = self.begun;
        self.begun += 1;
        self.open.insert(check_out, (place, Following::new(call, check_out, began)));
        self.open.get_mut(&check_out)
    }

    fn rename(&mut self, from: CheckOut, to: CheckOut) {
        if let Some((place, mut renamed)) = self.open.remove(&from) {
            renamed.check_out = to;
            self.open.insert(to, (place, renamed));
        }
        if let Some(holder) = self.holders.remove(&from) {
            self.holders.insert(to, holder);
        }
    }

    fn deliver(&mut self, check_out: CheckOutId, connection: Handle) {
        let started = CheckOut::Started(check_out);
        if let Some((place, mut delivered)) = self.open.remove(&started) {
            delivered.end(self.now, WaitEnd::Delivered { connection, check_out, at: self.now });
            self.add_occurrences(place, &mut delivered);
            self.delivered.insert(started, (place, delivered));
        }
    }

    fn end(&mut self, check_out: CheckOut, end: WaitEnd) {
        if let Some((place, mut ended)) = self.open.remove(&check_out) {
            ended.end(self.now, end);
            self.add_occurrences(place, &mut ended);
            self.ended.insert(place, ended.wait);
        }
    }

    fn add_occurrences(&self, place: usize, ended: &mut Following) {
        if self.follows(place) {
            ended.wait.occurrences = self.occurrences.around(ended.wait.began, ended.wait.ended);
        }
    }

    fn follows(&self, place: usize) -> bool {
        self.chosen.is_some_and(|chosen| chosen.binary_search(&place).is_ok())
    }

    /// Looks what binds now those that are followed.
    fn follow(&mut self, machine: &Topology<()>) {
        let Self { chosen, open, holders, now, .. } = self;
        let Some(chosen) = *chosen else { return };
        for (place, waiting) in open.values_mut() {
            if chosen.binary_search(place).is_ok() {
                waiting.look(machine, *now, &|held| holders.get(&CheckOut::Started(held.check_out)).copied());
            }
        }
    }

    /// All waits, when the trace was written: those that are not followed without intervals.
    fn finish(mut self, written_at: Instant) -> BTreeMap<usize, Wait<u32>> {
        self.now = self.now.max(written_at);
        while let Some((&check_out, _)) = self.open.first_key_value() {
            self.end(check_out, WaitEnd::Open);
        }
        let delivered = core::mem::take(&mut self.delivered);
        self.ended.extend(delivered.into_values().map(|(place, delivered)| (place, delivered.wait)));
        let mut waits = core::mem::take(&mut self.ended);
        waits.iter_mut().filter(|(place, _)| !self.follows(**place)).for_each(|(_, wait)| wait.intervals.clear());
        waits
    }
}

/// The check-outs that wait, and since when, the first one first.
pub(super) fn waiting<C>(machine: &Topology<C>) -> Vec<(CheckOut, Instant)> {
    let selecting = machine.waiting_for_servers().map(|(id, since)| (CheckOut::Selecting(id), since));
    let in_pools = machine.pools().flat_map(|(_, pool)| pool.waiting_check_outs());
    let started = in_pools.map(|waiting| (CheckOut::Started(waiting.check_out), waiting.since));
    let mut waiting: Vec<_> = selecting.chain(started).collect();
    waiting.sort_by_key(|(_, since)| *since);
    waiting
}

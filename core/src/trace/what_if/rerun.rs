//! Plays a script against changed options, and closes the loop: what the machine asks for is answered as the recording
//! answered such calls.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::script::{Course, Event, Kind, Script, about};
use super::{Changes, Fate, Outcome};
use crate::connection::{EstablishError, Fault, Phase};
use crate::options::{PoolLimits, PoolOptionsError};
use crate::pool::{self, Action, Cancellation, CheckOutId, Condition, Delivery, Handle};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Input, Output, Topology};

/// The number of calls that the recording does not have: they come after those of the same time.
const UNKNOWN: u64 = u64::MAX;

/// Shortest time between two timeouts that the recording does not have.
const PAUSE: Duration = Duration::from_millis(1);

/// Plays a script.
pub(super) fn rerun(script: &Script, changes: &Changes) -> Result<Vec<Outcome>, PoolOptionsError> {
    let mut player = Player::new(script, changes);
    player.change_sizes()?;
    player.play();
    Ok(player.outcomes)
}

struct Player<'a> {
    script: &'a Script,
    changes: &'a Changes,
    machine: Topology<()>,
    now: Instant,
    /// What comes, by time, number in the recording, and the order in which it was found out.
    queue: BTreeMap<(Instant, u64, u64), Event>,
    found: u64,
    /// How many actions of each kind each server has had.
    begun: BTreeMap<(Kind, u32), usize>,
    /// The establishments of the recording that are under way.
    establishing: BTreeMap<Handle, (u32, usize)>,
    names: BTreeMap<CheckOut, usize>,
    outcomes: Vec<Outcome>,
    /// No timeout of its own before.
    quiet_until: Instant,
}

impl<'a> Player<'a> {
    fn new(script: &'a Script, changes: &'a Changes) -> Self {
        let machine = script.start.clone();
        let now = machine.now();
        let names = script.requests.iter().enumerate().filter_map(|(at, request)| Some((request.name?, at)));
        let open = |outcome: &Outcome| Outcome { ended: script.end, fate: Fate::Open, ..*outcome };
        let queue = script.events.iter().map(|(at, number, event)| ((*at, *number, 0), event.clone()));
        Self {
            script,
            changes,
            machine,
            now,
            queue: queue.collect(),
            found: 0,
            begun: BTreeMap::new(),
            establishing: BTreeMap::new(),
            names: names.collect(),
            outcomes: script.requests.iter().map(|request| open(&request.outcome)).collect(),
            quiet_until: now,
        }
    }

    /// Limits that contradict the changed ones are refused, as they would have been.
    fn resize(&mut self, limits: PoolLimits) {
        let _ = self.machine.resize(self.now, limits);
        let _ = self.change_sizes();
    }

    fn change_sizes(&mut self) -> Result<(), PoolOptionsError> {
        match self.changes.sizes() {
            Some(sizes) => self.machine.resize(self.now, sizes),
            None => Ok(()),
        }
    }

    fn play(&mut self) {
        self.drain();
        loop {
            let timeout = self.machine.poll_timeout().map(|due| (due.at + self.script.lateness).max(self.quiet_until));
            let timeout = timeout.filter(|&at| at <= self.script.end);
            let next = self.queue.first_key_value().map(|(key, _)| key.0);
            match (next, timeout) {
                (next, Some(at)) if next.is_none_or(|next| next > at) => {
                    self.now = self.now.max(at);
                    self.quiet_until = self.now + PAUSE;
                    self.machine.handle_timeout(self.now);
                }
                (Some(_), _) => {
                    let Some(((at, ..), event)) = self.queue.pop_first() else { break };
                    if at > self.script.end {
                        break;
                    }
                    self.now = self.now.max(at);
                    self.happen(event);
                }
                (None, _) => break,
            }
            self.drain();
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Call(Input::Resize(limits)) => self.resize(limits),
            Event::Call(input) => self.call(input),
            Event::Begin(at, input) => {
                let input = self.changes.applied_to(input, self.now);
                if let Answer::CheckOut(name, delivery) = self.machine.call(self.now, input, Some(())) {
                    self.names.insert(name, at);
                    if let Some(Delivery { check_out, connection, .. }) = delivery {
                        self.deliver(check_out, connection);
                    }
                }
            }
            Event::Change(at, criteria) => {
                if let Some(CheckOut::Selecting(selection)) = self.name_of(at) {
                    self.machine.change_criteria(self.now, selection, &criteria);
                }
            }
            Event::Cancel(at) => {
                if let Some(name) = self.name_of(at)
                    && self.machine.cancel_check_out(self.now, name) == Cancellation::Cancelled
                {
                    self.end(name, Fate::Cancelled);
                }
            }
        }
    }

    fn call(&mut self, input: Input) {
        let answer = self.machine.call(self.now, input, Some(()));
        if let Answer::CheckedIn(Some(Delivery { check_out, connection, .. })) = answer {
            self.deliver(check_out, connection);
        }
    }

    fn name_of(&self, at: usize) -> Option<CheckOut> {
        self.names.iter().find(|(_, known)| **known == at).map(|(name, _)| *name)
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Pool { output: pool::Output::Action(action), .. } => self.act(action),
                Output::Selected { selection, check_out } => {
                    self.rename(CheckOut::Selecting(selection), CheckOut::Started(check_out));
                }
                Output::Reselecting { check_out, selection } => {
                    self.rename(CheckOut::Started(check_out), CheckOut::Selecting(selection));
                }
                Output::SelectionFailed { selection, .. } => self.end(CheckOut::Selecting(selection), Fate::Failed),
                Output::Pool { output: pool::Output::Event(_), .. }
                | Output::WarmedUp { .. }
                | Output::ResolveSrv { .. }
                | Output::Selection(_)
                | Output::Topology(_)
                | Output::Server { .. }
                | Output::Monitor { .. } => {}
            }
        }
    }

    fn act(&mut self, action: Action<()>) {
        match action {
            Action::Connect { connection } => self.work(Kind::Establish, connection),
            Action::Check { connection } => self.work(Kind::Check, connection),
            Action::Refresh { connection, .. } => self.work(Kind::Refresh, connection),
            Action::Deliver { check_out, connection, .. } => self.deliver(check_out, connection),
            Action::Fail { check_out, .. } => self.end(CheckOut::Started(check_out), Fate::Failed),
            Action::Interrupt { connection } => self.interrupt(connection),
            Action::Close { .. } | Action::WarmedUp { .. } => {}
        }
    }

    /// Does the n-th work of its kind at a server as it was done in the recording.
    fn work(&mut self, kind: Kind, connection: Handle) {
        let key = (kind, connection.slot());
        let nth = self.begun.entry(key).or_default();
        let at = *nth;
        *nth += 1;
        if kind == Kind::Establish {
            self.establishing.insert(connection, (connection.slot(), at));
        }
        let courses = self.script.works.get(&key).map_or(&[][..], Vec::as_slice);
        // Where none has ever succeeded, none will.
        let repeated = courses.last().filter(|_| !courses.iter().any(|course| success(course).is_some()));
        match courses.get(at).or(repeated) {
            Some(course) => self.follow(course, None, connection),
            None => {
                let after = self.usual(kind, connection.slot());
                let done = match kind {
                    Kind::Establish => Input::Established(connection),
                    Kind::Check => Input::Checked(connection, true),
                    Kind::Refresh => Input::Refreshed(connection),
                    Kind::Hold => return,
                };
                self.later(after, UNKNOWN, done);
            }
        }
    }

    /// The median time of the successes of this kind, at this server if it had any.
    fn usual(&self, kind: Kind, server: u32) -> Duration {
        let of = |courses: &mut dyn Iterator<Item = &Vec<Course>>| median(courses.flatten().filter_map(success));
        let works = &self.script.works;
        of(&mut works.get(&(kind, server)).into_iter())
            .or_else(|| of(&mut works.iter().filter(|((it, _), _)| *it == kind).map(|(_, courses)| courses)))
            .unwrap_or_default()
    }

    fn follow(&mut self, course: &Course, check_out: Option<CheckOutId>, connection: Handle) {
        for (after, number, input) in &course.0 {
            self.later(*after, *number, about(input, check_out, connection));
        }
    }

    fn later(&mut self, after: Duration, number: u64, input: Input) {
        self.found += 1;
        self.queue.insert((self.now + after, number, self.found), Event::Call(input));
    }

    /// A connection whose establishing was not interrupted in the recording stops at once.
    fn interrupt(&mut self, connection: Handle) {
        if let Some(known) = self.establishing.get(&connection)
            && !self.script.interrupted.contains(known)
        {
            let error = EstablishError::new(Phase::Connect, Fault::Network, "interrupted");
            self.later(Duration::ZERO, UNKNOWN, Input::EstablishFailed(connection, error));
        }
    }

    fn deliver(&mut self, check_out: CheckOutId, connection: Handle) {
        let name = CheckOut::Started(check_out);
        let Some(at) = self.names.get(&name).copied() else { return };
        self.end(name, Fate::Delivered);
        let script = self.script;
        let Some(request) = script.requests.get(at) else { return };
        if request.outcome.fate == Fate::Delivered {
            self.follow(&request.hold, Some(check_out), connection);
        } else {
            let usual = median(script.requests.iter().filter_map(|request| success(&request.hold)));
            let back = Input::CheckIn(check_out, connection, Condition::Usable);
            self.later(usual.unwrap_or_default(), UNKNOWN, back);
        }
    }

    fn rename(&mut self, from: CheckOut, to: CheckOut) {
        if let Some(at) = self.names.remove(&from) {
            self.names.insert(to, at);
        }
    }

    fn end(&mut self, name: CheckOut, fate: Fate) {
        let outcome = self.names.remove(&name).and_then(|at| self.outcomes.get_mut(at));
        if let Some(outcome) = outcome {
            (outcome.ended, outcome.fate) = (self.now, fate);
        }
    }
}

/// How long a course took that ended well.
fn success(course: &Course) -> Option<Duration> {
    let (after, _, input) = course.0.last()?;
    let is_success = matches!(
        input,
        Input::Established(_) | Input::Checked(_, true) | Input::Refreshed(_) | Input::CheckIn(_, _, Condition::Usable)
    );
    is_success.then_some(*after)
}

fn median(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

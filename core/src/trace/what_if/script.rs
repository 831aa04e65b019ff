//! What a recording says besides the options: who asked when, how long connections were held and took to establish, and what
//! happened around.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::super::item::Trace;
use super::super::replay::{Divergence, Replay, Step};
use super::{Fate, Outcome};
use crate::pool::{self, Action, Cancellation, CheckOutId, Handle};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Criteria, Input, Output, TimeoutReason, Topology};

/// What a recording says.
pub(super) struct Script {
    /// The state at its beginning.
    pub(super) start: Topology<()>,
    /// When it ends.
    pub(super) end: Instant,
    /// The latest that a timeout was handled after it was due.
    pub(super) lateness: Duration,
    pub(super) requests: Vec<Request>,
    /// What happened at its time, in the order of the calls.
    pub(super) events: Vec<(Instant, u64, Event)>,
    /// What was done for the n-th action of a kind at a server.
    pub(super) works: BTreeMap<(Kind, u32), Vec<Course>>,
    /// Connections that were told to stop being established.
    pub(super) interrupted: BTreeSet<(u32, usize)>,
}

/// A check-out.
pub(super) struct Request {
    /// What became of it.
    pub(super) outcome: Outcome,
    /// Its name at the beginning of the recording, if it waited then.
    pub(super) name: Option<CheckOut>,
    /// What was done with its connection; empty if it never had one, or kept it.
    pub(super) hold: Course,
}

/// What happens at a time of its own, whatever the options are.
#[derive(Clone)]
pub(super) enum Event {
    /// A call that is made as it was.
    Call(Input),
    /// A check-out begins.
    Begin(usize, Input),
    /// A check-out wants something else.
    Change(usize, Box<Criteria>),
    /// The caller of a check-out gives up.
    Cancel(usize),
}

/// What a caller or the driver does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Hold,
    Establish,
    Check,
    Refresh,
}

/// The calls about a connection: how long after the beginning, the number in the recording, and the call.
#[derive(Clone, Default)]
pub(super) struct Course(pub(super) Vec<(Duration, u64, Input)>);

/// Where a course is kept.
#[derive(Clone, Copy)]
enum Place {
    Hold(usize),
    Work(Kind, u32, usize),
}

struct Reader {
    script: Script,
    names: BTreeMap<CheckOut, usize>,
    running: BTreeMap<(Kind, Handle), (Place, Instant)>,
    now: Instant,
}

impl Script {
    /// Reads a trace. `None` if it has no segment.
    pub(super) fn read(trace: &Trace) -> Result<Option<Self>, Box<Divergence>> {
        let Some(mut replay) = Replay::new(trace) else { return Ok(None) };
        let mut reader = Reader::new(replay.machine().clone());
        loop {
            let due = replay.machine().poll_timeout().filter(|timeout| timeout.reason != TimeoutReason::Outputs);
            let Some(step) = replay.step()? else { break };
            reader.now = reader.now.max(step.at);
            let late = due.map_or(Duration::ZERO, |due| reader.now.saturating_since(due.at));
            reader.script.lateness = reader.script.lateness.max(late);
            reader.read(&step);
        }
        Ok(Some(reader.finish(trace.header.written_at)))
    }
}

impl Reader {
    fn new(start: Topology<()>) -> Self {
        let now = start.now();
        let (works, interrupted) = (BTreeMap::new(), BTreeSet::new());
        let selecting = start.waiting_for_servers().map(|(id, since)| (CheckOut::Selecting(id), since));
        let in_pools = start.pools().flat_map(|(_, pool)| pool.waiting_check_outs());
        let started = in_pools.map(|waiting| (CheckOut::Started(waiting.check_out), waiting.since));
        let waiting: Vec<_> = selecting.chain(started).collect();
        let (lateness, requests, events) = (Duration::ZERO, Vec::new(), Vec::new());
        let script = Script { start, end: now, lateness, requests, events, works, interrupted };
        let mut reader = Self { script, names: BTreeMap::new(), running: BTreeMap::new(), now };
        for (name, since) in waiting {
            let at = reader.begin(None, name, since);
            reader.script.requests.iter_mut().skip(at).for_each(|request| request.name = Some(name));
        }
        reader
    }

    fn begin(&mut self, call: Option<u64>, name: CheckOut, began: Instant) -> usize {
        let at = self.script.requests.len();
        let outcome = Outcome { call, began, ended: began, fate: Fate::Open };
        self.script.requests.push(Request { outcome, name: None, hold: Course::default() });
        self.names.insert(name, at);
        at
    }

    fn read(&mut self, step: &Step<'_>) {
        if let Some(event) = self.event(step) {
            self.script.events.push((self.now, step.number, event));
        }
        if let Answer::CheckOut(_, Some(delivery)) | Answer::CheckedIn(Some(delivery)) = &step.answer {
            self.deliver(CheckOut::Started(delivery.check_out), delivery.connection);
        }
        step.outputs.iter().for_each(|output| self.read_output(output));
    }

    /// What a call is in the script: nothing if it belongs to a course.
    fn event(&mut self, step: &Step<'_>) -> Option<Event> {
        let input = step.input;
        match (input, &step.answer) {
            (Input::CheckOut(..), Answer::CheckOut(name, _)) => {
                let at = self.begin(Some(step.number), *name, self.now);
                Some(Event::Begin(at, input.clone()))
            }
            (Input::ChangeCriteria(selection, criteria), _) => {
                let at = self.names.get(&CheckOut::Selecting(*selection))?;
                Some(Event::Change(*at, criteria.clone()))
            }
            (Input::CancelCheckOut(name), answer) => {
                let at = *self.names.get(name)?;
                if *answer == Answer::Cancellation(Cancellation::Cancelled) {
                    self.end(*name, Fate::Cancelled);
                }
                Some(Event::Cancel(at))
            }
            _ => self.other_event(step.number, input),
        }
    }

    fn other_event(&mut self, number: u64, input: &Input) -> Option<Event> {
        let mut input = input.clone();
        let begun = subject(&mut input).and_then(|(kind, connection)| self.running.get(&(kind, *connection)).copied());
        let Some((place, since)) = begun else { return Some(Event::Call(input)) };
        let after = self.now.saturating_since(since);
        if let Some(course) = self.course(place) {
            course.0.push((after, number, input));
        }
        None
    }

    fn course(&mut self, place: Place) -> Option<&mut Course> {
        match place {
            Place::Hold(at) => self.script.requests.get_mut(at).map(|request| &mut request.hold),
            Place::Work(kind, server, at) => self.script.works.get_mut(&(kind, server))?.get_mut(at),
        }
    }

    fn read_output(&mut self, output: &Output<()>) {
        match output {
            Output::Pool { output: pool::Output::Action(action), .. } => self.read_action(action),
            Output::Selected { selection, check_out } => {
                self.rename(CheckOut::Selecting(*selection), CheckOut::Started(*check_out));
            }
            Output::Reselecting { check_out, selection } => {
                self.rename(CheckOut::Started(*check_out), CheckOut::Selecting(*selection));
            }
            Output::SelectionFailed { selection, .. } => self.end(CheckOut::Selecting(*selection), Fate::Failed),
            Output::Pool { output: pool::Output::Event(_), .. }
            | Output::WarmedUp { .. }
            | Output::ResolveSrv { .. }
            | Output::Selection(_)
            | Output::Topology(_)
            | Output::Server { .. }
            | Output::Monitor { .. } => {}
        }
    }

    fn read_action(&mut self, action: &Action<()>) {
        match action {
            Action::Connect { connection } => self.start(Kind::Establish, *connection),
            Action::Check { connection } => self.start(Kind::Check, *connection),
            Action::Refresh { connection, .. } => self.start(Kind::Refresh, *connection),
            Action::Deliver { check_out, connection, .. } => self.deliver(CheckOut::Started(*check_out), *connection),
            Action::Fail { check_out, .. } => self.end(CheckOut::Started(*check_out), Fate::Failed),
            Action::Interrupt { connection } => {
                if let Some((Place::Work(_, server, at), _)) = self.running.get(&(Kind::Establish, *connection)) {
                    self.script.interrupted.insert((*server, *at));
                }
            }
            Action::Close { .. } | Action::WarmedUp { .. } => {}
        }
    }

    fn start(&mut self, kind: Kind, connection: Handle) {
        let courses = self.script.works.entry((kind, connection.slot())).or_default();
        let place = Place::Work(kind, connection.slot(), courses.len());
        courses.push(Course::default());
        self.running.insert((kind, connection), (place, self.now));
    }

    fn deliver(&mut self, name: CheckOut, connection: Handle) {
        if let Some(&at) = self.names.get(&name) {
            self.end(name, Fate::Delivered);
            self.running.insert((Kind::Hold, connection), (Place::Hold(at), self.now));
        }
    }

    fn rename(&mut self, from: CheckOut, to: CheckOut) {
        if let Some(at) = self.names.remove(&from) {
            self.names.insert(to, at);
        }
    }

    fn end(&mut self, name: CheckOut, fate: Fate) {
        if let Some(request) = self.names.get(&name).and_then(|&at| self.script.requests.get_mut(at)) {
            (request.outcome.ended, request.outcome.fate) = (self.now, fate);
        }
        self.names.remove(&name);
    }

    fn finish(mut self, written_at: Instant) -> Script {
        self.script.end = self.now.max(written_at);
        let open = self.script.requests.iter_mut().filter(|request| request.outcome.fate == Fate::Open);
        open.for_each(|request| request.outcome.ended = self.script.end);
        self.script
    }
}

/// The connection that a call is about, and what is done with it.
fn subject(input: &mut Input) -> Option<(Kind, &mut Handle)> {
    if let Input::CheckIn(_, it, _) | Input::OperationFailed(it, _) | Input::SetPurpose(_, it, _) = input {
        Some((Kind::Hold, it))
    } else if let Input::Established(it) | Input::EstablishFailed(it, _) | Input::Hello(it, ..) = input {
        Some((Kind::Establish, it))
    } else if let Input::Checked(it, _) = input {
        Some((Kind::Check, it))
    } else if let Input::Refreshed(it) | Input::RefreshFailed(it, _) = input {
        Some((Kind::Refresh, it))
    } else {
        None
    }
}

/// A call about another connection, and about another check-out's use of it.
pub(super) fn about(input: &Input, check_out: Option<CheckOutId>, connection: Handle) -> Input {
    let mut input = input.clone();
    if let Input::CheckIn(user, ..) | Input::SetPurpose(user, ..) = &mut input {
        *user = check_out.unwrap_or(*user);
    }
    if let Some((_, subject)) = subject(&mut input) {
        *subject = connection;
    }
    input
}

//! Why check-outs waited: each wait cut into intervals, each with the one limit that bound.
//!
//! The calls are made again twice. The first time it is found out who waited, and for how long; the second time the waits that
//! are asked for are followed: after every call the state says what binds them. So an interval begins and ends with calls, and the
//! intervals of a wait add up to it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::item::{Note, Trace};
use super::occurrence::Occurrences;
use super::replay::{Divergence, Replay, Step};
use super::wait::{Establishment, Interval, Limit, Use, Wait, WaitEnd};
use crate::pool::{self, Action, Cancellation, CheckOutId, Establishing, Handle, WaitBound};
use crate::server::ServerId;
use crate::time::Instant;
use crate::topology::{Answer, Binding, CheckOut, Input, Output, Topology};

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

/// All waits of a trace, in the order of their beginnings, without their intervals.
///
/// # Errors
/// The replay differs from the recording.
pub fn waits(trace: &Trace) -> Result<Vec<Wait>, Box<Divergence>> {
    Observer::new(trace, None).run().map(|(waits, _)| waits)
}

/// The waits that are asked for, explained, the longest first.
///
/// # Errors
/// The replay differs from the recording.
pub fn explain(trace: &Trace, question: Question) -> Result<Vec<Wait>, Box<Divergence>> {
    let waits = waits(trace)?;
    let mut chosen: Vec<usize> =
        (0..waits.len()).filter(|&at| waits.get(at).is_some_and(|it| question.is_about(it))).collect();
    chosen.sort_by_key(|&at| core::cmp::Reverse(waits.get(at).map(Wait::duration)));
    chosen.truncate(question.most());
    let mut followed = chosen.clone();
    followed.sort_unstable();
    let (mut waits, mut intervals) = Observer::new(trace, Some(&followed)).run()?;
    let explained = chosen.into_iter().filter_map(|at| {
        let wait = waits.get_mut(at)?;
        wait.intervals = intervals.remove(&at).unwrap_or_default();
        Some(wait.clone())
    });
    Ok(explained.collect())
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
    trace: &'a Trace,
    /// The waits to follow, by their places in `waits`, sorted.
    chosen: Option<&'a [usize]>,
    waits: Vec<Wait>,
    /// The places of those that have not ended.
    open: BTreeMap<CheckOut, usize>,
    /// Those of them that are followed, by their places.
    followed: BTreeMap<usize, CheckOut>,
    /// The places of those whose tasks have not taken their connections.
    delivered: BTreeMap<CheckOut, usize>,
    /// The numbers of holders' texts.
    holders: BTreeMap<CheckOut, u32>,
    /// What binds those that are followed.
    bound: BTreeMap<usize, Bound>,
    intervals: BTreeMap<usize, Vec<Interval>>,
    occurrences: Occurrences,
    now: Instant,
}

/// What binds one wait.
struct Bound {
    since: Instant,
    limit: Limit,
    /// When its figures were taken.
    seen_at: Instant,
}

type Explained = (Vec<Wait>, BTreeMap<usize, Vec<Interval>>);

impl<'a> Observer<'a> {
    fn new(trace: &'a Trace, chosen: Option<&'a [usize]>) -> Self {
        Self {
            trace,
            chosen,
            waits: Vec::new(),
            open: BTreeMap::new(),
            followed: BTreeMap::new(),
            delivered: BTreeMap::new(),
            holders: BTreeMap::new(),
            bound: BTreeMap::new(),
            intervals: BTreeMap::new(),
            occurrences: Occurrences::new(),
            now: Instant::ORIGIN,
        }
    }

    fn run(mut self) -> Result<Explained, Box<Divergence>> {
        let Some(mut replay) = Replay::new(self.trace) else { return Ok((self.waits, self.intervals)) };
        self.now = replay.machine().now();
        self.occurrences.begin(replay.machine());
        self.begin_with_those_who_wait(replay.machine());
        self.follow(replay.machine());
        while let Some(step) = replay.step()? {
            self.now = replay.machine().now();
            self.occurrences.observe(&step, replay.machine());
            self.observe(&step);
            self.follow(replay.machine());
        }
        self.now = self.now.max(self.trace.header.written_at);
        for (_, at) in core::mem::take(&mut self.open) {
            self.end(at, self.now, WaitEnd::Open);
        }
        Ok((self.waits, self.intervals))
    }

    /// Those that wait at the beginning of the trace.
    fn begin_with_those_who_wait(&mut self, machine: &Topology<()>) {
        let selecting = machine.waiting_for_servers().map(|(id, since)| (CheckOut::Selecting(id), since));
        let in_pools = machine.pools().flat_map(|(_, pool)| pool.waiting_check_outs());
        let started = in_pools.map(|waiting| (CheckOut::Started(waiting.check_out), waiting.since));
        let mut waiting: Vec<_> = selecting.chain(started).collect();
        waiting.sort_by_key(|(_, since)| *since);
        for (check_out, since) in waiting {
            let at = self.begin(None, check_out, since);
            if self.follows(at) && since < self.now {
                self.bound.insert(at, Bound { since, limit: Limit::BeforeTheTrace, seen_at: self.now });
            }
        }
    }

    fn observe(&mut self, step: &Step<'_>) {
        if let Answer::CheckOut(check_out, delivered) = &step.answer
            && delivered.is_none()
        {
            self.begin(Some(step.number), *check_out, self.now);
        }
        if let Answer::CheckedIn(Some((check_out, connection))) = step.answer {
            self.deliver(check_out, connection);
        }
        if let (Answer::Cancellation(Cancellation::Cancelled), Input::CancelCheckOut(check_out)) =
            (&step.answer, step.input)
            && let Some(at) = self.open.remove(check_out)
        {
            self.end(at, self.now, WaitEnd::Cancelled);
        }
        for output in &step.outputs {
            self.observe_output(output);
        }
        for note in &step.notes {
            self.observe_note(note, &step.answer);
        }
    }

    fn observe_output(&mut self, output: &Output<()>) {
        match output {
            Output::Pool { output: pool::Output::Action(Action::Deliver { check_out, connection, .. }), .. } => {
                self.deliver(*check_out, *connection);
            }
            Output::Pool { output: pool::Output::Action(Action::Fail { check_out, error }), .. } => {
                self.fail(CheckOut::Started(*check_out), error.to_string());
            }
            Output::SelectionFailed { selection, error } => {
                self.fail(CheckOut::Selecting(*selection), error.to_string());
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

    fn observe_note(&mut self, note: &Note, answer: &Answer) {
        match (note, answer) {
            (Note::Holder(text), Answer::CheckOut(check_out, _)) => {
                self.holders.insert(*check_out, *text);
                let text = self.trace.text(*text).map(String::from);
                if let Some(wait) = self.open.get(check_out).and_then(|&at| self.waits.get_mut(at)) {
                    wait.holder = text;
                }
            }
            (Note::Taken(check_out, at), _) => self.take(*check_out, *at),
            (Note::Holder(_), _) => {}
        }
    }

    fn begin(&mut self, call: Option<u64>, check_out: CheckOut, began: Instant) -> usize {
        let at = self.waits.len();
        let (intervals, occurrences) = (Vec::new(), Vec::new());
        let (end, ended) = (WaitEnd::Open, began);
        self.waits.push(Wait { call, check_out, holder: None, began, end, ended, intervals, occurrences });
        self.open.insert(check_out, at);
        if self.follows(at) {
            self.followed.insert(at, check_out);
        }
        at
    }

    fn rename(&mut self, from: CheckOut, to: CheckOut) {
        if let Some(at) = self.open.remove(&from) {
            self.open.insert(to, at);
            self.followed.entry(at).and_modify(|name| *name = to);
        }
        if let Some(holder) = self.holders.remove(&from) {
            self.holders.insert(to, holder);
        }
    }

    fn deliver(&mut self, check_out: CheckOutId, connection: Handle) {
        if let Some(at) = self.open.remove(&CheckOut::Started(check_out)) {
            self.end(at, self.now, WaitEnd::Delivered { connection, check_out, at: self.now });
            self.delivered.insert(CheckOut::Started(check_out), at);
        }
    }

    fn fail(&mut self, check_out: CheckOut, error: String) {
        if let Some(at) = self.open.remove(&check_out) {
            self.end(at, self.now, WaitEnd::Failed { error });
        }
    }

    fn end(&mut self, at: usize, now: Instant, end: WaitEnd) {
        let follows = self.followed.remove(&at).is_some();
        if let Some(wait) = self.waits.get_mut(at) {
            (wait.ended, wait.end) = (now, end);
            if follows {
                wait.occurrences = self.occurrences.around(wait.began, now);
            }
        }
        self.close_interval(at, now);
        self.fill_up(at, now);
    }

    /// What is left of a wait whose result lay in the queue of outputs.
    fn fill_up(&mut self, at: usize, to: Instant) {
        let Some(began) = self.waits.get(at).map(|wait| wait.began).filter(|_| self.follows(at)) else { return };
        let intervals = self.intervals.entry(at).or_default();
        let from = intervals.last().map_or(began, |last| last.to);
        if from < to {
            intervals.push(Interval { from, to, limit: Limit::Turn });
        }
    }

    /// The task of a check-out has its connection.
    fn take(&mut self, taken: CheckOut, when: Instant) {
        let Some(at) = self.delivered.remove(&taken) else { return };
        let follows = self.follows(at);
        let Some(wait) = self.waits.get_mut(at).filter(|wait| when > wait.ended) else { return };
        let from = core::mem::replace(&mut wait.ended, when);
        if follows {
            let late = Interval { from, to: when, limit: Limit::LateWakeUp };
            self.intervals.entry(at).or_default().push(late);
        }
    }

    // What binds.

    fn follows(&self, at: usize) -> bool {
        self.chosen.is_some_and(|chosen| chosen.binary_search(&at).is_ok())
    }

    /// Looks what binds now those that are followed.
    fn follow(&mut self, machine: &Topology<()>) {
        let followed: Vec<(usize, CheckOut)> = self.followed.iter().map(|(&at, &check_out)| (at, check_out)).collect();
        for (at, check_out) in followed {
            let Some(limit) = machine.binding(check_out).map(|binding| self.limit(machine, binding)) else { continue };
            if self.bound.get(&at).is_some_and(|bound| !bound.limit.is_same(&limit)) {
                self.close_interval(at, self.now);
            }
            let now = self.now;
            let (since, limit) = match self.bound.remove(&at) {
                Some(before) => (before.since, limit.continued(before.limit, now.saturating_since(before.seen_at))),
                None => (now, limit),
            };
            self.bound.insert(at, Bound { since, limit, seen_at: now });
        }
    }

    fn close_interval(&mut self, at: usize, now: Instant) {
        if let Some(Bound { since, limit, seen_at }) = self.bound.remove(&at)
            && since < now
        {
            let limit = limit.aged(now.saturating_since(seen_at)).shortened();
            self.intervals.entry(at).or_default().push(Interval { from: since, to: now, limit });
        }
    }

    fn limit(&self, machine: &Topology<()>, binding: Binding) -> Limit {
        match binding {
            Binding::Server => Limit::Selection { servers: servers(machine) },
            Binding::Paused { server, since, cause } => {
                Limit::Paused { server: address(machine, server), since, cause: cause.to_string() }
            }
            Binding::Pool { server, bound } => self.limit_in_pool(machine, server, bound),
        }
    }

    fn limit_in_pool(&self, machine: &Topology<()>, server: ServerId, bound: WaitBound) -> Limit {
        match bound {
            WaitBound::MaxPoolSize { .. } => self.uses(machine, server),
            WaitBound::Establishment(own) => Limit::Establishment(own.into()),
            WaitBound::MaxConnecting { establishing, longest } => {
                Limit::MaxConnecting { establishing, longest: longest.into() }
            }
            WaitBound::Backoff => Limit::Backoff,
            WaitBound::CreationRate => Limit::CreationRate,
            WaitBound::MaxConnections => Limit::MaxConnections,
            WaitBound::NoTime | WaitBound::Turn => Limit::Turn,
        }
    }

    /// Who uses the connections of a server.
    fn uses(&self, machine: &Topology<()>, server: ServerId) -> Limit {
        let pools = machine.pools().filter(|(id, _)| machine.member_of(*id) == server);
        let held = pools.flat_map(|(_, pool)| pool.connections_in_use());
        let uses = held.map(|held| Use {
            connection: held.connection.id().get(),
            holder: self
                .holders
                .get(&CheckOut::Started(held.check_out))
                .and_then(|&text| self.trace.text(text))
                .map(String::from),
            since: held.since,
            held_for: self.now.saturating_since(held.since),
            has_ended: false,
        });
        let uses: Vec<Use> = uses.collect();
        Limit::MaxPoolSize { in_use: uses.len(), uses, ended: 0 }
    }
}

fn address(machine: &Topology<()>, server: ServerId) -> String {
    machine.server(server).map_or_else(String::new, |server| server.description().address.to_string())
}

/// What is known of each server.
fn servers(machine: &Topology<()>) -> Vec<String> {
    let told = |server: &alloc::sync::Arc<crate::monitor::ServerDescription>| match &server.error {
        Some(error) => alloc::format!("{}: {:?}, {error}", server.address, server.server_type),
        None => alloc::format!("{}: {:?}", server.address, server.server_type),
    };
    machine.description().servers.iter().map(told).collect()
}

impl From<Establishing> for Establishment {
    fn from(establishing: Establishing) -> Self {
        let Establishing { connection, elapsed, phase } = establishing;
        Self { connection: connection.get(), elapsed, phase }
    }
}

//! Recording for hours: counts of what went well, and an explanation of each check-out that waited.
//!
//! Calls are not kept. Check-outs that are served at once, and the connections that come back, are counted by the second. Of
//! those that wait, sixteen at a time are followed while they do: the state says what binds them, looked at once in a millisecond
//! at most. So a limit that bound for less may be missed, and waits that end sooner are counted alone. Those behind the
//! sixteen are followed in their turn; until then the same limits bound them as those before them in the queue.

mod memory;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use self::memory::{Periods, Waits};
use super::follow::Following;
use super::history::{History, Period};
use super::occurrence::Occurrences;
use super::wait::WaitEnd;
use crate::pool::{self, Action, Cancellation, CheckOutId, Delivery, Handle};
use crate::time::Instant;
use crate::topology::{Answer, CheckOut, Input, Output, Topology};

/// Counts and explains the calls of a topology.
#[derive(Clone, Debug)]
pub(super) struct Sparse {
    /// The end of the period.
    period_ends: Instant,
    /// The frequent calls until now, check-outs that were served at once and connections that came back, and all others.
    served: u64,
    returned: u64,
    others: u64,
    /// What was counted in this period besides the frequent calls, and how many of those had been made before it.
    period: Period,
    before: (u64, u64),
    /// The last call that is neither a check-out nor a check-in: its number, its time, and what was called.
    rare: Option<(u64, Instant, Input)>,
    /// The time of the last call that is not frequent.
    last: Instant,
    followed: Vec<Following>,
    /// Those that wait behind them: nobody has looked at these yet.
    behind: VecDeque<Following>,
    /// How many waits began while no more could be kept.
    unfollowed: u64,
    /// Those whose tasks have not taken their connections.
    delivered: VecDeque<Following>,
    /// Who uses connections: check-outs and the numbers of texts, by the places of the check-outs.
    holders: BTreeMap<(u32, u32), (CheckOutId, u32)>,
    occurrences: Occurrences,
    hosts: BTreeSet<String>,
    since: Instant,
    waits: Waits,
    periods: Periods,
}

/// What a sparse recorder keeps at one moment.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    history: History,
    /// The waits that have ended, serialised.
    waits: Vec<Arc<[u8]>>,
}

/// Most waits that are followed at a time.
const FOLLOWED: usize = 16;

/// Most waits behind those, which are explained as the ones before them.
const BEHIND: usize = 1024;

/// Shortest time between two looks at those who wait, and the shortest wait that is kept.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The length of a period.
const PERIOD: Duration = Duration::from_secs(1);

/// Most things that happened which are kept.
const OCCURRENCES: usize = 512;

impl Sparse {
    /// Begins with the present state of `machine`, and keeps so many bytes.
    pub(super) fn new<C>(bytes: usize, machine: &Topology<C>) -> Self {
        let now = machine.now();
        let mut followed: Vec<Following> = Vec::with_capacity(FOLLOWED);
        for (check_out, since) in super::explain::waiting(machine).into_iter().take(FOLLOWED) {
            let mut waiting = Following::new(None, check_out, since);
            waiting.begin_unseen(now);
            followed.push(waiting);
        }
        let mut sparse = Self {
            period_ends: period_at(now).to,
            served: 0,
            returned: 0,
            others: 0,
            period: period_at(now),
            before: (0, 0),
            rare: None,
            last: now,
            followed,
            behind: VecDeque::new(),
            unfollowed: 0,
            delivered: VecDeque::with_capacity(FOLLOWED),
            holders: BTreeMap::new(),
            occurrences: Occurrences::new(machine, OCCURRENCES),
            hosts: BTreeSet::new(),
            since: now,
            waits: Waits::new(bytes / 4 * 3),
            periods: Periods::new(bytes / 4),
        };
        sparse.learn_hosts(machine);
        sparse
    }

    /// Looks at the state that the last call left, before a call at `now`. Returns how many frequent calls can follow before it has
    /// to look again: none while somebody waits.
    #[cold]
    #[inline(never)]
    pub(super) fn prepare<C>(&mut self, machine: &Topology<C>, now: Instant) -> u32 {
        if let Some((call, at, input)) = self.rare.take() {
            self.occurrences.observe(call, at, &input, machine);
            self.learn_hosts(machine);
        }
        self.look(machine, now);
        if now >= self.period_ends {
            let ended = self.counted(machine);
            if !ended.is_empty() {
                self.periods.push(ended);
            }
            self.period = period_at(now);
            self.period_ends = self.period.to;
            self.before = (self.served, self.returned);
        }
        self.granted()
    }

    /// Counts a check-out that was served at once. Returns whether it has to look before the next call.
    #[inline(always)]
    pub(super) fn count_served(&mut self, now: Instant) -> bool {
        self.served += 1;
        now >= self.period_ends
    }

    /// Counts a connection that came back and is available. Returns whether it has to look before the next call.
    #[inline(always)]
    pub(super) fn count_returned(&mut self, now: Instant) -> bool {
        self.returned += 1;
        now >= self.period_ends
    }

    /// Takes a check-out or a check-in of another kind, which was made.
    pub(super) fn take_frequent(&mut self, now: Instant, answer: &Answer<()>) -> u32 {
        self.last = self.last.max(now);
        self.others += 1;
        self.take_answer(answer);
        self.granted()
    }

    /// Takes any other call, before it is made.
    pub(super) fn take(&mut self, now: Instant, input: Input) -> u32 {
        self.last = self.last.max(now);
        self.others += 1;
        match &input {
            Input::Established(_) => self.period.established += 1,
            Input::EstablishFailed(..) => self.period.not_established += 1,
            // All others are counted by their answers, or not at all.
            Input::Timeout | _ => {}
        }
        self.rare = Some((self.calls(), now, input));
        0
    }

    /// Takes what a call returned.
    pub(super) fn take_answer<C>(&mut self, answer: &Answer<C>) {
        match answer {
            Answer::CheckOut(check_out, None) => self.begin(*check_out),
            Answer::CheckOut(_, Some(_)) => self.period.served += 1,
            Answer::CheckedIn(waiter) => {
                self.period.checked_in += 1;
                if let Some(Delivery { check_out, connection, .. }) = waiter {
                    self.deliver(*check_out, *connection);
                }
            }
            Answer::Cancellation(Cancellation::Cancelled) => {
                let Some((_, _, input)) = &self.rare else { return };
                if let Input::CancelCheckOut(check_out) = *input {
                    self.period.cancelled += 1;
                    if let Some(cancelled) = self.end(check_out, || WaitEnd::Cancelled) {
                        self.keep(&cancelled);
                    }
                }
            }
            // Nothing of a check-out.
            Answer::Done | _ => {}
        }
    }

    /// Takes an output that was polled at `now`.
    pub(super) fn take_output<C>(&mut self, now: Instant, output: &Output<C>) {
        self.last = self.last.max(now);
        match output {
            Output::Pool { output: pool::Output::Action(Action::Deliver { check_out, connection, .. }), .. } => {
                self.deliver(*check_out, *connection);
            }
            Output::Pool { output: pool::Output::Action(Action::Fail { check_out, error }), .. } => {
                self.fail(CheckOut::Started(*check_out), error);
            }
            Output::SelectionFailed { selection, error } => self.fail(CheckOut::Selecting(*selection), error),
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

    /// Notes who asked for a connection.
    pub(super) fn note_holder(&mut self, check_out: CheckOut, text: u32) {
        if let Some(waiting) = self.waiting(check_out) {
            waiting.wait.holder = Some(text);
        } else if let CheckOut::Started(check_out) = check_out {
            self.holders.insert(place_of(check_out), (check_out, text));
        }
    }

    /// Notes that a task has taken what was delivered to it.
    pub(super) fn note_taken(&mut self, at: Instant, check_out: CheckOut) {
        let place = self.delivered.iter().position(|it| it.check_out == check_out);
        if let Some(mut taken) = place.and_then(|place| self.delivered.remove(place)) {
            taken.take(at);
            self.keep(&taken);
        }
    }

    /// What is kept now.
    pub(super) fn contents<C>(&self, machine: &Topology<C>) -> Kept {
        let mut now = self.clone();
        if let Some((call, at, input)) = now.rare.take() {
            now.occurrences.observe(call, at, &input, machine);
        }
        now.learn_hosts(machine);
        now.last = now.last.max(machine.now());
        now.look(machine, Instant::from_nanos(u64::MAX));
        let last = now.counted(machine);
        let mut open = core::mem::take(&mut now.followed);
        for behind in core::mem::take(&mut now.behind) {
            let before = open.iter().find(|it| is_same_queue(it.check_out, behind.check_out)).cloned();
            open.push(before.map_or(behind.clone(), |before| behind.clone().behind(&before, now.last)));
        }
        open.iter_mut().for_each(|it| it.leave_open(now.last));
        let delivered = now.delivered.iter().filter(|it| it.wait.duration() >= LOOK_EVERY);
        let waits = delivered.chain(&open).map(|it| it.wait.clone()).collect();
        let mut periods = now.periods.all();
        periods.extend(Some(last).filter(|last| !last.is_empty()));
        let history = History {
            from: now.since,
            to: now.last,
            waits,
            unknown: now.waits.dropped + now.unfollowed,
            occurrences: now.occurrences.all().to_vec(),
            periods,
            hosts: now.hosts.into_iter().collect(),
        };
        Kept { history, waits: now.waits.shared() }
    }

    /// The bytes that are kept, apart from what happened.
    pub(super) fn bytes(&self) -> usize {
        self.waits.bytes() + self.periods.bytes() + size_of_val(self.occurrences.all())
    }

    fn calls(&self) -> u64 {
        self.served + self.returned + self.others
    }

    fn begin(&mut self, check_out: CheckOut) {
        self.period.waited += 1;
        let waiting = Following::new(Some(self.calls()), check_out, self.last);
        if self.followed.len() < FOLLOWED {
            self.followed.push(waiting);
        } else if self.behind.len() < BEHIND {
            self.behind.push_back(waiting);
        } else {
            self.unfollowed += 1;
        }
    }

    fn rename(&mut self, from: CheckOut, to: CheckOut) {
        if let Some(waiting) = self.waiting(from) {
            waiting.check_out = to;
        }
    }

    fn waiting(&mut self, check_out: CheckOut) -> Option<&mut Following> {
        self.followed.iter_mut().chain(&mut self.behind).find(|it| it.check_out == check_out)
    }

    fn deliver(&mut self, check_out: CheckOutId, connection: Handle) {
        let end = WaitEnd::Delivered { connection, check_out, at: self.last };
        let Some(delivered) = self.end(CheckOut::Started(check_out), || end) else { return };
        if let Some(text) = delivered.wait.holder {
            self.holders.insert(place_of(check_out), (check_out, text));
        }
        if self.delivered.len() >= FOLLOWED
            && let Some(never_taken) = self.delivered.pop_front()
        {
            self.keep(&never_taken);
        }
        self.delivered.push_back(delivered);
    }

    fn fail(&mut self, check_out: CheckOut, error: &dyn ToString) {
        self.period.failed += 1;
        if let Some(failed) = self.end(check_out, || WaitEnd::Failed { error: error.to_string() }) {
            self.keep(&failed);
        }
    }

    /// Ends a wait. The next one behind it is followed in its place.
    fn end(&mut self, check_out: CheckOut, end: impl FnOnce() -> WaitEnd) -> Option<Following> {
        let now = self.last;
        let mut ended = match self.followed.iter().position(|it| it.check_out == check_out) {
            Some(place) => self.followed.swap_remove(place),
            None => {
                let place = self.behind.iter().position(|it| it.check_out == check_out)?;
                let before = self.followed.iter().find(|it| is_same_queue(it.check_out, check_out));
                self.behind.remove(place).map(|it| before.map_or(it.clone(), |before| it.behind(before, now)))?
            }
        };
        if now.saturating_since(ended.wait.began) < LOOK_EVERY {
            // It is counted alone, unless its task is late: then that is what it waited for.
            ended.end_unexplained(now, end());
        } else {
            ended.end(now, end());
        }
        if self.followed.len() < FOLLOWED
            && let Some(next) = self.behind.pop_front()
        {
            let is_same = |it: &&Following| is_same_queue(it.check_out, next.check_out);
            let before = Some(&ended).filter(is_same).or_else(|| self.followed.iter().find(is_same));
            let next = before.map_or(next.clone(), |before| next.clone().behind(before, now));
            self.followed.push(next);
        }
        Some(ended)
    }

    fn keep(&mut self, ended: &Following) {
        let duration = ended.wait.duration();
        self.period.longest_wait = self.period.longest_wait.max(duration);
        if duration >= LOOK_EVERY {
            self.waits.push(&ended.wait);
        }
    }

    /// Looks what has bound since the last call those at whom it has not looked for long enough.
    fn look<C>(&mut self, machine: &Topology<C>, now: Instant) {
        let Self { followed, holders, .. } = self;
        for waiting in followed.iter_mut().filter(|it| now.saturating_since(it.looked_at) >= LOOK_EVERY) {
            waiting.look(machine, machine.now(), &|held| {
                let (check_out, text) = holders.get(&place_of(held.check_out))?;
                (*check_out == held.check_out).then_some(*text)
            });
        }
    }

    /// The period until now.
    fn counted<C>(&self, machine: &Topology<C>) -> Period {
        let counts = machine.stats().counts;
        let since = |now: u64, before: u64| u32::try_from(now - before).unwrap_or(u32::MAX);
        Period {
            served: self.period.served.saturating_add(since(self.served, self.before.0)),
            checked_in: self.period.checked_in.saturating_add(since(self.returned, self.before.1)),
            in_use: counts.in_use,
            available: counts.available,
            waiting: counts.waiting,
            ..self.period
        }
    }

    /// How many frequent calls can follow before it has to look at the state.
    fn granted(&self) -> u32 {
        if self.rare.is_none() && self.followed.is_empty() { 1 } else { 0 }
    }

    fn learn_hosts<C>(&mut self, machine: &Topology<C>) {
        for server in &machine.description().servers {
            let address = server.address.to_string();
            if !self.hosts.contains(&address) && self.hosts.len() < OCCURRENCES {
                self.hosts.insert(address);
            }
        }
    }
}

impl Kept {
    /// What was kept, as a file holds it.
    pub(super) fn history(&self) -> History {
        let ended = self.waits.iter().filter_map(|bytes| postcard::from_bytes(bytes).ok());
        let waits = ended.chain(self.history.waits.iter().cloned()).collect();
        History { waits, ..self.history.clone() }
    }
}

/// The period in which a time lies.
fn period_at(now: Instant) -> Period {
    let length = u64::try_from(PERIOD.as_nanos()).unwrap_or(u64::MAX);
    let from = Instant::from_nanos(now.as_nanos() / length * length);
    Period::beginning(from, from + PERIOD)
}

/// Whether two check-outs wait for the same: a server, or a connection of the same pool.
fn is_same_queue(one: CheckOut, other: CheckOut) -> bool {
    match (one, other) {
        (CheckOut::Selecting(_), CheckOut::Selecting(_)) => true,
        (CheckOut::Started(one), CheckOut::Started(other)) => one.pool == other.pool,
        (CheckOut::Selecting(_), CheckOut::Started(_)) | (CheckOut::Started(_), CheckOut::Selecting(_)) => false,
    }
}

/// Where a check-out is kept.
fn place_of(check_out: CheckOutId) -> (u32, u32) {
    (check_out.pool.slot, check_out.key)
}

//! The laws of the pool, checked against its inputs and outputs; a ledger of its own, apart from the reference.
//!
//! The reference may misread a rule just as the pool does. So the ledger takes nothing from it: it follows each
//! connection and each check-out through calls, answers and outputs, and checks the laws that hold whatever the rules
//! say about the order of events. Every check has a name, which a failure prints.

use core::fmt::Debug;
use std::collections::{BTreeMap, BTreeSet};

use cmap_core::options::Affinity;
use cmap_core::pool::{ApiMisuse, Cancellation, ConnectionClosedReason, Pool, PoolState, Reaction};
use cmap_core::time::Instant;

use super::durations::Seen;
use super::output::{CheckOut, Id, Output, Service, Warmed, count};
use super::reference::Answer;
use super::transition::{Call, Key, Named, Options, Refusal};

/// A broken law: its name, and the violation.
pub(crate) type Broken = (&'static str, String);

#[derive(Debug)]
pub(crate) struct Laws {
    options: Options,
    /// What happened to the connections, by their numbers.
    connections: Vec<Connection>,
    /// What happened to the check-outs, by their numbers.
    check_outs: Vec<CheckOutEntry>,
    /// The service of every clear; none for one of the whole pool.
    clears: Vec<Option<Service>>,
    /// Events: created, closed, checked out, checked in.
    events: [usize; 4],
    has_closed: bool,
    /// Connections, and pending ones, before the last call.
    before: [u32; 2],
    /// When the server first refused a connection for overload, or refused one that was created after that, and how many
    /// connections had been created by then.
    overload: Option<(u64, usize)>,
    /// The last connection whose credential was replaced.
    outdated_until: Id,
    /// How many waited when the limits changed, and have not been fewer since: a smaller queue refuses nobody who waits.
    waiting_beyond: usize,
    /// When connections were created at this rate, where it is limited.
    created_at: Vec<u64>,
    /// Which connections each key has had.
    had: BTreeMap<Key, BTreeSet<Id>>,
    /// Which one it had last, unless that was ended.
    last: BTreeMap<Key, Id>,
    /// How long everything took.
    seen: Seen,
    /// The warm-ups that have not ended, and how many connections they ask for, where that is said.
    warm_ups: BTreeMap<u64, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    place: Place,
    service: Option<Service>,
    /// How many clears came before it belonged to its service, or was created.
    clears_before: usize,
    /// Its peer has hung up.
    has_perished: bool,
    /// It was available when the machine went on after a suspension, and was not looked at since.
    suspect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Pending,
    Available { since: u64 },
    Checking,
    InUse { since: u64 },
    Refreshing { since: u64 },
    Closed,
}

#[derive(Clone, Copy, Debug, Default)]
struct CheckOutEntry {
    began: u64,
    progress: Progress,
    started_events: usize,
    ended_events: usize,
    key: Option<Key>,
    /// The connection that its key had last when it began.
    own: Option<Id>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Waiting,
    Delivered(Id),
    Ended,
}

/// An error with the check's name unless `holds`.
pub(crate) fn check<D: Debug>(check: &'static str, holds: bool, detail: D) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err((check, format!("{detail:?}"))) }
}

impl Laws {
    pub(crate) fn new(options: Options) -> Self {
        let (connections, check_outs, clears) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            options,
            connections,
            check_outs,
            clears,
            events: [0; 4],
            has_closed: false,
            before: [0; 2],
            overload: None,
            outdated_until: 0,
            waiting_beyond: 0,
            created_at: Vec::new(),
            had: BTreeMap::new(),
            last: BTreeMap::new(),
            seen: Seen::default(),
            warm_ups: BTreeMap::new(),
        }
    }

    /// Follows one call with its answer and the outputs that it had.
    pub(crate) fn follow(
        &mut self,
        now: u64,
        call: Call<Named>,
        answer: Result<Answer, ApiMisuse>,
        outputs: &[Output],
    ) -> Result<(), Broken> {
        if let Ok(answer) = answer {
            self.follow_answer(now, answer, call)?;
            if answer != Answer::Refused {
                self.follow_call(now, call);
            }
        }
        for &output in outputs {
            self.follow_action(now, output)?;
            self.follow_event(output);
        }
        if self.options.observed {
            let is_paired = |entry: &CheckOutEntry| {
                entry.started_events == 1 && entry.ended_events == usize::from(entry.progress != Progress::Waiting)
            };
            let unpaired = self.check_outs.iter().position(|entry| !is_paired(entry));
            check("every check-out that started ends exactly once", unpaired.is_none(), unpaired.map(|at| at + 1))?;
        }
        Ok(())
    }

    /// Compares the pool's own counts with the ledger.
    pub(crate) fn audit(&mut self, pool: &Pool<()>) -> Result<(), Broken> {
        let counts = pool.counts();
        // Limits that have become smaller keep what is too much from growing.
        let [total, pending] = core::mem::replace(&mut self.before, [counts.total(), counts.pending]);
        let max = self.options.max_pool_size;
        check("total <= maxPoolSize", max == 0 || counts.total() <= max.max(total), counts)?;
        let (deepest, depth) = (self.options.max_wait_queue_depth, counts.waiting as usize);
        self.waiting_beyond = self.waiting_beyond.min(depth);
        check("waiting <= maxWaitQueueDepth", deepest == 0 || depth <= deepest.max(self.waiting_beyond), counts)?;
        let max_connecting = self.options.max_connecting.max(pending);
        check("pending <= maxConnecting", counts.pending <= max_connecting, counts)?;
        let number = |wanted: fn(Place) -> bool| self.connections.iter().filter(|c| wanted(c.place)).count();
        let pending = number(|place| place == Place::Pending);
        let available =
            number(|place| matches!(place, Place::Available { .. } | Place::Checking | Place::Refreshing { .. }));
        let in_use = number(|place| matches!(place, Place::InUse { .. }));
        let idle = number(|place| matches!(place, Place::Available { .. }));
        let is_excessive = max > 0 && counts.total() > max;
        check("what is too much is not kept available", !is_excessive || idle == 0, counts)?;
        let waiting = self.check_outs.iter().filter(|entry| entry.progress == Progress::Waiting).count();
        let seen = [pending, available, in_use, waiting];
        check("counts are what was seen", count(counts) == seen, (counts, seen))?;
        self.audit_holders(pool, seen)?;

        let statistics = pool.statistics(Instant::ORIGIN);
        let durations = statistics.durations.as_deref();
        check("durations are recorded as asked for", durations.is_some() == self.options.recorded, durations)?;
        durations.map_or(Ok(()), |durations| self.seen.compare(durations, self.options.observed))?;
        let stats = pool.stats();
        check("statistics have the same counts", statistics.stats == stats, (statistics.stats, stats))?;
        let [created, closed, checked_out, checked_in] = self.events;
        if self.options.observed {
            let balance = created - closed == pending + available + in_use && checked_out - checked_in == in_use;
            check("events balance", balance, (self.events, seen))?;
            let totals = [stats.created, stats.closed.total(), stats.checked_out, stats.checked_in];
            check("events balance", totals.map(|total| total as usize) == self.events, (self.events, stats))?;
        }
        let ended = stats.checked_out + stats.check_outs_failed.total() + waiting as u64;
        check("events balance", stats.check_outs_started == ended, stats)?;
        check("invariants hold", pool.check_invariants().is_ok(), pool.check_invariants())
    }

    /// What the pool says of those who hold its connections, and of those who wait, is what was seen.
    fn audit_holders(&self, pool: &Pool<()>, [pending, _, in_use, waiting]: [usize; 4]) -> Result<(), Broken> {
        const NAME: &str = "holders and waiters are those that were seen";
        let mut held = 0;
        for holder in pool.connections_in_use() {
            let since = holder.since.as_nanos();
            let place = self.place(holder.connection.id().get());
            check(NAME, place == Place::InUse { since }, (holder, place))?;
            held += 1;
        }
        check(NAME, held == in_use, (held, in_use))?;
        check(NAME, pool.waiting_check_outs().count() == waiting, waiting)?;
        let origins = pool.waiting_check_outs().filter_map(|waiter| waiter.establishing);
        check(NAME, origins.count() <= pending && pool.establishing().count() == pending, pending)
    }

    /// After everything was given back to a closed pool: nothing remains.
    pub(crate) fn finish(&self, pool: &mut Pool<()>) -> Result<(), Broken> {
        const NAME: &str = "nothing remains";
        let open = self.connections.iter().position(|c| c.place != Place::Closed);
        check(NAME, open.is_none(), ("connection", open.map(|at| at + 1)))?;
        let unended = self.check_outs.iter().position(|entry| entry.progress != Progress::Ended);
        check(NAME, unended.is_none(), ("check-out", unended.map(|at| at + 1)))?;
        check(NAME, self.warm_ups.is_empty(), &self.warm_ups)?;
        check(NAME, pool.state() == PoolState::Closed, pool.state())?;
        check(NAME, count(pool.counts()) == [0; 4], pool.counts())?;
        check(NAME, pool.poll_timeout().is_none(), pool.poll_timeout())?;
        check(NAME, pool.poll_output().is_none(), ())
    }

    fn follow_answer(&mut self, now: u64, answer: Answer, call: Call<Named>) -> Result<(), Broken> {
        const NAME: &str = "no hand-off is lost when a cancel races a delivery";
        match (answer, call) {
            (Answer::CheckOut(_), Call::CheckOut(_, key)) => {
                let own = key.and_then(|key| self.last.get(&key).copied());
                self.check_outs.push(CheckOutEntry { began: now, key, own, ..CheckOutEntry::default() });
            }
            (Answer::CheckOut(_), _) => check("only a check-out begins one", false, answer)?,
            (Answer::Cancellation(met), Call::Cancel(Named::Own(number))) => {
                let entry = &mut self.check_outs[number as CheckOut - 1];
                let holds = match entry.progress {
                    // Its time may have come with this very call; a failure then follows among the outputs.
                    Progress::Waiting => met != Cancellation::Delivered,
                    Progress::Delivered(_) => met == Cancellation::Delivered,
                    Progress::Ended => met == Cancellation::Finished,
                };
                check(NAME, holds, (number, met, entry.progress))?;
                if met == Cancellation::Cancelled {
                    // From here on a Deliver or Fail for it breaks a law.
                    entry.progress = Progress::Ended;
                }
            }
            (Answer::Cancellation(met), _) => check(NAME, met == Cancellation::Finished, met)?,
            (Answer::WarmUp(number), Call::WarmUp(connections)) => {
                self.warm_ups.insert(number, connections.unwrap_or_default());
            }
            (Answer::WarmUp(_), _) => check("only a warm-up begins one", false, answer)?,
            (Answer::WarmUpCancelled { was_open }, Call::CancelWarmUp(number)) => {
                let is_known = self.warm_ups.remove(&number).is_some();
                check("a warm-up that goes on can be cancelled", is_known || !was_open, number)?;
            }
            (Answer::WarmUpCancelled { .. } | Answer::Done | Answer::Refused, _) => {}
        }
        Ok(())
    }

    /// The effect on the named connection of a call that was not refused.
    fn follow_call(&mut self, now: u64, call: Call<Named>) {
        let clears = self.clears.len();
        match call {
            Call::Close => self.has_closed = true,
            Call::Resume => self.connections.iter_mut().for_each(|connection| {
                connection.suspect |= matches!(connection.place, Place::Available { .. });
            }),
            Call::Clear { service, .. } => self.clears.push(service),
            Call::EndAffinity(key) => {
                self.last.remove(&key);
            }
            Call::ResetAfterFork => {
                // Connections of every service and of none.
                self.clears.extend(self.connections.iter().map(|c| c.service));
                // Those in use count as checked in and closed.
                for (id, connection) in (1..).zip(&mut self.connections) {
                    if matches!(connection.place, Place::InUse { .. }) {
                        connection.place = Place::Closed;
                        let held = |entry: &&mut CheckOutEntry| entry.progress == Progress::Delivered(id);
                        self.check_outs.iter_mut().filter(held).for_each(|entry| entry.progress = Progress::Ended);
                    }
                }
            }
            Call::PeerClosed(Named::Own(id)) if self.place(id) != Place::Pending => {
                self.connections[id as usize - 1].has_perished = true;
            }
            Call::CheckIn(_, Named::Own(id), _) => {
                if let Place::InUse { since } = self.place(id) {
                    self.seen.checked_in(since, now);
                }
                self.connections[id as usize - 1].place = Place::Available { since: now };
                let held = |entry: &&mut CheckOutEntry| entry.progress == Progress::Delivered(id);
                self.check_outs.iter_mut().filter(held).for_each(|entry| entry.progress = Progress::Ended);
            }
            Call::Hello(Named::Own(id), service) if self.place(id) == Place::Pending => {
                let connection = &mut self.connections[id as usize - 1];
                (connection.service, connection.clears_before) = (Some(service), clears);
            }
            Call::Established(Named::Own(id)) if self.place(id) == Place::Pending => {
                self.connections[id as usize - 1].place = Place::Available { since: now };
                self.overload = None;
            }
            Call::EstablishFailed(Named::Own(id), reaction, failure) if self.place(id) == Place::Pending => {
                let service = self.connections[id as usize - 1].service;
                self.connections[id as usize - 1].place = Place::Closed;
                // only the old credential is to blame.
                if failure == Refusal::Credential && id <= self.outdated_until {
                    return;
                }
                if failure == Refusal::Overload && self.overload.is_none_or(|(_, created)| id as usize > created) {
                    self.overload = Some((now, self.connections.len()));
                }
                if reaction == Reaction::ClearPool && service.is_some() == self.options.load_balanced {
                    self.clears.push(service);
                }
            }
            Call::RenewCredential if !self.has_closed => self.outdated_until = self.connections.len() as Id,
            Call::Resize(resized) => {
                let options = resized.applied_to(self.options);
                if options.creation_interval != self.options.creation_interval {
                    self.created_at.clear();
                }
                self.waiting_beyond =
                    self.check_outs.iter().filter(|entry| entry.progress == Progress::Waiting).count();
                self.options = options;
            }
            // A refresh is no use.
            Call::Refreshed(Named::Own(id)) if let Place::Refreshing { since } = self.place(id) => {
                self.connections[id as usize - 1].place = Place::Available { since };
            }
            Call::RefreshFailed(Named::Own(id)) if let Place::Refreshing { .. } = self.place(id) => {
                self.connections[id as usize - 1].place = Place::Closed;
            }
            Call::Checked(Named::Own(id), _) if self.place(id) == Place::Checking => {
                self.connections[id as usize - 1].place = Place::Available { since: now };
            }
            _ => {}
        }
    }

    fn follow_action(&mut self, now: u64, output: Output) -> Result<(), Broken> {
        match output {
            Output::Connect(id) => {
                check("ids rise by one", id == self.connections.len() as Id + 1, id)?;
                self.check_backoff(now, id)?;
                self.check_rate(now, id)?;
                let (place, clears_before) = (Place::Pending, self.clears.len());
                let connection =
                    Connection { place, service: None, clears_before, has_perished: false, suspect: false };
                self.connections.push(connection);
            }
            Output::Check(id) => {
                self.check_usable(now, id)?;
                self.take(now, id);
                self.connections[id as usize - 1].place = Place::Checking;
                self.connections[id as usize - 1].suspect = false;
            }
            Output::Refresh(id) => {
                self.check_usable(now, id)?;
                let Place::Available { since } = self.place(id) else { return Ok(()) };
                let is_early = now < since + self.options.refresh_requirement;
                check("only connections that were idle for long are refreshed", !is_early, (id, since, now))?;
                // Those with a key may wait for their own connection.
                let first = self.first_waiter(|entry| entry.key.is_none() || self.options.affinity.is_none());
                check("nobody waits when a refresh begins", first.is_none(), id)?;
                self.connections[id as usize - 1].place = Place::Refreshing { since };
                self.connections[id as usize - 1].suspect = false;
                let busy = |c: &&Connection| matches!(c.place, Place::Pending | Place::Refreshing { .. });
                let busy = self.connections.iter().filter(busy).count();
                check("a refresh takes a permit", busy <= self.options.max_connecting as usize, (id, busy))?;
            }
            Output::Deliver(check_out, id) => {
                self.check_usable(now, id)?;
                self.take(now, id);
                self.seen.delivered(self.check_outs[check_out - 1].began, now);
                let connection = &mut self.connections[id as usize - 1];
                check("nothing is delivered unchecked after a suspension", !connection.suspect, (id, &connection))?;
                connection.place = Place::InUse { since: now };
                self.check_order(check_out, id)?;
                self.check_own(check_out, id)?;
                self.end(check_out, Progress::Delivered(id))?;
            }
            Output::Fail(check_out, _) => self.end(check_out, Progress::Ended)?,
            Output::Close(id, reason) => {
                self.check_retirement(id, reason)?;
                // Once more for the socket of an establishment that had been given up.
                let is_here =
                    !matches!(self.place(id), Place::Pending | Place::Refreshing { .. } | Place::InUse { .. });
                check("no socket is closed that somebody else has", is_here, (output, self.place(id)))?;
                self.connections[id as usize - 1].place = Place::Closed;
            }
            Output::WarmedUp(number, how, _) => {
                let wanted = self.warm_ups.remove(&number);
                check("every warm-up ends exactly once", wanted.is_some(), number)?;
                let is_established = |c: &&Connection| !matches!(c.place, Place::Pending | Place::Closed);
                let established = self.connections.iter().filter(is_established).count();
                let has_all = wanted.is_some_and(|wanted| established >= wanted as usize);
                check("a warm-up has what it asked for", has_all || how != Warmed::Reached, (number, established))?;
            }
            Output::Interrupt(id) if matches!(self.place(id), Place::Pending | Place::Refreshing { .. }) => {
                self.connections[id as usize - 1].place = Place::Closed;
            }
            _ => {}
        }
        Ok(())
    }

    fn follow_event(&mut self, output: Output) {
        match output {
            Output::ConnectionCreated(_) => self.events[0] += 1,
            Output::ConnectionClosed(..) => self.events[1] += 1,
            Output::CheckedOut(check_out, ..) => {
                self.events[2] += 1;
                self.check_outs[check_out - 1].ended_events += 1;
            }
            Output::CheckedIn(_) => self.events[3] += 1,
            Output::ConnectionReady(_, nanos) => self.seen.established(nanos),
            Output::CheckOutStarted(check_out) => self.check_outs[check_out - 1].started_events += 1,
            Output::CheckOutFailed(check_out, ..) => self.check_outs[check_out - 1].ended_events += 1,
            _ => {}
        }
    }

    fn take(&mut self, now: u64, id: Id) {
        if let Place::Available { since } = self.place(id) {
            self.seen.taken(since, now);
        }
    }

    /// Retirement leaves minPoolSize established connections, unless there was no room for another one before.
    fn check_retirement(&self, id: Id, reason: ConnectionClosedReason) -> Result<(), Broken> {
        let Options { max_pool_size, min_pool_size, max_idle, host_timeout, maintenance, .. } = self.options;
        let has_other_reasons = max_idle > 0 || host_timeout > 0;
        if reason != ConnectionClosedReason::Idle || has_other_reasons || maintenance.is_none() {
            return Ok(());
        }
        let number = |wanted: fn(Place) -> bool| self.connections.iter().filter(|c| wanted(c.place)).count();
        let total = number(|place| place != Place::Closed);
        let pending = number(|place| place == Place::Pending);
        let is_full = max_pool_size > 0 && total >= max_pool_size as usize && pending == 0;
        let holds = total - pending > min_pool_size as usize || is_full;
        check("retirement leaves minPoolSize connections", holds, (id, total, pending))
    }

    /// Waiters are served in their order. Only a key's own connection is for it alone, and only those may be passed over
    /// that may wait for theirs.
    fn check_order(&mut self, check_out: CheckOut, id: Id) -> Result<(), Broken> {
        let CheckOutEntry { key, progress, .. } = self.check_outs[check_out - 1];
        let had = |key: Option<Key>| key.filter(|_| self.options.affinity.is_some()).and_then(|key| self.had.get(&key));
        let has_right = had(key).is_some_and(|had| had.contains(&id));
        let first = self.first_waiter(|entry| had(entry.key).is_none());
        let holds = first.is_none_or(|first| first >= check_out - 1 || has_right)
            || self.first_waiter(|_| true) == Some(check_out - 1)
            || progress != Progress::Waiting;
        check("waiters are served in their order", holds, (check_out, id, first))?;
        if let Some(key) = key {
            self.had.entry(key).or_default().insert(id);
            self.last.insert(key, id);
        }
        Ok(())
    }

    /// A key gets the connection that it had last, if it may rely on that, while that can be used.
    fn check_own(&self, check_out: CheckOut, id: Id) -> Result<(), Broken> {
        let own = self.check_outs[check_out - 1].own.filter(|_| self.options.affinity == Some(Affinity::Require));
        let is_usable = |own: Id| {
            let connection = self.connections[own as usize - 1];
            let is_stale = self.clears[connection.clears_before..].contains(&connection.service);
            connection.place != Place::Closed && !connection.has_perished && !is_stale
        };
        let holds = own.is_none_or(|own| own == id || !is_usable(own));
        check("a key gets the connection that it had last", holds, (check_out, id, own))
    }

    /// The waiter that is next of those meant: the first in.
    fn first_waiter(&self, is_meant: impl Fn(&CheckOutEntry) -> bool) -> Option<usize> {
        self.check_outs.iter().position(|entry| entry.progress == Progress::Waiting && is_meant(entry))
    }

    /// In every stretch of time no more connections are created than the rate allows, and maxConnecting at once.
    fn check_rate(&mut self, now: u64, id: Id) -> Result<(), Broken> {
        let interval = self.options.creation_interval;
        if interval == 0 {
            return Ok(());
        }
        self.created_at.push(now);
        let most = |since: u64| (now - since) / interval + u64::from(self.options.max_connecting);
        let too_many = (1..).zip(self.created_at.iter().rev()).find(|&(number, &since)| number > most(since));
        check("no more connections are created than the rate allows", too_many.is_none(), (id, now, too_many))
    }

    /// After an overload connections are created one at a time, the first not sooner than 50 ms after the refusal.
    fn check_backoff(&self, now: u64, id: Id) -> Result<(), Broken> {
        let Some((since, created)) = self.overload.filter(|_| self.options.backoff) else { return Ok(()) };
        let tried = self.connections.iter().skip(created).any(|connection| connection.place == Place::Pending);
        let rested = now >= since + 50_000_000;
        check("an overloaded server is left alone", rested && !tried, (id, now, "refused at", since, "tries", tried))
    }

    /// Whether a connection may be handed out, or checked for that.
    fn check_usable(&self, now: u64, id: Id) -> Result<(), Broken> {
        let connection = self.connections[id as usize - 1];
        let Place::Available { since } = connection.place else {
            return check("no closed connection is delivered, nor one in use", false, (id, connection));
        };
        let is_stale = self.clears[connection.clears_before..].contains(&connection.service);
        check("no stale connection is delivered", !is_stale, (id, connection))?;
        let is_idle = self.options.max_idle > 0 && now - since > self.options.max_idle;
        check("no idle-expired connection is delivered", !is_idle, (id, connection, now))
    }

    fn end(&mut self, check_out: CheckOut, progress: Progress) -> Result<(), Broken> {
        let entry = &mut self.check_outs[check_out - 1];
        let before = core::mem::replace(&mut entry.progress, progress);
        check("every check-out that started ends exactly once", before == Progress::Waiting, (check_out, before))
    }

    fn place(&self, id: Id) -> Place {
        self.connections[id as usize - 1].place
    }
}

//! The pool under test: driven by the calls of a case, its outputs held against the laws and the reference.

use std::collections::VecDeque;
use std::panic;
use std::sync::LazyLock;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::{Maintenance, NewLimit, PoolLimits, PoolOptions, QueueDepth};
use cmap_core::pool::{
    self, Action, AffinityKey, ApiMisuse, CheckOutId, CheckOutRequest, Clear, Condition, Delivery, Handle, Input, Pool,
    Reaction, ServiceId, TimeoutReason, WarmUpId,
};
use cmap_core::time::Instant;
use core::time::Duration;

use super::case::{Case, Made};
use super::laws::{Broken, Laws, check};
use super::output::{Cause, Output, Service, count};
use super::reference::{Answer, State};
use super::returned_delivery;
use super::transition::{Call, Named, Options, Refusal, Resized, Step};

/// A pool with its driver's records.
pub(crate) struct Sut {
    pool: Pool<()>,
    laws: Laws,
    /// The handles of all connections, and the ids of all check-outs, by their numbers.
    handles: Vec<Handle>,
    check_outs: Vec<CheckOutId>,
    warm_ups: Vec<WarmUpId>,
    /// Outputs that the pool still keeps: they have been seen in a copy of it.
    seen: VecDeque<Output>,
    /// The calls so far, and whether their outputs were kept, for the reader of a failure.
    log: Vec<(Made, bool)>,
}

/// Handles and ids that the pool under test never issued.
struct Strangers {
    foreign: Handle,
    never_issued: Handle,
    never_started: CheckOutId,
    foreign_check_out: CheckOutId,
    never_warmed: WarmUpId,
}

static ADDRESS: LazyLock<ServerAddress> = LazyLock::new(|| ServerAddress::tcp("one.example", 27017));

static STRANGERS: LazyLock<Strangers> = LazyLock::new(|| {
    let (foreign, foreign_check_out) = connection_of(&ServerAddress::tcp("two.example", 27017), 1);
    // A pool of the same address and moment is the same to the pool under test, which has no such id, but such a slot.
    let (never_issued, never_started) = connection_of(&ADDRESS, 10_000);
    let mut other: Pool<()> =
        Pool::new(ServerAddress::tcp("two.example", 27017), PoolOptions::default(), Instant::ORIGIN)
            .expect("defaults are valid");
    let never_warmed = other.warm_up(Instant::ORIGIN, None);
    Strangers { foreign, never_issued, never_started, foreign_check_out, never_warmed }
});

impl Sut {
    pub(crate) fn new(case: &Case) -> Self {
        let options = case.reference.options;
        let mut pool =
            Pool::new(ADDRESS.clone(), pool_options(options), Instant::ORIGIN).expect("the options are valid");
        pool.observe(options.observed);
        pool.record_durations(options.recorded);
        let laws = Laws::new(options);
        let mut sut = Self {
            pool,
            laws,
            handles: Vec::new(),
            check_outs: Vec::new(),
            warm_ups: Vec::new(),
            seen: VecDeque::new(),
            log: Vec::new(),
        };
        let outputs: Vec<_> = core::iter::from_fn(|| sut.pool.poll_output()).collect();
        let outputs: Vec<_> = outputs.iter().map(|output| sut.translate(output)).collect();
        sut.expect(check("outputs are the reference's", outputs == case.reference.outputs, outputs));
        sut
    }

    /// Makes the call of a step, which the case has made on its reference.
    pub(crate) fn step(&mut self, case: &Case, step: &Step) {
        self.make(case, step.keep_outputs);
        if step.restore {
            self.restore();
        }
    }

    /// Ends every case: once everything under way has come back to the closed pool, nothing remains.
    pub(crate) fn finish(mut self, mut case: Case) {
        let now = case.reference.now;
        let mut make = |case: &mut Case, call| {
            case.make(now, call);
            self.make(case, false);
        };
        make(&mut case, Call::Close);
        for connection in case.reference.connections.clone() {
            let (name, is_odd) = (Named::Own(connection.id), connection.id % 2 == 1);
            let call = match connection.state {
                State::Pending if is_odd || connection.service.is_some() != case.reference.options.load_balanced => {
                    Call::EstablishFailed(
                        name,
                        Reaction::ClearPool,
                        if is_odd { Refusal::Overload } else { Refusal::Other },
                    )
                }
                State::Pending => Call::Established(name),
                State::Checking => Call::Checked(name, is_odd),
                State::Refreshing if is_odd => Call::RefreshFailed(name),
                State::Refreshing => Call::Refreshed(name),
                State::Available | State::InUse => {
                    let holder = case.reference.holder(name);
                    let user = holder.map_or(Named::NeverIssued, |check_out| Named::Own(check_out as u64));
                    Call::CheckIn(user, name, Condition::Usable)
                }
            };
            make(&mut case, call);
        }
        let finished = self.laws.finish(&mut self.pool);
        self.expect(finished);
    }

    /// Makes the call that the case has made on its reference, and compares everything.
    fn make(&mut self, case: &Case, keep_outputs: bool) {
        let made = case.made.expect("a step makes a call");
        self.log.push((made, keep_outputs));
        let result = self.make_and_check(case, made, keep_outputs);
        self.expect(result);
    }

    fn make_and_check(&mut self, case: &Case, made: Made, keep_outputs: bool) -> Result<(), Broken> {
        let reference = &case.reference;
        let due_before = self.pool.poll_timeout();
        let (now, input) = (Instant::from_nanos(made.now), self.input(made.call, reference.now));
        match &input {
            Input::CheckOut(request) => returned_delivery::of_check_out(&self.pool, now, *request)?,
            Input::CheckIn(check_out, connection, condition) => {
                returned_delivery::of_check_in(&self.pool, now, (*check_out, *connection), *condition)?;
            }
            _ => {}
        }
        let (answer, delivery) = self.call(now, input);
        let mut outputs = self.outputs(keep_outputs)?;
        outputs.extend(delivery.map(|delivery| self.translate(&delivery.into())));

        self.laws.follow(reference.now, made.call, answer, &outputs)?;
        check("the answer is the reference's", answer == made.answer, (answer, "expected", made.answer))?;
        let observed = reference.options.observed;
        let expected = reference.outputs.iter().copied().filter(|output| observed || !output.is_event());
        let expected: Vec<_> = expected.collect();
        check("outputs are the reference's", outputs == expected, (&outputs, "expected", &expected))?;
        self.laws.audit(&self.pool)?;

        let now = Instant::from_nanos(reference.now);
        if matches!(made.call, Call::Timeout) {
            let was_early = due_before.is_none_or(|due| due.at > now);
            check("an early timeout changes nothing", !was_early || outputs.is_empty(), &outputs)?;
        }
        self.check_deadline(case, made)?;
        self.check_questions(case, made)
    }

    fn check_deadline(&mut self, case: &Case, made: Made) -> Result<(), Broken> {
        let now = Instant::from_nanos(case.reference.now);
        let due = self.pool.poll_timeout();
        if !self.seen.is_empty() {
            let holds = due.is_some_and(|due| due.at == now && due.reason == TimeoutReason::Outputs);
            return check("while outputs are queued the deadline is now", holds, due);
        }
        let expected = case.reference.timeout();
        let found = due.map(|due| (due.at.as_nanos(), due.reason));
        check("the deadline is the reference's", found == expected, (found, "expected", expected))?;
        let is_later = due.is_none_or(|due| due.at > now);
        let is_timeout = matches!(made.call, Call::Timeout);
        check("after a timeout the next deadline is later than now", is_later || !is_timeout, due)?;
        if is_later {
            self.pool.handle_timeout(now);
            let output = self.pool.poll_output();
            let is_idle = output.is_none() && self.pool.poll_timeout() == due;
            check("a spurious timeout changes nothing", is_idle, (output, self.pool.poll_timeout()))?;
        }
        Ok(())
    }

    fn check_questions(&self, case: &Case, made: Made) -> Result<(), Broken> {
        const NAME: &str = "state, counts and generations are the reference's";
        let (pool, reference) = (&self.pool, &case.reference);
        check(NAME, pool.state() == reference.state, (pool.state(), reference.state))?;
        check(NAME, count(pool.counts()) == reference.counts(), (pool.counts(), reference.counts()))?;
        check(NAME, pool.generation().get() == reference.generation, (pool.generation(), reference.generation))?;
        for service in 0..4 {
            let known = reference.services.iter().find(|&&(id, _)| id == service).map(|&(_, generation)| generation);
            let found = pool.generation_of(service_id(service)).map(|generation| generation.get());
            check(NAME, found == known, (service, found, "expected", known))?;
        }
        if let Call::Clear { .. } | Call::Hello(..) | Call::CheckIn(..) = made.call {
            for (&handle, id) in self.handles.iter().zip(1..) {
                let connection = reference.get(id);
                let service = connection.and_then(|connection| connection.service).map(service_id);
                check(NAME, pool.service_of(handle) == service, (id, service))?;
                let is_stale = connection.is_none_or(|connection| reference.is_stale(connection));
                check(NAME, pool.is_stale(handle) == is_stale, (id, "stale", is_stale))?;
            }
        }
        Ok(())
    }

    /// The outputs of the last call. If they are not drained, a copy of the pool gives them.
    fn outputs(&mut self, keep: bool) -> Result<Vec<Output>, Broken> {
        let mut copy = keep.then(|| self.pool.clone());
        let pool = copy.as_mut().unwrap_or(&mut self.pool);
        let all: Vec<_> = core::iter::from_fn(|| pool.poll_output()).collect();
        let handles = all.iter().filter_map(|output| match output {
            pool::Output::Action(Action::Connect { connection }) => Some(*connection),
            _ => None,
        });
        self.handles.extend(handles.filter(|handle| handle.id().get() > self.handles.len() as u64).collect::<Vec<_>>());
        let all: VecDeque<_> = all.iter().map(|output| self.translate(output)).collect();
        let is_kept = all.len() >= self.seen.len() && all.iter().zip(&self.seen).all(|(one, other)| one == other);
        check("what is queued stays queued, in its order", is_kept, (&all, &self.seen))?;
        let new = all.iter().skip(self.seen.len()).copied().collect();
        self.seen = if keep { all } else { VecDeque::new() };
        Ok(new)
    }

    /// Puts a pool restored from a serialised snapshot in the place of the pool.
    fn restore(&mut self) {
        const NAME: &str = "a serialised and restored pool is the same";
        let text = serde_json::to_string(&self.pool.snapshot());
        self.expect(check(NAME, text.is_ok(), &text));
        let text = text.unwrap_or_default();
        match serde_json::from_str(&text) {
            Ok(pool) => self.pool = pool,
            Err(error) => self.expect(Err((NAME, format!("{error}: {text}")))),
        }
        let again = serde_json::to_string(&self.pool).unwrap_or_default();
        self.expect(check(NAME, text == again, (&text, "restored", &again)));
    }

    fn input(&self, call: Call<Named>, now: u64) -> Input {
        match call {
            Call::CheckOut(offset, key) => {
                let mut request = CheckOutRequest::default();
                request.deadline = offset.map(|offset| Instant::from_nanos(now.saturating_add_signed(offset)));
                request.affinity = key.map(AffinityKey);
                Input::CheckOut(request)
            }
            Call::Cancel(named) => Input::CancelCheckOut(self.check_out(named)),
            Call::CheckIn(user, named, condition) => {
                Input::CheckIn(self.check_out(user), self.handle(named), condition)
            }
            Call::Ready => Input::Ready,
            Call::Clear { service, interrupts } => {
                let cause = pool::Cause::new(&Cause::text(self.log.len() as u64));
                let clear = match service {
                    None => Clear::pool(cause),
                    Some(service) => Clear::service(service_id(service), cause),
                };
                Input::Clear(if interrupts { clear.interrupting() } else { clear })
            }
            Call::Close => Input::Close,
            Call::ResetAfterFork => Input::ResetAfterFork,
            Call::Hello(named, service) => Input::Hello(self.handle(named), service_id(service)),
            Call::Established(named) => Input::Established(self.handle(named)),
            Call::EstablishFailed(named, reaction, failure) => {
                // CMAP-50, CMAP-51: the first one alone carries the label.
                let (phase, fault) = match failure {
                    Refusal::Overload => (Phase::Connect, Fault::Network),
                    Refusal::Credential => (Phase::Authenticate, Fault::Server { code: Some(18) }),
                    Refusal::Other => (Phase::Connect, Fault::Other),
                };
                let error = EstablishError::new(phase, fault, Cause::text(self.log.len() as u64));
                Input::EstablishFailed(self.handle(named), error, reaction)
            }
            Call::Checked(named, alive) => Input::Checked(self.handle(named), alive),
            Call::Refreshed(named) => Input::Refreshed(self.handle(named)),
            Call::RefreshFailed(named) => Input::RefreshFailed(self.handle(named)),
            Call::PeerClosed(named) => Input::PeerClosed(self.handle(named)),
            Call::Resize(resized) => Input::Resize(limits(resized)),
            Call::EndAffinity(key) => Input::EndAffinity(AffinityKey(key)),
            Call::ReplaceConnections(over) => Input::ReplaceConnections(Duration::from_nanos(over)),
            Call::Resume => Input::Resume,
            Call::RenewCredential => Input::RenewCredential,
            Call::WarmUp(connections) => Input::WarmUp(connections),
            Call::CancelWarmUp(number) => {
                let begun = number.checked_sub(1).and_then(|place| self.warm_ups.get(place as usize));
                Input::CancelWarmUp(begun.copied().unwrap_or(STRANGERS.never_warmed))
            }
            Call::Timeout => Input::Timeout,
        }
    }

    fn check_out(&self, named: Named) -> CheckOutId {
        match named {
            Named::Own(number) => self.check_outs[number as usize - 1],
            Named::NeverIssued => STRANGERS.never_started,
            Named::Foreign => STRANGERS.foreign_check_out,
        }
    }

    fn handle(&self, named: Named) -> Handle {
        match named {
            Named::Own(id) => self.handles[id as usize - 1],
            Named::NeverIssued => STRANGERS.never_issued,
            Named::Foreign => STRANGERS.foreign,
        }
    }

    /// Makes a call. Returns its answer as the reference gives it, and the delivery that is the last of its outputs.
    fn call(&mut self, now: Instant, input: Input) -> (Result<Answer, ApiMisuse>, Option<Delivery<()>>) {
        let answer = match self.pool.call(now, input, Some(())) {
            pool::Answer::CheckOut(id, delivery) => {
                self.check_outs.push(id);
                return (Ok(Answer::CheckOut(self.check_outs.len())), delivery);
            }
            pool::Answer::CheckedIn(delivery) => return (Ok(Answer::Done), delivery),
            pool::Answer::Misuse(misuse, _) => Err(misuse),
            pool::Answer::Cancellation(met) => Ok(Answer::Cancellation(met)),
            pool::Answer::LimitsRefused(_) => Ok(Answer::Refused),
            pool::Answer::WarmUp(id) => {
                self.warm_ups.push(id);
                Ok(Answer::WarmUp(id.get()))
            }
            pool::Answer::WarmUpCancelled(ended) => Ok(Answer::WarmUpCancelled { was_open: ended.is_some() }),
            pool::Answer::Done | _ => Ok(Answer::Done),
        };
        (answer, None)
    }

    fn translate(&self, output: &pool::Output<()>) -> Output {
        let number = |id| self.check_outs.iter().rposition(|&known| known == id).map_or(0, |place| place + 1);
        Output::of(output, &ADDRESS, number)
    }

    /// Ends the case if a check failed. Without the panic hook, which would print every attempt at shrinking.
    fn expect(&self, result: Result<(), Broken>) {
        if let Err((check, detail)) = result {
            let line = |&(Made { now, call, .. }, kept): &(Made, bool)| {
                format!("\n  at {now}: {call:?}{}", if kept { ", outputs kept" } else { "" })
            };
            let log: String = self.log.iter().map(line).collect();
            panic::resume_unwind(Box::new(format!("broken: {check}\n{detail}\nafter{log}\n")));
        }
    }
}

/// The handle and the check-out of the `number`th connection of a pool that has a single slot.
fn connection_of(address: &ServerAddress, number: u64) -> (Handle, CheckOutId) {
    let mut pool: Pool<()> =
        Pool::new(address.clone(), PoolOptions::default(), Instant::ORIGIN).expect("defaults are valid");
    let now = Instant::ORIGIN;
    pool.ready(now);
    loop {
        let (check_out, _) = pool.check_out(now, CheckOutRequest::default());
        let outputs: Vec<_> = core::iter::from_fn(|| pool.poll_output()).collect();
        let connect = outputs.iter().find_map(|output| match output {
            pool::Output::Action(Action::Connect { connection }) => Some(*connection),
            _ => None,
        });
        let connection = connect.expect("a check-out of an empty pool creates a connection");
        if connection.id().get() == number {
            return (connection, check_out);
        }
        let error = EstablishError::new(Phase::Connect, Fault::Other, "");
        let reported: Result<(), ApiMisuse> = pool.handle_establish_failed(now, connection, error, Reaction::KeepPool);
        reported.expect("it is pending");
    }
}

fn pool_options(options: Options) -> PoolOptions {
    let nanos = Duration::from_nanos;
    let mut pool = PoolOptions::default();
    pool.max_pool_size = Some(options.max_pool_size);
    pool.min_pool_size = Some(options.min_pool_size);
    pool.max_idle_time = Some(nanos(options.max_idle));
    pool.max_connecting = Some(options.max_connecting);
    pool.wait_queue_timeout = Some(nanos(options.wait_queue_timeout));
    pool.host_timeout = Some(nanos(options.host_timeout));
    pool.maintenance =
        Some(options.maintenance.map_or(Maintenance::Off, |interval| Maintenance::Every(nanos(interval))));
    pool.check_after_idle =
        Some(if options.check_after_idle == u64::MAX { Duration::MAX } else { nanos(options.check_after_idle) });
    pool.load_balanced = options.load_balanced;
    pool.backoff = Some(options.backoff);
    pool.max_wait_queue_depth = queue_depth(options.max_wait_queue_depth);
    pool.reuse = Some(options.reuse);
    pool.max_lifetime = Some(nanos(options.max_lifetime));
    pool.max_uses = (options.max_uses > 0).then_some(options.max_uses);
    pool.affinity = options.affinity;
    pool.refresh_requirement = Some(nanos(options.refresh_requirement));
    pool.profile = options.profile;
    pool.max_new_connections_per_second = rate(options.creation_interval);
    pool
}

fn limits(resized: Resized) -> PoolLimits {
    let mut limits = PoolLimits::default();
    limits.sizes.max_pool_size = resized.max_pool_size;
    limits.sizes.min_pool_size = resized.min_pool_size;
    limits.sizes.max_connecting = resized.max_connecting;
    let new = |depth: usize| NewLimit::from(queue_depth(depth));
    limits.max_wait_queue_depth = resized.max_wait_queue_depth.map_or(NewLimit::AsItIs, new);
    let new = |interval: u64| NewLimit::from(rate(interval));
    limits.max_new_connections_per_second = resized.creation_interval.map_or(NewLimit::AsItIs, new);
    limits
}

fn queue_depth(waiters: usize) -> Option<QueueDepth> {
    (waiters > 0).then_some(QueueDepth::Waiters(waiters as u32))
}

fn rate(interval: u64) -> Option<u32> {
    (interval > 0).then(|| (1_000_000_000 / interval) as u32)
}

fn service_id(service: Service) -> ServiceId {
    ServiceId([service; 12])
}

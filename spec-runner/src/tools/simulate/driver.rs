//! Carries out steps on a client, as the driver of a runtime would, and lets the oracle judge each of them.

mod calm;
mod establishing;
mod identities;
mod inputs;
mod leaving;
mod seed_list;
mod warm_ups;

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::monitor::{Call, Finding};
use cmap_core::options::{PoolLimits, PoolOptionsError, PoolSizes, QueueDepth, ReadMode, ReadPreference};
use cmap_core::pool::{
    Action, AffinityKey, Cancellation, Cause, CheckOutId, CheckOutRequest, Condition, Delivery, Handle, IdentityId,
    Output as PoolOutput,
};
use cmap_core::server::{ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{
    Answer, CheckOut, Criteria, Input, MonitorCall, Output, ServerSelector, Topology, TopologyOptions, WarmUpId,
};

use self::inputs::{describe, operation_error};
use super::ledger::Waiter;
use super::machine::Machine;
use super::mark::Mark;
use super::oracle::{Broken, Oracle, law};
use super::step::{ClientCase, Deployment, Heard, Purpose, Step};

/// How often it looks at what only the machine itself can tell, which costs more than the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// After every 64 calls: for speed.
    Seldom,
    /// For short scripts.
    AfterEachCall,
}

/// The calls between two looks, where they are seldom.
const CALLS_BETWEEN_LOOKS: u64 = 64;

/// A timeout that is due again and again, this often, makes its driver a busy loop.
const TIMEOUTS_IN_A_ROW: u32 = 100;

/// An output that the servers or the callers must act on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Report {
    Connect {
        member: usize,
        connection: Handle,
    },
    Check(Handle),
    Refresh {
        member: usize,
        connection: Handle,
    },
    Delivered {
        check_out: CheckOut,
        connection: Handle,
    },
    /// It ended without a connection.
    Ended(CheckOut),
    Renamed {
        from: CheckOut,
        to: CheckOut,
    },
    /// An operation on it is interrupted.
    Interrupted(Handle),
    /// The server's monitor checks it soon.
    CheckServer(usize),
    /// The seed list is looked up.
    Resolve,
}

/// A client and everything that its driver holds, oldest first.
#[derive(Debug)]
pub(super) struct Driver<M> {
    machine: M,
    deployment: Deployment,
    /// Whether something may keep a warm-up from its connections for ever: a limit of all pools, or pings that take all permits.
    may_stay_cold: bool,
    /// Whether it is left alone for a while before it is closed. Pings would make that long.
    has_rest: bool,
    lateness: Duration,
    looks: Looks,
    now: Instant,
    calls: u64,
    pub(super) oracle: Oracle,
    /// What the servers say of themselves while they are no primaries.
    descriptions: Vec<ServerDescription>,
    members: Vec<Option<ServerId>>,
    /// The members of servers, those included that have left.
    numbers: Vec<(ServerId, usize)>,
    waiting: Vec<CheckOut>,
    pending: Vec<Handle>,
    checking: Vec<Handle>,
    refreshing: Vec<Handle>,
    /// With their check-outs.
    in_use: Vec<(Handle, CheckOutId)>,
    warm_ups: Vec<WarmUpId>,
    /// Those included that were removed.
    identities: Vec<IdentityId>,
    pub(super) reports: Vec<Report>,
    /// When the machine wants to be called, if it was asked since its last call.
    due: Option<Option<Instant>>,
    /// The check-outs that began, for the figures.
    pub(super) check_outs: u64,
    last_check_out: Option<CheckOut>,
}

/// The client's machine, before anything has happened to it.
pub(super) fn client(case: &ClientCase) -> Result<Topology<()>, PoolOptionsError> {
    let seeds = case.deployment.hosts().iter().take(case.deployment.seeds());
    let mut options = TopologyOptions::of_seeds(seeds.map(|host| ServerAddress::tcp(host, 27017)).collect());
    options.polled_seed_list = seed_list::polled(case);
    options.max_connections = case.max_connections;
    options.load_balanced = case.deployment == Deployment::LoadBalanced;
    options.replica_set = case.deployment.is_replica_set().then(|| "rs".into());
    Topology::new(options, case.pool.clone())
}

impl<M: Machine> Driver<M> {
    /// Opens the client.
    pub(super) fn new(case: &ClientCase, machine: M, looks: Looks) -> Result<Self, Broken> {
        let mut driver = Self {
            machine,
            deployment: case.deployment,
            may_stay_cold: case.max_connections > 0 || case.pool.refresh_requirement.is_some(),
            has_rest: case.pool.refresh_requirement.is_none() && case.pool.seed % 4 == 2,
            lateness: case.lateness,
            looks,
            now: Instant::ORIGIN,
            calls: 0,
            oracle: Oracle::new(case),
            descriptions: (0..case.deployment.hosts().len()).map(|member| describe(case.deployment, member)).collect(),
            members: vec![None; case.deployment.hosts().len()],
            numbers: Vec::new(),
            waiting: Vec::new(),
            pending: Vec::new(),
            checking: Vec::new(),
            refreshing: Vec::new(),
            in_use: Vec::new(),
            warm_ups: Vec::new(),
            identities: Vec::new(),
            reports: Vec::new(),
            due: None,
            check_outs: 0,
            last_check_out: None,
        };
        driver.call(Input::Open)?;
        Ok(driver)
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn machine(&self) -> &M {
        &self.machine
    }

    /// How many calls were made.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// The name that the last check-out had at its beginning.
    pub(super) fn last_check_out(&self) -> Option<CheckOut> {
        self.last_check_out
    }

    /// When the client calls on its next timeout.
    fn next_timeout(&mut self) -> Option<Instant> {
        self.due().map(|due| (due + self.lateness).max(self.now))
    }

    fn due(&mut self) -> Option<Instant> {
        *self.due.get_or_insert_with(|| self.machine.next_timeout())
    }

    /// Where a connection stands among those in use, that are being established, looked at, or pinged.
    pub(super) fn place_in_use(&self, connection: Handle) -> Option<usize> {
        self.in_use.iter().position(|(known, _)| *known == connection)
    }

    pub(super) fn place_pending(&self, connection: Handle) -> Option<usize> {
        place(&self.pending, connection)
    }

    pub(super) fn place_checking(&self, connection: Handle) -> Option<usize> {
        place(&self.checking, connection)
    }

    pub(super) fn place_refreshing(&self, connection: Handle) -> Option<usize> {
        place(&self.refreshing, connection)
    }

    pub(super) fn place_waiting(&self, check_out: CheckOut) -> Option<usize> {
        self.waiting.iter().position(|known| *known == check_out)
    }

    // What happens.

    /// Handles the next timeout if it is due by `until`. Whether one was.
    pub(super) fn handle_timeout_by(&mut self, until: Instant) -> Result<bool, Broken> {
        let Some(due) = self.next_timeout().filter(|due| *due <= until) else { return Ok(false) };
        self.now = due;
        for _ in 0..TIMEOUTS_IN_A_ROW {
            self.call(Input::Timeout)?;
            self.oracle.after_timeout(self.now)?;
            if self.due().is_none_or(|next| next > self.now) {
                return Ok(true);
            }
        }
        law("a timeout that was handled is over", false, || format!("{:?}", self.machine.next_timeout()))?;
        Ok(true)
    }

    /// Lets time pass, and a step happen.
    pub(super) fn play(&mut self, at: Instant, step: Step) -> Result<(), Broken> {
        self.wait_until(at)?;
        self.step(step)
    }

    /// Lets time pass.
    pub(super) fn wait_until(&mut self, at: Instant) -> Result<(), Broken> {
        while self.handle_timeout_by(at)? {}
        self.now = self.now.max(at);
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), Broken> {
        self.oracle.called(self.now);
        match step {
            Step::CheckOut { purpose, limit, key, identity } => {
                let mut request = CheckOutRequest::default();
                request.deadline = limit.map(|limit| self.now + limit);
                request.affinity = key.map(AffinityKey);
                request.identity = identity.and_then(|nth| nth_of(&self.identities, nth));
                self.check_out(purpose, request)
            }
            Step::Cancel(nth) => self.cancel(nth),
            Step::CheckIn { nth, is_usable } => {
                let Some((connection, check_out)) = take(&mut self.in_use, nth) else { return Ok(()) };
                self.oracle.checked_in(connection, is_usable);
                let condition = if is_usable { Condition::Usable } else { Condition::Errored };
                self.call(Input::CheckIn(check_out, connection, condition))
            }
            Step::Establish { nth, end } => self.end_establishment(nth, end),
            Step::Check { nth, is_alive } => {
                let Some(connection) = take(&mut self.checking, nth) else { return Ok(()) };
                self.oracle.checked(connection, is_alive);
                self.call(Input::Checked(connection, is_alive))
            }
            Step::Refresh { nth, is_alive } => self.end_refresh(nth, is_alive),
            Step::HangUp(nth) => match nth_of(&self.in_use, nth) {
                Some((connection, _)) => {
                    self.oracle.hung_up(connection);
                    self.call(Input::PeerClosed(connection))
                }
                None => Ok(()),
            },
            Step::OperationFailed { nth, fault } => match nth_of(&self.in_use, nth) {
                Some((connection, _)) => {
                    self.oracle.operation_failed(connection, fault);
                    self.call(Input::OperationFailed(connection, operation_error(fault)))
                }
                None => Ok(()),
            },
            Step::Heard { member, finding } => self.hear(member, finding),
            Step::Resize { max_pool_size, max_connecting } => {
                let sizes = PoolSizes::default().max_pool_size(max_pool_size).max_connecting(max_connecting);
                // Limits that contradict the others are refused.
                if self.answer(Input::Resize(sizes.into())) == Answer::Done {
                    self.oracle.resized(max_pool_size, max_connecting);
                }
                self.drain()?;
                self.look()
            }
            Step::Limit { max_wait_queue_depth, max_new_connections_per_second } => {
                let limits = PoolLimits::default()
                    .max_wait_queue_depth(max_wait_queue_depth.map(QueueDepth::Waiters))
                    .max_new_connections_per_second(max_new_connections_per_second);
                if self.answer(Input::Resize(limits)) == Answer::Done {
                    self.oracle.limited(max_wait_queue_depth, max_new_connections_per_second.is_some());
                }
                self.drain()?;
                self.look()
            }
            Step::WarmUp(connections) => self.warm_up(connections),
            Step::CancelWarmUp(nth) => self.cancel_warm_up(nth),
            Step::AddIdentity => self.add_identity(),
            Step::RemoveIdentity(nth) => self.remove_identity(nth),
            Step::RenewCredential { identity, is_proven } => self.renew_credential(identity, is_proven),
            Step::Resolve(lookup) => self.end_lookup(lookup),
            Step::ReplaceConnections(over) => self.call(Input::ReplaceConnections(over)),
            Step::EndAffinity(key) => self.call(Input::EndAffinity(AffinityKey(key))),
            Step::Suspend(time) => {
                self.oracle.marks.meet(Mark::Suspended);
                self.now = self.now + time;
                self.call(Input::Timeout)?;
                self.oracle.after_timeout(self.now)
            }
            Step::Resume => {
                self.oracle.resumed();
                self.call(Input::Resume)
            }
        }
    }

    fn check_out(&mut self, purpose: Purpose, request: CheckOutRequest) -> Result<(), Broken> {
        self.check_outs += 1;
        let input = match purpose {
            Purpose::Write => Input::CheckOut(Box::default(), request),
            Purpose::Read => {
                let selector = ServerSelector::from(ReadPreference::new(ReadMode::Nearest));
                Input::CheckOut(Box::new(Criteria { selector, ..Criteria::default() }), request)
            }
        };
        self.call_for(input, purpose, request)
    }

    fn cancel(&mut self, nth: usize) -> Result<(), Broken> {
        let Some(check_out) = nth_of(&self.waiting, nth) else { return Ok(()) };
        // Its time may be up, if timeouts are handled late: then the answer is among the outputs.
        let answer = self.answer(Input::CancelCheckOut(check_out));
        if answer == Answer::Cancellation(Cancellation::Cancelled) {
            self.oracle.cancelled(check_out);
            self.waiting.retain(|known| *known != check_out);
        }
        self.drain()?;
        let has_ended = !self.oracle.is_waiting(check_out);
        law("a check-out that was cancelled has ended", has_ended, || format!("{answer:?}"))?;
        self.look()
    }

    fn hear(&mut self, member: usize, heard: Heard) -> Result<(), Broken> {
        let is_checked = self.deployment != Deployment::LoadBalanced;
        let Some(server) = self.members.get(member).copied().flatten().filter(|_| is_checked) else { return Ok(()) };
        let failure = |fault| Finding::Failure { fault, cause: Cause::new("the check failed") };
        let finding = match heard {
            Heard::Answer { primary_of, round_trip_millis } => {
                let mut description = self.description(member, primary_of);
                let round_trip_time = Duration::from_millis(round_trip_millis.into());
                description.round_trip_time = Some(round_trip_time);
                self.oracle.heard_answer(server, primary_of, round_trip_time);
                Finding::Description(Box::new(description))
            }
            Heard::Failure => failure(Fault::Network),
            Heard::Timeout => failure(Fault::Timeout),
        };
        if matches!(finding, Finding::Failure { .. }) {
            self.oracle.heard_failure(server);
        }
        self.call(Input::Check(server, finding))
    }

    fn description(&self, member: usize, primary_of: Option<u64>) -> ServerDescription {
        let Some(known) = self.descriptions.get(member) else { return describe(self.deployment, member) };
        let mut description = known.clone();
        if let Some(election) = primary_of.filter(|_| self.deployment.is_replica_set()) {
            description.server_type = ServerType::RsPrimary;
            let mut id = [0; 12];
            id[4..].copy_from_slice(&election.to_be_bytes());
            description.election_id = Some(id);
        }
        description
    }

    // A call, and what it leads to.

    fn call(&mut self, input: Input) -> Result<(), Broken> {
        self.call_for(input, Purpose::Write, CheckOutRequest::default())
    }

    /// A call that may begin a check-out, of this purpose and request.
    fn call_for(&mut self, input: Input, purpose: Purpose, request: CheckOutRequest) -> Result<(), Broken> {
        let answer = self.answer(input);
        if let Answer::CheckOut(check_out, _) = answer {
            let CheckOutRequest { deadline, identity, .. } = request;
            let began_at = self.now;
            self.oracle.began(Waiter { check_out, purpose, began_at, queued_at: None, deadline, identity });
            self.last_check_out = Some(check_out);
            self.waiting.push(check_out);
        }
        // What the call led to came before the connection that it delivered at once.
        self.drain()?;
        match answer {
            Answer::CheckOut(_, Some(Delivery { check_out, connection, .. })) => {
                self.oracle.delivered(check_out, connection, true)?;
                self.deliver(check_out, connection);
            }
            Answer::CheckedIn(Some(Delivery { check_out, connection, .. })) => {
                self.oracle.delivered(check_out, connection, false)?;
                self.deliver(check_out, connection);
            }
            Answer::Misuse(misuse, _) => law("a lawful call is accepted", false, || misuse.to_string())?,
            Answer::Done
            | Answer::CheckOut(..)
            | Answer::CheckedIn(None)
            | Answer::Cancellation(_)
            | Answer::Identity(_)
            | Answer::WarmUp(_)
            | Answer::WarmUpCancelled(_)
            | Answer::LimitsRefused(_)
            | _ => {}
        }
        self.look()
    }

    fn answer(&mut self, input: Input) -> Answer<()> {
        self.due = None;
        self.oracle.called(self.now);
        self.machine.call(self.now, input)
    }

    fn look(&mut self) -> Result<(), Broken> {
        self.oracle.settle()?;
        let holds_back = self.machine.holds_back(|pool| self.oracle.is_told_of(pool));
        law("a client whose outputs were taken has none left in a pool", !holds_back, || format!("{:?}", self.now))?;
        let difference = self.machine.difference();
        law("a client does the same whether anybody observes it", difference.is_none(), || {
            difference.unwrap_or_default().to_owned()
        })?;
        self.calls += 1;
        if self.looks == Looks::AfterEachCall || self.calls.is_multiple_of(CALLS_BETWEEN_LOOKS) {
            self.look_inside()?;
        }
        Ok(())
    }

    fn look_inside(&self) -> Result<(), Broken> {
        self.oracle.compare(self.machine.counts())?;
        self.oracle.compare_outdated(self.machine.outdated())?;
        let contradiction = self.machine.contradiction();
        law("a pool does not contradict itself", contradiction.is_none(), || contradiction.unwrap_or_default())
    }

    fn drain(&mut self) -> Result<(), Broken> {
        while let Some(output) = self.machine.poll_output() {
            if let Output::Pool { server, .. } = output {
                self.meet_pool(server);
            }
            self.oracle.output(self.now, &output)?;
            self.take(output);
        }
        Ok(())
    }

    fn take(&mut self, output: Output<()>) {
        match output {
            Output::Pool { server, output: PoolOutput::Action(action) } => {
                let member = self.number(server).unwrap_or_default();
                self.act(member, action);
            }
            Output::Selected { selection, check_out } => {
                self.rename(CheckOut::Selecting(selection), CheckOut::Started(check_out));
            }
            Output::Reselecting { check_out, selection } => {
                self.rename(CheckOut::Started(check_out), CheckOut::Selecting(selection));
            }
            Output::SelectionFailed { selection, .. } => self.end(CheckOut::Selecting(selection)),
            Output::Monitor { server, call: MonitorCall::Begin { address, .. } } => {
                let host = address.to_string();
                let is_it = |known: &&str| host.strip_suffix(":27017") == Some(*known);
                let member = self.deployment.hosts().iter().position(is_it).unwrap_or_default();
                self.numbers.push((server, member));
                if let Some(known) = self.members.get_mut(member) {
                    *known = Some(server);
                }
                self.oracle.server_joined(member);
                self.oracle.server_begun(server);
                self.reports.push(Report::CheckServer(member));
            }
            Output::Monitor { server, call: MonitorCall::Call(Call::RequestCheck) } => {
                let member = self.number(server);
                self.reports.extend(member.map(Report::CheckServer));
            }
            Output::Monitor { server, call: MonitorCall::End } => self.lose_server(server),
            Output::Monitor { server, call: MonitorCall::Forget } => self.forget_pool(server),
            Output::ResolveSrv { .. } => self.reports.push(Report::Resolve),
            Output::WarmedUp { warm_up, .. } => self.warm_ups.retain(|known| *known != warm_up),
            Output::Monitor { .. }
            | Output::Pool { .. }
            | Output::Selection(_)
            | Output::Topology(_)
            | Output::Server { .. } => {}
        }
    }

    fn number(&self, server: ServerId) -> Option<usize> {
        self.numbers.iter().rfind(|(known, _)| *known == server).map(|(_, member)| *member)
    }

    fn act(&mut self, member: usize, action: Action<()>) {
        match action {
            Action::Connect { connection } => {
                self.pending.push(connection);
                self.oracle.logs_in(connection, self.machine.identity_of(connection));
                self.reports.push(Report::Connect { member, connection });
            }
            Action::Check { connection } => {
                self.checking.push(connection);
                self.reports.push(Report::Check(connection));
            }
            Action::Refresh { connection, .. } => {
                self.refreshing.push(connection);
                self.reports.push(Report::Refresh { member, connection });
            }
            Action::Deliver { check_out, connection, .. } => self.deliver(check_out, connection),
            Action::Fail { check_out, .. } => self.end(CheckOut::Started(check_out)),
            Action::Interrupt { connection } => self.reports.push(Report::Interrupted(connection)),
            // One that is being looked at may be closed meanwhile: then nobody asks for the result.
            Action::Close { connection, .. } => self.checking.retain(|known| *known != connection),
            Action::WarmedUp { .. } => {}
        }
    }

    fn deliver(&mut self, id: CheckOutId, connection: Handle) {
        let check_out = CheckOut::Started(id);
        self.waiting.retain(|known| *known != check_out);
        self.in_use.push((connection, id));
        self.reports.push(Report::Delivered { check_out, connection });
    }

    fn end(&mut self, check_out: CheckOut) {
        self.waiting.retain(|known| *known != check_out);
        self.reports.push(Report::Ended(check_out));
    }

    fn rename(&mut self, from: CheckOut, to: CheckOut) {
        self.waiting.iter_mut().filter(|known| **known == from).for_each(|known| *known = to);
        self.reports.push(Report::Renamed { from, to });
    }
}

fn place(connections: &[Handle], connection: Handle) -> Option<usize> {
    connections.iter().position(|known| *known == connection)
}

fn nth_of<T: Copy>(all: &[T], nth: usize) -> Option<T> {
    all.get(nth.checked_rem(all.len())?).copied()
}

fn take<T>(all: &mut Vec<T>, nth: usize) -> Option<T> {
    let nth = nth.checked_rem(all.len())?;
    Some(all.remove(nth))
}

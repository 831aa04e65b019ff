//! The state under the client's mutex: the core's machine, and its counterparts on this side of the sockets.
//!
//! Every call follows the driving rule: the machine is called, its outputs are drained, and the timer is woken if the
//! next timeout has become earlier. Work that needs no lock is noted as [`Work`]. The machine is the core's topology, whose calls are
//! recorded where the feature `trace` is on and a recorder asks for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Waker;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::monitor::{Monitor, MonitorOptions};
use cmap_core::pool::{
    self, Action, Cause, CheckOutId, CheckedIn, Condition, ConnectionId, Event as PoolEvent, Handle, Refused,
};
use cmap_core::server::{OperationError, ServerId};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Input, MonitorCall, Output, TopologyDescription, WarmUpId};

use super::check_outs::Waiters;
use super::credentials::RefusedLogins;
use super::member::{Heartbeat, Member};
use super::timer::Deadlines;
use super::waits::WarmedUp;
use super::{Job, Work};
use crate::error::{CheckOutError, RuntimeGone};
use crate::establish::{Origin, Settings};
use crate::events::{Event, EventQueue};
#[cfg(feature = "trace")]
use crate::recording::Holders;
use crate::runtime::Runtime;
use crate::runtime::slot::Filler;
use crate::socket::Socket;
use crate::socket::abort::{Abort, AbortReason};
use crate::watch::{NotedCommand, Tag, Watch};

#[cfg(feature = "trace")]
pub(crate) type Machine<C> = cmap_core::trace::Recorded<C>;

#[cfg(not(feature = "trace"))]
pub(crate) type Machine<C> = cmap_core::topology::Topology<C>;

pub(crate) struct State<R: Runtime> {
    pub(crate) machine: Machine<Box<Socket<R::Stream>>>,
    pub(crate) waiters: Waiters<Answer<R::Stream>>,
    /// The servers, those included that have left and are not drained yet.
    pub(crate) members: BTreeMap<ServerId, Arc<Member<R>>>,
    settings: Arc<Settings<R>>,
    /// None if the owner has a monitor, and not the client.
    pub(super) monitor_options: Option<MonitorOptions>,
    /// Events of the topology as a whole go with it.
    pub(super) first_seed: Arc<ServerAddress>,
    /// Every connection from the start of its establishment until it is closed.
    pub(crate) activities: BTreeMap<Place, Activity>,
    pub(crate) deadlines: Deadlines,
    /// The checks under way.
    pub(super) heartbeats: BTreeMap<ServerId, Heartbeat>,
    /// Aborts the lookup of SRV records, if one is under way, at the end of the client.
    pub(super) srv_lookup: Arc<Abort>,
    pub(crate) events: EventQueue,
    /// What tasks of check-outs knew of the servers when they were last woken to choose among them.
    described: Arc<TopologyDescription>,
    /// The waits for the last connection of a closed pool; those, too, that were given up.
    pub(super) closing: Vec<Weak<Abort>>,
    /// The warm-ups that have not ended.
    pub(super) warm_ups: BTreeMap<WarmUpId, Filler<WarmedUp>>,
    pub(super) refused_logins: RefusedLogins,
    /// The time at which the timer comes back.
    armed: Option<Instant>,
    pub(crate) runtime_gone: bool,
    /// Who asked for connections, where that is noted.
    pub(super) watch: Option<Box<Watch>>,
    /// Numbers of those who make calls, for what is recorded of them.
    #[cfg(feature = "trace")]
    pub(super) holders: Holders,
}

/// A connection among those of all servers.
pub(crate) type Place = (ServerId, ConnectionId);

/// The present work at a connection, and how to abort it.
#[derive(Default)]
pub(crate) struct Activity {
    pub(crate) abort: Arc<Abort>,
    /// Whether it is the pool's own: an establishment, or a refresh. Else it is an operation, or there is none.
    pub(crate) is_own_work: bool,
    /// Its number at the server, once the server has said it.
    pub(crate) server_connection_id: Option<i64>,
    /// The last command, where commands are noted.
    pub(crate) command: Option<NotedCommand>,
    /// When a reply began last, where possible leaks are watched.
    pub(crate) replied: Option<Instant>,
    /// The last use that was reported as slow.
    pub(crate) told: Option<CheckOutId>,
}

/// The result of a check-out.
pub(crate) type Answer<S> = Result<Delivery<S>, CheckOutError>;

/// A connection on its way to its caller.
pub(crate) type Delivery<S> = pool::Delivery<Box<Socket<S>>>;

/// What a check-in led to.
pub(super) type CheckInResult<S> = Result<CheckedIn<Box<Socket<S>>>, Refused<Box<Socket<S>>>>;

impl<R: Runtime> State<R> {
    pub(crate) fn new(
        mut machine: Machine<Box<Socket<R::Stream>>>,
        first_seed: Arc<ServerAddress>,
        settings: Arc<Settings<R>>,
        monitor_options: Option<MonitorOptions>,
    ) -> Self {
        let described = Arc::clone(machine.description());
        let mut members = BTreeMap::new();
        // That of an owner with a monitor of their own is there from the start.
        for (id, server) in machine.servers() {
            let address = Arc::clone(&server.description().address);
            members.insert(id, Member::new(id, address, &settings, None, None));
        }
        let threshold = settings.leak_detection_threshold;
        let watch = settings.labels.as_ref().map(|labels| Box::new(Watch::new(Arc::clone(labels), threshold)));
        machine.call(machine.now(), Input::RecordDurations(settings.labels.is_some()), None);
        Self {
            machine,
            waiters: Waiters::new(),
            members,
            settings,
            monitor_options,
            first_seed,
            activities: BTreeMap::new(),
            deadlines: Deadlines::default(),
            heartbeats: BTreeMap::new(),
            srv_lookup: Arc::default(),
            events: EventQueue::default(),
            described,
            closing: Vec::new(),
            warm_ups: BTreeMap::new(),
            refused_logins: RefusedLogins::default(),
            armed: None,
            runtime_gone: false,
            watch,
            #[cfg(feature = "trace")]
            holders: Holders::default(),
        }
    }

    /// Carries out the machine's outputs.
    pub(crate) fn drain(&mut self, now: Instant, work: &mut Work<R>) {
        while let Some(output) = self.machine.poll_output() {
            self.act(now, output, work);
        }
        if self.settings.server_filter.is_some() && !Arc::ptr_eq(&self.described, self.machine.description()) {
            self.described = Arc::clone(self.machine.description());
            work.wake_all(self.waiters.selecting());
        }
        let next = self.next_timeout();
        work.rings_alarm |= next.is_some_and(|at| self.arm(at));
        work.deliver = self.events.begin();
        if !self.closing.is_empty() && self.machine.connections() == 0 {
            // No last waker is dropped here: a wait lifts its limit before it goes, and that under the lock.
            work.wake_all(self.closing.drain(..).filter_map(|end| end.upgrade()?.abort(AbortReason::Closed)));
        }
    }

    fn act(&mut self, now: Instant, output: Output<Box<Socket<R::Stream>>>, work: &mut Work<R>) {
        match output {
            Output::Pool { server, output: pool::Output::Action(action) } => {
                self.act_for_pool(now, server, action, work);
            }
            Output::Pool { server, output: pool::Output::Event(mut event) } => {
                if let PoolEvent::ConnectionCheckOutFailed { error, .. } = &mut event {
                    self.explain(now, server, error);
                }
                self.tell(server, Event::Pool(event));
            }
            Output::Selected { selection, check_out } => {
                self.watch.iter_mut().for_each(|watch| watch.select(selection, check_out));
                self.waiters.go_on(CheckOut::Selecting(selection), CheckOut::Started(check_out));
            }
            Output::Reselecting { check_out, selection } => {
                self.watch.iter_mut().for_each(|watch| watch.reselect(check_out, selection));
                self.waiters.go_on(CheckOut::Started(check_out), CheckOut::Selecting(selection));
            }
            Output::SelectionFailed { selection, error } => {
                self.watch.iter_mut().for_each(|watch| watch.forget(selection));
                self.answer(now, CheckOut::Selecting(selection), Err(error.into()), work);
            }
            Output::Server { server, event } => self.tell_of_server(now, server, event),
            Output::Topology(event) => self.events.push(&self.first_seed, Event::Topology(event)),
            Output::Selection(event) => self.events.push(&self.first_seed, Event::Selection(event)),
            Output::Monitor { server, call } => self.act_for_monitor(now, server, call, work),
            Output::ResolveSrv { name } => {
                work.jobs.push(Job::LookUpSrv { name, abort: Arc::clone(&self.srv_lookup) });
            }
            Output::WarmedUp { warm_up, result } => {
                let filler = self.warm_ups.remove(&warm_up);
                work.jobs.extend(filler.map(|filler| Job::EndWarmUp(filler, Some(result.map_err(Into::into)))));
            }
        }
    }

    /// Answers a check-out that waits.
    #[inline]
    fn answer(&mut self, now: Instant, check_out: CheckOut, answer: Answer<R::Stream>, work: &mut Work<R>) {
        match self.waiters.answer(check_out, answer) {
            Ok(waker) => work.wake(waker),
            // A waiter that leaves cancels its check-out under the same lock, so none is missing here. If one were, the
            // connection would not be lost.
            Err(Ok(delivery)) => self.take_back(now, delivery, work),
            Err(Err(_)) => {}
        }
    }

    pub(super) fn tell(&mut self, server: ServerId, event: Event) {
        let member = self.members.get(&server).map(|member| member.address());
        // The pool of an identity tells of itself before its first connection.
        let address = member.or_else(|| self.machine.server(server).map(|server| &server.description().address));
        self.events.push(address.unwrap_or(&self.first_seed), event);
    }

    #[cold]
    fn act_for_monitor(&mut self, now: Instant, server: ServerId, call: MonitorCall, work: &mut Work<R>) {
        match call {
            MonitorCall::Begin { address, is_checked } => {
                let options = self.monitor_options.clone().filter(|_| is_checked);
                let monitor = options.map(|options| Monitor::new(now, Arc::clone(&address), options));
                self.members.insert(server, Member::new(server, address, &self.settings, None, monitor));
                // The timer begins to check it.
                work.rings_alarm = true;
            }
            MonitorCall::Call(call) => {
                // Here, and not after the lock: several calls mean something else in another order.
                work.rings_alarm |= self.members.get(&server).is_some_and(|member| member.request(call));
            }
            MonitorCall::End => {
                // It was told of, if anybody listens.
                self.heartbeats.remove(&server);
                work.jobs.extend(self.members.get(&server).map(Arc::clone).map(Job::EndMonitor));
            }
            MonitorCall::Forget => {
                self.members.remove(&server);
            }
        }
    }

    #[cold]
    fn act_for_pool(
        &mut self,
        now: Instant,
        server: ServerId,
        action: Action<Box<Socket<R::Stream>>>,
        work: &mut Work<R>,
    ) {
        match action {
            Action::Deliver { check_out, connection, socket } => {
                let delivery = Delivery { check_out, connection, socket };
                self.answer(now, CheckOut::Started(check_out), Ok(delivery), work);
            }
            Action::Fail { check_out, mut error } => {
                self.explain(now, server, &mut error);
                self.answer(now, CheckOut::Started(check_out), Err(error.into()), work);
            }
            // There is no task left to establish it. The pool has no more use for it either, so it stays pending.
            Action::Connect { .. } if self.runtime_gone => {}
            Action::Connect { connection } => {
                let Some(member) = self.member_for(server, connection) else { return };
                let abort = Arc::new(Abort::default());
                let activity = Activity { abort: Arc::clone(&abort), is_own_work: true, ..Activity::default() };
                self.activities.insert((server, connection.id()), activity);
                let origin = self.machine.origin_of(connection).map_or(Origin::Population, |_| Origin::CheckOut);
                work.jobs.push(Job::Establish { member, connection, origin, abort });
            }
            Action::Check { connection } => {
                let alive = self.machine.socket(connection).is_some_and(|socket| socket.is_alive::<R>());
                // Refused only if the pool had not asked.
                self.machine.call(now, Input::Checked(connection, alive), None);
            }
            // There is no task left for it.
            Action::Refresh { connection, socket, .. } if self.runtime_gone => {
                work.jobs.push(Job::Close(socket));
                let error = OperationError::new(Fault::Other, Cause::of(&RuntimeGone));
                self.machine.call(now, Input::RefreshFailed(connection, error), None);
                self.activities.remove(&(server, connection.id()));
            }
            Action::Refresh { connection, socket, timeout } => {
                self.set_own_work(connection, true);
                work.jobs.push(Job::Refresh { connection, socket, timeout });
            }
            Action::Close { connection, socket, .. } => {
                self.activities.remove(&(server, connection.id()));
                work.jobs.push(Job::Close(socket));
            }
            Action::Interrupt { connection } => {
                let activity = self.activities.get(&(server, connection.id()));
                work.wake_all(activity.and_then(|activity| activity.abort.abort(AbortReason::Interrupted)));
            }
            // The machine takes it, and tells of its own.
            Action::WarmedUp { .. } => {}
        }
    }

    /// The member for a new connection. That of an identity's pool comes with its first connection.
    fn member_for(&mut self, pool: ServerId, connection: Handle) -> Option<Arc<Member<R>>> {
        if let Some(member) = self.members.get(&pool) {
            return Some(Arc::clone(member));
        }
        let address = Arc::clone(&self.machine.server(pool)?.description().address);
        let identity = self.machine.identity_of(connection);
        let member = Member::new(pool, address, &self.settings, identity, None);
        self.members.insert(pool, Arc::clone(&member));
        Some(member)
    }

    /// Gives back a connection that was delivered to nobody.
    pub(crate) fn take_back(&mut self, now: Instant, delivery: Delivery<R::Stream>, work: &mut Work<R>) {
        let Delivery { check_out, connection, socket } = delivery;
        let checked_in = self.machine.check_in(now, check_out, connection, socket, Condition::Usable);
        self.follow_check_in(now, checked_in, work);
    }

    /// Hands over what a check-in delivered. A connection whose check-in was refused is closed.
    #[inline]
    pub(crate) fn follow_check_in(&mut self, now: Instant, checked_in: CheckInResult<R::Stream>, work: &mut Work<R>) {
        match checked_in {
            Ok(CheckedIn::Done) => {}
            Ok(CheckedIn::Delivered(delivery)) => {
                self.answer(now, CheckOut::Started(delivery.check_out), Ok(delivery), work);
            }
            Err(refused) => work.jobs.push(Job::Close(refused.socket)),
        }
    }

    /// Notes who has begun a check-out, where holders are watched.
    #[inline(never)]
    pub(super) fn note(&mut self, now: Instant, check_out: CheckOut, tag: Tag) {
        let Some(watch) = &mut self.watch else { return };
        watch.note(check_out, tag);
        if let Some(uses) = &mut watch.uses {
            uses.look_from(now);
        }
        #[cfg(feature = "trace")]
        self.record_holder(check_out, tag);
    }

    pub(super) fn activity(&mut self, connection: Handle) -> Option<&mut Activity> {
        let place = self.place(connection)?;
        self.activities.get_mut(&place)
    }

    /// Notes whether the work at a connection is the pool's own.
    pub(super) fn set_own_work(&mut self, connection: Handle, is_own_work: bool) {
        self.activity(connection).into_iter().for_each(|activity| activity.is_own_work = is_own_work);
    }

    /// No work is done at a connection any more, and none will be.
    pub(super) fn forget(&mut self, connection: Handle) {
        self.place(connection).map(|place| self.activities.remove(&place));
    }

    /// Aborts the pool's own work, or the operations on connections in use. Returns the tasks to wake.
    pub(crate) fn abort_all(&mut self, own_work: bool, reason: AbortReason) -> Vec<Waker> {
        let activities = self.activities.values().filter(|activity| activity.is_own_work == own_work);
        activities.filter_map(|activity| activity.abort.abort(reason)).collect()
    }

    /// Tells every waiter that the runtime is gone, and gives up its check-out.
    pub(crate) fn end_of_runtime(&mut self, now: Instant, work: &mut Work<R>) {
        self.runtime_gone = true;
        work.wake_all(self.abort_all(false, AbortReason::RuntimeGone));
        work.wake_all(self.abort_all(true, AbortReason::RuntimeGone));
        work.wake_all(self.deadlines.abort_all(AbortReason::RuntimeGone));
        for check_out in self.waiters.waiting() {
            // It waited, and no outputs were drained since: there is no delivery to lose.
            self.give_up(now, check_out);
            self.answer(now, check_out, Err(RuntimeGone.into()), work);
        }
        for (id, filler) in std::mem::take(&mut self.warm_ups) {
            self.machine.call(now, Input::CancelWarmUp(id), None);
            work.jobs.push(Job::EndWarmUp(filler, None));
        }
    }

    /// A check-out is not waited for any more.
    pub(super) fn give_up(&mut self, now: Instant, check_out: CheckOut) {
        self.machine.call(now, Input::CancelCheckOut(check_out), None);
        if let (Some(watch), CheckOut::Selecting(selection)) = (&mut self.watch, check_out) {
            watch.forget(selection);
        }
    }

    /// Whether the timer comes back before `time`, or `time` is never.
    #[inline]
    pub(crate) fn timer_comes_before(&self, time: Option<Instant>) -> bool {
        time.is_none_or(|time| self.armed.is_some_and(|armed| armed <= time))
    }

    /// Makes the timer come back at `next`; returns whether it would come later.
    #[inline]
    pub(crate) fn arm(&mut self, next: Instant) -> bool {
        let is_earlier = self.armed.is_none_or(|armed| next < armed);
        if is_earlier {
            self.armed = Some(next);
        }
        is_earlier
    }

    /// The entry of a connection.
    pub(crate) fn place(&self, connection: Handle) -> Option<Place> {
        Some((self.machine.pool_of(connection)?, connection.id()))
    }

    /// Run by the timer before it sleeps. Returns when it has to wake.
    pub(crate) fn arm_timer(&mut self) -> Option<Instant> {
        self.armed = self.next_timeout().into_iter().chain(self.deadlines.first()).min();
        self.armed
    }

    /// When the machine, or the look for possible leaks, is due.
    fn next_timeout(&self) -> Option<Instant> {
        let machine = self.machine.poll_timeout().map(|timeout| timeout.at);
        machine.into_iter().chain(self.next_look()).min()
    }
}

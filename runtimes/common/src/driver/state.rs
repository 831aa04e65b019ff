//! The state under the client's mutex: the core's machine, and its counterparts on this side of the sockets.
//!
//! Every call follows the driving rule: the machine is called, its outputs are drained, and the timer is woken if the
//! next timeout has become earlier. Work that needs no lock is noted as [`Work`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::monitor::{Monitor, MonitorOptions};
use cmap_core::pool::{self, Action, Cause, CheckOutId, CheckedIn, Condition, ConnectionId, Handle, Refused};
use cmap_core::server::{OperationError, ServerId};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Input, MonitorCall, Output, TopologyDescription};
use slab::Slab;

use super::deadlines::Deadlines;
use super::heartbeats::Heartbeats;
use super::machine::Machine;
use super::member::Member;
use super::refresh::Refresh;
use super::refused_logins::RefusedLogins;
use super::srv_lookup::SrvLookup;
use super::waiters::Waiters;
use super::warm_up::WarmUps;
use super::work::{Establishment, Work};
use crate::error::{CheckOutError, RuntimeGone};
use crate::establish::{Origin, Settings};
use crate::events::{Event, EventQueue};
#[cfg(feature = "trace")]
use crate::recording::Holders;
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::socket::abort::{Abort, AbortReason};
use crate::watch::{NotedCommand, Tag, Watch};

pub(crate) struct State<R: Runtime> {
    pub(crate) machine: Machine<Box<Socket<R::Stream>>>,
    pub(crate) waiters: Waiters<Answer<R::Stream>>,
    /// The servers, those included that have left and are not drained yet.
    pub(crate) members: BTreeMap<ServerId, Arc<Member<R>>>,
    settings: Arc<Settings<R>>,
    monitor_options: Option<MonitorOptions>,
    /// Events of the topology as a whole go with it.
    pub(super) first_seed: Arc<ServerAddress>,
    /// Every connection from the start of its establishment until it is closed.
    pub(crate) activities: BTreeMap<Place, Activity>,
    pub(crate) deadlines: Deadlines,
    pub(super) heartbeats: Heartbeats,
    pub(crate) srv_lookup: SrvLookup,
    pub(crate) events: EventQueue,
    /// What tasks of check-outs knew of the servers when they were last woken to choose among them.
    described: Arc<TopologyDescription>,
    /// The wakers of the tasks that wait for the last connection of a closed pool.
    pub(crate) closing: Slab<Waker>,
    pub(super) warm_ups: WarmUps,
    pub(super) refused_logins: RefusedLogins,
    /// The time at which the timer comes back.
    armed: Option<Instant>,
    pub(crate) runtime_gone: bool,
    /// Who asked for connections, where that is noted.
    pub(super) watch: Option<Box<Watch>>,
    /// Numbers of those who make calls, for what is recorded of them.
    #[cfg(feature = "trace")]
    pub(super) holders: Holders,
    is_alive: fn(&mut Socket<R::Stream>) -> bool,
}

/// A connection among those of all servers.
pub(crate) type Place = (ServerId, ConnectionId);

/// The present work at a connection, and how to abort it.
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
            members.insert(id, Member::new(id, address, &settings, None));
        }
        let labels = settings.labels.as_ref().map(Arc::clone);
        let watch = labels.map(|labels| Box::new(Watch::new(labels, settings.leak_detection_threshold)));
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
            heartbeats: Heartbeats::default(),
            srv_lookup: SrvLookup::default(),
            events: EventQueue::default(),
            described,
            closing: Slab::new(),
            warm_ups: WarmUps::new(),
            refused_logins: RefusedLogins::default(),
            armed: None,
            runtime_gone: false,
            watch,
            #[cfg(feature = "trace")]
            holders: Holders::default(),
            is_alive: Socket::is_alive::<R>,
        }
    }

    /// Carries out the machine's outputs. The answer to the check-out `own`, if it is there already, is returned; other
    /// answers go to their waiters. `own` follows its check-out from a pool to the wait for a server, and back.
    pub(crate) fn drain(
        &mut self,
        now: Instant,
        mut own: Option<&mut CheckOut>,
        work: &mut Work<R>,
    ) -> Option<Answer<R::Stream>> {
        let mut own_answer = None;
        while let Some(output) = self.machine.poll_output() {
            let (check_out, answer) = match output {
                Output::Pool {
                    output: pool::Output::Action(Action::Deliver { check_out, connection, socket }),
                    ..
                } => (CheckOut::Started(check_out), Ok(Delivery { check_out, connection, socket })),
                Output::Pool { server, output: pool::Output::Action(Action::Fail { check_out, error }) } => {
                    (CheckOut::Started(check_out), Err(self.explain(now, server, error).into()))
                }
                Output::SelectionFailed { selection, error } => {
                    if let Some(watch) = &mut self.watch {
                        watch.forget(selection);
                    }
                    (CheckOut::Selecting(selection), Err(error.into()))
                }
                Output::Selected { selection, check_out } => {
                    if let Some(watch) = &mut self.watch {
                        watch.select(selection, check_out);
                    }
                    match &mut own {
                        Some(own) if **own == CheckOut::Selecting(selection) => **own = CheckOut::Started(check_out),
                        _ => self.waiters.select(selection, check_out),
                    }
                    continue;
                }
                Output::Reselecting { check_out, selection } => {
                    if let Some(watch) = &mut self.watch {
                        watch.reselect(check_out, selection);
                    }
                    match &mut own {
                        Some(own) if **own == CheckOut::Started(check_out) => **own = CheckOut::Selecting(selection),
                        _ => self.waiters.reselect(check_out, selection),
                    }
                    continue;
                }
                Output::Pool { .. }
                | Output::Topology(_)
                | Output::Selection(_)
                | Output::Server { .. }
                | Output::Monitor { .. }
                | Output::WarmedUp { .. }
                | Output::ResolveSrv { .. } => {
                    self.act(now, output, work);
                    continue;
                }
            };
            if own.as_deref() == Some(&check_out) {
                own_answer = Some(answer);
            } else {
                self.answer(now, check_out, answer, work);
            }
        }
        if self.settings.server_filter.is_some() && !Arc::ptr_eq(&self.described, self.machine.description()) {
            self.described = Arc::clone(self.machine.description());
            work.wake_all(self.waiters.selecting());
        }
        work.rings_alarm |= self.rearm();
        if let Some(events) = self.events.begin() {
            work.more().deliver = Some(events);
        }
        if !self.closing.is_empty() && self.connections() == 0 {
            work.more().wake.extend(self.closing.drain());
        }
        own_answer
    }

    /// How many connections there are, pending ones included.
    pub(crate) fn connections(&self) -> u32 {
        self.machine.connections()
    }

    /// Whether the owner has a monitor, and not the client.
    pub(crate) fn has_own_monitor(&self) -> bool {
        self.monitor_options.is_none()
    }

    fn answer(&mut self, now: Instant, check_out: CheckOut, answer: Answer<R::Stream>, work: &mut Work<R>) {
        match self.waiters.answer(check_out, answer) {
            Ok(waker) => work.wake(waker),
            // A waiter that leaves cancels its check-out under the same lock, so none is missing here. If one were, the
            // connection would not be lost.
            Err(Ok(delivery)) => self.take_back(now, delivery, work),
            Err(Err(_)) => {}
        }
    }

    fn act(&mut self, now: Instant, output: Output<Box<Socket<R::Stream>>>, work: &mut Work<R>) {
        match output {
            Output::Pool { server, output: pool::Output::Event(event) } => {
                let event = self.explain_event(now, server, event);
                self.tell(server, Event::Pool(event));
            }
            Output::Pool { server, output: pool::Output::Action(action) } => {
                self.act_for_pool(now, server, action, work);
            }
            Output::Server { server, event } => self.tell_of_server(now, server, event),
            Output::Topology(event) => self.events.push(&self.first_seed, Event::Topology(event)),
            Output::Selection(event) => self.events.push(&self.first_seed, Event::Selection(event)),
            Output::Monitor { server, call } => self.act_for_monitor(now, server, call, work),
            Output::ResolveSrv { name } => work.more().srv_lookup = Some((name, self.srv_lookup.begin())),
            Output::WarmedUp { warm_up, result } => work.wake_all(self.end_warm_up(warm_up, result)),
            Output::Selected { .. } | Output::Reselecting { .. } | Output::SelectionFailed { .. } => {}
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
                self.members.insert(server, Member::new(server, address, &self.settings, monitor));
                // The timer begins to check it.
                work.rings_alarm = true;
            }
            MonitorCall::Call(call) => {
                // Here, and not after the lock: several calls mean something else in another order.
                let monitoring = self.members.get(&server).and_then(|member| member.monitoring.as_ref());
                if let Some(monitoring) = monitoring {
                    monitoring.request(call);
                    work.rings_alarm = true;
                }
            }
            MonitorCall::End => {
                // It was told of, if anybody listens.
                let _ = self.heartbeats.end(now, server);
                work.more().end.extend(self.members.get(&server).map(Arc::clone));
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
            // There is no task left to establish it. The pool has no more use for it either, so it stays pending.
            Action::Connect { .. } if self.runtime_gone => {}
            Action::Connect { connection } => {
                let Some(member) = self.member_for(server, connection) else { return };
                let abort = Arc::new(Abort::default());
                let activity = Activity {
                    abort: Arc::clone(&abort),
                    is_own_work: true,
                    server_connection_id: None,
                    command: None,
                    replied: None,
                    told: None,
                };
                self.activities.insert((server, connection.id()), activity);
                let origin = self.machine.origin_of(connection).map_or(Origin::Population, |_| Origin::CheckOut);
                work.more().establish.push(Establishment { member, connection, origin, abort });
            }
            Action::Check { connection } => {
                let is_alive = self.is_alive;
                let alive = self.machine.socket(connection).is_some_and(|socket| is_alive(socket));
                // Refused only if the pool had not asked.
                self.machine.call(now, Input::Checked(connection, alive), None);
            }
            // There is no task left for it.
            Action::Refresh { connection, socket, .. } if self.runtime_gone => {
                work.more().close.push(socket);
                let error = OperationError::new(Fault::Other, Cause::of(&RuntimeGone));
                self.machine.call(now, Input::RefreshFailed(connection, error), None);
                self.activities.remove(&(server, connection.id()));
            }
            Action::Refresh { connection, socket, timeout } => {
                self.set_own_work(connection, true);
                work.more().refresh.push(Refresh { connection, socket, timeout });
            }
            Action::Close { connection, socket, .. } => {
                self.activities.remove(&(server, connection.id()));
                work.more().close.push(socket);
            }
            Action::Interrupt { connection } => {
                let activity = self.activities.get(&(server, connection.id()));
                work.wake_all(activity.and_then(|activity| activity.abort.abort(AbortReason::Interrupted)));
            }
            // The machine takes the latter, and tells of its own.
            Action::Deliver { .. } | Action::Fail { .. } | Action::WarmedUp { .. } => {}
        }
    }

    /// The member for a new connection. That of an identity's pool comes with its first connection.
    fn member_for(&mut self, pool: ServerId, connection: Handle) -> Option<Arc<Member<R>>> {
        if let Some(member) = self.members.get(&pool) {
            return Some(Arc::clone(member));
        }
        let address = Arc::clone(&self.machine.server(pool)?.description().address);
        let member = Member::of_identity(pool, address, &self.settings, self.machine.identity_of(connection));
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
    pub(crate) fn follow_check_in(&mut self, now: Instant, checked_in: CheckInResult<R::Stream>, work: &mut Work<R>) {
        match checked_in {
            Ok(CheckedIn::Done) => {}
            Ok(CheckedIn::Delivered(delivery)) => {
                self.answer(now, CheckOut::Started(delivery.check_out), Ok(delivery), work);
            }
            Err(refused) => work.more().close.push(refused.socket),
        }
    }

    /// Notes who has begun a check-out, where holders are watched.
    #[inline(always)]
    pub(super) fn note(&mut self, now: Instant, check_out: CheckOut, tag: Tag) {
        if self.watch.is_some() {
            self.note_watched(now, check_out, tag);
        }
    }

    #[inline(never)]
    fn note_watched(&mut self, now: Instant, check_out: CheckOut, tag: Tag) {
        let Some(watch) = &mut self.watch else { return };
        watch.note(check_out, tag);
        if let Some(uses) = &mut watch.uses {
            uses.look_from(now);
        }
        #[cfg(feature = "trace")]
        self.record_holder(check_out, tag);
    }

    /// Notes whether the work at a connection is the pool's own.
    pub(crate) fn set_own_work(&mut self, connection: Handle, is_own_work: bool) {
        if let Some(activity) = self.place(connection).and_then(|place| self.activities.get_mut(&place)) {
            activity.is_own_work = is_own_work;
        }
    }

    /// Aborts the pool's own work, or the operations on connections in use. Returns the tasks to wake.
    pub(crate) fn abort_all(&mut self, own_work: bool, reason: AbortReason) -> Vec<Waker> {
        let activities = self.activities.values().filter(|activity| activity.is_own_work == own_work);
        activities.filter_map(|activity| activity.abort.abort(reason)).collect()
    }

    /// Tells every waiter that the runtime is gone, and gives up its check-out. Returns the tasks to wake.
    pub(crate) fn end_of_runtime(&mut self, now: Instant) -> Vec<Waker> {
        self.runtime_gone = true;
        let mut wake = self.abort_all(false, AbortReason::RuntimeGone);
        wake.append(&mut self.abort_all(true, AbortReason::RuntimeGone));
        wake.append(&mut self.deadlines.abort_all(AbortReason::RuntimeGone));
        for (check_out, waker) in self.waiters.answer_all(|| Err(RuntimeGone.into())) {
            // It waited, and no outputs were drained since: there is no delivery to lose.
            self.machine.call(now, Input::CancelCheckOut(check_out), None);
            if let (Some(watch), CheckOut::Selecting(selection)) = (&mut self.watch, check_out) {
                watch.forget(selection);
            }
            wake.push(waker);
        }
        wake.extend(self.closing.drain());
        wake.append(&mut self.abandon_warm_ups(now));
        wake
    }

    /// Asks the machine when to come back; returns whether the timer would come later.
    #[inline]
    pub(crate) fn rearm(&mut self) -> bool {
        let machine = self.machine.poll_timeout().is_some_and(|timeout| self.arm(timeout.at));
        self.arm_look() || machine
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
        let machine = self.machine.poll_timeout().map(|timeout| timeout.at);
        self.armed = machine.into_iter().chain(self.deadlines.first()).chain(self.next_look()).min();
        self.armed
    }
}

//! A client's servers on this side of the sockets: the core's machine under its mutex, driven where the call is made.
//!
//! An uncontended check-out is lock, step, unlock: no task, no channel, no allocation. What takes time or runs code of others
//! (spawning, waking, closing, handlers of events) is done after the lock was released.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | what happens at connections, the timer's calls, the end |
//! | `callers` | check-outs and check-ins |
//! | `machine` | the machine, and whether its calls are recorded |
//! | `state` | what the mutex guards, and the driving rule |
//! | `work` | what a call leaves to be done without the lock |
//! | `waiters`, `deadlines`, `limits` | check-outs that wait; time limits of operations, and of what else waits |
//! | `srv_lookup` | looking up SRV records again, in a task of its own |
//! | `holders` | who holds connections, who waits, and what an error says about them |
//! | `server_filter` | a user's choice among suitable servers |
//! | `rotation`, `identities` | a new credential, proven before it is used; users besides that of the options |
//! | `warm_up` | the wait for connections that nobody needs yet |
//! | `timer` | the task that sleeps until the next timeout |
//! | `member` | one of the servers: its connections' establisher, its monitor |
//! | `monitoring`, `monitor_socket`, `heartbeats` | the monitors next to the machine, their sockets, and the checks under way |
//! | `refresh` | pings on connections that have been idle for long |
//! | `recording` | what was recorded of the machine |
//! | `suspension` | whether the machine was suspended |
//! | `closing` | the end of a client, and the wait for the last connection |

mod callers;
mod closing;
mod deadlines;
mod heartbeats;
mod holders;
mod identities;
mod limits;
mod machine;
mod member;
mod monitor_socket;
mod monitoring;
#[cfg(feature = "trace")]
mod recording;
mod refresh;
mod refused_logins;
mod rotation;
mod server_filter;
mod srv_lookup;
mod state;
mod suspension;
#[cfg(test)]
mod tests;
mod timer;
mod uses;
mod waiters;
mod warm_up;
mod work;

use std::ops::Bound;
use std::task::Waker;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, MetadataError, Phase};
use cmap_core::monitor::{Monitor, MonitorOptions};
use cmap_core::options::{PoolLimits, PoolOptionsError};
use cmap_core::pool::{
    AffinityKey, ApiMisuse, CheckOutId, Clear, Handle, PhaseTimes, PoolState, Purpose, ServiceId, Stats,
};
use cmap_core::server::{CommandDefaults, CommandEvent, OperationError, ServerDescription, ServerId};
use cmap_core::time::Instant;
use cmap_core::topology::{self, Input, SelectionDetail, TopologyDescription};

pub(crate) use self::callers::Begun;
pub(crate) use self::closing::Closing;
use self::closing::LastConnection;
pub(crate) use self::machine::Machine;
use self::member::Member;
pub(crate) use self::server_filter::Narrowed;
use self::state::State;
pub(crate) use self::state::{Answer, Delivery};
use self::timer::Alarm;
use self::work::{Establishment, MoreWork, Work};
use crate::error::RuntimeGone;
use crate::establish::{Requester, Settings};
use crate::events::{AddressedEvent, Event, EventDelivery, EventQueue, EventSource, Listeners, Subscription};
use crate::runtime::Runtime;
use crate::runtime::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::socket::Socket;
use crate::socket::abort::AbortReason;
use crate::socket::buffer_pool::SharedBufferPool;
use crate::spans::Spans;
use crate::time::{Clock, Limit, TimeLimit};

pub(crate) struct Driver<R: Runtime> {
    /// The first seed, which stands for all servers where there is no other.
    address: Arc<ServerAddress>,
    clock: Clock<R>,
    settings: Arc<Settings<R>>,
    listeners: Listeners,
    alarm: Arc<Alarm>,
    /// The longest wait of a check-out for which its caller sets none.
    check_out_limit: Option<Duration>,
    follows_commands: bool,
    /// What large messages and compression borrow from. The state's lock has no part in it.
    buffers: SharedBufferPool,
    state: Mutex<State<R>>,
    #[cfg(feature = "trace")]
    pub(crate) trigger: std::sync::OnceLock<Arc<crate::recording::Trigger<R>>>,
}

/// One server of a client at one moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// What is known of the server.
    pub description: Arc<ServerDescription>,
    /// Whether its pool is ready, paused or closed.
    pub state: PoolState,
    /// Its pool's counts.
    pub stats: Stats,
}

/// What a call leaves to be done without the lock, with the duty to tell its events.
struct Unfinished<R: Runtime> {
    work: Work<R>,
    delivery: Option<EventDelivery<Driver<R>>>,
}

impl<R: Runtime> Driver<R> {
    /// Starts to drive `machine` in the home runtime, and a monitor for each server that is to be checked.
    pub(crate) fn start(
        machine: Machine<Box<Socket<R::Stream>>>,
        first_seed: Arc<ServerAddress>,
        settings: Arc<Settings<R>>,
        monitor_options: Option<MonitorOptions>,
        listeners: Listeners,
    ) -> Arc<Self> {
        let clock = settings.clock.clone();
        let state = State::new(machine, Arc::clone(&first_seed), Arc::clone(&settings), monitor_options);
        let driver = Arc::new(Self {
            address: first_seed,
            clock: clock.clone(),
            check_out_limit: settings.check_out_limit,
            follows_commands: settings.command_events || settings.spans.is_some() || settings.labels.is_some(),
            settings,
            listeners,
            alarm: Arc::default(),
            buffers: SharedBufferPool::default(),
            state: Mutex::new(state),
            #[cfg(feature = "trace")]
            trigger: std::sync::OnceLock::new(),
        });
        timer::start(&driver, clock);
        driver
    }

    // What happens at connections.

    /// An operation failed. Report it before its connection is given back (CMAP-49).
    pub(crate) fn handle_operation_failed(self: &Arc<Self>, connection: Handle, error: OperationError) {
        // The connection is in use, or has been closed since.
        self.call(Input::OperationFailed(connection, error));
    }

    pub(crate) fn set_purpose(self: &Arc<Self>, check_out: CheckOutId, connection: Handle, purpose: Purpose) {
        // The connection is in use.
        self.call(Input::SetPurpose(check_out, connection, purpose));
    }

    // The timer.

    /// Time has passed, or the alarm rang. Returns when the timer has to come back.
    fn handle_timeout(self: &Arc<Self>) -> Option<Instant> {
        let now = self.clock.now();
        // A reader of the log may have come since the last look.
        let are_logged = self.listeners.are_logged();
        let selection_detail = self.listeners.selection_detail();
        let mut work = Work::none();
        let mut state = self.lock();
        if are_logged {
            state.machine.call(now, Input::Observe(true), None);
        }
        state.machine.call(now, Input::ObserveSelections(selection_detail), None);
        let expired = state.deadlines.expire(now);
        state.machine.call(now, Input::Timeout, None);
        state.tell_possible_leaks(now);
        state.drain(now, None, &mut work);
        let next = state.arm_timer();
        drop(state);
        work.wake_all(expired);
        // The timer is awake.
        work.rings_alarm = false;
        self.finish(self.unfinished(work));
        // Afterwards, so that a server that has just joined is checked. What a finding leads to earlier rings the alarm.
        next.into_iter().chain(self.handle_monitors()).min()
    }

    /// Lets every monitor do what is due. Returns when the first of them has to come back.
    fn handle_monitors(self: &Arc<Self>) -> Option<Instant> {
        let mut next = None;
        let mut last = None;
        // One after the other, because their calls may add servers and remove others; none is missed that was there at first.
        while let Some(member) = self.member_after(last) {
            last = Some(member.id);
            let monitoring = member.monitoring.as_ref();
            next = next.into_iter().chain(monitoring.and_then(|it| it.handle_timeout(self, &member))).min();
        }
        next
    }

    fn member_after(&self, last: Option<ServerId>) -> Option<Arc<Member<R>>> {
        let state = self.lock();
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        state.members.range((after, Bound::Unbounded)).next().map(|(_, member)| Arc::clone(member))
    }

    // The whole client.

    /// Makes the pool of a server without a monitor ready.
    pub(crate) fn ready(self: &Arc<Self>) -> Result<(), ApiMisuse> {
        self.call(Input::Ready).done()
    }

    /// Clears the pool of a server without a monitor.
    pub(crate) fn clear(self: &Arc<Self>, clear: Clear) -> Result<(), ApiMisuse> {
        self.call(Input::Clear(clear)).done()
    }

    /// Gives all pools new limits.
    pub(crate) fn resize(self: &Arc<Self>, limits: PoolLimits) -> Result<(), PoolOptionsError> {
        match self.call(Input::Resize(limits)) {
            topology::Answer::LimitsRefused(error) => Err(error),
            topology::Answer::Done | _ => Ok(()),
        }
    }

    /// Ends the lives of all connections over a time.
    pub(crate) fn replace_connections(self: &Arc<Self>, over: Duration) {
        self.call(Input::ReplaceConnections(over));
    }

    /// Lets all pools forget the connection of a key.
    pub(crate) fn end_affinity(self: &Arc<Self>, key: AffinityKey) {
        self.call(Input::EndAffinity(key));
    }

    /// Whether keys have connections.
    pub(crate) fn has_affinity(&self) -> bool {
        self.lock().machine.has_affinity()
    }

    /// Closes the monitors and the pools, and gives up what is being established.
    pub(crate) fn close(self: &Arc<Self>) {
        // Servers that have just joined get their monitors.
        self.drive(|_, _, _| {});
        // The last events of the monitors come first (MON-14).
        self.close_monitors();
        self.drive(|state, now, work| {
            state.machine.call(now, Input::Close, None);
            state.report_refused(now);
            work.wake_all(state.abort_all(true, AbortReason::Closed));
            work.wake_all(state.srv_lookup.end());
        });
        // Those of servers that joined meanwhile.
        self.close_monitors();
        self.log_uses(false);
    }

    fn close_monitors(self: &Arc<Self>) {
        let mut last = None;
        while let Some(member) = self.member_after(last) {
            last = Some(member.id);
            if let Some(monitoring) = &member.monitoring {
                monitoring.drive(self, &member, Monitor::close);
            }
        }
    }

    /// Waits until the last connection of a closed pool came back, for at most `patience`; then aborts what is still in use.
    /// Returns how many connections that were.
    pub(crate) async fn closed(self: &Arc<Self>, patience: Duration) -> Result<u32, RuntimeGone> {
        let outcome = self.within(Some(patience), LastConnection::of(self)).await;
        outcome.unwrap_or_else(|reason| {
            if reason == AbortReason::RuntimeGone {
                return Err(RuntimeGone);
            }
            self.log_uses(true);
            Ok(self.drive(|state, _, work| {
                work.wake_all(state.abort_all(false, AbortReason::Closed));
                state.machine.servers().map(|(_, server)| server.pool().counts().in_use).sum()
            }))
        })
    }

    /// How many tasks wait for the last connection of a closed pool.
    pub(crate) fn waits_for_the_end(&self) -> usize {
        self.lock().closing.len()
    }

    /// How many entries there are for waiters, connections, time limits and closes.
    pub(crate) fn entries(&self) -> usize {
        let state = self.lock();
        state.waiters.entries()
            + state.activities.len()
            + state.deadlines.entries()
            + state.closing.len()
            + state.refused_logins.entries()
            + state.warm_ups.len()
            + state.watch.as_ref().map_or(0, |watch| watch.entries())
    }

    pub(crate) fn address(&self) -> &Arc<ServerAddress> {
        &self.address
    }

    /// Closed, or ready if a pool is, or else paused.
    pub(crate) fn state(&self) -> PoolState {
        let state = self.lock();
        if state.machine.is_closed() {
            return PoolState::Closed;
        }
        let mut states = state.machine.servers().map(|(_, server)| server.pool().state());
        if states.any(|state| state == PoolState::Ready) { PoolState::Ready } else { PoolState::Paused }
    }

    /// The counts of all pools together.
    pub(crate) fn stats(&self) -> Stats {
        self.lock().machine.stats()
    }

    pub(crate) fn description(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.lock().machine.description())
    }

    /// How long its servers keep unused sessions (TOP-39).
    pub(crate) fn session_timeout(&self) -> Option<Duration> {
        let minutes = self.lock().machine.description().logical_session_timeout_minutes()?;
        Some(Duration::from_secs(u64::try_from(minutes).ok()?.saturating_mul(60)))
    }

    /// The servers of the deployment.
    pub(crate) fn servers(&self) -> Vec<ServerStatus> {
        let state = self.lock();
        let members = state.machine.servers().filter(|(_, server)| !server.has_left());
        members
            .map(|(_, server)| ServerStatus {
                description: Arc::clone(server.description()),
                state: server.pool().state(),
                stats: server.pool().stats(),
            })
            .collect()
    }

    /// The shortest recent round trip to a connection's server.
    pub(crate) fn min_round_trip_time(&self, connection: Handle) -> Duration {
        let state = self.lock();
        let server = state.machine.server_of(connection).and_then(|server| state.machine.server(server));
        server.map_or(Duration::ZERO, |server| server.description().min_round_trip_time)
    }

    /// Adds a library that wraps this one to the metadata of connections yet to come (HS-14).
    pub(crate) fn append_metadata(&self, name: &str, version: &str, platform: &str) -> Result<(), MetadataError> {
        self.settings.append_metadata(name, version, platform)
    }

    /// The limit of a command for which its caller sets none.
    pub(crate) fn command_limit(&self) -> Option<TimeLimit> {
        self.settings.command_limit
    }

    /// Whether there are events of commands.
    pub(crate) fn has_command_events(&self) -> bool {
        self.settings.command_events
    }

    /// Its spans, if it has some.
    pub(crate) fn spans(&self) -> Option<&Spans> {
        self.settings.spans.as_ref()
    }

    /// Whether it is noted, or told, which commands run.
    pub(crate) fn follows_commands(&self) -> bool {
        self.follows_commands
    }

    pub(crate) fn tell_command(self: &Arc<Self>, server: &Arc<ServerAddress>, event: CommandEvent) {
        self.drive(|state, _, _| state.events.push(server, Event::Command(Arc::new(event))));
    }

    /// What the options add to commands.
    pub(crate) fn command_defaults(&self) -> Option<&CommandDefaults> {
        self.settings.command_defaults.as_ref()
    }

    /// The time that a call with `limit` has from now on; `None` means as long as it needs.
    pub(crate) fn left(&self, limit: Limit) -> Option<Duration> {
        limit.left(self.clock.runtime())
    }

    pub(crate) fn clock(&self) -> &Clock<R> {
        &self.clock
    }

    pub(crate) fn buffers(&self) -> &SharedBufferPool {
        &self.buffers
    }

    fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.alarm)
    }

    // Driving.

    /// Makes one call without a socket.
    fn call(self: &Arc<Self>, input: Input) -> topology::Answer<Box<Socket<R::Stream>>> {
        self.drive(|state, now, _| state.machine.call(now, input, None))
    }

    /// Calls the machine, drains it, and does what is left to do without the lock.
    fn drive<T>(self: &Arc<Self>, call: impl FnOnce(&mut State<R>, Instant, &mut Work<R>) -> T) -> T {
        let (result, unfinished) = self.begin(self.clock.now(), call);
        self.finish(unfinished);
        result
    }

    /// Calls the machine and drains it.
    fn begin<T>(
        self: &Arc<Self>,
        now: Instant,
        call: impl FnOnce(&mut State<R>, Instant, &mut Work<R>) -> T,
    ) -> (T, Unfinished<R>) {
        let mut work = Work::none();
        let mut state = self.lock();
        let result = call(&mut state, now, &mut work);
        state.drain(now, None, &mut work);
        drop(state);
        (result, self.unfinished(work))
    }

    /// The duty to tell events is taken on before anything is done that might panic.
    #[inline]
    fn unfinished(self: &Arc<Self>, mut work: Work<R>) -> Unfinished<R> {
        let events = work.more.as_mut().and_then(|more| more.deliver.take());
        Unfinished { work, delivery: events.map(|events| EventDelivery::new(self, events)) }
    }

    #[inline]
    fn finish(self: &Arc<Self>, Unfinished { work, delivery }: Unfinished<R>) {
        if let Some(waker) = work.wake {
            waker.wake();
        }
        if work.rings_alarm {
            self.alarm.ring();
        }
        if let Some(more) = work.more {
            self.finish_more(*more);
        }
        delivery.into_iter().for_each(EventDelivery::begin);
    }

    #[cold]
    fn finish_more(self: &Arc<Self>, more: MoreWork<R>) {
        more.wake.into_iter().for_each(Waker::wake);
        for Establishment { member, connection, origin, abort } in more.establish {
            member.establisher.begin(Arc::downgrade(self), connection, origin, abort);
        }
        for refresh in more.refresh {
            refresh::begin(self, refresh);
        }
        for member in more.end {
            if let Some(monitoring) = &member.monitoring {
                monitoring.drive(self, &member, Monitor::close);
            }
        }
        if let Some((name, abort)) = more.srv_lookup {
            srv_lookup::begin(self, name, abort);
        }
        more.close.into_iter().for_each(|socket| socket.close());
    }

    // Events.

    pub(crate) fn subscribe(&self, capacity: usize) -> Subscription {
        let subscription = self.listeners.subscribe(capacity);
        self.observe();
        subscription
    }

    /// Whether somebody gets events of selections.
    pub(crate) fn tells_selections(&self) -> bool {
        self.listeners.selection_detail() != SelectionDetail::None
    }

    /// Makes events only if there are listeners.
    fn observe(&self) {
        let (are_logged, now) = (self.listeners.are_logged(), self.clock.now());
        let mut state = self.lock();
        state.machine.call(now, Input::Observe(are_logged || self.listeners.any()), None);
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        // Nothing under the lock panics; were it so, the machine guards its own state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Runtime> Requester<R::Stream> for Driver<R> {
    fn handle_hello(
        self: &Arc<Self>,
        connection: Handle,
        service_id: Option<ServiceId>,
        description: ServerDescription,
    ) {
        // Refused only outside of load-balanced mode, where no hello names a service.
        self.call(Input::Hello(connection, service_id, Box::new(description)));
    }

    fn handle_established(self: &Arc<Self>, connection: Handle, socket: Box<Socket<R::Stream>>, took: PhaseTimes) {
        self.drive(|state, now, work| {
            let place = state.place(connection);
            state.set_own_work(connection, false);
            if let Some(activity) = place.and_then(|place| state.activities.get_mut(&place)) {
                activity.server_connection_id = socket.protocol().description().connection_id;
            }
            state.machine.call(now, Input::Phases(took), None);
            let answer = state.machine.call(now, Input::Established(connection), Some(socket));
            if let topology::Answer::Misuse(misuse, socket) = answer {
                place.map(|place| state.activities.remove(&place));
                work.more().close.extend(socket);
                // It has no service id, which its hello would have told (LB-6).
                let error = EstablishError::new(Phase::Hello, Fault::Other, misuse.to_string());
                // The connection is pending, or else it has been forgotten.
                state.machine.call(now, Input::EstablishFailed(connection, error), None);
            }
        });
    }

    fn handle_establish_failed(self: &Arc<Self>, connection: Handle, error: EstablishError) {
        self.drive(|state, now, _| state.handle_establish_failed(now, connection, error));
    }

    fn handle_runtime_gone(self: &Arc<Self>) {
        self.drive(|state, now, work| work.wake_all(state.end_of_runtime(now)));
    }
}

impl<R: Runtime> EventSource for Driver<R> {
    fn runtime(&self) -> &impl Runtime {
        self.clock.runtime()
    }

    fn tell(&self, events: &mut Vec<AddressedEvent>) {
        for (address, event) in events.drain(..) {
            self.listeners.tell(&address, &event);
        }
        if self.listeners.has_lost_one() {
            self.observe();
        }
    }

    fn with_events<T>(&self, call: impl FnOnce(&mut EventQueue) -> T) -> T {
        call(&mut self.lock().events)
    }
}

impl<R: Runtime> Drop for Driver<R> {
    fn drop(&mut self) {
        self.listeners.end();
        self.alarm.ring();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.srv_lookup.end().into_iter().for_each(Waker::wake);
    }
}

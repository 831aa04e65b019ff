//! A client's servers on this side of the sockets: the core's machine under its mutex, driven where the call is made.
//!
//! An uncontended check-out is lock, step, unlock: no task, no channel, no allocation. What takes time or runs code of others
//! (spawning, waking, closing, handlers of events) is done after the lock was released.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the driver: lock, call, drain, unlock, and what a call leaves to be done then |
//! | `state` | what the mutex guards, and how it carries out the machine's outputs |
//! | `check_outs` | check-outs and check-ins; who waits for an answer; a user's choice among suitable servers |
//! | `member` | one of the servers: its connections' establisher, its monitor, the monitor's sockets |
//! | `timer` | the task that sleeps until the next timeout, and notices that the machine was suspended; limits of time |
//! | `tasks` | pings on connections that have been idle for long, and lookups of SRV records |
//! | `credentials` | a new credential, proven before it is used; users besides that of the options |
//! | `holders`, `uses` | who holds connections, who waits, and what an error says about them; what uses took |
//! | `recording` | what was recorded of the machine |
//! | `waits` | warm-up, and the wait for connections that nobody needs yet; the end of a client, and the wait for the last connection |

mod check_outs;
mod credentials;
mod holders;
mod member;
#[cfg(feature = "trace")]
mod recording;
mod state;
mod tasks;
#[cfg(test)]
mod tests;
mod timer;
mod uses;
mod waits;

use std::task::Waker;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::{self, Monitor, MonitorOptions};
use cmap_core::options::{PoolLimits, PoolOptionsError};
use cmap_core::pool::{Handle, PhaseTimes, PoolState, ServiceId, Stats};
use cmap_core::server::{CommandEvent, ServerDescription};
use cmap_core::time::Instant;
use cmap_core::topology::{self, Input, SelectionDetail, TopologyDescription};

pub(crate) use self::check_outs::{Begun, Narrowed};
use self::member::{Member, MonitorSocket};
use self::state::State;
pub(crate) use self::state::{Answer, Delivery, Machine};
use self::timer::Alarm;
pub(crate) use self::waits::Closing;
use self::waits::WarmedUp;
use crate::establish::{Origin, Requester, Settings};
use crate::events::{AddressedEvent, Event, EventDelivery, EventQueue, EventSource, Listeners, Subscription};
use crate::runtime::Runtime;
use crate::runtime::slot::Filler;
use crate::runtime::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::socket::Socket;
use crate::socket::abort::{Abort, AbortReason};
use crate::socket::buffer_pool::SharedBufferPool;
use crate::time::Clock;

pub(crate) struct Driver<R: Runtime> {
    /// The first seed, which stands for all servers where there is no other.
    pub(crate) address: Arc<ServerAddress>,
    pub(crate) clock: Clock<R>,
    pub(crate) settings: Arc<Settings<R>>,
    listeners: Listeners,
    alarm: Arc<Alarm>,
    /// What large messages and compression borrow from. The state's lock has no part in it.
    pub(crate) buffers: SharedBufferPool,
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

/// What a call leaves to be done without the lock. Most calls leave at most one task to wake, and allocate nothing for it.
pub(crate) struct Work<R: Runtime> {
    wake: Option<Waker>,
    /// The timer has to come back earlier.
    rings_alarm: bool,
    jobs: Vec<Job<R>>,
    deliver: Option<Vec<AddressedEvent>>,
}

/// What is seldom left to be done.
pub(crate) enum Job<R: Runtime> {
    Wake(Waker),
    Establish {
        member: Arc<Member<R>>,
        connection: Handle,
        origin: Origin,
        abort: Arc<Abort>,
    },
    Refresh {
        connection: Handle,
        socket: Box<Socket<R::Stream>>,
        timeout: Duration,
    },
    Close(Box<Socket<R::Stream>>),
    /// A socket of a server's monitor is to be opened.
    Open {
        member: Arc<Member<R>>,
        socket: monitor::Socket,
        shared: Arc<MonitorSocket>,
    },
    /// The monitor of a server that has left is to be closed.
    EndMonitor(Arc<Member<R>>),
    /// A warm-up has ended, or never will.
    EndWarmUp(Filler<WarmedUp>, Option<WarmedUp>),
    LookUpSrv {
        name: String,
        abort: Arc<Abort>,
    },
}

impl<R: Runtime> Work<R> {
    fn none() -> Self {
        Self { wake: None, rings_alarm: false, jobs: Vec::new(), deliver: None }
    }

    fn wake(&mut self, waker: Waker) {
        match self.wake {
            None => self.wake = Some(waker),
            Some(_) => self.jobs.push(Job::Wake(waker)),
        }
    }

    fn wake_all(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        wakers.into_iter().for_each(|waker| self.wake(waker));
    }
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
        let state = State::new(machine, Arc::clone(&first_seed), Arc::clone(&settings), monitor_options);
        let driver = Arc::new(Self {
            address: first_seed,
            clock: settings.clock.clone(),
            settings,
            listeners,
            alarm: Arc::default(),
            buffers: SharedBufferPool::default(),
            state: Mutex::new(state),
            #[cfg(feature = "trace")]
            trigger: std::sync::OnceLock::new(),
        });
        timer::start(&driver);
        driver
    }

    /// Gives all pools new limits.
    pub(crate) fn resize(self: &Arc<Self>, limits: PoolLimits) -> Result<(), PoolOptionsError> {
        match self.call(Input::Resize(limits)) {
            topology::Answer::LimitsRefused(error) => Err(error),
            topology::Answer::Done | _ => Ok(()),
        }
    }

    /// Whether keys have connections.
    pub(crate) fn has_affinity(&self) -> bool {
        self.lock().machine.has_affinity()
    }

    /// How many entries there are for waiters, connections, time limits and closes.
    pub(crate) fn entries(&self) -> usize {
        let closing = self.waits_for_the_end();
        let state = self.lock();
        closing
            + state.waiters.entries()
            + state.activities.len()
            + state.deadlines.entries()
            + state.refused_logins.held.len()
            + state.warm_ups.len()
            + state.watch.as_ref().map_or(0, |watch| watch.entries())
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

    /// Whether it is noted, or told, which commands run.
    pub(crate) fn follows_commands(&self) -> bool {
        self.settings.command_events || self.settings.spans.is_some() || self.settings.labels.is_some()
    }

    pub(crate) fn tell_command(self: &Arc<Self>, server: &Arc<ServerAddress>, event: CommandEvent) {
        self.drive(|state, _, _| state.events.push(server, Event::Command(Arc::new(event))));
    }

    // Driving.

    /// Makes one call without a socket.
    pub(crate) fn call(self: &Arc<Self>, input: Input) -> topology::Answer<Box<Socket<R::Stream>>> {
        self.drive(|state, now, _| state.machine.call(now, input, None))
    }

    /// Calls the machine, drains it, and does what is left to do without the lock.
    fn drive<T>(self: &Arc<Self>, call: impl FnOnce(&mut State<R>, Instant, &mut Work<R>) -> T) -> T {
        let (result, work) = self.begin(self.clock.now(), call);
        self.finish(work);
        result
    }

    /// Calls the machine and drains it.
    fn begin<T>(&self, now: Instant, call: impl FnOnce(&mut State<R>, Instant, &mut Work<R>) -> T) -> (T, Work<R>) {
        let mut work = Work::none();
        let mut state = self.lock();
        let result = call(&mut state, now, &mut work);
        state.drain(now, &mut work);
        (result, work)
    }

    #[inline]
    fn finish(self: &Arc<Self>, work: Work<R>) {
        if !work.jobs.is_empty() || work.deliver.is_some() {
            return self.finish_more(work);
        }
        work.wake.into_iter().for_each(Waker::wake);
        if work.rings_alarm {
            self.alarm.ring();
        }
    }

    #[cold]
    fn finish_more(self: &Arc<Self>, mut work: Work<R>) {
        // The duty to tell events is taken on before anything is done that might panic.
        let delivery = work.deliver.take().map(|events| EventDelivery::new(self, events));
        let mut jobs = std::mem::take(&mut work.jobs);
        self.finish(work);
        // Nobody waits for what a user's stream does when it is closed.
        jobs.sort_by_key(|job| matches!(job, Job::Close(_)));
        for job in jobs {
            match job {
                Job::Wake(waker) => waker.wake(),
                Job::Establish { member, connection, origin, abort } => {
                    member.establisher.begin(Arc::downgrade(self), connection, origin, abort);
                }
                Job::Refresh { connection, socket, timeout } => tasks::refresh(self, connection, socket, timeout),
                Job::Close(socket) => socket.close(),
                Job::Open { member, socket, shared } => shared.begin(Arc::downgrade(self), member, socket),
                Job::EndMonitor(member) => member.drive(self, Monitor::close),
                Job::EndWarmUp(filler, Some(result)) => filler.fill(result),
                Job::EndWarmUp(filler, None) => drop(filler),
                Job::LookUpSrv { name, abort } => tasks::look_up_srv(self, name, abort),
            }
        }
        delivery.into_iter().for_each(EventDelivery::begin);
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
        // Under the lock, so that who looked before a subscription began does not turn off its events.
        let is_observed = are_logged || self.listeners.any();
        state.machine.call(now, Input::Observe(is_observed), None);
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
            if let Some(activity) = state.activity(connection) {
                activity.is_own_work = false;
                activity.server_connection_id = socket.protocol().description().connection_id;
            }
            state.machine.call(now, Input::Phases(took), None);
            let answer = state.machine.call(now, Input::Established(connection), Some(socket));
            if let topology::Answer::Misuse(misuse, socket) = answer {
                state.forget(connection);
                work.jobs.extend(socket.map(Job::Close));
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
        self.drive(|state, now, work| state.end_of_runtime(now, work));
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
        state.srv_lookup.abort(AbortReason::Closed).into_iter().for_each(Waker::wake);
    }
}

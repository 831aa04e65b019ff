//! One server on this side of the sockets: the core's machine under its mutex, driven where the call is made.
//!
//! An uncontended check-out is lock, step, unlock: no task, no channel, no allocation. What takes time or runs code of others
//! (spawning, waking, closing, handlers of events) is done after the lock was released.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the calls: check-outs, check-ins, what happens at connections, the end |
//! | `state` | what the mutex guards, and the driving rule |
//! | `work` | what a call leaves to be done without the lock |
//! | `waiters`, `deadlines` | check-outs that wait; time limits of operations |
//! | `driver` | the task that sleeps until the next timeout |
//! | `monitoring`, `monitor_socket` | the monitor beside the machine, and its sockets |
//! | `closing` | the wait for the last connection |

mod closing;
mod deadlines;
mod driver;
mod monitor_socket;
mod monitoring;
mod state;
mod waiters;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, MetadataError, Phase};
use cmap_core::monitor::Monitor;
use cmap_core::pool::{
    ApiMisuse, CheckOutRequest, CheckedIn, Clear, Condition, Handle, PoolState, Purpose, ServiceId, Stats,
};
use cmap_core::server::{CheckOut, CommandDefaults, OperationError, Server as Machine, ServerDescription};
use cmap_core::time::Instant;

use self::closing::LastConnection;
use self::deadlines::Entry;
use self::driver::Alarm;
use self::monitoring::Monitoring;
pub(crate) use self::state::Answer;
pub(crate) use self::state::Delivery;
use self::state::{CheckInResult, State};
use self::waiters::{Found, Left};
use self::work::{MoreWork, Work};
use crate::clock::Clock;
use crate::command_limit::TimeLimit;
use crate::deadline::Limit;
use crate::error::RuntimeGone;
use crate::establish::{Establisher, Requester};
use crate::events::{Event, EventDelivery, EventQueue, EventSource, Listeners, Subscription};
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::socket::abort::{Abort, AbortReason};
use crate::socket::spares::SharedSpares;

pub(crate) struct Server<R: Runtime> {
    address: Arc<ServerAddress>,
    clock: Clock<R>,
    establisher: Arc<Establisher<R>>,
    listeners: Listeners,
    alarm: Arc<Alarm>,
    /// What large messages and compression borrow from. The state's lock has no part in it.
    spares: SharedSpares,
    state: Mutex<State<R::Stream>>,
    /// None behind a load balancer (LB-3), and where the pool's owner has a monitor of their own.
    monitoring: Option<Monitoring>,
}

/// A check-out whose result the machine may still have in its queue. The lock is held.
pub(crate) struct Unanswered<'a, S> {
    state: MutexGuard<'a, State<S>>,
    now: Instant,
    /// `None` if the runtime has ended.
    begun: Option<(CheckOut, Option<Delivery<S>>)>,
}

/// How a check-out begins.
pub(crate) enum Begun<S> {
    Answered(Answer<S>),
    /// It waits at this place.
    Waits(usize),
}

/// A limit on what goes on at a connection. Dropping it lifts the limit.
pub(crate) struct Limited<'a, R: Runtime> {
    server: &'a Server<R>,
    abort: Arc<Abort>,
    entry: Entry,
}

/// What a call leaves to be done without the lock, with the duty to tell its events.
struct Unfinished<R: Runtime> {
    work: Work<R::Stream>,
    delivery: Option<EventDelivery<Server<R>>>,
}

impl<R: Runtime> Server<R> {
    /// Starts to drive `machine` and its monitor, in the home runtime.
    pub(crate) fn start(
        machine: Machine<Box<Socket<R::Stream>>>,
        monitor: Option<Monitor>,
        establisher: Arc<Establisher<R>>,
        listeners: Listeners,
    ) -> Arc<Self> {
        let clock = establisher.clock.clone();
        let server = Arc::new(Self {
            address: Arc::clone(&establisher.address),
            clock: clock.clone(),
            establisher,
            listeners,
            alarm: Arc::default(),
            spares: SharedSpares::default(),
            state: Mutex::new(State::new(machine, Socket::is_alive::<R>)),
            monitoring: monitor.map(Monitoring::new),
        });
        driver::start(&server, clock);
        server
    }

    // Check-outs.

    /// Begins a check-out, which may wait for `limit`. Returns the delivery, if that is all there is to do.
    #[inline(always)]
    pub(crate) fn check_out(&self, limit: Option<Duration>) -> Result<Delivery<R::Stream>, Unanswered<'_, R::Stream>> {
        let now = self.clock.now();
        self.begin_check_out(now, limit.map(|limit| now + limit))
    }

    /// The same until `deadline`.
    #[inline(never)]
    pub(crate) fn check_out_until(&self, deadline: Instant) -> Result<Delivery<R::Stream>, Unanswered<'_, R::Stream>> {
        self.begin_check_out(self.clock.now(), Some(deadline))
    }

    #[inline(always)]
    fn begin_check_out(
        &self,
        now: Instant,
        deadline: Option<Instant>,
    ) -> Result<Delivery<R::Stream>, Unanswered<'_, R::Stream>> {
        let mut request = CheckOutRequest::default();
        request.deadline = deadline;
        let mut state = self.lock();
        if state.runtime_gone {
            return Err(Unanswered { state, now, begun: None });
        }
        match state.machine.check_out(now, request) {
            // Nothing has to be drained, and the driver need not come back earlier.
            (_, Some(delivery)) if state.machine.is_drained() => Ok(delivery),
            begun => Err(Unanswered { state, now, begun: Some(begun) }),
        }
    }

    /// What follows a check-out that waits, fails, has a connection created, or is told to listeners. If it waits, `cx` is
    /// woken.
    pub(crate) fn follow_check_out(
        self: &Arc<Self>,
        unanswered: Unanswered<'_, R::Stream>,
        cx: &Context<'_>,
    ) -> Begun<R::Stream> {
        let Unanswered { mut state, now, begun } = unanswered;
        let Some((check_out, delivery)) = begun else { return Begun::Answered(Err(RuntimeGone.into())) };
        if delivery.is_none() && state.machine.is_drained() {
            // Nothing has to be drained, and no timeout but those of waiters can have become an earlier one.
            let rings_alarm = state.machine.pool().next_check_out_timeout().is_some_and(|at| state.arm(at));
            let place = state.waiters.enter(check_out, cx.waker().clone());
            drop(state);
            if rings_alarm {
                self.alarm.ring();
            }
            return Begun::Waits(place);
        }
        let mut work = Work::none();
        let queued = state.drain(now, Some(check_out), &mut work);
        let begun = match delivery.map(Ok).or(queued) {
            Some(answer) => Begun::Answered(answer),
            None => Begun::Waits(state.waiters.enter(check_out, cx.waker().clone())),
        };
        drop(state);
        self.finish(self.unfinished(work));
        begun
    }

    /// Looks for the answer of the check-out that waits at `place`.
    #[inline(never)]
    pub(crate) fn poll_check_out(&self, place: usize, cx: &Context<'_>) -> Poll<Answer<R::Stream>> {
        let found = self.lock().waiters.poll(place, cx.waker());
        match found {
            Some(Found::Answer(answer)) => Poll::Ready(answer),
            Some(Found::Nothing { .. }) => Poll::Pending,
            None => Poll::Ready(Err(RuntimeGone.into())),
        }
    }

    /// Gives up the check-out that waits at `place`. A connection that was delivered to it already goes back.
    #[inline(never)]
    pub(crate) fn cancel_check_out(self: &Arc<Self>, place: usize) {
        // Dropped behind the lock, as wakers must be.
        let _waker = self.drive_with(|state, now, work| match state.waiters.leave(place)? {
            Left::Waiting(check_out, waker) => {
                // Nothing has been delivered that was not drained.
                let _ = state.machine.cancel_check_out(now, check_out);
                Some(waker)
            }
            Left::Answered(Ok(delivery)) => {
                state.check_in(now, delivery.connection, delivery.socket, Condition::Usable, work);
                None
            }
            Left::Answered(Err(_)) => None,
        });
    }

    /// Gives a connection back.
    #[inline]
    pub(crate) fn check_in(self: &Arc<Self>, connection: Handle, socket: Box<Socket<R::Stream>>, condition: Condition) {
        let now = self.clock.now();
        let mut state = self.lock();
        let checked_in = state.machine.check_in(now, connection, socket, condition);
        let is_done = matches!(checked_in, Ok(CheckedIn::Done)) && state.machine.is_drained();
        if !is_done || !state.driver_comes_before(state.machine.pool().idle_until(now)) {
            self.follow_check_in(state, now, checked_in);
        }
    }

    /// What follows a check-in for which a check-out waits, whose connection is closed, or that is told to listeners.
    #[inline(never)]
    fn follow_check_in(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<R::Stream>>,
        now: Instant,
        checked_in: CheckInResult<R::Stream>,
    ) {
        let checked_in = match checked_in {
            // Nothing has to be drained, and the driver need not come back earlier.
            Ok(CheckedIn::Delivered(delivery)) if state.machine.is_drained() => {
                match state.waiters.answer(CheckOut::Started(delivery.check_out), Ok(delivery)) {
                    Ok(waker) => {
                        drop(state);
                        return waker.wake();
                    }
                    Err(Ok(delivery)) => Ok(CheckedIn::Delivered(delivery)),
                    Err(Err(_)) => Ok(CheckedIn::Done),
                }
            }
            checked_in => checked_in,
        };
        let mut work = Work::none();
        state.follow_check_in(now, checked_in, &mut work);
        state.drain(now, None, &mut work);
        drop(state);
        self.finish(self.unfinished(work));
    }

    // What happens at connections.

    /// An operation failed. To be told before its connection is given back (CMAP-49).
    pub(crate) fn handle_operation_failed(self: &Arc<Self>, connection: Handle, error: OperationError) {
        // The connection is in use, or has been closed since.
        let _ = self.drive(|machine, now| machine.handle_operation_failed(now, connection, error));
    }

    /// Something happened at one of the monitor's sockets.
    fn handle_monitor(self: &Arc<Self>, call: impl FnOnce(&mut Monitor, Instant)) {
        if let Some(monitoring) = &self.monitoring {
            monitoring.drive(self, call);
        }
    }

    pub(crate) fn set_purpose(self: &Arc<Self>, connection: Handle, purpose: Purpose) {
        // The connection is in use.
        let _ = self.drive(|machine, _| machine.set_purpose(connection, purpose));
    }

    /// Aborts what goes on after `limit`; `None` means never.
    pub(crate) fn limit(self: &Arc<Self>, limit: Option<Duration>, abort: &Arc<Abort>) -> Option<Limited<'_, R>> {
        let at = self.clock.deadline(limit)?;
        let mut state = self.lock();
        let entry = state.deadlines.insert(at, Arc::clone(abort));
        let is_first = state.arm(at);
        drop(state);
        if is_first {
            self.alarm.ring();
        }
        Some(Limited { server: self, abort: Arc::clone(abort), entry })
    }

    // The driver.

    /// Time has passed, or the driver was called. Returns when it has to come back.
    fn handle_timeout(self: &Arc<Self>) -> Option<Instant> {
        let monitor = self.monitoring.as_ref().and_then(|monitoring| monitoring.handle_timeout(self));
        let now = self.clock.now();
        // A reader of the log may have come since the last look.
        let are_logged = self.listeners.are_logged();
        let mut work = Work::none();
        let mut state = self.lock();
        if are_logged {
            state.machine.observe(true);
        }
        let expired = state.deadlines.expire(now);
        state.machine.handle_timeout(now);
        state.drain(now, None, &mut work);
        let next = state.arm_driver();
        drop(state);
        work.wake_all(expired);
        // The driver is awake.
        work.rings_alarm = false;
        self.finish(self.unfinished(work));
        next.into_iter().chain(monitor).min()
    }

    // The whole pool.

    /// Makes the pool of a server without a monitor ready.
    pub(crate) fn ready(self: &Arc<Self>) -> Result<(), ApiMisuse> {
        self.drive(Machine::ready)
    }

    /// Clears the pool of a server without a monitor.
    pub(crate) fn clear(self: &Arc<Self>, clear: Clear) -> Result<(), ApiMisuse> {
        self.drive(|machine, now| machine.clear(now, clear))
    }

    /// Closes the monitor and the pool, and gives up what is being established.
    pub(crate) fn close(self: &Arc<Self>) {
        let close = |state: &mut State<R::Stream>, now, work: &mut Work<R::Stream>| {
            state.machine.close(now);
            work.wake_all(state.abort_all(false, AbortReason::Closed));
        };
        match &self.monitoring {
            // Its last events come first (MON-14).
            Some(monitoring) => monitoring.drive_before(self, Monitor::close, close),
            None => self.drive_with(close),
        }
    }

    /// Waits until the last connection of a closed pool came back, for at most `patience`; then aborts what is still in use.
    /// Returns how many connections that were.
    pub(crate) async fn closed(self: &Arc<Self>, patience: Duration) -> Result<u32, RuntimeGone> {
        let patience_ends = Arc::new(Abort::default());
        let limit = self.limit(Some(patience), &patience_ends);
        let outcome = patience_ends.during(LastConnection::of(self)).await;
        drop(limit);
        outcome.unwrap_or_else(|_| {
            Ok(self.drive_with(|state, _, work| {
                work.wake_all(state.abort_all(true, AbortReason::Closed));
                state.machine.pool().counts().in_use
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
        state.waiters.entries() + state.activities.len() + state.deadlines.entries() + state.closing.len()
    }

    pub(crate) fn address(&self) -> &Arc<ServerAddress> {
        &self.address
    }

    pub(crate) fn state(&self) -> PoolState {
        self.lock().machine.pool().state()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.lock().machine.pool().stats()
    }

    pub(crate) fn description(&self) -> Arc<ServerDescription> {
        Arc::clone(self.lock().machine.description())
    }

    /// Adds a library that wraps this one to the metadata of connections yet to come (HS-14).
    pub(crate) fn append_metadata(&self, name: &str, version: &str, platform: &str) -> Result<(), MetadataError> {
        self.establisher.append_metadata(name, version, platform)
    }

    /// The limit of a command for which its caller sets none.
    pub(crate) fn command_limit(&self) -> Option<TimeLimit> {
        self.establisher.command_limit
    }

    /// What the options add to commands.
    pub(crate) fn command_defaults(&self) -> Option<&CommandDefaults> {
        self.establisher.command_defaults.as_ref()
    }

    /// The time that a call with `limit` has from now on; `None` means as long as it needs.
    pub(crate) fn left(&self, limit: Limit) -> Option<Duration> {
        limit.left(self.clock.runtime())
    }

    pub(crate) fn clock(&self) -> &Clock<R> {
        &self.clock
    }

    pub(crate) fn spares(&self) -> &SharedSpares {
        &self.spares
    }

    fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.alarm)
    }

    // Driving.

    fn drive<T>(self: &Arc<Self>, call: impl FnOnce(&mut Machine<Box<Socket<R::Stream>>>, Instant) -> T) -> T {
        self.drive_with(|state, now, _| call(&mut state.machine, now))
    }

    /// Calls the machine, drains it, and does what is left to do without the lock.
    fn drive_with<T>(
        self: &Arc<Self>,
        call: impl FnOnce(&mut State<R::Stream>, Instant, &mut Work<R::Stream>) -> T,
    ) -> T {
        let (result, unfinished) = self.begin(self.clock.now(), call);
        self.finish(unfinished);
        result
    }

    /// Calls the machine and drains it.
    fn begin<T>(
        self: &Arc<Self>,
        now: Instant,
        call: impl FnOnce(&mut State<R::Stream>, Instant, &mut Work<R::Stream>) -> T,
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
    fn unfinished(self: &Arc<Self>, mut work: Work<R::Stream>) -> Unfinished<R> {
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
    fn finish_more(self: &Arc<Self>, more: MoreWork<R::Stream>) {
        more.wake.into_iter().for_each(Waker::wake);
        for (connection, abort) in more.establish {
            self.establisher.begin(Arc::downgrade(self), connection, abort);
        }
        if let Some(monitoring) = &self.monitoring
            && !more.monitor_calls.is_empty()
        {
            monitoring.request(more.monitor_calls, &self.alarm);
        }
        more.close.into_iter().for_each(|socket| socket.close());
    }

    // Events.

    pub(crate) fn subscribe(&self, capacity: usize) -> Subscription {
        let subscription = self.listeners.subscribe(Arc::clone(&self.address), capacity);
        self.observe();
        subscription
    }

    /// Makes events only if there are listeners.
    fn observe(&self) {
        let are_logged = self.listeners.are_logged();
        let mut state = self.lock();
        state.machine.observe(are_logged || self.listeners.any());
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State<R::Stream>> {
        // Nothing under the lock panics; were it so, the machine guards its own state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Runtime> Requester<R::Stream> for Server<R> {
    fn handle_hello(
        self: &Arc<Self>,
        connection: Handle,
        service_id: Option<ServiceId>,
        description: ServerDescription,
    ) {
        // Refused only outside of load-balanced mode, where no hello names a service.
        let _ = self.drive(|machine, now| machine.handle_hello(now, connection, service_id, description));
    }

    fn handle_established(self: &Arc<Self>, connection: Handle, socket: Box<Socket<R::Stream>>) {
        self.drive_with(|state, now, work| {
            if let Some(activity) = state.activities.get_mut(&connection.id()) {
                activity.is_established = true;
            }
            if let Err(refused) = state.machine.handle_established(now, connection, socket) {
                state.activities.remove(&connection.id());
                work.more().close.push(refused.socket);
                // It has no service id, which its hello would have told (LB-6).
                let error = EstablishError::new(Phase::Hello, Fault::Other, refused.misuse.to_string());
                // The connection is pending, or else it has been forgotten.
                let _ = state.machine.handle_establish_failed(now, connection, error);
            }
        });
    }

    fn handle_establish_failed(self: &Arc<Self>, connection: Handle, error: EstablishError) {
        self.drive_with(|state, now, _| {
            state.activities.remove(&connection.id());
            // It was reported once, so it is pending, or has been forgotten.
            let _ = state.machine.handle_establish_failed(now, connection, error);
        });
    }

    fn handle_runtime_gone(self: &Arc<Self>) {
        self.drive_with(|state, now, work| work.wake_all(state.end_of_runtime(now)));
    }
}

impl<R: Runtime> EventSource for Server<R> {
    fn runtime(&self) -> &impl Runtime {
        self.clock.runtime()
    }

    fn tell(&self, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            self.listeners.tell(&self.address, &event);
        }
        if self.listeners.has_lost_one() {
            self.observe();
        }
    }

    fn with_events<T>(&self, call: impl FnOnce(&mut EventQueue) -> T) -> T {
        call(&mut self.lock().events)
    }
}

impl<R: Runtime> Drop for Limited<'_, R> {
    fn drop(&mut self) {
        self.server.lock().deadlines.remove(self.entry);
        // A limit that passed when its work was just done in time must not abort what comes next.
        self.abort.forget_timeout();
    }
}

impl<R: Runtime> Drop for Server<R> {
    fn drop(&mut self) {
        self.listeners.end();
        self.alarm.ring();
    }
}

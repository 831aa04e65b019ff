//! One server on this side of the sockets: the machine under its mutex, driven where the call is made.
//!
//! An uncontended check-out is lock, step, drain, unlock: no task, no channel, no allocation. Whatever takes time or
//! runs code of others (spawning, waking, closing, handlers of events) happens after the lock was released.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault};
use cmap_core::monitor::Monitor;
use cmap_core::pool::{
    ApiMisuse, CheckOutRequest, Clear, Condition, Handle, PoolState, Purpose, Refused, ServiceId, Stats,
};
use cmap_core::server::{self, CheckOut, OperationError, ServerDescription};
use cmap_core::time::Instant;

use crate::clock::Clock;
use crate::command_limit::CommandLimit;
use crate::cutoff::{Cut, Cutoff};
use crate::driver::{self, Alarm};
use crate::error::RuntimeGone;
use crate::establish::Establisher;
use crate::event::Event;
use crate::listeners::Listeners;
use crate::machine::{Answer, Deadline, Delivery, Errands, Machine, MoreErrands, Touched};
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::subscription::Subscription;
use crate::telling::{Telling, Untold};
use crate::waiters::{Found, Left};

pub(crate) struct Endpoint<R: Runtime> {
    pub(crate) address: Arc<ServerAddress>,
    clock: Clock<R>,
    establisher: Arc<Establisher<R>>,
    listeners: Listeners,
    alarm: Arc<Alarm>,
    machine: Mutex<Machine<R::Stream>>,
}

/// How a check-out begins.
pub(crate) enum Begun<S> {
    Answered(Answer<S>),
    /// It waits at this place.
    Waits(usize),
}

/// A limit on what goes on at a connection. Dropping it lifts the limit.
pub(crate) struct TimeLimit<'a, R: Runtime> {
    endpoint: &'a Endpoint<R>,
    cutoff: Arc<Cutoff>,
    deadline: Deadline,
}

impl<R: Runtime> Endpoint<R> {
    /// Starts an endpoint around `core`, with a driver in the home runtime.
    pub(crate) fn start(
        core: server::Endpoint<Box<Socket<R::Stream>>>,
        establisher: Arc<Establisher<R>>,
        listeners: Listeners,
    ) -> Arc<Self> {
        let clock = establisher.clock.clone();
        let endpoint = Arc::new(Self {
            address: Arc::clone(&establisher.address),
            clock: clock.clone(),
            establisher,
            listeners,
            alarm: Arc::default(),
            machine: Mutex::new(Machine::new(core, Socket::is_alive::<R>)),
        });
        driver::start(&endpoint, clock);
        endpoint
    }

    // Check-outs.

    /// Begins a check-out: the short way if the pool has one, otherwise the long one. Whoever waits is woken by `cx`.
    #[inline]
    pub(crate) fn check_out(self: &Arc<Self>, request: CheckOutRequest, cx: &Context<'_>) -> Begun<R::Stream> {
        let now = self.clock.now();
        let mut machine = self.lock();
        if !machine.runtime_gone
            && let Some(delivery) = machine.server().try_check_out(now, request)
        {
            return Begun::Answered(Ok(delivery));
        }
        self.check_out_the_long_way(machine, now, request, cx)
    }

    /// The long way. Out of line, lest it burdens the short one; so are others here.
    #[inline(never)]
    fn check_out_the_long_way(
        self: &Arc<Self>,
        mut machine: MutexGuard<'_, Machine<R::Stream>>,
        now: Instant,
        request: CheckOutRequest,
        cx: &Context<'_>,
    ) -> Begun<R::Stream> {
        if machine.runtime_gone {
            return Begun::Answered(Err(RuntimeGone.into()));
        }
        let check_out = machine.server().check_out(now, request);
        if matches!(check_out, CheckOut::Selecting(_)) || !machine.core.server().is_drained() {
            return self.check_out_through_outputs(machine, now, check_out, cx);
        }
        // It waits for a connection, and that is all.
        let place = machine.waiters.enter(check_out, cx.waker().clone());
        let is_earlier = machine.await_check_outs();
        drop(machine);
        if is_earlier {
            self.alarm.ring();
        }
        Begun::Waits(place)
    }

    /// A connection is created for the check-out, or it has an answer, or it waits for the server, or somebody listens.
    #[inline(never)]
    fn check_out_through_outputs(
        self: &Arc<Self>,
        mut machine: MutexGuard<'_, Machine<R::Stream>>,
        now: Instant,
        check_out: CheckOut,
        cx: &Context<'_>,
    ) -> Begun<R::Stream> {
        let (begun, errands) = match check_out {
            CheckOut::Started(_) => match machine.drain(now, Some(check_out), Touched::Pool) {
                (Some(answer), errands) => (Begun::Answered(answer), errands),
                (None, errands) => (Begun::Waits(machine.waiters.enter(check_out, cx.waker().clone())), errands),
            },
            CheckOut::Selecting(_) => {
                let place = machine.waiters.enter(check_out, cx.waker().clone());
                (Begun::Waits(place), machine.drain(now, None, Touched::All).1)
            }
        };
        drop(machine);
        self.run(errands);
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
        let _waker = self.drive_with(|machine, now, errands| match machine.waiters.leave(place)? {
            Left::Waiting(check_out, waker) => {
                // Nothing has been delivered that was not drained.
                let _ = machine.server().cancel_check_out(now, check_out);
                Some(waker)
            }
            Left::Answered(Ok(delivery)) => {
                machine.check_in(now, delivery.connection, delivery.socket, Condition::Usable, errands);
                None
            }
            Left::Answered(Err(_)) => None,
        });
    }

    /// Gives a connection back.
    #[inline]
    pub(crate) fn check_in(self: &Arc<Self>, connection: Handle, socket: Box<Socket<R::Stream>>, condition: Condition) {
        let now = self.clock.now();
        let mut machine = self.lock();
        match machine.server().hand_over(now, connection, socket, condition) {
            Ok(Some(delivery)) => self.hand_over(machine, delivery),
            Ok(None) if machine.is_settled(now) => {}
            Ok(None) => self.settle_check_in(machine, now, None),
            Err(refused) => self.settle_check_in(machine, now, Some(refused)),
        }
    }

    /// Somebody waits for what was checked in, and gets it. Nothing else came of it.
    #[inline(never)]
    fn hand_over(self: &Arc<Self>, mut machine: MutexGuard<'_, Machine<R::Stream>>, delivery: Delivery<R::Stream>) {
        let answered = machine.waiters.answer(CheckOut::Started(delivery.check_out), Ok(delivery));
        drop(machine);
        match answered {
            Ok(waker) => waker.wake(),
            Err(Ok(missed)) => self.check_in(missed.connection, missed.socket, Condition::Usable),
            Err(Err(_)) => {}
        }
    }

    /// What was checked in is closed, or the driver has to come back earlier because of it, or somebody listens.
    #[inline(never)]
    fn settle_check_in(
        self: &Arc<Self>,
        mut machine: MutexGuard<'_, Machine<R::Stream>>,
        now: Instant,
        refused: Option<Refused<Box<Socket<R::Stream>>>>,
    ) {
        let (_, errands) = machine.drain(now, None, Touched::Pool);
        drop(machine);
        self.run(errands);
        if let Some(refused) = refused {
            refused.socket.close();
        }
    }

    // What happens at connections.

    /// A connection was greeted: by a service, behind a load balancer, or by the server itself.
    pub(crate) fn handle_hello(
        self: &Arc<Self>,
        connection: Handle,
        service_id: Option<ServiceId>,
        description: ServerDescription,
    ) {
        self.drive(|machine, now| match service_id {
            Some(service_id) => {
                // Refused only outside of load-balanced mode, where no hello names a service.
                let _ = machine.pool().handle_hello(now, connection, service_id);
            }
            None => machine.server().handle_application_hello(now, connection, description),
        });
    }

    pub(crate) fn handle_established(self: &Arc<Self>, connection: Handle, socket: Box<Socket<R::Stream>>) {
        self.drive_with(|machine, now, errands| {
            if let Some(known) = machine.known.get_mut(&connection.id()) {
                known.is_established = true;
            }
            if let Err(refused) = machine.pool().handle_established(now, connection, socket) {
                machine.known.remove(&connection.id());
                errands.more().close.push(refused.socket);
                let error = EstablishError::new(refused_phase(), Fault::Other, refused.misuse.to_string());
                // The connection is pending, or else it has been forgotten.
                let _ = machine.server().handle_establish_failed(now, connection, error);
            }
        });
    }

    pub(crate) fn handle_establish_failed(self: &Arc<Self>, connection: Handle, error: EstablishError) {
        self.drive(|machine, now| {
            machine.known.remove(&connection.id());
            // It was reported once, so it is pending, or has been forgotten.
            let _ = machine.server().handle_establish_failed(now, connection, error);
        });
    }

    /// An operation failed. To be told before its connection is given back (CMAP-49).
    pub(crate) fn handle_operation_failed(self: &Arc<Self>, connection: Handle, error: OperationError) {
        // The connection is in use, or has been closed since.
        let _ = self.drive(|machine, now| machine.server().handle_operation_failed(now, connection, error));
    }

    /// Something happened at one of the monitor's sockets.
    pub(crate) fn handle_monitor(self: &Arc<Self>, call: impl FnOnce(&mut Monitor, Instant)) {
        self.drive(|machine, now| {
            if let Some(monitor) = machine.monitor() {
                call(monitor, now);
            }
        });
    }

    pub(crate) fn set_purpose(self: &Arc<Self>, connection: Handle, purpose: Purpose) {
        // The connection is in use.
        let _ = self.drive(|machine, _| machine.pool().set_purpose(connection, purpose));
    }

    /// Cuts `cutoff` off after `limit`; zero and none mean never.
    pub(crate) fn limit(self: &Arc<Self>, limit: Option<Duration>, cutoff: &Arc<Cutoff>) -> Option<TimeLimit<'_, R>> {
        let at = self.clock.deadline(limit)?;
        let mut machine = self.lock();
        let deadline = machine.deadlines.insert(at, Arc::clone(cutoff));
        let is_first = machine.arm(at);
        drop(machine);
        if is_first {
            self.alarm.ring();
        }
        Some(TimeLimit { endpoint: self, cutoff: Arc::clone(cutoff), deadline })
    }

    /// Time has passed, the driver says. Returns when it has to come back.
    pub(crate) fn handle_timeout(self: &Arc<Self>) -> Option<Instant> {
        let now = self.clock.now();
        let mut machine = self.lock();
        let expired = machine.deadlines.expire(now);
        machine.core.handle_timeout(now);
        let (_, mut errands) = machine.drain(now, None, Touched::All);
        let next = machine.next_deadline();
        machine.armed = next;
        drop(machine);
        errands.wake_all(expired);
        // Who is here need not be called.
        errands.alarm = false;
        self.run(errands);
        next
    }

    /// The home runtime has ended: whoever waits learns of it at once.
    pub(crate) fn handle_runtime_gone(self: &Arc<Self>) {
        self.drive_with(|machine, now, errands| errands.wake_all(machine.end_of_runtime(now)));
    }

    // The whole pool.

    /// Makes the pool ready, where no monitor does.
    pub(crate) fn ready(self: &Arc<Self>) {
        self.drive(|machine, now| machine.pool().ready(now));
    }

    pub(crate) fn clear(self: &Arc<Self>, clear: Clear) -> Result<(), ApiMisuse> {
        self.drive(|machine, now| machine.pool().clear(now, clear))
    }

    /// Closes the pool and gives up what is being established.
    pub(crate) fn close(self: &Arc<Self>) {
        self.drive_with(|machine, now, errands| {
            machine.core.close(now);
            errands.wake_all(machine.cut_all(false, Cut::Closed));
        });
    }

    /// Waits until the last connection of a closed pool came back, for at most `patience`; then cuts off what is still
    /// in use. Returns how many connections that were.
    pub(crate) async fn closed(self: &Arc<Self>, patience: Duration) -> Result<u32, RuntimeGone> {
        let patience_ends = Arc::new(Cutoff::default());
        let last_came_back = std::future::poll_fn(|cx| {
            let mut machine = self.lock();
            if machine.runtime_gone {
                return Poll::Ready(Err(RuntimeGone));
            }
            if machine.pool().counts().total() == 0 {
                return Poll::Ready(Ok(0));
            }
            if !machine.closing.iter().any(|waker| waker.will_wake(cx.waker())) {
                machine.closing.push(cx.waker().clone());
            }
            Poll::Pending
        });
        let limit = self.limit(Some(patience.max(Duration::from_nanos(1))), &patience_ends);
        let outcome = patience_ends.during(last_came_back).await;
        drop(limit);
        outcome.unwrap_or_else(|_| {
            Ok(self.drive_with(|machine, _, errands| {
                errands.wake_all(machine.cut_all(true, Cut::Closed));
                machine.pool().counts().in_use
            }))
        })
    }

    pub(crate) fn state(&self) -> PoolState {
        self.lock().pool().state()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.lock().pool().stats()
    }

    pub(crate) fn description(&self) -> Arc<ServerDescription> {
        Arc::clone(self.lock().core.server().description())
    }

    pub(crate) fn deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        self.clock.deadline(limit)
    }

    pub(crate) fn command_limit(&self) -> CommandLimit {
        self.establisher.command_limit
    }

    pub(crate) fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.alarm)
    }

    // Driving.

    fn drive<T>(self: &Arc<Self>, call: impl FnOnce(&mut Machine<R::Stream>, Instant) -> T) -> T {
        self.drive_with(|machine, now, _| call(machine, now))
    }

    /// Calls the machine, drains it, and does what is left to do without the lock.
    fn drive_with<T>(
        self: &Arc<Self>,
        call: impl FnOnce(&mut Machine<R::Stream>, Instant, &mut Errands<R::Stream>) -> T,
    ) -> T {
        let now = self.clock.now();
        let mut first = Errands::new();
        let mut machine = self.lock();
        let result = call(&mut machine, now, &mut first);
        let (_, mut errands) = machine.drain(now, None, Touched::All);
        drop(machine);
        let telling = self.telling(&mut errands);
        self.run(first);
        self.run(errands);
        telling.into_iter().for_each(Telling::begin);
        result
    }

    #[inline]
    fn run(self: &Arc<Self>, mut errands: Errands<R::Stream>) {
        let telling = self.telling(&mut errands);
        if let Some(waker) = errands.wake {
            waker.wake();
        }
        if errands.alarm {
            self.alarm.ring();
        }
        if let Some(more) = errands.more {
            self.run_more(*more);
        }
        telling.into_iter().for_each(Telling::begin);
    }

    /// The duty to tell events, if it is among the errands: to be taken on before anything is done that might panic.
    #[inline]
    fn telling(self: &Arc<Self>, errands: &mut Errands<R::Stream>) -> Option<Telling<R>> {
        let events = errands.more.as_mut()?.tell.take()?;
        Some(Telling::new(self, events))
    }

    #[cold]
    fn run_more(self: &Arc<Self>, more: MoreErrands<R::Stream>) {
        more.wake.into_iter().for_each(Waker::wake);
        for (connection, cutoff) in more.establish {
            self.establisher.begin(Arc::downgrade(self), connection, cutoff);
        }
        for (socket, link) in more.link {
            link.begin(Arc::clone(&self.establisher), Arc::downgrade(self), socket);
        }
        more.close.into_iter().for_each(|socket| socket.close());
    }

    // Events.

    pub(crate) fn subscribe(&self, capacity: usize) -> Subscription {
        let subscription = self.listeners.subscribe(Arc::clone(&self.address), capacity);
        self.observe();
        subscription
    }

    /// Events are made only if somebody listens.
    fn observe(&self) {
        let are_logged = self.listeners.are_logged();
        let mut machine = self.lock();
        machine.server().observe(are_logged || self.listeners.any());
    }

    /// Tells events, as [`Telling`] says when.
    pub(crate) fn tell(&self, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            self.listeners.tell(&self.address, &event);
        }
        if self.listeners.has_lost_one() {
            self.observe();
        }
    }

    pub(crate) fn untold<T>(&self, call: impl FnOnce(&mut Untold) -> T) -> T {
        call(&mut self.lock().untold)
    }

    pub(crate) fn runtime(&self) -> &R {
        self.clock.runtime()
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Machine<R::Stream>> {
        // Nothing under the lock panics; were it so, the machine guards its own state.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The step that a connection without a service id failed in (LB-6).
fn refused_phase() -> cmap_core::connection::Phase {
    cmap_core::connection::Phase::Hello
}

impl<R: Runtime> Drop for TimeLimit<'_, R> {
    fn drop(&mut self) {
        self.endpoint.lock().deadlines.remove(self.deadline);
        // A limit that passed when its work was just done in time must not cut off what comes next.
        self.cutoff.forget_timeout();
    }
}

impl<R: Runtime> Drop for Endpoint<R> {
    fn drop(&mut self) {
        self.listeners.end();
        self.alarm.ring();
    }
}

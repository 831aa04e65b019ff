//! Check-outs and check-ins: calls of the machine where they are made, and what follows from them.

use std::task::{Context, Poll};
use std::time::Duration;

use cmap_core::pool::{CheckOutRequest, CheckedIn, Condition, EndedUse, Handle};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria};

use super::Topology;
use super::state::{Answer, CheckInResult, Delivery, State, Writes};
use super::waiters::{Found, Left};
use super::work::Work;
use crate::deadline::Deadline;
use crate::error::RuntimeGone;
use crate::runtime::Runtime;
use crate::socket::Socket;
use crate::sync::{Arc, MutexGuard};
use crate::watch::{LabelId, Tag};

/// A check-out that the fast path has not served. The lock is held.
pub(crate) struct Unserved<'a, R: Runtime> {
    state: MutexGuard<'a, State<R>>,
    now: Instant,
}

impl<'a, R: Runtime> From<Unserved<'a, R>> for Unanswered<'a, R> {
    fn from(Unserved { state, now }: Unserved<'a, R>) -> Self {
        Self { state, now, begun: None }
    }
}

/// A check-out whose result the machine may still have in its queue. The lock is held.
pub(crate) struct Unanswered<'a, R: Runtime> {
    state: MutexGuard<'a, State<R>>,
    now: Instant,
    /// `None` if the machine was not asked.
    begun: Option<BeginningOf<R>>,
}

/// How a check-out begins.
pub(crate) enum Begun<S> {
    Answered(Answer<S>),
    /// It waits at this place.
    Waits(usize),
    /// The user has to choose among servers first.
    Unasked,
}

/// What the machine says of a check-out at once.
type BeginningOf<R> = (CheckOut, Option<Delivery<<R as Runtime>::Stream>>);

impl<R: Runtime> Topology<R> {
    /// Whether the machine alone decides on check-outs for writes, and nobody notes them.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The fast path of a [plain](Self::is_plain) check-out, which may wait for as long as the options allow: returns the delivery, if
    /// that is all there is to do.
    #[inline(always)]
    pub(crate) fn check_out(&self) -> Result<Delivery<R::Stream>, Unserved<'_, R>> {
        let now = self.clock.now();
        let mut state = self.lock();
        match state.machine.check_out_available(now, request_within(now, self.check_out_limit)) {
            Some(delivery) => Ok(delivery),
            None => Err(Unserved { state, now }),
        }
    }

    /// The short way of a check-out that [`check_out`](Self::check_out) did not serve: it waits, at the place that is returned, and nothing
    /// else has to be done.
    #[inline(always)]
    pub(crate) fn wait_in_line<'a>(
        &'a self,
        Unserved { mut state, now }: Unserved<'a, R>,
        cx: &Context<'_>,
    ) -> Result<usize, Unserved<'a, R>> {
        match state.machine.check_out_waiting(now, request_within(now, self.check_out_limit)) {
            Some((check_out, timeout)) => Ok(self.wait(state, CheckOut::Started(check_out), timeout, cx)),
            None => Err(Unserved { state, now }),
        }
    }

    /// Lets a check-out wait. Nothing has to be drained, and no timeout but this can have become an earlier one.
    #[inline(always)]
    fn wait(
        &self,
        mut state: MutexGuard<'_, State<R>>,
        check_out: CheckOut,
        timeout: Option<Instant>,
        cx: &Context<'_>,
    ) -> usize {
        let rings_alarm = timeout.is_some_and(|at| state.arm(at));
        let rings_alarm = state.arm_look() || rings_alarm;
        let place = state.waiters.enter(check_out, cx.waker().clone());
        drop(state);
        if rings_alarm {
            self.alarm.ring();
        }
        place
    }

    /// As [`check_out`](Self::check_out), where callers are noted.
    #[inline(always)]
    pub(crate) fn check_out_noted(&self, tag: &Tag) -> Result<Delivery<R::Stream>, Unanswered<'_, R>> {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.writes == Writes::Noted
            && let Some(mut delivery) = state.machine.check_out_hottest(now, &request_within(now, self.check_out_limit))
        {
            delivery.socket.tag = *tag;
            if state.note_delivered(now, delivery.check_out, *tag) {
                self.unlock_and_ring(state);
            }
            return Ok(delivery);
        }
        Err(Unanswered { state, now, begun: None })
    }

    /// Has the driver come back earlier.
    #[cold]
    #[inline(never)]
    fn unlock_and_ring(&self, state: MutexGuard<'_, State<R>>) {
        drop(state);
        self.alarm.ring();
    }

    /// Asks the machine for a check-out that [`check_out`](Self::check_out) and [`check_out_noted`](Self::check_out_noted) did not
    /// serve. Returns it unasked where a check-out takes more than one call.
    #[inline(never)]
    pub(crate) fn begin_check_out<'a>(
        &'a self,
        unanswered: Unanswered<'a, R>,
        tag: Tag,
    ) -> Result<Delivery<R::Stream>, Unanswered<'a, R>> {
        let Unanswered { mut state, now, begun } = unanswered;
        if begun.is_some() {
            return Err(Unanswered { state, now, begun });
        }
        let request = request_within(now, self.check_out_limit);
        match state.writes {
            Writes::Plain => {
                let begun = state.machine.check_out(now, request);
                delivered_at_once(state, now, begun)
            }
            Writes::Noted => ask_and_note(state, now, request, tag),
            Writes::AtLength => Err(Unanswered { state, now, begun }),
        }
    }

    /// The longest wait of a check-out for which its caller sets none.
    pub(crate) fn check_out_limit(&self) -> Option<Duration> {
        self.check_out_limit
    }

    /// Begins a check-out, which may wait for `limit`.
    #[inline(never)]
    pub(crate) fn check_out_within(
        &self,
        limit: Option<Duration>,
        tag: Tag,
    ) -> Result<Delivery<R::Stream>, Unanswered<'_, R>> {
        let now = self.clock.now();
        self.check_out_at(now, request_within(now, limit), tag)
    }

    /// The same until `deadline`.
    #[inline(never)]
    pub(crate) fn check_out_until(
        &self,
        deadline: Deadline,
        tag: Tag,
    ) -> Result<Delivery<R::Stream>, Unanswered<'_, R>> {
        self.check_out_at(self.clock.now(), request(self.clock.instant_of(deadline)), tag)
    }

    fn check_out_at(
        &self,
        now: Instant,
        request: CheckOutRequest,
        tag: Tag,
    ) -> Result<Delivery<R::Stream>, Unanswered<'_, R>> {
        ask_and_note(self.lock_if_alive(now)?, now, request, tag)
    }

    /// Begins a check-out for a server that meets `criteria`.
    #[inline(never)]
    pub(crate) fn check_out_for(
        &self,
        criteria: &Criteria,
        now: Instant,
        request: CheckOutRequest,
        tag: Tag,
    ) -> Result<Delivery<R::Stream>, Unanswered<'_, R>> {
        let mut state = self.lock_if_alive(now)?;
        let begun = state.machine.check_out_for(now, criteria, request);
        state.note(now, begun.0, tag);
        delivered_and_noted(state, now, begun)
    }

    #[inline(always)]
    fn lock_if_alive(&self, now: Instant) -> Result<MutexGuard<'_, State<R>>, Unanswered<'_, R>> {
        let state = self.lock();
        if state.runtime_gone { Err(Unanswered { state, now, begun: None }) } else { Ok(state) }
    }

    /// What follows a check-out that waits, fails, has a connection created, or is told to listeners. If it waits, `cx` is
    /// woken.
    pub(crate) fn follow_check_out(
        self: &Arc<Self>,
        unanswered: Unanswered<'_, R>,
        cx: &Context<'_>,
    ) -> Begun<R::Stream> {
        let Unanswered { mut state, now, begun } = unanswered;
        let Some((mut check_out, delivery)) = begun else {
            return if state.runtime_gone { Begun::Answered(Err(RuntimeGone.into())) } else { Begun::Unasked };
        };
        if delivery.is_none() && state.machine.is_drained() {
            let timeout = state.machine.next_check_out_timeout(check_out);
            return Begun::Waits(self.wait(state, check_out, timeout, cx));
        }
        let mut work = Work::none();
        let queued = state.drain(now, Some(&mut check_out), &mut work);
        let begun = match delivery.map(Ok).or(queued) {
            Some(answer) => Begun::Answered(answer),
            None => Begun::Waits(state.waiters.enter(check_out, cx.waker().clone())),
        };
        drop(state);
        self.finish(self.unfinished(work));
        begun
    }

    /// Looks for the answer of the check-out that waits at `place`. The driver ends those whose time is up; where the home runtime stands
    /// still, each poll does.
    #[inline(never)]
    pub(crate) fn poll_check_out(self: &Arc<Self>, place: usize, cx: &Context<'_>) -> Poll<Answer<R::Stream>> {
        let now = self.clock.now();
        let mut state = self.lock();
        let mut found = state.waiters.poll(place, cx.waker());
        let waits_for = state.waiters.check_out_at(place);
        let timeout = waits_for.and_then(|check_out| state.machine.next_check_out_timeout(check_out));
        if let Some(timeout) = timeout
            && timeout <= now
        {
            drop(state);
            self.drive(|machine, now| machine.handle_timeout(now));
            // The waker of an earlier poll is dropped without the lock.
            drop(found);
            state = self.lock();
            found = state.waiters.poll(place, cx.waker());
        }
        #[cfg(feature = "trace")]
        if state.machine.is_recording()
            && let Some(Found::Answer(Ok(delivery))) = &found
        {
            state.record_taken(now, CheckOut::Started(delivery.check_out));
        }
        drop(state);
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
                if let (Some(watch), CheckOut::Selecting(selection)) = (&mut state.watch, check_out) {
                    watch.forget(selection);
                }
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
        self.check_in_at(self.clock.now(), self.lock(), connection, socket, condition);
    }

    /// The same of one that can be used again, where callers are noted.
    #[inline(never)]
    pub(crate) fn check_in_noted(self: &Arc<Self>, connection: Handle, socket: Box<Socket<R::Stream>>) {
        let now = self.clock.now();
        let mut state = self.lock();
        let label = socket.tag.label;
        match state.machine.check_in_at_once(now, connection, socket, Condition::Usable) {
            Ok((ended, idle_until)) if state.driver_comes_before(idle_until) => {
                state.note_ended_use(connection, label, ended);
            }
            Ok((ended, _)) => self.note_and_follow(now, state, connection, label, ended),
            Err(socket) => self.end_noted(now, state, connection, socket, Condition::Usable),
        }
    }

    #[cold]
    #[inline(never)]
    fn note_and_follow(
        self: &Arc<Self>,
        now: Instant,
        mut state: MutexGuard<'_, State<R>>,
        connection: Handle,
        label: LabelId,
        ended: EndedUse,
    ) {
        state.note_ended_use(connection, label, ended);
        self.follow_check_in(state, now, Ok(CheckedIn::Done));
    }

    /// The same of any.
    #[inline(never)]
    pub(crate) fn check_in_noted_at_length(
        self: &Arc<Self>,
        connection: Handle,
        socket: Box<Socket<R::Stream>>,
        condition: Condition,
    ) {
        self.end_noted(self.clock.now(), self.lock(), connection, socket, condition);
    }

    #[inline(never)]
    fn end_noted(
        self: &Arc<Self>,
        now: Instant,
        mut state: MutexGuard<'_, State<R>>,
        connection: Handle,
        socket: Box<Socket<R::Stream>>,
        condition: Condition,
    ) {
        state.note_end_of_use(now, connection, socket.tag);
        self.check_in_at_length(now, state, connection, socket, condition);
    }

    #[inline(always)]
    fn check_in_at(
        self: &Arc<Self>,
        now: Instant,
        mut state: MutexGuard<'_, State<R>>,
        connection: Handle,
        socket: Box<Socket<R::Stream>>,
        condition: Condition,
    ) {
        match state.machine.check_in_available(now, connection, socket, condition) {
            Ok(idle_until) if state.driver_comes_before(idle_until) => {}
            Ok(_) => self.follow_check_in(state, now, Ok(CheckedIn::Done)),
            Err(socket) => self.check_in_at_length(now, state, connection, socket, condition),
        }
    }

    /// The same where the fast path is closed, or does not do all that has to be done.
    #[inline(never)]
    fn check_in_at_length(
        self: &Arc<Self>,
        now: Instant,
        mut state: MutexGuard<'_, State<R>>,
        connection: Handle,
        socket: Box<Socket<R::Stream>>,
        condition: Condition,
    ) {
        let socket = match state.machine.check_in_to_waiter(now, connection, socket, condition) {
            Ok(delivery) => return self.hand_to_waiter(state, now, delivery),
            Err(socket) => socket,
        };
        let checked_in = state.machine.check_in(now, connection, socket, condition);
        let is_done = matches!(checked_in, Ok(CheckedIn::Done)) && state.machine.is_drained();
        if !is_done || !state.driver_comes_before(state.machine.idle_until(connection, now)) {
            self.follow_check_in(state, now, checked_in);
        }
    }

    /// What follows a check-in for which a check-out waits, whose connection is closed, or that is told to listeners.
    #[inline(never)]
    fn follow_check_in(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<R>>,
        now: Instant,
        checked_in: CheckInResult<R::Stream>,
    ) {
        match checked_in {
            Ok(CheckedIn::Delivered(delivery)) if state.machine.is_drained() => {
                self.hand_to_waiter(state, now, delivery);
            }
            checked_in => {
                let mut work = Work::none();
                state.follow_check_in(now, checked_in, &mut work);
                state.drain(now, None, &mut work);
                drop(state);
                self.finish(self.unfinished(work));
            }
        }
    }

    /// Wakes the waiter that a connection was delivered to. Nothing has to be drained, and the driver need not come back earlier.
    #[inline(always)]
    fn hand_to_waiter(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<R>>,
        now: Instant,
        delivery: Delivery<R::Stream>,
    ) {
        match state.waiters.answer(CheckOut::Started(delivery.check_out), Ok(delivery)) {
            Ok(waker) => {
                drop(state);
                waker.wake();
            }
            Err(answer) => self.take_back(state, now, answer),
        }
    }

    /// The waiter has gone. One that leaves cancels its check-out under the same lock, so none is missing here; if one were, the
    /// connection would not be lost.
    #[cold]
    #[inline(never)]
    fn take_back(self: &Arc<Self>, mut state: MutexGuard<'_, State<R>>, now: Instant, answer: Answer<R::Stream>) {
        let mut work = Work::none();
        if let Ok(Delivery { connection, socket, .. }) = answer {
            state.check_in(now, connection, socket, Condition::Usable, &mut work);
        }
        state.drain(now, None, &mut work);
        drop(state);
        self.finish(self.unfinished(work));
    }
}

/// Begins a check-out by a caller who is noted.
#[inline(never)]
fn ask_and_note<R: Runtime>(
    mut state: MutexGuard<'_, State<R>>,
    now: Instant,
    request: CheckOutRequest,
    tag: Tag,
) -> Result<Delivery<R::Stream>, Unanswered<'_, R>> {
    let begun = state.machine.check_out(now, request);
    state.note(now, begun.0, tag);
    delivered_and_noted(state, now, begun)
}

/// The same of one that is noted: the driver may have to look how long it takes.
fn delivered_and_noted<R: Runtime>(
    state: MutexGuard<'_, State<R>>,
    now: Instant,
    begun: BeginningOf<R>,
) -> Result<Delivery<R::Stream>, Unanswered<'_, R>> {
    if state.next_look().is_some_and(|at| !state.driver_comes_before(Some(at))) {
        return Err(Unanswered { state, now, begun: Some(begun) });
    }
    delivered_at_once(state, now, begun)
}

#[inline(always)]
fn request_within(now: Instant, limit: Option<Duration>) -> CheckOutRequest {
    request(limit.map(|limit| now + limit))
}

#[inline(always)]
fn request(deadline: Option<Instant>) -> CheckOutRequest {
    let mut request = CheckOutRequest::default();
    request.deadline = deadline;
    request
}

/// The delivery, if nothing has to be drained, and the driver need not come back earlier.
#[inline(always)]
fn delivered_at_once<R: Runtime>(
    state: MutexGuard<'_, State<R>>,
    now: Instant,
    begun: BeginningOf<R>,
) -> Result<Delivery<R::Stream>, Unanswered<'_, R>> {
    let is_drained = state.machine.is_drained();
    match begun {
        (_, Some(delivery)) if is_drained => Ok(delivery),
        begun => Err(Unanswered { state, now, begun: Some(begun) }),
    }
}

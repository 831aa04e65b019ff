//! Check-outs and check-ins: calls of the machine where they are made, and what follows from them.

use std::task::{Context, Poll};
use std::time::Duration;

use cmap_core::pool::{CheckOutId, CheckOutRequest, CheckedIn, Condition, Handle};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Input};

use super::Driver;
use super::state::{Answer, CheckInResult, Delivery, State};
use super::waiters::{Found, Left};
use super::work::Work;
use crate::error::RuntimeGone;
use crate::runtime::Runtime;
use crate::runtime::sync::{Arc, MutexGuard};
use crate::socket::Socket;
use crate::watch::Tag;

/// How a check-out begins.
pub(crate) enum Begun<S> {
    Answered(Answer<S>),
    /// It waits at this place.
    Waits(usize),
}

impl<R: Runtime> Driver<R> {
    /// The longest wait of a check-out for which its caller sets none.
    pub(crate) fn check_out_limit(&self) -> Option<Duration> {
        self.check_out_limit
    }

    /// Begins a check-out for a server that meets `criteria`. If it waits, `cx` is woken.
    #[inline(always)]
    pub(crate) fn check_out(
        self: &Arc<Self>,
        now: Instant,
        criteria: &Criteria,
        request: CheckOutRequest,
        tag: Tag,
        cx: &Context<'_>,
    ) -> Begun<R::Stream> {
        let mut state = self.lock();
        if state.runtime_gone {
            return Begun::Answered(Err(RuntimeGone.into()));
        }
        match state.machine.check_out(now, criteria, request) {
            // The delivery names its check-out, which need not be carried along with it.
            (_, Some(delivery)) => {
                let check_out = CheckOut::Started(delivery.check_out);
                state.note(now, check_out, tag);
                if state.machine.is_drained() && state.timer_comes_before(state.next_look()) {
                    return Begun::Answered(Ok(delivery));
                }
                self.follow_check_out(state, now, check_out, Some(delivery), cx)
            }
            (check_out, None) => {
                state.note(now, check_out, tag);
                self.follow_check_out(state, now, check_out, None, cx)
            }
        }
    }

    /// What follows a check-out that waits, fails, has a connection created, has an event for listeners, or has to be looked at.
    #[inline(never)]
    fn follow_check_out(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<R>>,
        now: Instant,
        mut check_out: CheckOut,
        delivery: Option<Delivery<R::Stream>>,
        cx: &Context<'_>,
    ) -> Begun<R::Stream> {
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

    /// Looks for the answer of the check-out that waits at `place`. The timer ends those whose time is up; where the home runtime stands
    /// still, each poll does.
    #[inline(never)]
    pub(crate) fn poll_check_out(self: &Arc<Self>, place: usize, cx: &Context<'_>) -> Poll<Answer<R::Stream>> {
        let mut state = self.lock();
        let mut found = state.waiters.poll(place, cx.waker());
        if let Some(Found::Nothing { .. }) = &found {
            let waits_for = state.waiters.check_out_at(place);
            let timeout = waits_for.and_then(|check_out| state.machine.next_check_out_timeout(check_out));
            if timeout.is_some_and(|timeout| timeout <= self.clock.now()) {
                drop(state);
                self.call(Input::Timeout);
                // The waker of an earlier poll is dropped without the lock.
                drop(found);
                state = self.lock();
                found = state.waiters.poll(place, cx.waker());
            }
        }
        #[cfg(feature = "trace")]
        if state.machine.is_recording()
            && let Some(Found::Answer(Ok(delivery))) = &found
        {
            state.record_taken(self.clock.now(), CheckOut::Started(delivery.check_out));
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
        let _waker = self.drive(|state, now, work| match state.waiters.leave(place)? {
            Left::Waiting(check_out, waker) => {
                // Nothing has been delivered that was not drained.
                state.machine.call(now, Input::CancelCheckOut(check_out), None);
                if let (Some(watch), CheckOut::Selecting(selection)) = (&mut state.watch, check_out) {
                    watch.forget(selection);
                }
                Some(waker)
            }
            Left::Answered(Ok(delivery)) => {
                state.take_back(now, delivery, work);
                None
            }
            Left::Answered(Err(_)) => None,
        });
    }

    /// Gives a connection back, under the check-out that it was delivered to.
    #[inline]
    pub(crate) fn check_in(
        self: &Arc<Self>,
        check_out: CheckOutId,
        connection: Handle,
        socket: Box<Socket<R::Stream>>,
        condition: Condition,
    ) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.note_end_of_use(now, connection, socket.tag);
        let checked_in = state.machine.check_in(now, check_out, connection, socket, condition);
        let is_done = matches!(checked_in, Ok(CheckedIn::Done)) && state.machine.is_drained();
        if !is_done || !state.timer_comes_before(state.machine.idle_until(connection, now)) {
            self.follow_check_in(state, now, checked_in);
        }
    }

    /// What follows a check-in for which a check-out waits, whose connection is closed, or that has an event for listeners.
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

    /// Wakes the waiter that a connection was delivered to. Nothing has to be drained, and the timer need not come back earlier.
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
        if let Ok(delivery) = answer {
            state.take_back(now, delivery, &mut work);
        }
        state.drain(now, None, &mut work);
        drop(state);
        self.finish(self.unfinished(work));
    }
}

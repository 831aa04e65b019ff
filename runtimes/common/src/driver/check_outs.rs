//! Check-outs and check-ins: calls of the machine where they are made, what follows from them, and who waits for an answer.
//!
//! Each waiter has one place, which holds first a waker and then the answer. A hand-over wakes exactly one task. The core numbers
//! check-outs densely ([`CheckOutId::index`]), so that the place of an answered check-out is found without a search.
//!
//! A user's choice among suitable servers (SEL-11) is made in the task of a check-out, outside of the lock: the machine sees only what
//! the choice has left. While a check-out waits for a server, its task is woken with every new description, and chooses anew.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use cmap_core::pool::{CheckOutId, CheckOutRequest, CheckedIn, Condition, Handle};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Input, SelectionId, ServerSelector, TopologyDescription};
use slab::Slab;

use super::state::{Answer, CheckInResult, Delivery, State};
use super::{Driver, Work};
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

/// What a check-out wants, narrowed by the user's choice, and the description that the choice was made from.
pub(crate) struct Narrowed {
    pub(crate) criteria: Criteria,
    pub(crate) description: Arc<TopologyDescription>,
}

pub(crate) struct Waiters<A> {
    places: Slab<Place<A>>,
    /// The place of the check-out with each index in the pool of each server, if it waits.
    of_check_out: Vec<Vec<usize>>,
    /// The places of the waiters that wait for a server first.
    of_selection: BTreeMap<SelectionId, usize>,
    /// The place of the check-out whose call is under way. It is not noted above before the outputs of that call are drained: one of
    /// them may answer an earlier check-out of that index, whose time was up.
    beginning: Option<usize>,
}

/// What a waiter finds in its place. Wakers are dropped where no lock is held: the last one of a task drops its future, which may own
/// a connection.
pub(crate) enum Place<A> {
    Waiting { check_out: CheckOut, waker: Waker },
    Answered(A),
}

impl<R: Runtime> Driver<R> {
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
            (_, Some(delivery)) if state.machine.is_drained() && state.watch.is_none() => Begun::Answered(Ok(delivery)),
            (check_out, delivery) => {
                state.note(now, check_out, tag);
                self.follow_check_out(state, now, check_out, delivery, cx)
            }
        }
    }

    /// What follows a check-out that waits, fails, has a connection created, has an event for listeners, or is noted.
    #[inline(never)]
    fn follow_check_out(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<R>>,
        now: Instant,
        check_out: CheckOut,
        delivery: Option<Delivery<R::Stream>>,
        cx: &Context<'_>,
    ) -> Begun<R::Stream> {
        let mut work = Work::none();
        let begun = if let Some(delivery) = delivery {
            if !state.machine.is_drained() || !state.timer_comes_before(state.next_look()) {
                state.drain(now, &mut work);
            }
            Begun::Answered(Ok(delivery))
        } else if state.machine.is_drained() {
            // No timeout but this can have become an earlier one.
            let timeout = state.machine.next_check_out_timeout(check_out).into_iter().chain(state.next_look()).min();
            work.rings_alarm = timeout.is_some_and(|at| state.arm(at));
            Begun::Waits(state.waiters.enter(check_out, cx.waker().clone()))
        } else {
            let place = state.waiters.begin(check_out);
            state.drain(now, &mut work);
            match state.waiters.end_beginning(place, cx.waker()) {
                Some(answer) => Begun::Answered(answer),
                None => Begun::Waits(place),
            }
        };
        drop(state);
        self.finish(work);
        #[cfg(feature = "trace")]
        if let Begun::Answered(Err(error)) = &begun {
            self.note_failed_selection(error);
        }
        begun
    }

    /// Looks for the answer of the check-out that waits at `place`. The timer ends those whose time is up; where the home runtime stands
    /// still, each poll does.
    #[inline(never)]
    pub(crate) fn poll_check_out(self: &Arc<Self>, place: usize, cx: &Context<'_>) -> Poll<Answer<R::Stream>> {
        let now = self.clock.now();
        let mut state = self.lock();
        let waits_for = state.waiters.check_out_at(place);
        let timeout = waits_for.and_then(|check_out| state.machine.next_check_out_timeout(check_out));
        if timeout.is_some_and(|timeout| timeout <= now) {
            drop(state);
            self.call(Input::Timeout);
            state = self.lock();
        }
        let found = state.waiters.poll(place, cx.waker());
        #[cfg(feature = "trace")]
        if state.machine.is_recording()
            && let Some(Ok(Ok(delivery))) = &found
        {
            // The task of a check-out that waited has its answer.
            state.machine.note_taken(now, CheckOut::Started(delivery.check_out));
        }
        drop(state);
        #[cfg(feature = "trace")]
        if let Some(Ok(Err(error))) = &found {
            self.note_failed_selection(error);
        }
        match found {
            Some(Ok(answer)) => Poll::Ready(answer),
            // Dropped without the lock.
            Some(Err(_before)) => Poll::Pending,
            None => Poll::Ready(Err(RuntimeGone.into())),
        }
    }

    /// Gives up the check-out that waits at `place`. A connection that was delivered to it already goes back.
    #[inline(never)]
    pub(crate) fn cancel_check_out(self: &Arc<Self>, place: usize) {
        let left = self.drive(|state, now, work| match state.waiters.leave(place)? {
            Place::Waiting { check_out, waker } => {
                // Nothing has been delivered that was not drained.
                state.give_up(now, check_out);
                Some((check_out, waker))
            }
            Place::Answered(answer) => {
                answer.into_iter().for_each(|delivery| state.take_back(now, delivery, work));
                None
            }
        });
        #[cfg(feature = "trace")]
        if matches!(left, Some((CheckOut::Selecting(_), _))) {
            self.note_vain_wait("given up without a server");
        }
        // Dropped behind the lock, as wakers must be.
        drop(left);
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
        let mut work = Work::none();
        // The timer need not come back earlier for a hand-over.
        let is_handed_over = matches!(checked_in, Ok(CheckedIn::Delivered(_)));
        state.follow_check_in(now, checked_in, &mut work);
        if !is_handed_over || !state.machine.is_drained() {
            state.drain(now, &mut work);
        }
        drop(state);
        self.finish(work);
    }

    /// Lets the user choose among the servers that suit.
    pub(crate) fn narrow(&self, criteria: &Criteria) -> Narrowed {
        let (suitable, description) = {
            let state = self.lock();
            (state.machine.suitable_servers(criteria), Arc::clone(state.machine.description()))
        };
        // Criteria that make no sense are the machine's to refuse.
        let (Ok(mut suitable), Some(filter)) = (suitable, &self.settings.server_filter) else {
            return Narrowed { criteria: criteria.clone(), description };
        };
        if !suitable.is_empty() {
            filter(&mut suitable);
        }
        let servers = suitable.iter().map(|server| (*server.address).clone()).collect();
        let selector = ServerSelector::Among { selector: Arc::new(criteria.selector.clone()), servers };
        Narrowed { criteria: Criteria { selector, ..criteria.clone() }, description }
    }

    /// Whether the choice was made from what is known of the servers now.
    pub(crate) fn is_up_to_date(&self, narrowed: &Narrowed) -> bool {
        Arc::ptr_eq(self.lock().machine.description(), &narrowed.description)
    }

    /// Lets the check-out that waits at `place` want what the user has chosen anew.
    pub(crate) fn change_criteria(self: &Arc<Self>, place: usize, narrowed: &Narrowed) {
        self.drive(|state, now, _| {
            if let Some(CheckOut::Selecting(selection)) = state.waiters.check_out_at(place) {
                state.machine.call(now, Input::ChangeCriteria(selection, Box::new(narrowed.criteria.clone())), None);
            }
        });
    }
}

impl<A> Waiters<A> {
    pub(crate) fn new() -> Self {
        Self { places: Slab::new(), of_check_out: Vec::new(), of_selection: BTreeMap::new(), beginning: None }
    }

    /// Adds a waiter for the answer to `check_out`.
    #[inline(always)]
    pub(crate) fn enter(&mut self, check_out: CheckOut, waker: Waker) -> usize {
        let place = self.places.insert(Place::Waiting { check_out, waker });
        self.note(check_out, place);
        place
    }

    /// Adds a waiter for the answer to `check_out`, whose call has outputs that are not drained. Its answer wakes nobody meanwhile.
    fn begin(&mut self, check_out: CheckOut) -> usize {
        let place = self.places.insert(Place::Waiting { check_out, waker: Waker::noop().clone() });
        self.beginning = Some(place);
        place
    }

    /// The outputs are drained: returns the answer, if it was among them. Otherwise `waker` is the one to wake.
    fn end_beginning(&mut self, place: usize, waker: &Waker) -> Option<A> {
        self.beginning = None;
        if let Some(check_out) = self.check_out_at(place) {
            self.note(check_out, place);
        }
        self.poll(place, waker)?.ok()
    }

    /// A server was selected, or it has failed the check-out, which goes on to wait for another: the waiter of one check-out waits for
    /// another one from now on.
    pub(crate) fn go_on(&mut self, before: CheckOut, after: CheckOut) {
        let Some(place) = self.place_of(before) else { return };
        if let Some(Place::Waiting { check_out, .. }) = self.places.get_mut(place) {
            *check_out = after;
            if self.beginning != Some(place) {
                self.note(after, place);
            }
        }
    }

    /// Answers the waiter of `check_out`; returns the task to wake, or the answer if no waiter is left.
    #[inline(always)]
    pub(crate) fn answer(&mut self, check_out: CheckOut, answer: A) -> Result<Waker, A> {
        let place = self.place_of(check_out).and_then(|place| self.places.get_mut(place));
        let Some(place) = place else { return Err(answer) };
        match std::mem::replace(place, Place::Answered(answer)) {
            Place::Waiting { waker, .. } => Ok(waker),
            Place::Answered(answer) => Err(answer),
        }
    }

    /// The place of the waiter of `check_out`, which waits for something else from now on, or for nothing.
    #[inline(always)]
    fn place_of(&mut self, check_out: CheckOut) -> Option<usize> {
        if let Some(place) = self.beginning.filter(|&place| self.check_out_at(place) == Some(check_out)) {
            return Some(place);
        }
        let place = match check_out {
            CheckOut::Started(check_out) => *self.of_check_out.get(check_out.server_index())?.get(check_out.index())?,
            CheckOut::Selecting(selection) => self.of_selection.remove(&selection)?,
        };
        // One that has ended is still noted under its index.
        (self.check_out_at(place) == Some(check_out)).then_some(place)
    }

    #[inline(always)]
    fn note(&mut self, check_out: CheckOut, place: usize) {
        let check_out = match check_out {
            CheckOut::Started(check_out) => check_out,
            CheckOut::Selecting(selection) => {
                self.of_selection.insert(selection, place);
                return;
            }
        };
        let (server, index) = (check_out.server_index(), check_out.index());
        if self.of_check_out.len() <= server {
            self.of_check_out.resize_with(server + 1, Vec::new);
        }
        let Some(of_server) = self.of_check_out.get_mut(server) else { return };
        if of_server.len() <= index {
            of_server.resize(index + 1, usize::MAX);
        }
        if let Some(of_check_out) = of_server.get_mut(index) {
            *of_check_out = place;
        }
    }

    /// The answer, if it is there; otherwise `waker` is the one to wake from now on, and the one before is returned. `None` if the place
    /// was given up.
    pub(crate) fn poll(&mut self, place: usize, waker: &Waker) -> Option<Result<A, Waker>> {
        if let Place::Waiting { waker: own, .. } = self.places.get_mut(place)? {
            return Some(Err(std::mem::replace(own, waker.clone())));
        }
        match self.leave(place)? {
            Place::Answered(answer) => Some(Ok(answer)),
            Place::Waiting { .. } => None,
        }
    }

    /// Gives the place up.
    pub(crate) fn leave(&mut self, place: usize) -> Option<Place<A>> {
        let left = self.places.try_remove(place)?;
        if let Place::Waiting { check_out: CheckOut::Selecting(selection), .. } = &left {
            self.of_selection.remove(selection);
        }
        Some(left)
    }

    /// What the waiter at `place` waits for, unless it is answered.
    pub(crate) fn check_out_at(&self, place: usize) -> Option<CheckOut> {
        match self.places.get(place)? {
            Place::Waiting { check_out, .. } => Some(*check_out),
            Place::Answered(_) => None,
        }
    }

    /// The tasks that wait for a server.
    pub(crate) fn selecting(&self) -> impl Iterator<Item = Waker> {
        let places = self.of_selection.values().filter_map(|&place| self.places.get(place));
        places.filter_map(|place| match place {
            Place::Waiting { waker, .. } => Some(waker.clone()),
            Place::Answered(_) => None,
        })
    }

    /// The number of places, and of entries for waiters that wait for a server.
    pub(crate) fn entries(&self) -> usize {
        self.places.len() + self.of_selection.len()
    }

    /// What all who are not answered wait for.
    pub(super) fn waiting(&self) -> Vec<CheckOut> {
        self.places.iter().filter_map(|(place, _)| self.check_out_at(place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check-out with this number, at the first index of the first server.
    fn check_out(number: u64) -> CheckOut {
        const CHECK_OUT: u64 = 0x6f75_7400 << 32;
        CheckOut::Started(CheckOutId::from_bits([number, 0, CHECK_OUT]).unwrap())
    }

    #[test]
    fn a_check_out_that_ends_is_answered_while_another_one_begins_at_its_index() {
        let mut waiters = Waiters::new();
        let overdue = waiters.enter(check_out(1), Waker::noop().clone());

        let begun = waiters.begin(check_out(2));
        let woken = waiters.answer(check_out(1), "its time is up");
        let answer = waiters.end_beginning(begun, Waker::noop());

        assert!(woken.is_ok() && answer.is_none());
        assert!(matches!(waiters.poll(overdue, Waker::noop()), Some(Ok("its time is up"))));
        assert!(waiters.answer(check_out(2), "a connection").is_ok());
        assert!(matches!(waiters.poll(begun, Waker::noop()), Some(Ok("a connection"))));
    }

    #[test]
    fn a_check_out_that_is_answered_in_its_own_call_does_not_wait() {
        let mut waiters = Waiters::new();

        let begun = waiters.begin(check_out(1));
        let woken = waiters.answer(check_out(1), "a connection");

        assert!(woken.is_ok());
        assert_eq!((waiters.end_beginning(begun, Waker::noop()), waiters.entries()), (Some("a connection"), 0));
    }
}

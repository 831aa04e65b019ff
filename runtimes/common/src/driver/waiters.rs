//! The waiters for a connection: each has one place, which holds first a waker and then the answer.
//!
//! A hand-over wakes exactly one task. The core numbers check-outs densely ([`CheckOutId::index`]), so that the place
//! of an answered check-out is found without a search.

use std::collections::BTreeMap;
use std::task::Waker;

use cmap_core::pool::CheckOutId;
use cmap_core::topology::{CheckOut, SelectionId};
use slab::Slab;

pub(crate) struct Waiters<A> {
    places: Slab<Place<A>>,
    /// The place of the check-out with each index in the pool of each server, if it waits.
    of_check_out: Vec<Vec<usize>>,
    /// The places of the waiters that wait for a server first.
    of_selection: BTreeMap<SelectionId, usize>,
}

enum Place<A> {
    Waiting { check_out: CheckOut, waker: Waker },
    Answered(A),
}

/// The state of a waiter that left. Wakers are dropped where no lock is held: the last one of a task drops its future,
/// which may own a connection.
pub(crate) enum Left<A> {
    /// It waited: its check-out must be cancelled.
    Waiting(CheckOut, Waker),
    /// It had been answered.
    Answered(A),
}

/// What a waiter finds in its place.
pub(crate) enum Found<A> {
    /// No answer yet; the earlier waker, if it was another task's.
    Nothing { _before: Option<Waker> },
    /// The answer.
    Answer(A),
}

impl<A> Waiters<A> {
    pub(crate) fn new() -> Self {
        Self { places: Slab::new(), of_check_out: Vec::new(), of_selection: BTreeMap::new() }
    }

    /// Adds a waiter for the answer to `check_out`.
    #[inline(always)]
    pub(crate) fn enter(&mut self, check_out: CheckOut, waker: Waker) -> usize {
        let place = self.places.insert(Place::Waiting { check_out, waker });
        match check_out {
            CheckOut::Started(check_out) => self.note(check_out, place),
            CheckOut::Selecting(selection) => {
                self.of_selection.insert(selection, place);
            }
        }
        place
    }

    /// A server was selected: the waiter that waited for one waits for `check_out` now.
    pub(crate) fn select(&mut self, selection: SelectionId, check_out: CheckOutId) {
        let Some(place) = self.of_selection.remove(&selection) else { return };
        if let Some(Place::Waiting { check_out: own, .. }) = self.places.get_mut(place) {
            *own = CheckOut::Started(check_out);
            self.note(check_out, place);
        }
    }

    /// The server has failed the waiter of `check_out`, which waits for a server now.
    pub(crate) fn reselect(&mut self, check_out: CheckOutId, selection: SelectionId) {
        let place = self.place_of(check_out);
        if let Some(Place::Waiting { check_out: own, .. }) = place.and_then(|place| self.places.get_mut(place))
            && *own == CheckOut::Started(check_out)
        {
            *own = CheckOut::Selecting(selection);
            self.of_selection.extend(place.map(|place| (selection, place)));
        }
    }

    /// Answers the waiter of `check_out`; returns the task to wake, or the answer if no waiter is left.
    #[inline]
    pub(crate) fn answer(&mut self, check_out: CheckOut, answer: A) -> Result<Waker, A> {
        let place = match check_out {
            CheckOut::Started(check_out) => self.place_of(check_out),
            CheckOut::Selecting(selection) => self.of_selection.remove(&selection),
        };
        match place.and_then(|place| self.places.get_mut(place)) {
            Some(place) if place.is_of(check_out) => match std::mem::replace(place, Place::Answered(answer)) {
                Place::Waiting { waker, .. } => Ok(waker),
                Place::Answered(answer) => Err(answer),
            },
            Some(_) | None => Err(answer),
        }
    }

    fn place_of(&self, check_out: CheckOutId) -> Option<usize> {
        self.of_check_out.get(check_out.server_index())?.get(check_out.index()).copied()
    }

    #[inline(always)]
    fn note(&mut self, check_out: CheckOutId, place: usize) {
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

    /// The answer, if it is there; otherwise `waker` is the one to wake from now on. `None` if the place was given up.
    pub(crate) fn poll(&mut self, place: usize, waker: &Waker) -> Option<Found<A>> {
        if let Place::Waiting { waker: own, .. } = self.places.get_mut(place)? {
            let other = (!own.will_wake(waker)).then(|| std::mem::replace(own, waker.clone()));
            return Some(Found::Nothing { _before: other });
        }
        match self.leave(place)? {
            Left::Answered(answer) => Some(Found::Answer(answer)),
            Left::Waiting(..) => None,
        }
    }

    /// Gives the place up.
    pub(crate) fn leave(&mut self, place: usize) -> Option<Left<A>> {
        Some(match self.places.try_remove(place)? {
            Place::Waiting { check_out, waker } => {
                if let CheckOut::Selecting(selection) = check_out {
                    self.of_selection.remove(&selection);
                }
                Left::Waiting(check_out, waker)
            }
            Place::Answered(answer) => Left::Answered(answer),
        })
    }

    /// What the waiter at `place` waits for, unless it is answered.
    pub(crate) fn check_out_at(&self, place: usize) -> Option<CheckOut> {
        match self.places.get(place)? {
            Place::Waiting { check_out, .. } => Some(*check_out),
            Place::Answered(_) => None,
        }
    }

    /// The tasks that wait for a server.
    pub(crate) fn selecting(&self) -> Vec<Waker> {
        let places = self.of_selection.values().filter_map(|&place| self.places.get(place));
        places
            .filter_map(|place| match place {
                Place::Waiting { waker, .. } => Some(waker.clone()),
                Place::Answered(_) => None,
            })
            .collect()
    }

    /// The number of places, and of entries for waiters that wait for a server.
    pub(crate) fn entries(&self) -> usize {
        self.places.len() + self.of_selection.len()
    }

    /// Answers all remaining waiters; returns their check-outs and the tasks to wake.
    pub(crate) fn answer_all(&mut self, answer: impl Fn() -> A) -> Vec<(CheckOut, Waker)> {
        self.of_selection.clear();
        let waiting = self.places.iter_mut().map(|(_, place)| place);
        waiting
            .filter(|place| matches!(place, Place::Waiting { .. }))
            .filter_map(|place| match std::mem::replace(place, Place::Answered(answer())) {
                Place::Waiting { check_out, waker } => Some((check_out, waker)),
                Place::Answered(_) => None,
            })
            .collect()
    }
}

impl<A> Place<A> {
    fn is_of(&self, check_out: CheckOut) -> bool {
        match self {
            Self::Waiting { check_out: own, .. } => *own == check_out,
            Self::Answered(_) => false,
        }
    }
}

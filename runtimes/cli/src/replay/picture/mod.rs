//! What a trace looks like: what each connection was at from when to when, who used it, what was found and cleared, and who waited
//! . Both pictures are made from this.
//!
//! It is read from the state after every call, and never counted by events, so that it is right where nobody observes events.

mod connections;
mod holders;
mod observer;

use std::collections::{BTreeMap, BTreeSet};

use cmap_core::pool::{CheckOutId, ConnectionState, Counts, Handle};
use cmap_core::time::Instant;
use cmap_core::trace::{Divergence, Question, Trace, Wait, WaitEnd, explain, waits};

/// A trace as a picture.
#[derive(Debug)]
pub(super) struct Picture {
    /// The time of the first thing in it, and of the last.
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// How many calls were repeated.
    pub(super) calls: u64,
    /// In the order in which they were seen first.
    pub(super) pools: Vec<PoolPicture>,
    /// All check-outs that waited, in the order of their beginnings. Those that are explained have intervals.
    pub(super) waits: Vec<Wait>,
    /// The places of those that are explained.
    pub(super) explained: BTreeSet<usize>,
    /// The use that each check-out has led to: its pool, and its place among that one's spans.
    uses: BTreeMap<CheckOutId, (usize, usize)>,
    /// The number of the wait, from 1, that led to each use.
    numbers: BTreeMap<CheckOutId, u64>,
}

/// One server's pool, or that of an identity there.
#[derive(Debug)]
pub(super) struct PoolPicture {
    /// Its address, and its number among the pools of the same address.
    pub(super) name: String,
    /// What connections were at, each slot's in the order of time.
    pub(super) spans: Vec<Span>,
    pub(super) pauses: Vec<Pause>,
    pub(super) marks: Vec<Mark>,
    /// The counts after each change.
    pub(super) counts: Vec<(Instant, Counts)>,
}

/// What one connection was at for a while.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) slot: u32,
    pub(super) connection: Handle,
    pub(super) state: ConnectionState,
    pub(super) from: Instant,
    pub(super) to: Instant,
    /// The check-out that used it, and who had made that.
    pub(super) check_out: Option<CheckOutId>,
    pub(super) holder: Option<String>,
    /// Set if the connection was closed at the end of it.
    pub(super) closing: Option<Closing>,
}

/// Why a connection was closed.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    /// A word of the specification, or what failed.
    pub(super) reason: String,
    /// The clear that did it, by its place among the marks.
    pub(super) clear: Option<usize>,
}

/// A pool was paused.
#[derive(Debug)]
pub(super) struct Pause {
    pub(super) from: Instant,
    pub(super) to: Instant,
    pub(super) cause: String,
}

/// Something that happened in a moment.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) at: Instant,
    pub(super) kind: MarkKind,
    pub(super) text: String,
}

/// What kinds of moments there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkKind {
    /// The pool was cleared.
    Cleared,
    /// A check of the server succeeded.
    Found,
    /// A check of the server failed.
    Lost,
}

impl Picture {
    fn empty(began: Instant) -> Self {
        let (pools, waits, explained) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (uses, numbers) = (BTreeMap::new(), BTreeMap::new());
        Self { began, ended: began, calls: 0, pools, waits, explained, uses, numbers }
    }

    /// Repeats all calls. Explains the longest waits, at most `explained`, and half as many of the longest that failed.
    pub(super) fn draw(trace: &Trace, explained: usize) -> Result<Self, Box<Divergence>> {
        let mut picture = observer::observe(trace)?;
        picture.waits = waits(trace)?;
        for question in [Question::Slowest(explained), Question::Failures(explained / 2)] {
            explain(trace, question)?.into_iter().for_each(|wait| picture.explain(wait));
        }
        for (pool, it) in picture.pools.iter().enumerate() {
            let uses = it.spans.iter().enumerate().filter_map(|(place, span)| Some((span.check_out?, (pool, place))));
            picture.uses.extend(uses);
        }
        for (number, wait) in (1..).zip(&picture.waits) {
            if let WaitEnd::Delivered { check_out, .. } = &wait.end {
                picture.numbers.insert(*check_out, number);
            }
        }
        let first = picture.waits.iter().map(|wait| wait.began).min();
        let last = picture.waits.iter().map(|wait| wait.ended).max();
        picture.began = first.map_or(picture.began, |first| first.min(picture.began));
        picture.ended = last.map_or(picture.ended, |last| last.max(picture.ended));
        Ok(picture)
    }

    fn explain(&mut self, explained: Wait) {
        // They are in the order of their beginnings.
        let first = self.waits.partition_point(|wait| wait.began < explained.began);
        let is_it = |(_, wait): &(usize, &mut Wait)| wait.check_out == explained.check_out;
        if let Some((place, wait)) = self.waits.iter_mut().enumerate().skip(first).find(is_it) {
            *wait = explained;
            self.explained.insert(place);
        }
    }

    /// What a wait led to: the pool, and the place of the use among its spans.
    pub(super) fn use_after(&self, wait: &Wait) -> Option<(usize, usize)> {
        let WaitEnd::Delivered { check_out, .. } = &wait.end else { return None };
        self.uses.get(check_out).copied()
    }

    /// The number of the wait, from 1, that led to a use.
    pub(super) fn wait_before(&self, check_out: CheckOutId) -> Option<u64> {
        self.numbers.get(&check_out).copied()
    }
}

impl Span {
    /// The clear that closed its connection at its end.
    pub(super) fn clear(&self) -> Option<usize> {
        self.closing.as_ref()?.clear
    }
}

/// The lane of each wait: the first one that is free when it begins. Those that follow each other share one.
pub(super) fn lanes<'a>(waits: impl Iterator<Item = &'a Wait>) -> Vec<usize> {
    let mut free_from: Vec<Instant> = Vec::new();
    waits
        .map(|wait| {
            let lane = free_from.iter().position(|&from| from <= wait.began).unwrap_or(free_from.len());
            match free_from.get_mut(lane) {
                Some(from) => *from = wait.ended.max(wait.began),
                None => free_from.push(wait.ended.max(wait.began)),
            }
            lane
        })
        .collect()
}

/// What a connection is at, in words.
pub(super) fn name_of(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::Closed => "closed",
        ConnectionState::Pending => "establish",
        ConnectionState::Available => "available",
        ConnectionState::Checking => "check",
        ConnectionState::Refreshing => "refresh",
        ConnectionState::InUse => "in use",
    }
}

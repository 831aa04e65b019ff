//! The situations that the cases reach: a property that no case comes near proves nothing.
//!
//! Draws cases without running a pool, and counts the situations in which the reference finds itself.

#![allow(clippy::wildcard_enum_match_arm, reason = "a count that does not look at an output need not list it")]

use std::collections::BTreeMap;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use proptest_state_machine::ReferenceStateMachine;

use cmap_core::pool::{Cancellation, ConnectionClosedReason as Reason, TimeoutReason};

use crate::drawn::Cases;
use crate::model::case::Case;
use crate::model::output::{Kind, Output, Warmed};
use crate::model::reference::{Answer, Connection, Reference, State, Waiter};
use crate::model::transition::{Call, Named};

/// The situations that steps met, and how often.
#[derive(Default)]
pub(crate) struct Reach(BTreeMap<String, usize>);

/// Situations that two thousand cases must meet at least fifty times.
const COMMON: [&str; 58] = [
    "a cancellation met Cancelled",
    "a cancellation met Delivered",
    "a cancellation met Finished",
    "a cancellation met a delivery that was not drained",
    "a waiter was served",
    "an arrival was served",
    "five waited",
    "one of several pending connections was established for a queue",
    "time ran backwards",
    "Check",
    "Refresh",
    "warmed up Reached",
    "warmed up BeyondMaxPoolSize",
    "warmed up Establish",
    "warmed up PoolCleared",
    "a warm-up was held back",
    "Fail PoolClosed",
    "Fail PoolCleared",
    "Fail Timeout(Deadline)",
    "Fail Timeout(WaitQueueTimeout)",
    "Fail Establish",
    "Interrupt InUse",
    "Interrupt Pending",
    "closed Available error",
    "closed Available idle",
    "closed Available stale",
    "closed Available surplus",
    "closed InUse surplus",
    "a host was used no more",
    "resized Refused",
    "a queue became smaller than it was",
    "a new rate counted from the old one's tokens",
    "closed InUse error",
    "closed InUse stale",
    "closed Pending error",
    "closed Pending stale",
    "created for a waiter",
    "created for nobody",
    "created after a pause",
    "created when the rate allowed it",
    "served by another than the most_recent",
    "Fail WaitQueueFull",
    "retired InUse",
    "retired Available",
    "a life was over and went on",
    "a key had its connection again",
    "a check-out waited for the connection of its key",
    "a waiter was served before the queue",
    "a waiter was sent to the queue",
    "a connection was held while somebody waited",
    "a hold ended",
    "a held connection was lent",
    "refused twice in a row",
    "a waiter outlived a clear",
    "a stale connection was replaced for its waiter",
    "refused ForeignConnection",
    "refused NotInUse",
    "refused OtherUse",
];

/// Situations of which five are enough, because several rare things have to come together.
const RARE: [&str; 4] = [
    "a refreshed connection served a waiter",
    "a connection with keys was refreshed",
    "closed Refreshing error",
    "closed Refreshing stale",
];

impl Reach {
    /// Draws this many cases, always the same ones.
    pub(crate) fn of<const LOAD_BALANCED: bool>(cases: usize) -> Self {
        let mut reach = Self::default();
        let mut runner = TestRunner::deterministic();
        let strategy = Cases::<LOAD_BALANCED>::sequential_strategy(1..=200);
        for _ in 0..cases {
            let (mut case, steps, _) = strategy.new_tree(&mut runner).expect("nothing is rejected").current();
            let mut undrained = Vec::new();
            for step in steps {
                let before = case.clone();
                case = Cases::<LOAD_BALANCED>::apply(case, &step);
                reach.meet(&before, &case, &undrained);
                let delivered = case.reference.outputs.iter().filter_map(|output| match output {
                    Output::Deliver(check_out, _) => Some(*check_out as u64),
                    _ => None,
                });
                undrained =
                    if step.keep_outputs { undrained.into_iter().chain(delivered).collect() } else { Vec::new() };
            }
        }
        reach
    }

    /// Situations that were met too rarely.
    pub(crate) fn missed(&self) -> Vec<(&str, usize)> {
        let times = |situation| self.0.get(situation).copied().unwrap_or(0);
        let common = COMMON.into_iter().map(|situation| (situation, 50));
        let wanted = common.chain(RARE.into_iter().map(|situation| (situation, 5)));
        let missed = wanted.filter(|&(situation, least)| times(situation) < least);
        missed.map(|(situation, _)| (situation, times(situation))).collect()
    }

    fn meet(&mut self, before: &Case, after: &Case, undrained: &[u64]) {
        let made = after.made.expect("a step makes a call");
        let (before, after) = (&before.reference, &after.reference);
        let state = |id| before.get(id).map_or(State::Pending, |c| c.state);
        match (made.answer, made.call) {
            (Err(misuse), _) => self.add(format!("refused {misuse:?}")),
            (Ok(Answer::Cancellation(met)), call) => {
                self.add(format!("a cancellation met {met:?}"));
                if met == Cancellation::Delivered
                    && undrained.iter().any(|&number| matches!(call, Call::Cancel(Named::Own(own)) if own == number))
                {
                    self.add("a cancellation met a delivery that was not drained");
                }
            }
            (Ok(answer), Call::Resize(_)) => {
                self.add(format!("resized {answer:?}"));
                if (1..after.waiters.len()).contains(&after.options.max_wait_queue_depth) {
                    self.add("a queue became smaller than it was");
                }
                let (old, new) = (before.options.creation_interval, after.options.creation_interval);
                if old != new && old > 0 && new > 0 && after.allowed_at().is_some_and(|at| at > after.now) {
                    self.add("a new rate counted from the old one's tokens");
                }
            }
            (Ok(Answer::Done), Call::Established(_)) if before.waiters.len() >= 2 && before.counts()[0] >= 2 => {
                self.add("one of several pending connections was established for a queue");
            }
            _ => {}
        }
        if let (Some(one), Some(other)) = (&before.backoff, &after.backoff) {
            if one.tried.is_none() && other.tried.is_some() {
                self.add("created after a pause");
            }
            if other.failures > one.failures {
                self.add("refused twice in a row");
            }
        }
        if after.host.is_over && !before.host.is_over && after.timeout() != before.timeout() {
            self.add("a host was used no more");
        }
        if before.options.creation_interval > 0 && before.backoff.is_none() && matches!(made.call, Call::Timeout) {
            let creates = after.outputs.iter().any(|output| matches!(output, Output::Connect(_)));
            self.add(if creates { "created when the rate allowed it" } else { "a time-out without a creation" });
        }
        if after.wants_replacement() && after.options.min_pool_size > 0 && !after.may_retire() {
            self.add("a life was over and went on");
        }
        if after.timeout().is_some_and(|(_, reason)| reason == TimeoutReason::WarmUp) {
            self.add("a warm-up was held back");
        }
        self.meet_affinity(before, after);
        let clears = after.outputs.iter().any(|output| matches!(output, Output::PoolCleared { .. }));
        if clears && before.waiters.iter().any(|waiter| after.waiters.iter().any(|w| w.check_out == waiter.check_out)) {
            self.add("a waiter outlived a clear");
        }
        if matches!(made.call, Call::Established(_))
            && matches!(
                after.outputs[..],
                [Output::ConnectionClosed(..), Output::Close(..), Output::ConnectionCreated(_), ..]
            )
        {
            self.add("a stale connection was replaced for its waiter");
        }
        if before.waiters.len() >= 5 {
            self.add("five waited");
        }
        if made.now < before.now {
            self.add("time ran backwards");
        }
        for &output in &after.outputs {
            match output {
                Output::Deliver(check_out, id) => {
                    if matches!(made.call, Call::Refreshed(_)) {
                        self.add("a refreshed connection served a waiter");
                    }
                    let most_recent = before.connections.iter().rfind(|c| c.state == State::Available);
                    if matches!(made.call, Call::CheckOut(..)) && most_recent.is_some_and(|c| c.id != id) {
                        self.add("served by another than the most_recent");
                    }
                    let waited = before.waiters.iter().any(|waiter| waiter.check_out == check_out);
                    self.add(if waited { "a waiter was served" } else { "an arrival was served" });
                }
                Output::Check(_) => self.add("Check"),
                Output::Refresh(_) => self.add("Refresh"),
                Output::Interrupt(id) => self.add(format!("Interrupt {:?}", state(id))),
                Output::Fail(_, failure) => self.add(match failure.kind {
                    Kind::PoolCleared(_) => "Fail PoolCleared".to_string(),
                    Kind::Establish(_) => "Fail Establish".to_string(),
                    kind => format!("Fail {kind:?}"),
                }),
                Output::WarmedUp(_, how, _) => self.add(match how {
                    Warmed::Establish(_) => "warmed up Establish".to_string(),
                    Warmed::PoolCleared(_) => "warmed up PoolCleared".to_string(),
                    how => format!("warmed up {how:?}"),
                }),
                Output::ConnectionClosed(id, Reason::Idle, _) if before.options.max_idle == 0 => {
                    self.add(format!("retired {:?}", state(id)));
                }
                Output::ConnectionClosed(id, reason, _) => self.add(format!("closed {:?} {reason}", state(id))),
                Output::ConnectionCreated(id) => {
                    let has_origin = after.get(id).is_some_and(|c| c.check_out.is_some());
                    self.add(if has_origin { "created for a waiter" } else { "created for nobody" });
                }
                _ => {}
            }
        }
    }

    fn meet_affinity(&mut self, before: &Reference, after: &Reference) {
        let waits = |sticky: &[Waiter], number| sticky.iter().any(|waiter| waiter.check_out == number);
        if after.sticky.len() > before.sticky.len() {
            self.add("a check-out waited for the connection of its key");
        }
        if before.sticky.iter().any(|sticky| waits(&after.waiters, sticky.check_out)) {
            self.add("a waiter was sent to the queue");
        }
        if !after.waiters.is_empty() && after.connections.iter().any(|c| after.is_held(c)) {
            self.add("a connection was held while somebody waited");
        }
        if after.lent > before.lent {
            self.add("a held connection was lent");
        }
        let was_held = before.connections.iter().filter(|c| before.is_held(c));
        let is_over = |id| after.get(id).is_some_and(|c| c.keys.is_empty());
        if was_held.into_iter().any(|c| is_over(c.id)) {
            self.add("a hold ended");
        }
        let is_kept = |id| before.get(id).is_some_and(|c| !c.keys.is_empty());
        if after.outputs.iter().any(|output| matches!(*output, Output::Refresh(id) if is_kept(id))) {
            self.add("a connection with keys was refreshed");
        }
        for &output in &after.outputs {
            let Output::Deliver(check_out, id) = output else { continue };
            if waits(&before.sticky, check_out) && !before.waiters.is_empty() {
                self.add("a waiter was served before the queue");
            }
            let has_had = |c: &Connection| after.get(id).is_some_and(|now| now.keys == c.keys && !c.keys.is_empty());
            if before.get(id).is_some_and(has_had) {
                self.add("a key had its connection again");
            }
        }
    }

    fn add(&mut self, situation: impl Into<String>) {
        *self.0.entry(situation.into()).or_default() += 1;
    }
}

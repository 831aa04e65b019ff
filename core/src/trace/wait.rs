//! A check-out that waited: from when to when, how it ended, and what bound it meanwhile.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::occurrence::Occurrence;
use super::uses;
use crate::connection::Phase;
use crate::pool::{CheckOutId, Handle};
use crate::time::Instant;
use crate::topology::CheckOut;

/// A check-out that waited. `H` names a caller: by its text, or by the text's number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait<H = String> {
    /// The number of the call that began it, from 1. `None` if it was made before the trace begins.
    pub call: Option<u64>,
    /// The check-out, as it was called at first.
    pub check_out: CheckOut,
    /// Who asked, where that was noted.
    pub holder: Option<H>,
    /// When the wait began.
    pub began: Instant,
    /// How it ended.
    pub end: WaitEnd,
    /// When it ended for its caller; where it has not ended, the end of the trace.
    pub ended: Instant,
    /// What bound it: without gaps, from `began` to `ended`. Empty unless it was [explained](super::explain).
    pub intervals: Vec<Interval<H>>,
    /// What happened meanwhile and shortly before, in its order, at most 16 things. Empty unless it was explained.
    pub occurrences: Vec<Occurrence>,
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitEnd {
    /// With a connection, which was in use as this check-out from then on.
    Delivered {
        /// The connection.
        connection: Handle,
        /// The check-out as it was called then.
        check_out: CheckOutId,
        /// When the machine delivered it; its task took it later.
        at: Instant,
    },
    /// With an error.
    Failed {
        /// Its text.
        error: String,
    },
    /// Its caller gave up.
    Cancelled,
    /// Not before the trace ends.
    Open,
}

/// A part of a wait in which one limit bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Interval<H = String> {
    /// When the interval began.
    pub from: Instant,
    /// When the interval ended.
    pub to: Instant,
    /// The limit.
    pub limit: Limit<H>,
}

/// What binds a check-out that waits: a closed list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit<H = String> {
    /// Nobody knows: it was before the trace begins.
    BeforeTheTrace,
    /// No server suited.
    Selection {
        /// What was known of the servers.
        servers: Vec<String>,
    },
    /// The pool was paused.
    Paused {
        /// The server.
        server: String,
        /// Since when.
        since: Instant,
        /// Why.
        cause: String,
    },
    /// maxPoolSize: all connections were in use.
    MaxPoolSize {
        /// The uses that lasted longest of those in the interval, the longest first, at most eight.
        uses: Vec<Use<H>>,
        /// How many connections were in use at its end.
        in_use: usize,
        /// How many uses ended before it did: with many short ones the pool is too small, with none it is held up.
        ended: usize,
    },
    /// Its own connection was being established.
    Establishment(Establishment),
    /// maxConnecting: others were being established.
    MaxConnecting {
        /// How many.
        establishing: u32,
        /// The one that took longest.
        longest: Establishment,
    },
    /// The pause after the refusal of an overloaded server.
    Backoff,
    /// maxNewConnectionsPerSecond.
    CreationRate,
    /// A limit that pools share: the client's, or that of a server's users.
    MaxConnections,
    /// Others came first, or the driver came late.
    Turn,
    /// Nothing in the pool: it had its connection, and its task was not run.
    LateWakeUp,
    /// The connection of its key was in use, or being checked.
    Affinity,
}

/// A connection in use while others waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Use<H = String> {
    /// The connection.
    pub connection: u64,
    /// Who used it, where that was noted.
    pub holder: Option<H>,
    /// Since when.
    pub since: Instant,
    /// For how long, at its end or at the end of the interval.
    pub held_for: Duration,
    /// Whether it ended before the interval did.
    pub has_ended: bool,
}

/// A connection that was being established while others waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Establishment {
    /// The connection.
    pub connection: u64,
    /// For how long, at the end of the interval.
    pub elapsed: Duration,
    /// What it was at, where that was noted.
    pub phase: Option<Phase>,
}

impl<H: Clone> Wait<H> {
    /// How long its caller waited.
    pub fn duration(&self) -> Duration {
        self.ended.saturating_since(self.began)
    }

    /// The limits by the time that they bound in all, the longest first.
    pub fn by_limit(&self) -> Vec<(&'static str, Duration)> {
        let mut sums: Vec<(&'static str, Duration)> = Vec::new();
        for interval in &self.intervals {
            let (name, time) = (interval.limit.name(), interval.duration());
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(time),
                None => sums.push((name, time)),
            }
        }
        sums.sort_by_key(|(_, sum)| core::cmp::Reverse(*sum));
        sums
    }

    /// The interval of the limit that bound longest in all, the last one of them.
    pub fn cause(&self) -> Option<&Interval<H>> {
        let (name, _) = self.by_limit().into_iter().next()?;
        self.intervals.iter().rev().find(|interval| interval.limit.name() == name)
    }
}

impl Wait<u32> {
    /// Lets a wait that has not ended go on until `now`.
    pub(super) fn lasting_until(mut self, now: Instant) -> Self {
        if self.end == WaitEnd::Open && now > self.ended {
            let by = now.saturating_since(self.ended);
            self.ended = now;
            if let Some(last) = self.intervals.pop() {
                self.intervals.push(Interval { from: last.from, to: now, limit: last.limit.aged(by) });
            }
        }
        self.intervals.retain(|interval| interval.from < interval.to);
        self
    }

    /// Replaces the numbers of callers by their texts.
    pub(super) fn named(self, text: &impl Fn(u32) -> Option<String>) -> Wait {
        let Self { call, check_out, holder, began, end, ended, intervals, occurrences } = self;
        let named = |it: Interval<u32>| Interval { from: it.from, to: it.to, limit: it.limit.named(text) };
        let intervals = intervals.into_iter().map(named).collect();
        Wait { call, check_out, holder: holder.and_then(text), began, end, ended, intervals, occurrences }
    }
}

impl<H> Interval<H> {
    /// How long it lasted.
    pub fn duration(&self) -> Duration {
        self.to.saturating_since(self.from)
    }
}

impl Limit<u32> {
    fn named(self, text: &impl Fn(u32) -> Option<String>) -> Limit {
        match self {
            Self::MaxPoolSize { uses, in_use, ended } => {
                let uses = uses.into_iter().map(|held| held.named(text)).collect();
                Limit::MaxPoolSize { uses, in_use, ended }
            }
            Self::BeforeTheTrace => Limit::BeforeTheTrace,
            Self::Selection { servers } => Limit::Selection { servers },
            Self::Paused { server, since, cause } => Limit::Paused { server, since, cause },
            Self::Establishment(own) => Limit::Establishment(own),
            Self::MaxConnecting { establishing, longest } => Limit::MaxConnecting { establishing, longest },
            Self::Backoff => Limit::Backoff,
            Self::CreationRate => Limit::CreationRate,
            Self::MaxConnections => Limit::MaxConnections,
            Self::Turn => Limit::Turn,
            Self::LateWakeUp => Limit::LateWakeUp,
            Self::Affinity => Limit::Affinity,
        }
    }
}

impl Use<u32> {
    fn named(self, text: &impl Fn(u32) -> Option<String>) -> Use {
        let Self { connection, holder, since, held_for, has_ended } = self;
        Use { connection, holder: holder.and_then(text), since, held_for, has_ended }
    }
}

impl<H: Clone> Limit<H> {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::BeforeTheTrace => "before the trace",
            Self::Selection { .. } => "server selection",
            Self::Paused { .. } => "paused pool",
            Self::MaxPoolSize { .. } => "maxPoolSize",
            Self::Establishment(_) => "establishment",
            Self::MaxConnecting { .. } => "maxConnecting",
            Self::Backoff => "backoff",
            Self::CreationRate => "maxNewConnectionsPerSecond",
            Self::MaxConnections => "shared limit",
            Self::Turn => "turn",
            Self::LateWakeUp => "late wake-up",
            Self::Affinity => "affinity",
        }
    }

    /// The limit after more time has passed.
    pub(super) fn aged(mut self, by: Duration) -> Self {
        match &mut self {
            Self::MaxPoolSize { uses, .. } => uses::age(uses, by),
            Self::Establishment(own) | Self::MaxConnecting { longest: own, .. } => {
                // A file may say anything.
                own.elapsed = own.elapsed.saturating_add(by);
            }
            Self::BeforeTheTrace
            | Self::Selection { .. }
            | Self::Paused { .. }
            | Self::Backoff
            | Self::CreationRate
            | Self::MaxConnections
            | Self::Turn
            | Self::LateWakeUp
            | Self::Affinity => {}
        }
        self
    }

    /// This limit, which binds now, as a continuation of the same one that was looked at `by` before.
    pub(super) fn continued(self, before: Self, by: Duration) -> Self {
        if let (Self::MaxPoolSize { uses: now, in_use, .. }, Self::MaxPoolSize { uses: then, ended, .. }) =
            (&self, &before)
        {
            let (uses, ended) = uses::continued(now, then, *ended, by);
            return Self::MaxPoolSize { uses, in_use: *in_use, ended };
        }
        self
    }

    /// Keeps its longest uses alone.
    pub(super) fn shortened(mut self) -> Self {
        if let Self::MaxPoolSize { uses, .. } = &mut self {
            uses::shorten(uses);
        }
        self
    }

    /// What it is to others in the queue, of whom none has the connection that is being established.
    pub(super) fn of_another(self) -> Self {
        if let Self::Establishment(longest) = self { Self::MaxConnecting { establishing: 1, longest } } else { self }
    }

    /// Adds the uses of an earlier interval of this limit.
    pub(super) fn after(mut self, before: &Self) -> Self {
        if let (Self::MaxPoolSize { uses, ended, .. }, Self::MaxPoolSize { uses: then, ended: more, .. }) =
            (&mut self, before)
        {
            *ended += more;
            uses::join(uses, then);
        }
        self
    }

    /// Whether both are the same limit for the same reason, though its figures have changed.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Paused { server, since, .. }, Self::Paused { server: same, since: then, .. }) => {
                server == same && since == then
            }
            (Self::Establishment(own), Self::Establishment(others)) => own.connection == others.connection,
            (Self::Selection { servers }, Self::Selection { servers: others }) => servers == others,
            _ => self.name() == other.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    /// A file may say anything.
    #[test]
    fn an_open_wait_for_something_that_has_lasted_for_ever_goes_on() {
        let establishing = Establishment { connection: 1, elapsed: Duration::MAX, phase: None };
        let held =
            Use { connection: 2, holder: None, since: Instant::ORIGIN, held_for: Duration::MAX, has_ended: false };
        let held_up = Limit::MaxPoolSize { uses: vec![held], in_use: 1, ended: 0 };
        for limit in [Limit::Establishment(establishing), held_up] {
            let interval = Interval { from: Instant::ORIGIN, to: Instant::from_millis(1), limit: limit.clone() };
            let wait = Wait::<u32> {
                call: None,
                check_out: CheckOut::Started(CheckOutId::from_bits([1, 0, 0x6f75_7400 << 32]).unwrap()),
                holder: None,
                began: Instant::ORIGIN,
                end: WaitEnd::Open,
                ended: Instant::from_millis(1),
                intervals: vec![interval],
                occurrences: Vec::new(),
            };

            let later = wait.lasting_until(Instant::from_millis(2));

            assert_eq!(later.intervals[0].limit, limit);
        }
    }
}

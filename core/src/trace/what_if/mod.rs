//! What the waits of a trace would have been with other options: an estimate.
//!
//! The machine is run again, with the options changed, on what callers and servers did: callers ask, give up and keep their
//! connections for as long as they did, the n-th establishment at a server takes what the n-th one took and ends as it did,
//! and what was found of servers is found at its time. What the recording does not have takes the median of what it has:
//! establishments and checks beyond the recorded ones, and the uses of callers that got no connection.
//!
//! With nothing changed every check-out begins and ends when it did, if the driver took outputs at once. Late wake-ups are left
//! out on both sides: they are the executor's.

mod rerun;
mod script;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::Serialize;
use thiserror::Error;

use self::rerun::rerun;
use self::script::Script;
use super::item::Trace;
use super::replay::Divergence;
use super::wait::{Limit, Wait};
use crate::options::{PoolOptions, PoolOptionsError, PoolSizes};
use crate::time::Instant;
use crate::topology::Input;

/// An option with another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// maxPoolSize; 0 = unlimited.
    MaxPoolSize(u32),
    /// minPoolSize.
    MinPoolSize(u32),
    /// maxConnecting.
    MaxConnecting(u32),
    /// waitQueueTimeoutMS in the place of every deadline; zero = none.
    WaitQueueTimeout(Duration),
}

/// Options that are changed together: `maxPoolSize=4,maxConnecting=4`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(pub Vec<Change>);

/// A text that names no change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0} is no change: give maxPoolSize, minPoolSize, maxConnecting or waitQueueTimeoutMS with a number, such as maxConnecting=4"
)]
pub struct ParseChangeError(String);

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WhatIfError {
    /// The trace does not repeat.
    #[error(transparent)]
    Divergence(Box<Divergence>),
    /// The options contradict each other.
    #[error(transparent)]
    Options(PoolOptionsError),
}

/// How a check-out ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Fate {
    /// With a connection.
    Delivered,
    /// With an error.
    Failed,
    /// Its caller gave up.
    Cancelled,
    /// Not before the trace ends.
    Open,
}

/// A check-out from its beginning to its end, late wake-ups left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The number of the call that began it. `None` if that was before the trace begins.
    pub call: Option<u64>,
    /// When the check-out began.
    pub began: Instant,
    /// When the check-out ended, or when the trace did.
    pub ended: Instant,
    /// How.
    pub fate: Fate,
}

/// A sum over all check-outs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// How long they waited together.
    pub waited: Duration,
    /// How many failed.
    pub failed: usize,
}

/// What would have been, as far as it can be known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// All check-outs as they were, in the order of their beginnings.
    pub recorded: Vec<Outcome>,
    /// All check-outs as they would have been with the other options, in the order of `recorded`.
    pub estimated: Vec<Outcome>,
}

/// Estimates the waits of a trace under changed options.
///
/// # Errors
/// The trace does not repeat, or the changed options contradict the others.
pub fn what_if(trace: &Trace, changes: &Changes) -> Result<Estimate, WhatIfError> {
    let Some(script) = Script::read(trace).map_err(WhatIfError::Divergence)? else {
        return Ok(Estimate { recorded: Vec::new(), estimated: Vec::new() });
    };
    let estimated = rerun(&script, changes).map_err(WhatIfError::Options)?;
    Ok(Estimate { recorded: script.requests.iter().map(|request| request.outcome).collect(), estimated })
}

impl Estimate {
    /// The sums of both.
    pub fn totals(&self) -> (Totals, Totals) {
        (Totals::of(&self.recorded), Totals::of(&self.estimated))
    }

    /// The check-out of a wait, as it was and as it would have been.
    pub fn of(&self, wait: &Wait) -> Option<(Outcome, Outcome)> {
        let same = |it: &Outcome| it.call == wait.call && (it.call.is_some() || it.began == wait.began);
        let at = self.recorded.iter().position(same)?;
        Some((*self.recorded.get(at)?, *self.estimated.get(at)?))
    }
}

impl Outcome {
    /// How long it waited.
    pub fn duration(&self) -> Duration {
        self.ended.saturating_since(self.began)
    }
}

impl Totals {
    fn of(outcomes: &[Outcome]) -> Self {
        let failed = outcomes.iter().filter(|it| it.fate == Fate::Failed).count();
        Self { waited: outcomes.iter().map(Outcome::duration).sum(), failed }
    }
}

impl Changes {
    /// What is worth trying where these limits bound: twice the limit, and connections that are there before anybody asks.
    pub fn standard(trace: &Trace, waits: &[Wait]) -> Vec<Self> {
        let Some(options) = trace.segments.first().map(|segment| segment.snapshot.pool_options()) else {
            return Vec::new();
        };
        let size = options.max_pool_size.unwrap_or(PoolOptions::DEFAULT_MAX_POOL_SIZE);
        let connecting = options.max_connecting.unwrap_or(options.profile.default_max_connecting());
        let binds = |is: fn(&Limit) -> bool| waits.iter().flat_map(|wait| &wait.intervals).any(|it| is(&it.limit));
        let mut changes = Vec::new();
        if binds(|limit| matches!(limit, Limit::MaxPoolSize { .. })) && size > 0 {
            changes.push(Self([Change::MaxPoolSize(size.saturating_mul(2))].into()));
        }
        if binds(|limit| matches!(limit, Limit::MaxConnecting { .. })) {
            changes.push(Self([Change::MaxConnecting(connecting.saturating_mul(2))].into()));
        }
        if binds(|limit| matches!(limit, Limit::MaxConnecting { .. } | Limit::Establishment(_))) {
            changes.push(Self([Change::MinPoolSize(if size == 0 { 10 } else { size.min(10) })].into()));
        }
        changes
    }

    /// New limits for the pools, if there are any.
    fn sizes(&self) -> Option<PoolSizes> {
        let sizes = self.0.iter().fold(PoolSizes::default(), |sizes, change| match *change {
            Change::MaxPoolSize(size) => sizes.max_pool_size(size),
            Change::MinPoolSize(size) => sizes.min_pool_size(size),
            Change::MaxConnecting(connections) => sizes.max_connecting(connections),
            Change::WaitQueueTimeout(_) => sizes,
        });
        (sizes != PoolSizes::default()).then_some(sizes)
    }

    /// A check-out with the changed deadline.
    fn applied_to(&self, mut input: Input, now: Instant) -> Input {
        let timeout = self.0.iter().rev().find_map(|change| match change {
            Change::WaitQueueTimeout(timeout) => Some(*timeout),
            Change::MaxPoolSize(_) | Change::MinPoolSize(_) | Change::MaxConnecting(_) => None,
        });
        if let (Some(timeout), Input::CheckOut(_, request)) = (timeout, &mut input) {
            request.deadline = (!timeout.is_zero()).then(|| now + timeout);
        }
        input
    }
}

impl FromStr for Change {
    type Err = ParseChangeError;

    fn from_str(text: &str) -> Result<Self, ParseChangeError> {
        let error = || ParseChangeError(text.to_string());
        let (name, value) = text.split_once('=').ok_or_else(error)?;
        let value: u32 = value.parse().map_err(|_| error())?;
        match name {
            "maxPoolSize" => Ok(Self::MaxPoolSize(value)),
            "minPoolSize" => Ok(Self::MinPoolSize(value)),
            "maxConnecting" if value > 0 => Ok(Self::MaxConnecting(value)),
            "waitQueueTimeoutMS" => Ok(Self::WaitQueueTimeout(Duration::from_millis(value.into()))),
            _ => Err(error()),
        }
    }
}

impl FromStr for Changes {
    type Err = ParseChangeError;

    fn from_str(text: &str) -> Result<Self, ParseChangeError> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxPoolSize(size) => write!(f, "maxPoolSize {size}"),
            Self::MinPoolSize(size) => write!(f, "minPoolSize {size}"),
            Self::MaxConnecting(connections) => write!(f, "maxConnecting {connections}"),
            Self::WaitQueueTimeout(timeout) => write!(f, "waitQueueTimeoutMS {}", timeout.as_millis()),
        }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, change) in self.0.iter().enumerate() {
            write!(f, "{}{change}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

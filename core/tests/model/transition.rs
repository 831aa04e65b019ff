//! The parts of a case: a pool's options, and steps that refer to the connections and check-outs alive at that moment.
//!
//! A step names a connection or a check-out by an index into those that its call is meant for, so that it keeps its
//! sense when shrinking removes other steps. Some point at anything else on purpose: connections that were closed, are
//! in another state or never existed, and check-outs that are over. All durations are a few nanoseconds: deadlines,
//! expiries and steps then coincide all the time, which is where mistakes by one show.

use core::fmt;

use cmap_core::options::{Affinity, Profile, Reuse};
use cmap_core::pool::{Condition, Reaction};

use super::output::Service;

/// The options of a case. Zero means what it means to the pool: unlimited, or never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) max_pool_size: u32,
    pub(crate) min_pool_size: u32,
    pub(crate) max_connecting: u32,
    pub(crate) max_idle: u64,
    pub(crate) wait_queue_timeout: u64,
    pub(crate) host_timeout: u64,
    /// The interval of maintenance, or none where it is off.
    pub(crate) maintenance: Option<u64>,
    /// `u64::MAX` = never.
    pub(crate) check_after_idle: u64,
    pub(crate) load_balanced: bool,
    pub(crate) backoff: bool,
    /// Most waiters; 0 = no limit.
    pub(crate) max_wait_queue_depth: usize,
    pub(crate) reuse: Reuse,
    /// The time in which one new connection is allowed; 0 = no limit. It divides a second.
    pub(crate) creation_interval: u64,
    /// 0 = forever.
    pub(crate) max_lifetime: u64,
    /// 0 = no limit.
    pub(crate) max_uses: u32,
    pub(crate) affinity: Option<Affinity>,
    /// 0 = never.
    pub(crate) refresh_requirement: u64,
    /// The edition without a paused state.
    pub(crate) profile: Profile,
    /// Whether events are produced.
    pub(crate) observed: bool,
    /// Whether it is recorded how long everything takes.
    pub(crate) recorded: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) time: Time,
    pub(crate) call: Call<Pick>,
    /// Whether the outputs stay in the pool, so that the next call meets them; else they are drained.
    pub(crate) keep_outputs: bool,
    /// Whether the pool is serialised and restored afterwards.
    pub(crate) restore: bool,
}

/// When a step takes place, in relation to the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    Same,
    Later(u64),
    /// The caller's clock runs backwards.
    Earlier(u64),
    /// At the pool's next deadline, or beside it; the same moment where there is none.
    Deadline,
    BeforeDeadline,
    AfterDeadline,
}

/// One call of the pool. `P` says how connections and check-outs are named: by [`Pick`] or, resolved, by [`Named`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<P> {
    /// With a deadline this many nanoseconds after now, or before, and for the connection of a key.
    CheckOut(Option<i64>, Option<Key>),
    Cancel(P),
    /// Under the check-out that comes first.
    CheckIn(P, P, Condition),
    Ready,
    Clear {
        service: Option<Service>,
        interrupts: bool,
    },
    Close,
    ResetAfterFork,
    Hello(P, Service),
    Established(P),
    /// With its meaning for the pool.
    EstablishFailed(P, Reaction, Refusal),
    Checked(P, bool),
    Refreshed(P),
    RefreshFailed(P),
    PeerClosed(P),
    Resize(Resized),
    /// Over this many nanoseconds.
    ReplaceConnections(u64),
    EndAffinity(Key),
    Resume,
    RenewCredential,
    WarmUp(Option<u32>),
    /// By its number, which may be that of one that has ended or never begun.
    CancelWarmUp(u64),
    Timeout,
}

/// A key of affinity.
pub(crate) type Key = u64;

/// The keys that a case uses.
pub(crate) const KEYS: Key = 5;

/// What an establishment failed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server is overloaded.
    Overload,
    /// The server refused the credential.
    Credential,
    Other,
}

/// New limits; `None` leaves one as it is. They may contradict each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resized {
    pub(crate) max_pool_size: Option<u32>,
    pub(crate) min_pool_size: Option<u32>,
    pub(crate) max_connecting: Option<u32>,
    pub(crate) max_wait_queue_depth: Option<usize>,
    pub(crate) creation_interval: Option<u64>,
}

impl Resized {
    /// `options` with the new limits, whether they can be or not.
    pub(crate) fn applied_to(self, options: Options) -> Options {
        Options {
            max_pool_size: self.max_pool_size.unwrap_or(options.max_pool_size),
            min_pool_size: self.min_pool_size.unwrap_or(options.min_pool_size),
            max_connecting: self.max_connecting.unwrap_or(options.max_connecting),
            max_wait_queue_depth: self.max_wait_queue_depth.unwrap_or(options.max_wait_queue_depth),
            creation_interval: self.creation_interval.unwrap_or(options.creation_interval),
            ..options
        }
    }
}

/// A connection or a check-out, before the step is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pick {
    /// One of the targets that the call is meant for: pending ones for `Established` and so on.
    Fitting(usize),
    /// One of all that were ever issued.
    Any(usize),
    NeverIssued,
    /// Another pool's.
    Foreign,
}

/// A connection or a check-out by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Own(u64),
    NeverIssued,
    Foreign,
}

/// Services of a load-balanced pool.
pub(crate) const SERVICES: Service = 3;

impl fmt::Debug for Step {
    /// On one line, however the case around it is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, call, keep_outputs, restore } = self;
        write!(f, "{time:?}: {call:?}")?;
        f.write_str(if *keep_outputs { ", outputs kept" } else { "" })?;
        f.write_str(if *restore { ", restored" } else { "" })
    }
}

//! What befalls servers, their network and the client's clock, as data, drawn from a seed.

use std::time::Duration;

use cmap_core::random::Random;

use super::plan::{micros, one_in, pick};
use crate::tools::simulate::step::Deployment;

/// One trouble, from its beginning to its end. Faults overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// When it begins.
    pub(super) at: Duration,
    pub(super) kind: FaultKind,
    /// Which server it is, if it is one.
    pub(super) server: usize,
    /// Of those that have an end.
    pub(super) lasts: Duration,
    /// What the trouble itself leaves to chance: an order, how slow, how far.
    pub(super) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKind {
    Crash,
    /// A crash, after which the documents are those of the beginning.
    LoseData,
    SwitchOff,
    Hang,
    Partition,
    /// Every member is cut off, one after the other, and healed in another order.
    Swizzle,
    /// The primary steps down.
    StepDown,
    /// The configuration of the set does without a member for a while.
    Reconfigure,
    /// A member has later what was written.
    Lag,
    ResetConnections,
    LoseConnection,
    /// New connections hang, and those that are used are silent for ever.
    HalfOpen,
    /// New connections are refused.
    Refuse,
    /// Connections are reset when they are used.
    ResetInUse,
    /// Few bytes pass in a second.
    Slow,
    /// Every packet takes long.
    Spike,
    /// A server limits how many connections are made in a second.
    RateLimit,
    /// The client's clock is set, and later set back.
    ClockJump,
}

const FAULTS: u64 = 8;

impl FaultKind {
    pub(super) const ALL: [Self; 18] = [
        Self::Crash,
        Self::LoseData,
        Self::SwitchOff,
        Self::Hang,
        Self::Partition,
        Self::Swizzle,
        Self::StepDown,
        Self::Reconfigure,
        Self::Lag,
        Self::ResetConnections,
        Self::LoseConnection,
        Self::HalfOpen,
        Self::Refuse,
        Self::ResetInUse,
        Self::Slow,
        Self::Spike,
        Self::RateLimit,
        Self::ClockJump,
    ];

    /// What it is called when no run has met it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Crash => "a server crashed",
            Self::LoseData => "a server lost its data",
            Self::SwitchOff => "a server was switched off",
            Self::Hang => "a server hung",
            Self::Partition => "a server was cut off",
            Self::Swizzle => "every server was cut off, one after the other",
            Self::StepDown => "a primary stepped down",
            Self::Reconfigure => "a member left its set and came back",
            Self::Lag => "a member lagged behind",
            Self::ResetConnections => "the connections of a server were reset",
            Self::LoseConnection => "a connection was lost",
            Self::HalfOpen => "connections were half-open",
            Self::Refuse => "connections were refused",
            Self::ResetInUse => "connections were reset in use",
            Self::Slow => "sockets were slow",
            Self::Spike => "latency rose",
            Self::RateLimit => "the rate of new connections was limited",
            Self::ClockJump => "the clock jumped",
        }
    }

    /// Whether it can befall these servers.
    fn suits(self, deployment: Deployment) -> bool {
        match self {
            Self::StepDown | Self::Reconfigure | Self::Lag => deployment == Deployment::ReplicaSet,
            Self::Swizzle => deployment.hosts().len() > 1,
            // The documents of several servers are one another's.
            Self::LoseData => deployment.hosts().len() == 1,
            Self::Crash
            | Self::SwitchOff
            | Self::Hang
            | Self::Partition
            | Self::ResetConnections
            | Self::LoseConnection
            | Self::HalfOpen
            | Self::Refuse
            | Self::ResetInUse
            | Self::Slow
            | Self::Spike
            | Self::RateLimit
            | Self::ClockJump => true,
        }
    }
}

impl Fault {
    /// The chance that the trouble itself has.
    pub(super) fn random(&self) -> Random {
        Random::new(self.seed)
    }
}

/// The faults of a seed; none in one of four. Half of the kinds are off in each, so that those that are on meet each other often. With
/// less `hurry` of the callers, who pause for longer, there is more time between them, or nobody would notice.
pub(super) fn draw(random: &mut Random, deployment: Deployment, hurry: u64) -> Vec<Fault> {
    let is_calm = one_in(random, 4);
    let kinds: Vec<_> = FaultKind::ALL.into_iter().filter(|kind| one_in(random, 2) && kind.suits(deployment)).collect();
    let pauses = [[2_000, 10_000], [5_000, 50_000], [50_000, 400_000], [400_000, 2_000_000]];
    let pauses = pauses.get(usize::try_from(hurry).unwrap_or_default()).copied().unwrap_or_default();
    let pause = pick(random, &pauses);
    let lasts = pick(random, &[20_000, 300_000, 3_000_000]);
    let count = random.up_to(FAULTS);
    if is_calm || kinds.is_empty() {
        return Vec::new();
    }
    let last_server = deployment.hosts().len() as u64 - 1;
    let mut at = Duration::ZERO;
    let one = |_| {
        at += micros(random, pause);
        let server = usize::try_from(random.up_to(last_server)).unwrap_or_default();
        Fault { at, kind: pick(random, &kinds), server, lasts: micros(random, lasts), seed: random.next_u64() }
    };
    (0..count).map(one).collect()
}

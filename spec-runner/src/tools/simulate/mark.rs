//! Coverage marks: what simulations have to have met, or they prove little.

/// Something worth meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    DeliveredAtOnce,
    DeliveredAfterWait,
    Cancelled,
    FailedInPool,
    FailedInSelection,
    Reselected,
    Cleared,
    Interrupted,
    ClosedStale,
    ClosedIdle,
    ClosedSurplus,
    ClosedLate,
    FoundDead,
    Refreshed,
    RefreshFailed,
    EstablishFailed,
    Resized,
    Suspended,
    LeftInQueueByKey,
    ServiceCleared,
    WarmedUp,
    WarmUpFailed,
    WarmUpCancelled,
    IdentityServed,
    IdentityRefused,
    IdentityRemoved,
    CredentialRenewed,
    CredentialUnproven,
    OutdatedServed,
    OutdatedRefused,
    ServersJoined,
    ServersLeft,
    LookupUnusable,
    StrangerIgnored,
    RefusedForgotten,
    Resumed,
    Limited,
    TooDistant,
}

impl Mark {
    pub(super) const ALL: [Self; 38] = [
        Self::DeliveredAtOnce,
        Self::DeliveredAfterWait,
        Self::Cancelled,
        Self::FailedInPool,
        Self::FailedInSelection,
        Self::Reselected,
        Self::Cleared,
        Self::Interrupted,
        Self::ClosedStale,
        Self::ClosedIdle,
        Self::ClosedSurplus,
        Self::ClosedLate,
        Self::FoundDead,
        Self::Refreshed,
        Self::RefreshFailed,
        Self::EstablishFailed,
        Self::Resized,
        Self::Suspended,
        Self::LeftInQueueByKey,
        Self::ServiceCleared,
        Self::WarmedUp,
        Self::WarmUpFailed,
        Self::WarmUpCancelled,
        Self::IdentityServed,
        Self::IdentityRefused,
        Self::IdentityRemoved,
        Self::CredentialRenewed,
        Self::CredentialUnproven,
        Self::OutdatedServed,
        Self::OutdatedRefused,
        Self::ServersJoined,
        Self::ServersLeft,
        Self::LookupUnusable,
        Self::StrangerIgnored,
        Self::RefusedForgotten,
        Self::Resumed,
        Self::Limited,
        Self::TooDistant,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::DeliveredAtOnce => "a check-out was served at once",
            Self::DeliveredAfterWait => "a waiter was served",
            Self::Cancelled => "a caller gave up",
            Self::FailedInPool => "a check-out failed in a pool",
            Self::FailedInSelection => "a check-out failed without a server",
            Self::Reselected => "a check-out went on at another server",
            Self::Cleared => "a pool was cleared",
            Self::Interrupted => "a connection was interrupted",
            Self::ClosedStale => "a stale connection was closed",
            Self::ClosedIdle => "an idle connection was closed",
            Self::ClosedSurplus => "a connection was closed because limits became smaller",
            Self::ClosedLate => "a connection was established after it had been given up",
            Self::FoundDead => "an idle connection was found dead",
            Self::Refreshed => "an idle connection answered a ping",
            Self::RefreshFailed => "an idle connection did not answer a ping",
            Self::EstablishFailed => "an establishment failed",
            Self::Resized => "limits changed",
            Self::Suspended => "the process was suspended",
            Self::LeftInQueueByKey => "a waiter was overtaken for the sake of a key",
            Self::ServiceCleared => "one service behind a load balancer was cleared",
            Self::WarmedUp => "a warm-up succeeded",
            Self::WarmUpFailed => "a warm-up failed",
            Self::WarmUpCancelled => "a warm-up was given up",
            Self::IdentityServed => "an identity was served",
            Self::IdentityRefused => "the login of an identity was refused",
            Self::IdentityRemoved => "an identity was removed while it waited",
            Self::CredentialRenewed => "a credential was replaced",
            Self::CredentialUnproven => "a new credential was not proven",
            Self::OutdatedServed => "a connection served a waiter with a credential that had been replaced meanwhile",
            Self::OutdatedRefused => "the login with a credential that had been replaced was refused",
            Self::ServersJoined => "a router joined by DNS",
            Self::ServersLeft => "a router left by DNS",
            Self::LookupUnusable => "a lookup failed, or had no record of use",
            Self::StrangerIgnored => "a record of another domain was ignored",
            Self::RefusedForgotten => "a connection was refused because its server had been forgotten",
            Self::Resumed => "the process went on after a suspension that no clock had counted",
            Self::Limited => "limits beside the sizes changed",
            Self::TooDistant => "a server that would suit was too far away",
        }
    }
}

/// How often each mark was met.
#[derive(Clone, Debug)]
pub(super) struct Marks([u64; Mark::ALL.len()]);

impl Default for Marks {
    fn default() -> Self {
        Self([0; Mark::ALL.len()])
    }
}

impl Marks {
    pub(super) fn meet(&mut self, mark: Mark) {
        self.0[mark as usize] += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(times, more)| *times += more);
    }

    /// Those that were never met, in words.
    pub(super) fn missed(&self) -> Vec<&'static str> {
        Mark::ALL.iter().zip(&self.0).filter(|(_, times)| **times == 0).map(|(mark, _)| mark.name()).collect()
    }
}

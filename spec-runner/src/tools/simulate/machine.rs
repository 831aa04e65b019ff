//! The machine that is simulated: a topology, recorded or not, or in a test one with a bug.

use cmap_core::pool::{Counts, Handle, IdentityId};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::{Answer, Input, Output, Topology};
use cmap_core::trace::Recorded;

/// The calls of a topology that a simulation makes.
pub(super) trait Machine {
    fn call(&mut self, now: Instant, input: Input) -> Answer<()>;
    fn poll_output(&mut self) -> Option<Output<()>>;
    fn next_timeout(&self) -> Option<Instant>;
    /// The connections and waiters of all pools.
    fn counts(&self) -> Counts;
    /// Whether it contradicts itself.
    fn contradiction(&self) -> Option<String>;
    /// The identity to log in as on a connection; `None` is the credential of the options.
    fn identity_of(&self, connection: Handle) -> Option<IdentityId>;
    /// The server that a pool belongs to.
    fn member_of(&self, pool: ServerId) -> ServerId;
    /// The connections whose credential has been replaced.
    fn outdated(&self) -> u32;
    /// Whether one of these pools has outputs that nobody was given.
    fn holds_back(&self, is_meant: impl Fn(ServerId) -> bool) -> bool;
    /// What it has done in another way than a twin, if it has one.
    fn difference(&self) -> Option<&str> {
        None
    }
}

impl Machine for Topology<()> {
    fn call(&mut self, now: Instant, input: Input) -> Answer<()> {
        self.call(now, input, Some(()))
    }

    fn poll_output(&mut self) -> Option<Output<()>> {
        self.poll_output()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.poll_timeout().map(|timeout| timeout.at)
    }

    fn counts(&self) -> Counts {
        self.stats().counts
    }

    fn contradiction(&self) -> Option<String> {
        self.pools().find_map(|(_, pool)| pool.check_invariants().err()).map(|broken| broken.to_string())
    }

    fn identity_of(&self, connection: Handle) -> Option<IdentityId> {
        self.identity_of(connection)
    }

    fn member_of(&self, pool: ServerId) -> ServerId {
        self.member_of(pool)
    }

    fn outdated(&self) -> u32 {
        self.outdated()
    }

    fn holds_back(&self, is_meant: impl Fn(ServerId) -> bool) -> bool {
        self.pools().any(|(id, pool)| !pool.is_drained() && is_meant(id))
    }
}

impl Machine for Recorded<()> {
    fn call(&mut self, now: Instant, input: Input) -> Answer<()> {
        self.call(now, input, Some(()))
    }

    fn poll_output(&mut self) -> Option<Output<()>> {
        self.poll_output()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.poll_timeout().map(|timeout| timeout.at)
    }

    fn counts(&self) -> Counts {
        self.stats().counts
    }

    fn contradiction(&self) -> Option<String> {
        Machine::contradiction(&**self)
    }

    fn identity_of(&self, connection: Handle) -> Option<IdentityId> {
        (**self).identity_of(connection)
    }

    fn member_of(&self, pool: ServerId) -> ServerId {
        (**self).member_of(pool)
    }

    fn outdated(&self) -> u32 {
        (**self).outdated()
    }

    fn holds_back(&self, is_meant: impl Fn(ServerId) -> bool) -> bool {
        Machine::holds_back(&**self, is_meant)
    }
}

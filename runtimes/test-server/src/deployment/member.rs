//! A server as a member: what its deployment does to it.

use std::collections::BTreeSet;
use std::time::Duration;

use cmap_core::time::Instant;

use crate::replica_set::Order;
use crate::replica_set::view::{Position, View};
use crate::replication::{Entry, Membership, SharedEntry, State, Timed};
use crate::{MemberId, ServerConfig, ServerOutput, TestServer};

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) server: TestServer,
    pub(super) host: String,
    pub(super) is_up: bool,
    /// How many entries of the log it has carried out.
    pub(super) position: Position,
    /// It has carried out what the log does not have, so that it needs a copy of another member's documents.
    pub(super) has_diverged: bool,
    /// How much later than the primary it carries out what the log has.
    pub(super) lag: Duration,
    /// Until when it cannot be elected.
    pub(super) ineligible_until: Option<Instant>,
    /// How often it was started.
    pub(super) starts: u64,
}

impl Member {
    /// Whether it may be elected, as far as time goes.
    pub(super) fn is_eligible(&self, now: Instant) -> bool {
        self.ineligible_until.is_none_or(|until| until <= now)
    }
}

impl TestServer {
    /// Makes it a member of a deployment.
    pub(super) fn join(&mut self, membership: Membership, set: Option<(MemberId, View)>) {
        self.exchange.service.join(membership, set);
    }

    /// The hosts of the deployment's members.
    pub(super) fn know(&mut self, hosts: Vec<(String, MemberId)>) {
        if let Some(membership) = &mut self.exchange.service.membership {
            membership.hosts = hosts;
        }
    }

    /// What it has written since the last call.
    pub(super) fn take_written(&mut self) -> Vec<Timed> {
        self.exchange.service.membership.as_mut().map(|it| std::mem::take(&mut it.written)).unwrap_or_default()
    }

    /// What clients have ordered since the last call.
    pub(super) fn take_orders(&mut self) -> Vec<Order> {
        self.exchange.service.take_orders()
    }

    /// Carries out what another member did.
    pub(super) fn apply(&mut self, now: Instant, entry: &SharedEntry) {
        self.advance(now);
        self.exchange.service.apply(now, entry);
        self.wake_those_who_await_data();
    }

    /// Begins to be the primary: its first entry of the log.
    pub(super) fn lead(&mut self, now: Instant) {
        self.advance(now);
        let time = self.exchange.service.begin_operation(self.now);
        self.exchange.service.log(time, || Entry::Election);
    }

    /// The set looks different.
    pub(super) fn see(&mut self, now: Instant, view: View) {
        self.advance(now);
        let before = self.exchange.service.topology_version();
        let committed = self.exchange.service.last_committed();
        self.exchange.service.see(view);
        if self.exchange.service.last_committed() != committed {
            // Change streams show more.
            self.wake_those_who_await_data();
        }
        self.wake_those_who_wait_for_the_set();
        self.note_topology(before);
    }

    /// Its process ends: replies that are ready are sent, and every client is hung up on.
    pub(super) fn kill(&mut self) -> Vec<ServerOutput> {
        let mut outputs: Vec<_> = std::mem::take(&mut self.exchange.outputs).into();
        let clients = std::mem::take(&mut self.clients);
        outputs.extend(clients.into_keys().map(|client| ServerOutput::HangUp { client }));
        (self.eager, self.exchange.due) = (BTreeSet::new(), BTreeSet::new());
        self.exchange.service.clients = 0;
        outputs
    }

    /// A copy of everything that is replicated.
    pub(super) fn state(&self) -> State {
        self.exchange.service.state()
    }

    /// Takes another member's state.
    pub(super) fn replace_state(&mut self, state: State) {
        self.exchange.service.replace_state(state);
        self.wake_those_who_await_data();
    }

    /// Another process with the state of this one. It goes on with the numbers of connections, so that none is used twice.
    pub(super) fn reborn(self, mut config: ServerConfig, now: Instant) -> Self {
        config.first_connection_id = self.exchange.service.clients_ever + 1;
        let state = self.exchange.service.into_state();
        let mut server = Self::new(config, now);
        server.exchange.service.replace_state(state);
        server
    }
}

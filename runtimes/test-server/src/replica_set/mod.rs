//! A member of a replica set (SRV-8): its place in the set, and the commands about it.
//!
//! A server without other members is the primary, except for a while after `replSetStepDown`. A member of a
//! [deployment](crate::Deployment) learns from it what the set looks like, and passes on what clients order. `config` is the
//! configuration, `view` what a member knows, `describe` the part of a hello, `status` that of `replSetGetStatus`, `orders` the
//! commands that change the set.

pub(crate) mod config;
mod describe;
mod orders;
mod status;
pub(crate) mod view;

use std::time::Duration;

use bson::RawDocumentBuf;
use cmap_core::time::Instant;

pub(crate) use self::orders::Order;
use self::view::{MemberState, Position, View};
use super::failure::fail;
use super::request::Request;
use crate::MemberId;
use crate::store::{CommandFailure, code};

/// One member.
#[derive(Debug)]
pub(super) struct ReplicaSet {
    me: MemberId,
    view: View,
    company: Company,
    /// What clients have ordered, for the deployment.
    pub(super) orders: Vec<Order>,
}

/// Whether there are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    /// None; it became a secondary by itself, until then.
    Alone { stepped_down_until: Option<Instant> },
    /// The deployment decides.
    Deployment,
}

/// Commands that a secondary carries out whatever their read preference: they go on with something that was allowed.
const ALWAYS_ALLOWED: [&str; 2] = ["getMore", "killCursors"];

impl ReplicaSet {
    /// The only member.
    pub(super) fn alone(name: String, me: String) -> Self {
        let company = Company::Alone { stepped_down_until: None };
        Self { me: MemberId(0), view: View::alone(name, me), company, orders: Vec::new() }
    }

    /// A member of a deployment.
    pub(super) fn member(me: MemberId, view: View) -> Self {
        Self { me, view, company: Company::Deployment, orders: Vec::new() }
    }

    /// The set has changed. Returns whether clients can see it in a hello.
    pub(super) fn see(&mut self, view: View) -> bool {
        let is_seen = !self.view.looks_like(&view, self.me);
        self.view = view;
        is_seen
    }

    pub(super) fn name(&self) -> &str {
        &self.view.config.name
    }

    pub(super) fn term(&self) -> i64 {
        self.view.term
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn state(&self) -> MemberState {
        self.view.state(self.me)
    }

    pub(super) fn is_primary(&self) -> bool {
        self.state() == MemberState::Primary
    }

    /// What this member has carried out.
    pub(super) fn position(&self) -> Position {
        self.view.members.get(&self.me).map_or(Position(0), |status| status.position)
    }

    /// Whether no member has more than this one.
    pub(super) fn has_all(&self) -> bool {
        self.view.members.values().all(|status| status.position <= self.position())
    }

    /// It has carried out one more entry.
    pub(super) fn count(&mut self) {
        if let Some(status) = self.view.members.get_mut(&self.me) {
            status.position.0 += 1;
        }
    }

    /// The time until which its documents are complete: since the clock's beginning, given the time since then.
    pub(super) fn complete_until(&self, now: Instant, unix: Duration) -> Duration {
        let (until, lag) = self.view.complete_until(self.me, now);
        unix.saturating_sub(now.saturating_since(until)).saturating_sub(lag)
    }

    /// When it becomes the primary again, if it is alone.
    pub(super) fn next_election(&self) -> Option<Instant> {
        match self.company {
            Company::Alone { stepped_down_until } => stepped_down_until,
            Company::Deployment => None,
        }
    }

    /// The only member becomes the primary again.
    pub(super) fn step_up(&mut self) {
        self.company = Company::Alone { stepped_down_until: None };
        self.view.primary = Some(self.me);
    }

    /// Why this member cannot take `request`, which is about data, now.
    pub(super) fn refusal(&self, request: &Request<'_>, writes: bool) -> Option<CommandFailure> {
        match (self.state(), writes) {
            (MemberState::Primary, _) => return None,
            // A server's secondary has the primary write the results.
            (MemberState::Secondary, true) if request.name == "aggregate" && reads_from_secondaries(request) => {
                return Some(CommandFailure::not_supported("an aggregation that writes, on a secondary,"));
            }
            (_, true) => return Some(fail(code::NOT_WRITABLE_PRIMARY, "not primary")),
            (MemberState::Secondary, false) => {}
            (MemberState::Arbiter | MemberState::Removed | MemberState::Down, false) => {
                return Some(fail(code::NOT_PRIMARY_OR_SECONDARY, "node is not in primary or recovering state"));
            }
        }
        if ALWAYS_ALLOWED.contains(&request.name) {
            return None;
        }
        let refusal = || fail(code::NOT_PRIMARY_NO_SECONDARY_OK, "not primary and secondaryOk=false");
        (!reads_from_secondaries(request)).then(refusal)
    }

    /// `replSetGetConfig`.
    pub(super) fn config(&self) -> RawDocumentBuf {
        let View { config, term, election_timeout, .. } = &self.view;
        crate::document::document! { "config": config.to_document(*term, *election_timeout) }
    }
}

/// Whether the read preference lets a secondary answer.
fn reads_from_secondaries(request: &Request<'_>) -> bool {
    let preference = request.arguments.document("$readPreference").ok().flatten();
    preference.and_then(|preference| preference.text("mode").ok().flatten()).is_some_and(|mode| mode != "primary")
}

/// The answer of a server without a replica set.
pub(super) fn no_replication() -> CommandFailure {
    fail(76, "not running with --replSet")
}

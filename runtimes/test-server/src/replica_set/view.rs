//! What a member knows of its set: the configuration, the term, the primary, and how far each member has got.
//!
//! In a deployment all members learn a change at one moment; their views differ in who they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::time::Instant;

use super::config::{MemberConfig, MemberId, SetConfig};

/// A number of entries of the log: how many of them a member has carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(pub(crate) u64);

/// The set as its members see it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) config: Arc<SetConfig>,
    /// The number of the last election.
    pub(crate) term: i64,
    pub(crate) primary: Option<MemberId>,
    pub(crate) members: BTreeMap<MemberId, MemberStatus>,
    /// Whether a secondary can take over from a primary that steps down.
    pub(crate) has_successor: bool,
    /// When the last primary was lost, if there is none.
    pub(crate) primary_lost_at: Option<Instant>,
    pub(crate) election_timeout: Duration,
}

/// One member as the others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberStatus {
    pub(crate) is_up: bool,
    pub(crate) position: Position,
    /// How much later it carries out what the primary did.
    pub(crate) lag: Duration,
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberState {
    Primary,
    Secondary,
    Arbiter,
    Down,
    /// It is no longer in the configuration.
    Removed,
}

impl View {
    /// The view of a member without others.
    pub(crate) fn alone(name: String, host: String) -> Self {
        let me = MemberConfig::new(0, host);
        let id = me.id;
        let status = MemberStatus { is_up: true, position: Position::default(), lag: Duration::ZERO };
        Self {
            config: Arc::new(SetConfig::new(name, vec![me])),
            term: 1,
            primary: Some(id),
            members: BTreeMap::from([(id, status)]),
            has_successor: false,
            primary_lost_at: None,
            election_timeout: Duration::from_secs(10),
        }
    }

    pub(crate) fn state(&self, id: MemberId) -> MemberState {
        match self.config.member(id) {
            None => MemberState::Removed,
            Some(_) if self.members.get(&id).is_some_and(|status| !status.is_up) => MemberState::Down,
            Some(member) if !member.bears_data() => MemberState::Arbiter,
            Some(_) if self.primary == Some(id) => MemberState::Primary,
            Some(_) => MemberState::Secondary,
        }
    }

    /// Whether a hello by `id` says the same in both views.
    pub(crate) fn looks_like(&self, other: &Self, id: MemberId) -> bool {
        let seen = |view: &Self| (view.term, view.primary, view.state(id));
        self.config == other.config && seen(self) == seen(other)
    }

    /// What so many members with documents have carried out.
    pub(crate) fn reached_by(&self, count: usize) -> Position {
        self.nth(count, self.config.data_bearing())
    }

    /// What a majority has carried out, which no election takes back.
    pub(crate) fn committed(&self) -> Position {
        let voters = self.config.data_bearing().filter(|member| member.is_voter());
        self.nth(self.config.write_majority(), voters)
    }

    /// The greatest position that `count` of `members` have reached.
    fn nth<'a>(&self, count: usize, members: impl Iterator<Item = &'a MemberConfig>) -> Position {
        let position =
            |member: &MemberConfig| self.members.get(&member.id).map_or(Position(0), |status| status.position);
        let mut positions: Vec<_> = members.map(position).collect();
        positions.sort_unstable_by(|a, b| b.cmp(a));
        match count.checked_sub(1) {
            None => Position(u64::MAX),
            Some(index) => positions.get(index).copied().unwrap_or_default(),
        }
    }

    /// Until when what `id` has is complete: a secondary knows nothing newer than its lag, or than the last primary.
    pub(crate) fn complete_until(&self, id: MemberId, now: Instant) -> (Instant, Duration) {
        let until = self.primary_lost_at.map_or(now, |lost| lost.min(now));
        match self.primary == Some(id) {
            true => (now, Duration::ZERO),
            false => (until, self.members.get(&id).map_or(Duration::ZERO, |status| status.lag)),
        }
    }
}

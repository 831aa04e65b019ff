//! Elections: which member is the primary, and when another one becomes it.
//!
//! A set elects if it has no primary, a majority of its voters is up, and one of those that have the most can be elected. What
//! only members have that are down is taken back: they copy the new primary's documents when they are up again.

use std::time::Duration;

use cmap_core::time::Instant;

use super::Deployment;
use super::member::Member;
use crate::MemberId;
use crate::replica_set::view::Position;

/// The state of a set's elections.
#[derive(Debug, Default)]
pub(super) struct Elections {
    /// The number of the last one.
    pub(super) term: i64,
    pub(super) primary: Option<MemberId>,
    /// When the last primary was lost, if there is none.
    pub(super) lost_at: Option<Instant>,
    /// When the members will have noticed that they need an election, or the primary that it has no majority.
    due: Option<Instant>,
}

impl Deployment {
    /// The election before the deployment's time.
    pub(super) fn elect_first(&mut self) {
        if let Some(winner) = self.candidate(None) {
            self.win(winner);
        }
    }

    /// Holds the election that is due, or takes the primary's office if it has no majority. Returns whether anything changed.
    pub(super) fn elect(&mut self) -> bool {
        if self.set.is_none() {
            return false;
        }
        if self.elections.primary.is_some() == self.has_majority() {
            // Nothing to do, or nothing that could be done.
            self.elections.due = None;
            return false;
        }
        let due = *self.elections.due.get_or_insert(self.now + self.config.election_timeout);
        if due > self.now {
            return false;
        }
        match (self.elections.primary, self.candidate(None)) {
            (Some(_), _) => self.depose(),
            (None, Some(winner)) => self.win(winner),
            (None, None) => return false,
        }
        self.elections.due = None;
        true
    }

    /// When an election may be held.
    pub(super) fn next_election(&self) -> Option<Instant> {
        let due = self.elections.due?;
        if due > self.now || self.elections.primary.is_some() {
            return Some(due);
        }
        // Those who could be elected may not be yet.
        let set = self.set.as_ref()?;
        let electable = set.members.iter().filter(|member| member.priority() > 0.0);
        let electable = electable.filter_map(|member| self.members.get(&member.id)).filter(|member| member.is_up);
        electable.filter_map(|member| member.ineligible_until.filter(|until| *until > self.now)).min()
    }

    /// The set has no primary any more. The next election is as soon as `due`.
    pub(super) fn lose_primary(&mut self, wait: Duration) {
        self.elections.primary = None;
        self.elections.lost_at = Some(self.now);
        self.elections.due = Some(self.now + wait);
        self.is_outdated = true;
    }

    /// The next election is soon.
    pub(super) fn hasten_election(&mut self) {
        if self.elections.primary.is_none() {
            let soon = self.now + self.config.handover;
            self.elections.due = Some(self.elections.due.map_or(soon, |due| due.min(soon)));
        }
    }

    /// The member that could take over from the primary now.
    pub(super) fn successor(&self) -> Option<MemberId> {
        // One whose lag has no end never catches up.
        let catches_up = |id: &MemberId| self.members.get(id).is_some_and(|member| member.lag < Duration::MAX);
        self.candidate(self.elections.primary).filter(catches_up)
    }

    /// Makes a member the primary.
    pub(super) fn win(&mut self, winner: MemberId) {
        self.elections.term += 1;
        self.elections.primary = Some(winner);
        self.elections.lost_at = None;
        self.is_outdated = true;
        let Some(Member { position, .. }) = self.members.get(&winner) else { return };
        let position = *position;
        self.log.cut(position);
        for member in self.members.values_mut() {
            member.has_diverged |= member.position > position;
            member.position = member.position.min(position);
        }
        self.tell();
        if let Some(member) = self.members.get_mut(&winner) {
            member.server.lead(self.now);
        }
    }

    /// The primary, which has no majority, becomes a secondary.
    fn depose(&mut self) {
        self.lose_primary(self.config.election_timeout);
    }

    /// The member that would be elected now. Without `besides` it is one of those that have the most; besides a primary that
    /// steps down, one that can catch up.
    fn candidate(&self, besides: Option<MemberId>) -> Option<MemberId> {
        let set = self.set.as_ref().filter(|_| self.has_majority())?;
        let up = || self.members.iter().filter(|(id, member)| member.is_up && set.member(**id).is_some());
        let most = up().filter(|(_, member)| !member.has_diverged).map(|(_, member)| member.position).max()?;
        let mut best: Option<(f64, Position, MemberId)> = None;
        for (id, member) in up() {
            let priority = set.member(*id).map_or(0.0, crate::MemberConfig::priority);
            let has_most = besides.is_some() || member.position == most;
            if Some(*id) == besides
                || priority <= 0.0
                || !has_most
                || member.has_diverged
                || !member.is_eligible(self.now)
            {
                continue;
            }
            let is_better = best.is_none_or(|(best, position, _)| (priority, member.position) > (best, position));
            if is_better {
                best = Some((priority, member.position, *id));
            }
        }
        best.map(|(_, _, id)| id)
    }

    /// Whether a majority of the voters is up.
    fn has_majority(&self) -> bool {
        let Some(set) = &self.set else { return false };
        let voters = set.members.iter().filter(|member| member.is_voter());
        voters.filter(|member| self.is_up(member.id)).count() >= set.majority()
    }
}

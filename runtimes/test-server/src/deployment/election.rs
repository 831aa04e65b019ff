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

    /// The member that would be elected now, besides a primary that steps down: among those that can be, the one with the greatest
    /// priority.
    fn candidate(&self, besides: Option<MemberId>) -> Option<MemberId> {
        let set = self.set.as_ref()?;
        let catches_up = besides.is_some();
        let mut best: Option<(f64, Position, MemberId)> = None;
        for id in self.electable().filter(|id| Some(*id) != besides && (catches_up || self.has_most(*id))) {
            let priority = set.member(id).map_or(0.0, crate::MemberConfig::priority);
            let position = self.members.get(&id).map_or(Position(0), |member| member.position);
            if best.is_none_or(|(best, its_position, _)| (priority, position) > (best, its_position)) {
                best = Some((priority, position, id));
            }
        }
        best.map(|(_, _, id)| id)
    }

    /// Whether a member could be elected now.
    pub(super) fn is_candidate(&self, id: MemberId) -> bool {
        self.has_most(id) && self.electable().any(|electable| electable == id)
    }

    /// The members that may be elected now, if they have the most; none without a majority.
    fn electable(&self) -> impl Iterator<Item = MemberId> {
        let set = self.set.iter().filter(|_| self.has_majority());
        let members = set.flat_map(|set| &set.members).filter(|member| member.priority() > 0.0);
        let is_ready = |member: &Member| member.is_up && !member.has_diverged && member.is_eligible(self.now);
        members.map(|member| member.id).filter(move |id| self.members.get(id).is_some_and(is_ready))
    }

    /// Whether no member that is up has more than this one.
    fn has_most(&self, id: MemberId) -> bool {
        let set = self.set.as_ref();
        let rivals = self.members.iter().filter(|(id, member)| {
            member.is_up && !member.has_diverged && set.is_some_and(|set| set.member(**id).is_some())
        });
        let most = rivals.map(|(_, member)| member.position).max();
        self.members.get(&id).is_some_and(|member| Some(member.position) >= most)
    }

    /// Whether a majority of the voters is up.
    fn has_majority(&self) -> bool {
        let Some(set) = &self.set else { return false };
        let voters = set.members.iter().filter(|member| member.is_voter());
        voters.filter(|member| self.is_up(member.id)).count() >= set.majority()
    }
}

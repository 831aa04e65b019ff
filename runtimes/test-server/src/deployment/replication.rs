//! The log's way to the members.

use cmap_core::time::Instant;

use super::Deployment;
use super::config::Kind;
use super::log::Forgotten;
use crate::MemberId;
use crate::replica_set::view::Position;

impl Deployment {
    /// Adds to the log what the members have written since the last call. Returns whether that was anything.
    pub(super) fn collect(&mut self) -> bool {
        let before = self.log.end();
        for member in self.members.values_mut().filter(|member| member.is_up) {
            let written = member.server.take_written();
            member.position.0 += written.len() as u64;
            written.into_iter().for_each(|entry| self.log.push(self.now, entry));
        }
        self.log.end() != before
    }

    /// Has the members carry out what is due. Returns whether that was anything.
    pub(super) fn replicate(&mut self) -> bool {
        let mut has_replicated = false;
        for id in self.replicas() {
            has_replicated |= self.replicate_to(id, false);
        }
        let behind = self.replicas().into_iter().filter_map(|id| self.members.get(&id));
        let least = behind.filter(|member| !member.has_diverged).map(|member| member.position).min();
        if let Some(least) = least.filter(|_| has_replicated) {
            self.log.forget(least);
        }
        has_replicated
    }

    /// Has one member carry out what is due, or everything, `at_once`.
    pub(super) fn replicate_to(&mut self, id: MemberId, at_once: bool) -> bool {
        let Some(member) = self.members.get_mut(&id) else { return false };
        let mut has_replicated = false;
        loop {
            let due = match self.log.after(member.position) {
                _ if member.has_diverged => return self.copy_to(id) || has_replicated,
                Err(Forgotten) => return self.copy_to(id) || has_replicated,
                Ok(logged) => logged.filter(|logged| at_once || logged.at + member.lag <= self.now),
            };
            let Some(logged) = due else { return has_replicated };
            member.server.apply(self.now, &logged.entry);
            member.position.0 += 1;
            has_replicated = true;
        }
    }

    /// When the next entry is due at some member.
    pub(super) fn next_replication(&self) -> Option<Instant> {
        let due = self.replicas().into_iter().filter_map(|id| {
            let member = self.members.get(&id).filter(|member| !member.has_diverged)?;
            let logged = self.log.after(member.position).ok()??;
            Some(logged.at + member.lag)
        });
        // What is due at the end of time is never.
        due.filter(|at| *at < Instant::from_nanos(u64::MAX)).min()
    }

    /// Gives a member everything that the one with the most has, if there is one.
    fn copy_to(&mut self, id: MemberId) -> bool {
        let Some(source) = self.source().filter(|source| *source != id) else { return false };
        let Some(source) = self.members.get(&source) else { return false };
        let (state, position) = (source.server.state(), source.position);
        let Some(member) = self.members.get_mut(&id) else { return false };
        member.server.replace_state(state);
        (member.position, member.has_diverged) = (position, false);
        self.is_outdated = true;
        true
    }

    /// The member to copy from: the primary; of a sharded cluster, one that has all, up or not, because the documents are not its
    /// own.
    fn source(&self) -> Option<MemberId> {
        match self.config.kind {
            Kind::ReplicaSet(_) => self.elections.primary,
            Kind::Single | Kind::Sharded(_) => {
                let has_all = |position: Position| position == self.log.end();
                let found = self.members.iter().find(|(_, member)| has_all(member.position));
                found.map(|(id, _)| *id)
            }
        }
    }

    /// The members that carry out what others write.
    fn replicas(&self) -> Vec<MemberId> {
        let is_replica = |id: &MemberId| match &self.set {
            Some(set) => {
                self.elections.primary != Some(*id) && set.member(*id).is_some_and(crate::MemberConfig::bears_data)
            }
            None => true,
        };
        let up = self.members.iter().filter(|(_, member)| member.is_up).map(|(id, _)| *id);
        up.filter(is_replica).collect()
    }
}

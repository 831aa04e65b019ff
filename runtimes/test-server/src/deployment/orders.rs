//! What is done to a deployment: by the test that drives it, and by clients' commands.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::time::Instant;

use super::{Deployment, DeploymentOutput};
use crate::replica_set::Order;
use crate::{MemberId, ServerConfig, SetConfig, TestServer};

impl Deployment {
    /// Kills a member's process: its connections are hung up on, and nobody listens at its host.
    pub fn kill(&mut self, now: Instant, member: MemberId) {
        self.advance(now);
        self.order(member, Order::Kill(member));
        self.settle();
    }

    /// Starts a member that was killed: another process, with the documents that it had.
    pub fn restart(&mut self, now: Instant, member: MemberId) {
        self.advance(now);
        self.order(member, Order::Restart(member));
        self.settle();
    }

    /// The primary steps down, and is not elected for so long. Does nothing if there is none.
    pub fn step_down(&mut self, now: Instant, period: Duration) {
        self.advance(now);
        if let Some(primary) = self.primary() {
            self.order(primary, Order::StepDown(period));
        }
        self.settle();
    }

    /// Sets how much later than the primary a member carries out what was written. `Duration::MAX` means never.
    pub fn set_lag(&mut self, now: Instant, member: MemberId, lag: Duration) {
        self.advance(now);
        self.order(member, Order::Lag(member, lag));
        self.settle();
    }

    /// Gives a replica set another configuration. Members that are new start with nothing and copy the primary's documents; those
    /// that it no longer has go on as servers that belong to no set.
    pub fn reconfigure(&mut self, now: Instant, set: SetConfig) {
        self.advance(now);
        self.take_config(set);
        self.is_outdated = true;
        self.settle();
    }

    /// Carries out what clients have ordered. Returns whether that was anything.
    pub(super) fn carry_out_orders(&mut self) -> bool {
        let mut all = Vec::new();
        for (id, member) in self.members.iter_mut().filter(|(_, member)| member.is_up) {
            all.extend(member.server.take_orders().into_iter().map(|order| (*id, order)));
        }
        let is_any = !all.is_empty();
        all.into_iter().for_each(|(id, order)| self.order(id, order));
        is_any
    }

    /// Carries out an order that was given to a member.
    fn order(&mut self, id: MemberId, order: Order) {
        self.is_outdated = true;
        match order {
            Order::StepDown(period) => self.step_down_for(id, period),
            Order::Freeze(period) => {
                if let Some(member) = self.members.get_mut(&id) {
                    member.ineligible_until = (!period.is_zero()).then_some(self.now + period);
                }
                if period.is_zero() {
                    self.hasten_election();
                }
            }
            Order::StepUp => self.step_up(id),
            Order::Reconfigure(set) => self.take_config(set),
            Order::Kill(member) => self.kill_now(member),
            Order::Restart(member) => self.restart_now(member),
            Order::Lag(member, lag) => {
                if let Some(member) = self.members.get_mut(&member) {
                    member.lag = lag;
                }
            }
        }
    }

    fn step_down_for(&mut self, id: MemberId, period: Duration) {
        if self.elections.primary != Some(id) {
            return;
        }
        // A primary that steps down hands over to one that has caught up, which takes no time here.
        let successor = self.successor();
        if let Some(successor) = successor {
            self.replicate_to(successor, true);
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.ineligible_until = Some(self.now + period);
        }
        self.lose_primary(self.config.handover);
    }

    fn step_up(&mut self, id: MemberId) {
        if self.elections.primary == Some(id) {
            return;
        }
        self.replicate_to(id, true);
        if self.is_candidate(id) {
            self.win(id);
        }
    }

    fn take_config(&mut self, set: SetConfig) {
        if self.set.is_none() {
            return;
        }
        let new: Vec<_> = set.members.iter().filter(|member| !self.members.contains_key(&member.id)).cloned().collect();
        let loses_primary = self.primary().is_some_and(|primary| set.member(primary).is_none());
        self.set = Some(Arc::new(set));
        for member in new {
            let output = DeploymentOutput::Listen { member: member.id, host: member.host.clone() };
            self.add(member.id, member.host);
            // It copies whatever the others have.
            if let Some(added) = self.members.get_mut(&member.id) {
                added.has_diverged = member.role != crate::MemberRole::Arbiter;
            }
            self.outputs.push_back(output);
        }
        if loses_primary {
            self.lose_primary(self.config.handover);
        }
    }

    fn kill_now(&mut self, id: MemberId) {
        let Some(member) = self.members.get_mut(&id).filter(|member| member.is_up) else { return };
        member.is_up = false;
        let outputs = member.server.kill().into_iter().map(|output| DeploymentOutput::Server { member: id, output });
        self.outputs.extend(outputs);
        self.outputs.push_back(DeploymentOutput::StopListening { member: id });
        if self.elections.primary == Some(id) {
            // What no other member has is lost with its connections.
            let up = self.members.values().filter(|member| member.is_up).map(|member| member.position).max();
            up.into_iter().for_each(|up| self.log.cut(up.min(self.log.end())));
            self.lose_primary(self.config.election_timeout);
        }
    }

    fn restart_now(&mut self, id: MemberId) {
        let uptime = self.uptime();
        let Some(member) = self.members.get_mut(&id).filter(|member| !member.is_up) else { return };
        member.is_up = true;
        member.starts += 1;
        member.ineligible_until = None;
        let config = self.config.server_at(id, &member.host, member.starts, uptime);
        let empty = TestServer::new(ServerConfig::new(""), self.now);
        let mut server = std::mem::replace(&mut member.server, empty).reborn(config, self.now);
        let host = member.host.clone();
        self.introduce(id, &mut server);
        if let Some(member) = self.members.get_mut(&id) {
            member.server = server;
        }
        self.outputs.push_back(DeploymentOutput::Listen { member: id, host });
    }
}

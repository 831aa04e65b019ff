//! What tests do to single members: their processes, their hosts and their connections.

use std::net::SocketAddr;
use std::task::Waker;

use cmap_test_server::MemberId;

use super::{Servers, State};
use crate::network::{Network, Reachability};

impl Servers {
    /// Kills a member's process: nobody listens any more, and every connection is closed by the operating system.
    pub fn kill(&self, member: MemberId) {
        self.cluster.drive(|deployment, now| deployment.kill(now, member));
    }

    /// Starts a member that was killed or switched off, with the documents that it had.
    pub fn restart(&self, member: MemberId) {
        if let Some(address) = self.cluster.address(member) {
            self.cluster.runtime.world().network().switch_on(address.ip());
        }
        self.cluster.drive(|deployment, now| deployment.restart(now, member));
    }

    /// Switches a member's machine off: connections stay as they are at the other end, which hears nothing any more.
    pub fn switch_off(&self, member: MemberId) {
        self.at(member, |network, _, address| network.switch_off(address.ip()));
        self.kill(member);
    }

    /// Stops a member's process for its clients, like one that gets no more time, or lets it go on. Other members still reach it.
    pub fn hang(&self, member: MemberId, hangs: bool) {
        let mut state = self.cluster.state();
        let is_up = state.deployment.is_up(member);
        let wakers = match hangs {
            true if is_up => {
                state.hanging.insert(member);
                Vec::new()
            }
            true => Vec::new(),
            false => state.let_go_on(member),
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Cuts a member's host off from clients: packets are lost both ways, and connections stay. Other members still reach it.
    pub fn partition(&self, member: MemberId) {
        if let Some(address) = self.cluster.address(member) {
            self.cluster.runtime.world().network().cut(address.ip());
        }
    }

    /// Ends a partition: what was sent meanwhile arrives, connection by connection in an order of chance.
    pub fn heal(&self, member: MemberId) {
        let Some(address) = self.cluster.address(member) else { return };
        let world = self.cluster.runtime.world();
        let wakers = world.network().heal(world.executor.now(), address.ip());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Breaks all connections of a member: both ends read a reset.
    pub fn reset_connections(&self, member: MemberId) {
        let wakers = self.at(member, |network, now, address| network.reset_all(now, address.ip()));
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Loses one connection of a member by chance, as a router that forgets it: neither end notices. Returns whether there was one that
    /// was not lost yet.
    pub fn lose_connection(&self, member: MemberId) -> bool {
        self.at(member, |network, _, address| network.lose_one(address.ip())).unwrap_or_default()
    }

    /// The operating system of a member finds out, as by keep-alive probes, which of its connections were lost and are not used by
    /// their clients any more, and ends them.
    pub fn end_lost_connections(&self, member: MemberId) {
        let wakers = self.at(member, |network, now, address| network.abandon(now, address.ip()));
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// What happens from now on to those who talk to a member.
    pub fn set_reachability(&self, member: MemberId, reachability: Reachability) {
        self.at(member, |network, _, address| network.set_reachability(address.ip(), reachability));
    }

    /// Does something to the network at a member's address. The network's lock is held meanwhile.
    fn at<T>(&self, member: MemberId, act: impl FnOnce(&mut Network, u64, SocketAddr) -> T) -> Option<T> {
        let address = self.cluster.address(member)?;
        let world = self.cluster.runtime.world();
        let now = world.executor.now();
        Some(act(&mut world.network(), now, address))
    }
}

impl State {
    /// A member's process gets time again, or has ended. Returns the tasks to wake.
    pub(super) fn let_go_on(&mut self, member: MemberId) -> Vec<Waker> {
        if !self.hanging.remove(&member) {
            return Vec::new();
        }
        let own = self.outboxes.iter_mut().filter(|((of, _), _)| *of == member);
        own.filter_map(|(_, outbox)| outbox.waker()).collect()
    }
}

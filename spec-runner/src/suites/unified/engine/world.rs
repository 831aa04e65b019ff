//! The virtual world: its time, its network, its clients, and when its threads want to be asked again.

use alloc::collections::BTreeSet;
use core::time::Duration;

use cmap_core::time::Instant;
use cmap_test_server::TestServer;

use super::machine::Machine;
use super::network::Network;

/// The world.
pub(super) struct World {
    now: Instant,
    network: Network,
    clients: Vec<Machine>,
    alarms: BTreeSet<Instant>,
    activity: u64,
}

/// A client's name in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MachineId(usize);

impl World {
    /// A world without clients.
    pub(super) fn new(servers: Vec<TestServer>, seed: u64) -> Self {
        Self {
            now: Instant::ORIGIN,
            network: Network::new(servers, seed),
            clients: Vec::new(),
            alarms: BTreeSet::new(),
            activity: 0,
        }
    }

    /// What time it is.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// The network.
    pub(super) fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Grows whenever a thread has done something to a client.
    pub(super) fn activity(&self) -> u64 {
        self.activity
    }

    /// One of so many, by chance.
    pub(super) fn choose(&mut self, count: usize) -> usize {
        let last = count.saturating_sub(1) as u64;
        usize::try_from(self.network.random().up_to(last)).unwrap_or_default()
    }

    /// A thread wants to be asked again in `patience`, at the latest. Returns when that is.
    pub(super) fn set_alarm(&mut self, patience: Duration) -> Instant {
        let at = self.now + patience;
        if patience < Duration::MAX {
            self.alarms.insert(at);
        }
        at
    }

    /// Adds the client that `new` makes.
    ///
    /// # Errors
    /// That of `new`.
    pub(super) fn add<E>(
        &mut self,
        new: impl FnOnce(Instant, &mut Network) -> Result<Machine, E>,
    ) -> Result<MachineId, E> {
        self.activity += 1;
        self.clients.push(new(self.now, &mut self.network)?);
        Ok(MachineId(self.clients.len() - 1))
    }

    /// The client, to look at.
    pub(super) fn client(&self, id: MachineId) -> Option<&Machine> {
        self.clients.get(id.0)
    }

    /// Does something to a client.
    pub(super) fn with<T>(
        &mut self,
        id: MachineId,
        act: impl FnOnce(&mut Machine, Instant, &mut Network) -> T,
    ) -> Option<T> {
        self.activity += 1;
        self.clients.get_mut(id.0).map(|client| act(client, self.now, &mut self.network))
    }

    /// Looks into a client for news. That alone gives no other thread something to do.
    pub(super) fn peek<T>(&mut self, id: MachineId, look: impl FnOnce(&mut Machine) -> Option<T>) -> Option<T> {
        look(self.clients.get_mut(id.0)?)
    }

    /// Lets one thing happen; if nothing is due, time jumps to the next thing that is. Returns false if there is none.
    pub(super) fn step(&mut self) -> bool {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        let client = self.clients.iter().position(|client| due(client.next_at()));
        let network = due(self.network.next_at());
        match client.filter(|_| !network || self.network.random().up_to(1) == 0) {
            Some(index) => {
                if let Some(client) = self.clients.get_mut(index) {
                    client.handle_timeout(self.now, &mut self.network);
                }
                true
            }
            None if network => {
                self.let_arrive();
                true
            }
            None => self.pass_time(),
        }
    }

    fn let_arrive(&mut self) {
        let Some((link, arrival)) = self.network.step(self.now) else { return };
        let mut left = Some(arrival);
        for client in &mut self.clients {
            // A link that was closed meanwhile has no owner: what arrives there is lost.
            let Some(arrival) = left.take() else { return };
            left = client.handle_arrival(self.now, &mut self.network, link, arrival);
        }
    }

    fn pass_time(&mut self) -> bool {
        let clients = self.clients.iter().filter_map(Machine::next_at);
        let next = clients.chain(self.network.next_at()).chain(self.alarms.first().copied()).min();
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        self.alarms = self.alarms.split_off(&(self.now + Duration::from_nanos(1)));
        true
    }
}

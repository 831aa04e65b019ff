//! What tests do to the network.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::task::Waker;
use std::time::Duration;

use super::connection::Connection;
use super::{Answer, LOOK_UP, Network, Reachability};

/// The time that a reader needs to notice what comes through again.
const RETRANSMISSION: u64 = 200_000_000;

impl Network {
    /// No packet reaches or leaves `host`, until it is healed. Connections stay, and are silent.
    pub(crate) fn cut(&mut self, host: IpAddr) {
        self.cut.insert(host);
    }

    /// Undoes [`cut`](Self::cut): what was sent meanwhile arrives, connection by connection in an order of chance.
    pub(crate) fn heal(&mut self, now: u64, host: IpAddr) -> Vec<Waker> {
        self.cut.remove(&host);
        let keys = self.connections_of(host);
        let mut wakers = Vec::new();
        for key in keys {
            let delay = self.random.up_to(RETRANSMISSION);
            if let Some(connection) = self.connections.get_mut(key) {
                wakers.extend(connection.send_again(now, delay));
            }
        }
        wakers
    }

    /// The machine is off: nothing answers, and nobody gets a notice.
    pub(crate) fn switch_off(&mut self, host: IpAddr) {
        for key in self.connections_of(host) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.lose();
            }
        }
        if let Some(host) = self.hosts.get_mut(&host) {
            host.is_off = true;
        }
    }

    /// The machine is on again.
    pub(crate) fn switch_on(&mut self, host: IpAddr) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.is_off = false;
        }
    }

    /// Every connection of `host` breaks at once.
    pub(crate) fn reset_all(&mut self, now: u64, host: IpAddr) -> Vec<Waker> {
        self.connections_of(host).into_iter().flat_map(|key| self.reset(now, key)).collect()
    }

    /// One connection is lost without a word.
    pub(crate) fn lose(&mut self, connection: usize) {
        self.connections.get_mut(connection).into_iter().for_each(Connection::lose);
    }

    /// The other ends of lost connections find out, if those who connected have gone.
    pub(crate) fn abandon(&mut self, now: u64, host: IpAddr) -> Vec<Waker> {
        let abandoned = |key: &usize| self.connections.get(*key).is_some_and(Connection::is_abandoned);
        let keys: Vec<_> = self.connections_of(host).into_iter().filter(abandoned).collect();
        keys.into_iter().flat_map(|key| self.reset(now, key)).collect()
    }

    /// What happens to those who talk to `host`.
    pub(crate) fn set_reachability(&mut self, host: IpAddr, reachability: Reachability) {
        self.hosts.get_mut(&host).into_iter().for_each(|host| host.reachability = reachability);
    }

    /// One connection of `host`, by chance, is lost without a word. Returns whether there was one that was not lost yet.
    pub(crate) fn lose_one(&mut self, host: IpAddr) -> bool {
        let is_there = |key: &usize| self.connections.get(*key).is_some_and(|connection| !connection.is_lost());
        let keys: Vec<_> = self.connections_of(host).into_iter().filter(is_there).collect();
        let Some(last) = (keys.len() as u64).checked_sub(1) else { return false };
        let chosen = usize::try_from(self.random.up_to(last)).unwrap_or_default();
        keys.get(chosen).into_iter().for_each(|key| self.lose(*key));
        true
    }

    /// How long bytes are on their way from now on, and how many pass in a second (`None`: any number).
    pub(crate) fn set_pace(&mut self, latency: RangeInclusive<Duration>, bytes_a_second: Option<u64>) {
        let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.latency = nanos(latency.start())..=nanos(latency.end());
        self.per_byte = bytes_a_second.map_or(0, |bytes| 1_000_000_000 / bytes.max(1));
    }

    /// Whether a write may be taken in part, and a read end anywhere, from now on.
    pub(crate) fn set_splits(&mut self, splits: bool) {
        self.splits = splits;
    }

    /// What the resolver says about `name` from now on, and after which time.
    pub(crate) fn set_answer(
        &mut self,
        name: &str,
        addresses: Result<Vec<IpAddr>, &'static str>,
        delay: Option<Duration>,
    ) {
        self.names.insert(name.to_owned(), Answer { addresses, delay: delay.unwrap_or(LOOK_UP) });
    }

    fn connections_of(&self, host: IpAddr) -> Vec<usize> {
        self.connections.iter().filter(|(_, connection)| connection.is_at(host)).map(|(key, _)| key).collect()
    }
}

//! The fastest of the suitable servers, and the choice among them.

use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::topology::TopologyDescription;

/// Suitable servers that are hardly slower than the fastest one (SEL-2), as positions in the description that they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyWindow {
    servers: Vec<usize>,
}

impl LatencyWindow {
    /// The window of the `suitable` servers whose average round-trip time is at most `local_threshold` (localThresholdMS) longer than
    /// the shortest one. A server without a round-trip time is one of them: a load balancer has none.
    pub fn new(topology: &TopologyDescription, suitable: &[usize], local_threshold: Duration) -> Self {
        let round_trip_time = |position: usize| topology.servers.get(position)?.round_trip_time;
        let shortest = suitable.iter().filter_map(|position| round_trip_time(*position)).min();
        let longest = shortest.map_or(Duration::MAX, |shortest| shortest.saturating_add(local_threshold));
        let is_near = |position: &usize| round_trip_time(*position).is_none_or(|time| time <= longest);
        Self { servers: suitable.iter().copied().filter(is_near).collect() }
    }

    /// The servers in it, in their order.
    pub fn servers(&self) -> &[usize] {
        &self.servers
    }

    /// The server for an operation: of two different ones that `random` picks, the one that serves fewer operations at
    /// present, as `operation_count` says (SEL-3, SEL-13). `None` if the window is empty.
    #[inline]
    pub fn choose(&self, random: &mut Random, operation_count: impl Fn(usize) -> u64) -> Option<usize> {
        let &[only] = self.servers.as_slice() else { return self.less_busy_of_two(random, operation_count) };
        Some(only)
    }

    fn less_busy_of_two(&self, random: &mut Random, operation_count: impl Fn(usize) -> u64) -> Option<usize> {
        let mut pick = |bound: usize| usize::try_from(random.up_to(u64::try_from(bound).ok()?)).ok();
        let first = pick(self.servers.len().checked_sub(1)?)?;
        let second = pick(self.servers.len().checked_sub(2)?)?;
        // The other servers, counted without the first.
        let second = if second < first { second } else { second + 1 };
        let (first, second) = (*self.servers.get(first)?, *self.servers.get(second)?);
        Some(if operation_count(second) < operation_count(first) { second } else { first })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::topologies::{server, topology};
    use super::*;
    use crate::monitor::ServerType;
    use crate::topology::TopologyType;

    const LOCAL_THRESHOLD: Duration = Duration::from_millis(15);

    /// Routers with these round-trip times, in milliseconds.
    fn routers<const N: usize>(millis: [u64; N]) -> TopologyDescription {
        let routers = millis.map(|millis| {
            let mut router = server("m", ServerType::Mongos);
            router.round_trip_time = Some(Duration::from_millis(millis));
            router
        });
        topology(TopologyType::Sharded, routers)
    }

    #[test]
    fn the_window_ends_local_threshold_after_the_fastest_server_sel_2() {
        let routers = routers([20, 5, 21, 1]);

        assert_eq!(LatencyWindow::new(&routers, &[0, 1, 2], LOCAL_THRESHOLD).servers(), [0, 1]);
        assert_eq!(LatencyWindow::new(&routers, &[0, 1, 2], Duration::ZERO).servers(), [1]);
        assert_eq!(LatencyWindow::new(&routers, &[], LOCAL_THRESHOLD), LatencyWindow::default());
    }

    #[test]
    fn a_server_without_a_round_trip_time_is_in_the_window() {
        let balancer = topology(TopologyType::LoadBalanced, [server("b", ServerType::LoadBalancer)]);

        assert_eq!(LatencyWindow::new(&balancer, &[0], LOCAL_THRESHOLD).servers(), [0]);
    }

    #[test]
    fn of_two_servers_the_less_busy_one_is_chosen_sel_3() {
        let window = LatencyWindow { servers: vec![3, 7] };
        let mut random = Random::new(1);

        assert!((0..100).all(|_| window.choose(&mut random, |server| if server == 3 { 5 } else { 4 }) == Some(7)));
    }

    #[test]
    fn the_busiest_of_several_servers_is_never_chosen_sel_3() {
        let window = LatencyWindow { servers: (0..50).collect() };
        let mut random = Random::new(1);

        let counted = |server| if server == 49 { 1 } else { 0 };

        assert!((0..10_000).all(|_| window.choose(&mut random, counted).is_some_and(|chosen| chosen < 49)));
    }

    #[test]
    fn without_a_difference_every_server_is_chosen_alike_sel_13() {
        let window = LatencyWindow { servers: vec![0, 1, 2] };
        let mut random = Random::new(1);
        let mut chosen = [0; 3];

        for _ in 0..3000 {
            let server = window.choose(&mut random, |_| 5).unwrap();
            chosen[server] += 1;
        }

        assert!(chosen.iter().all(|count| (900..1100).contains(count)), "{chosen:?}");
    }

    #[test]
    fn an_empty_window_has_no_choice_and_one_server_needs_no_chance() {
        let mut random = Random::new(1);
        let untouched = random.clone();

        assert_eq!(LatencyWindow::default().choose(&mut random, |_| 0), None);
        assert_eq!(LatencyWindow { servers: vec![4] }.choose(&mut random, |_| 0), Some(4));
        assert_eq!(random, untouched);
    }
}

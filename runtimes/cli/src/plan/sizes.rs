//! The pool that a measured load needs.
//!
//! Little's law: on average as many connections are in use as check-outs come in a second, times the seconds that each keeps its
//! connection. The number in use varies around that average. If check-outs come independently of each other, Erlang's formula
//! for waiting lines tells how many of them find every connection of a pool in use.

use serde::Serialize;

/// The share of check-outs that may find no free connection.
const MAY_WAIT: f64 = 0.001;

/// The connections of one client that are in use at its busiest server, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Concurrency {
    mean: f64,
}

/// The options of a pool that fits its load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolSizes {
    /// Connections in use on average.
    pub(crate) mean_in_use: f64,
    /// The smallest maxPoolSize with which at most one check-out in a thousand waits for a connection.
    pub(crate) max_pool_size: u32,
    /// The minPoolSize that keeps ready what is in use on average.
    pub(crate) min_pool_size: u32,
}

impl Concurrency {
    /// The average number of connections: above zero, at most a million.
    pub(crate) fn of_mean(mean: f64) -> Self {
        Self { mean }
    }

    /// By Little's law: `rate` check-outs in a second, each for `seconds`.
    pub(crate) fn of_rate(rate: f64, seconds: f64) -> Self {
        Self { mean: rate * seconds }
    }

    /// Connections in use on average.
    pub(crate) fn mean(self) -> f64 {
        self.mean
    }

    /// The sizes that this load needs.
    pub(crate) fn pool_sizes(self) -> PoolSizes {
        let waiting = shares_that_wait(self.mean).find(|(_, share)| *share <= MAY_WAIT);
        PoolSizes {
            mean_in_use: self.mean,
            max_pool_size: waiting.map_or(u32::MAX, |(size, _)| size),
            min_pool_size: (1..u32::MAX).find(|size| f64::from(*size) >= self.mean).unwrap_or(u32::MAX),
        }
    }
}

/// For each size from 1 up, the share of check-outs that find all connections in use, of a load with this mean (Erlang C).
fn shares_that_wait(mean: f64) -> impl Iterator<Item = (u32, f64)> {
    // Erlang B, the share that would be turned away if none could wait; each size follows from the one before.
    let turned_away = (1..u32::MAX).scan(1.0, move |share, size| {
        *share = mean * *share / (f64::from(size) + mean * *share);
        Some((size, *share))
    });
    turned_away.map(move |(size, share)| {
        let busy = mean / f64::from(size);
        // A pool that never catches up makes everybody wait.
        (size, if busy < 1.0 { share / (1.0 - busy * (1.0 - share)) } else { 1.0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn littles_law_multiplies_rate_and_time() {
        assert_eq!(Concurrency::of_rate(700.0, 0.005), Concurrency::of_mean(3.5));
    }

    /// Two connections for a load of one: a third waits, as tables of Erlang's formula say; five for four: 55.4 %.
    #[test]
    fn the_share_that_waits_is_erlangs() {
        let share = |mean, size| shares_that_wait(mean).find(|(of, _)| *of == size).unwrap().1;

        assert!((share(1.0, 2) - 1.0 / 3.0).abs() < 1e-12);
        assert!((share(4.0, 5) - 0.554).abs() < 5e-4);
        assert!((share(4.0, 4) - 1.0).abs() < 1e-12, "without spare connections all wait");
    }

    #[test]
    fn the_size_is_the_smallest_with_which_one_check_out_in_a_thousand_waits() {
        for mean in [0.01, 0.5, 3.5, 20.0, 500.0] {
            let size = Concurrency::of_mean(mean).pool_sizes().max_pool_size;

            let shares: Vec<_> = shares_that_wait(mean).take(usize::try_from(size).unwrap()).collect();
            let (last, smaller) = shares.split_last().unwrap();
            assert!(last.1 <= 0.001 && smaller.iter().all(|(_, share)| *share > 0.001), "{mean}: {last:?}");
        }
    }

    #[test]
    fn the_floor_is_what_is_in_use_on_average() {
        let floors = [0.2, 1.0, 3.5].map(|mean| Concurrency::of_mean(mean).pool_sizes().min_pool_size);

        assert_eq!(floors, [1, 1, 4]);
    }

    #[test]
    fn large_loads_need_little_more_than_their_mean() {
        let size = Concurrency::of_mean(1e6).pool_sizes().max_pool_size;

        assert!((1_002_000..1_004_000).contains(&size), "{size}");
    }
}

//! All that the parts of a simulation share: its tasks and time, its network, and its random numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cmap_core::random::Random;

use crate::executor::Executor;
use crate::network::Network;

/// One simulation.
pub(crate) struct World {
    pub(crate) executor: Arc<Executor>,
    /// The start, as the runtime's clock shows it. Only differences to it are looked at.
    pub(crate) origin: Instant,
    /// What the clock of the application's host showed at the start, in nanoseconds since 1970, if it has always gone as it does
    /// now.
    clock: AtomicU64,
    network: Mutex<Network>,
    /// For those who ask for random bytes.
    random: Mutex<Random>,
}

impl World {
    /// The time of day at the start: the beginning of 2026.
    pub(crate) const START_OF_TIME: Duration = Duration::from_secs(1_767_225_600);

    pub(crate) fn new(seed: u64) -> Arc<Self> {
        // One sequence each, so that more of one kind does not change the others.
        let mut seeds = Random::new(seed);
        #[expect(clippy::disallowed_methods, reason = "virtual time needs a beginning, whose value nobody sees")]
        let origin = Instant::now();
        Arc::new(Self {
            executor: Executor::new(seeds.next_u64()),
            origin,
            clock: AtomicU64::new(nanos(Self::START_OF_TIME)),
            network: Mutex::new(Network::new(seeds.next_u64())),
            random: Mutex::new(Random::new(seeds.next_u64())),
        })
    }

    /// The network. The lock is held for no longer than a statement: wakers are called without it.
    pub(crate) fn network(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the clock of the application's host shows.
    pub(crate) fn unix_time(&self) -> Duration {
        Duration::from_nanos(self.clock.load(Ordering::Relaxed).wrapping_add(self.executor.now()))
    }

    pub(crate) fn set_unix_time(&self, time: Duration) {
        self.clock.store(nanos(time).wrapping_sub(self.executor.now()), Ordering::Relaxed);
    }

    pub(crate) fn fill_random(&self, bytes: &mut [u8]) {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// As much as fits, which is the year 2554.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

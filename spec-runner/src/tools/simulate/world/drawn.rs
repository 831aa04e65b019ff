//! What a seed draws before anything happens, by swarm: most troubles and options are off in most seeds, so that those that are on
//! meet each other often.

use std::time::Duration;

use cmap_core::options::{Affinity, PoolOptions, QueueDepth, Reuse};
use cmap_core::random::Random;

use super::super::step::{ClientCase, Deployment, Twin};

/// How likely things are, in this seed: of 1024.
#[derive(Debug)]
pub(super) struct Temper {
    pub(super) callers: usize,
    /// Upper bounds, in microseconds.
    pub(super) hold: u64,
    pub(super) think: u64,
    pub(super) latency: u64,
    /// The least time between two checks of a server.
    pub(super) check_pause: u64,
    pub(super) limits: u64,
    pub(super) cancels: u64,
    pub(super) errors: u64,
    pub(super) hang_ups: u64,
    pub(super) deaths: u64,
    pub(super) late_reports: u64,
    pub(super) reads: u64,
    pub(super) keys: u64,
    pub(super) warm_ups: u64,
    /// Check-outs of identities; 0 = there are none.
    pub(super) identities: u64,
    /// Logins of identities that are refused.
    pub(super) refusals: u64,
    /// The time between two changes of identities and credentials, in microseconds; 0 = none.
    pub(super) rotations: u64,
    /// The time between two troubles of the servers, in microseconds; 0 = none.
    pub(super) faults: u64,
    pub(super) changes: bool,
    pub(super) suspensions: bool,
    /// Answers to checks that take long.
    pub(super) spikes: u64,
}

impl Temper {
    /// Callers alone, who hold a connection for a millisecond, on average.
    pub(super) fn calm(random: &mut Random) -> Self {
        Self {
            callers: usize::try_from(1 + random.up_to(15)).unwrap_or(1),
            hold: 2_000,
            think: 2_000,
            latency: 500,
            check_pause: 500_000,
            limits: 0,
            cancels: 0,
            errors: 0,
            hang_ups: 0,
            deaths: 0,
            late_reports: 0,
            reads: 0,
            keys: 0,
            warm_ups: 0,
            identities: 0,
            refusals: 0,
            rotations: 0,
            faults: 0,
            changes: false,
            suspensions: false,
            spikes: 0,
        }
    }

    pub(super) fn draw(random: &mut Random, deployment: Deployment) -> Self {
        let temper = Self {
            callers: usize::try_from(1 + random.up_to(15)).unwrap_or(1),
            hold: pick(random, &[0, 100, 2_000, 50_000]),
            think: pick(random, &[0, 100, 2_000, 50_000]),
            latency: pick(random, &[10, 500, 5_000, 100_000]),
            check_pause: pick(random, &[5_000, 100_000, 500_000, 500_000]),
            limits: pick(random, &[0, 0, 200, 1024]),
            cancels: pick(random, &[0, 0, 100, 800]),
            errors: pick(random, &[0, 0, 10, 200]),
            hang_ups: pick(random, &[0, 0, 10, 200]),
            deaths: pick(random, &[0, 100, 600]),
            late_reports: pick(random, &[0, 512]),
            reads: pick(random, &[0, 0, 512, 1024]),
            keys: pick(random, &[0, 512, 900]),
            warm_ups: pick(random, &[0, 0, 20, 200]),
            faults: pick(random, &[0, 1_000_000, 100_000, 10_000]),
            changes: random.up_to(2) == 0,
            suspensions: random.up_to(2) == 0,
            identities: pick(random, &[0, 0, 300, 900]),
            refusals: pick(random, &[0, 0, 100]),
            rotations: pick(random, &[0, 0, 1_000_000, 30_000]),
            spikes: pick(random, &[0, 0, 300]),
        };
        match deployment {
            // DNS is looked up once in a minute: callers take their time.
            Deployment::SeedList => Self { think: pick(random, &[2_000_000, 20_000_000]), ..temper },
            Deployment::Standalone | Deployment::ReplicaSet | Deployment::Sharded | Deployment::LoadBalanced => temper,
        }
    }
}

/// A client with no option but a size.
pub(super) fn calm_client(random: &mut Random, deployment: Deployment, seed: u64) -> ClientCase {
    let mut pool = PoolOptions::default();
    pool.max_pool_size = Some(1 + u32::try_from(random.up_to(8)).unwrap_or_default());
    pool.seed = seed;
    ClientCase { deployment, pool, max_connections: 0, srv_max_hosts: None, lateness: Duration::ZERO, twin: Twin::None }
}

/// A client with options by swarm.
pub(super) fn client(random: &mut Random, deployment: Deployment, seed: u64) -> ClientCase {
    fn some<T>(random: &mut Random, of: u64, value: T) -> Option<T> {
        (random.up_to(of - 1) == 0).then_some(value)
    }
    let number = |random: &mut Random, bound| u32::try_from(random.up_to(bound)).unwrap_or_default();
    let max_pool_size = number(random, 9);
    // So short that the last of sixteen callers is served within X-116's five seconds, though each before it holds for as long.
    let time = Duration::from_millis(pick(random, &[20, 300]));
    let affinities = [
        Affinity::Prefer,
        Affinity::Require,
        Affinity::Hold { time, lend: false },
        Affinity::Hold { time, lend: true },
    ];
    let affinity = pick(random, &affinities);
    let affinity = some(random, 3, affinity);
    let depth = number(random, 10);
    let mut pool = PoolOptions::default();
    pool.max_pool_size = Some(max_pool_size);
    pool.min_pool_size = some(random, 3, if max_pool_size == 0 { 2 } else { max_pool_size / 2 });
    pool.max_connecting = Some(1 + number(random, 3));
    pool.max_idle_time = some(random, 3, Duration::from_millis(100));
    pool.wait_queue_timeout = some(random, 4, Duration::from_millis(30));
    pool.check_after_idle = some(random, 2, Duration::from_millis(1));
    pool.host_timeout = some(random, 6, Duration::from_millis(500));
    pool.backoff = Some(random.up_to(1) == 0);
    pool.max_wait_queue_depth = some(random, 6, QueueDepth::Waiters(1 + depth));
    pool.reuse = some(random, 4, Reuse::Fifo);
    pool.max_new_connections_per_second = some(random, 6, 200);
    pool.max_lifetime = some(random, 5, Duration::from_millis(300));
    pool.max_uses = some(random, 5, 20);
    pool.affinity = affinity;
    let requirement = Duration::from_millis(pick(random, &[2, 30]));
    pool.refresh_requirement = some(random, 3, requirement);
    pool.seed = seed;
    let max_connections = if random.up_to(5) == 0 { 2 + number(random, 6) } else { 0 };
    let lateness = pick(random, &[0, 0, 50, 5_000]);
    let is_in_dns = deployment == Deployment::SeedList;
    let srv_max_hosts = if is_in_dns { pick(random, &[None, None, Some(2)]) } else { None };
    let lateness = Duration::from_micros(lateness);
    ClientCase { deployment, pool, max_connections, srv_max_hosts, lateness, twin: Twin::of_seed(seed) }
}

/// One of these.
pub(super) fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    let last = from.len() as u64 - 1;
    from[usize::try_from(random.up_to(last)).unwrap_or_default()]
}

//! The backoff of a pool whose server is overloaded: pauses before connections, one at a time, until one is established.

use core::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, CheckOutRequest, Handle, Output, Pool, PoolState, Reaction, TimeoutReason};
use cmap_core::time::Instant;

const MS: u64 = 1_000_000;

/// A ready pool, and the time.
struct Bench {
    pool: Pool<()>,
    now: Instant,
}

impl Bench {
    fn new(options: PoolOptions) -> Self {
        let now = Instant::from_millis(1000);
        let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, now).unwrap();
        pool.ready(now);
        Self { pool, now }
    }

    /// Starts this many check-outs; returns the connections that are created at once.
    fn check_out(&mut self, count: usize) -> Vec<Handle> {
        for _ in 0..count {
            let _ = self.pool.check_out(self.now, CheckOutRequest::default());
        }
        self.created()
    }

    fn created(&mut self) -> Vec<Handle> {
        let outputs = core::iter::from_fn(|| self.pool.poll_output());
        let created = |output| match output {
            Output::Action(Action::Connect { connection }) => Some(connection),
            Output::Action(_) | Output::Event(_) => None,
        };
        outputs.filter_map(created).collect()
    }

    /// The server refuses a connection; returns those that are created because of it.
    fn refuse(&mut self, connection: Handle) -> Vec<Handle> {
        self.fail(connection, Fault::Network)
    }

    fn fail(&mut self, connection: Handle, fault: Fault) -> Vec<Handle> {
        let error = EstablishError::new(Phase::Connect, fault, "connection refused");
        self.pool.handle_establish_failed(self.now, connection, error, Reaction::KeepPool).unwrap();
        self.created()
    }

    /// Sleeps until the pause ends; returns its length, and the connections created then.
    fn end_pause(&mut self) -> (Duration, Vec<Handle>) {
        let timeout = self.pool.poll_timeout().unwrap();
        assert_eq!(timeout.reason, TimeoutReason::Backoff);
        let pause = timeout.at.saturating_since(self.now);
        self.now = timeout.at;
        self.pool.handle_timeout(self.now);
        (pause, self.created())
    }
}

#[test]
fn the_next_connection_waits_after_a_refusal_and_the_pool_stays_ready() {
    let mut bench = Bench::new(PoolOptions::default());
    let [first, second] = bench.check_out(3)[..] else { panic!("maxConnecting is 2") };

    assert_eq!(bench.refuse(first), []);
    assert_eq!(bench.refuse(second), []);

    assert_eq!(bench.pool.state(), PoolState::Ready);
    assert_eq!(bench.pool.counts().waiting, 1);
    let (pause, created) = bench.end_pause();
    assert!((50..=100).contains(&pause.as_millis()), "{pause:?}");
    assert_eq!(created.len(), 1);
}

#[test]
fn pauses_double_up_to_800_ms() {
    let mut bench = Bench::new(PoolOptions::default());
    let [mut connection, _] = bench.check_out(20)[..] else { panic!("maxConnecting is 2") };

    let mut pauses = Vec::new();
    for _ in 0..6 {
        bench.refuse(connection);
        let (pause, created) = bench.end_pause();
        pauses.push(pause.as_millis());
        connection = created[0];
    }

    for (pause, most) in pauses.iter().zip([100, 200, 400, 800, 800, 800]) {
        assert!((most / 2..=most).contains(pause), "{pauses:?}");
    }
}

#[test]
fn a_server_that_refuses_for_long_is_not_tried_faster() {
    let mut bench = Bench::new(PoolOptions::default());
    let [mut connection, _] = bench.check_out(120)[..] else { panic!("maxConnecting is 2") };

    for _ in 0..100 {
        bench.refuse(connection);
        let (pause, created) = bench.end_pause();
        assert!(pause >= Duration::from_millis(50));
        connection = created[0];
    }
}

#[test]
fn pauses_differ_between_pools_of_different_seeds() {
    let pause = |seed| {
        let mut options = PoolOptions::default();
        options.seed = seed;
        let mut bench = Bench::new(options);
        let created = bench.check_out(3);
        bench.refuse(created[0]);
        bench.end_pause().0
    };

    assert_eq!(pause(1), pause(1));
    assert_ne!(pause(1), pause(2));
}

#[test]
fn one_connection_is_tried_at_a_time() {
    let mut options = PoolOptions::default();
    options.max_connecting = Some(10);
    let mut bench = Bench::new(options);
    for connection in bench.check_out(10) {
        bench.refuse(connection);
    }
    assert_eq!(bench.check_out(10), []);

    let (_, created) = bench.end_pause();

    assert_eq!(created.len(), 1);
    assert_eq!(bench.check_out(10), [], "an arrival creates none beside the one that is being tried");
    assert_eq!(bench.pool.poll_timeout(), None);
}

#[test]
fn connections_refused_together_begin_one_pause() {
    let mut options = PoolOptions::default();
    options.max_connecting = Some(10);
    let mut bench = Bench::new(options);
    for connection in bench.check_out(11) {
        bench.refuse(connection);
    }

    let (pause, _) = bench.end_pause();

    assert!(pause <= Duration::from_millis(100), "{pause:?}");
}

#[test]
fn a_connection_that_hangs_since_before_the_refusal_keeps_no_other_from_being_tried() {
    let mut bench = Bench::new(PoolOptions::default());
    let [_hangs, refused] = bench.check_out(2)[..] else { panic!("maxConnecting is 2") };
    bench.refuse(refused);
    bench.check_out(1);

    let (_, created) = bench.end_pause();

    assert_eq!(created.len(), 1);
}

#[test]
fn an_establishment_ends_the_backoff_for_all_who_wait() {
    let mut bench = Bench::new(PoolOptions::default());
    let created = bench.check_out(5);
    bench.refuse(created[0]);
    bench.refuse(created[1]);
    let (_, tried) = bench.end_pause();

    bench.pool.handle_established(bench.now, tried[0], ()).unwrap();

    assert_eq!(bench.created().len(), 2, "maxConnecting is 2 again");
}

#[test]
fn failures_without_the_label_begin_no_pause() {
    let mut bench = Bench::new(PoolOptions::default());
    let created = bench.check_out(3);

    assert_eq!(bench.fail(created[0], Fault::Other).len(), 1);
}

#[test]
fn a_pool_without_backoff_connects_again_at_once() {
    let mut options = PoolOptions::default();
    options.backoff = Some(false);
    let mut bench = Bench::new(options);
    let created = bench.check_out(3);

    assert_eq!(bench.refuse(created[0]).len(), 1);
}

#[test]
fn a_pause_that_nobody_waits_for_asks_for_no_wake_up() {
    let mut bench = Bench::new(PoolOptions::default());
    let created = bench.check_out(1);
    bench.refuse(created[0]);
    assert_eq!(bench.pool.poll_timeout(), None);

    bench.now = bench.now + Duration::from_secs(1);

    assert_eq!(bench.check_out(1).len(), 1, "the pause has passed");
}

#[test]
fn population_waits_for_the_pause_as_well() {
    let mut options = PoolOptions::default();
    options.min_pool_size = Some(1);
    let mut bench = Bench::new(options);
    bench.pool.handle_timeout(bench.now);
    let [connection] = bench.created()[..] else { panic!("one is missing to minPoolSize") };
    let mut pauses = Vec::new();
    let mut refused = connection;
    for _ in 0..5 {
        bench.refuse(refused);
        let timeout = bench.pool.poll_timeout().unwrap();
        assert_eq!(timeout.reason, TimeoutReason::Populate);
        pauses.push(timeout.at.saturating_since(bench.now).as_millis());
        bench.now = timeout.at;
        bench.pool.handle_timeout(bench.now);
        refused = bench.created()[0];
    }

    // Never sooner than the next maintenance run, which comes every 500 ms.
    assert_eq!(pauses[..3], [500, 500, 500]);
    assert!(pauses[3] >= 500 && pauses[4] <= 800, "{pauses:?}");
}

#[test]
fn a_time_out_during_the_backoff_says_why_nothing_was_established() {
    let mut bench = Bench::new(PoolOptions::default());
    let created = bench.check_out(1);
    bench.refuse(created[0]);
    let _ = bench.pool.check_out(bench.now, CheckOutRequest::until(Instant::from_nanos(1010 * MS)));

    bench.pool.handle_timeout(Instant::from_nanos(1010 * MS));

    let fails = core::iter::from_fn(|| bench.pool.poll_output()).find_map(|output| match output {
        Output::Action(Action::Fail { error, .. }) => Some(error.to_string()),
        Output::Action(_) | Output::Event(_) => None,
    });
    let text = fails.unwrap();
    assert!(text.contains("the pool tries again after pauses: connecting failed: connection refused"), "{text}");
}

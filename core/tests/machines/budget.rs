//! A limit of the connections that all pools of a client have together: it is never exceeded, no server starves, and
//! every waiter is served in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::Finding;
use cmap_core::options::{Affinity, Maintenance, PoolOptions, PoolSizes};
use cmap_core::pool::{
    Action, AffinityKey, Cause, CheckOutId, CheckOutRequest, Condition, Handle, Output as PoolOutput,
};
use cmap_core::server::{ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Output, ServerSelector, Topology, TopologyOptions};
use proptest::prelude::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn address(server: usize) -> ServerAddress {
    ServerAddress::tcp(NAMES[server], 27017)
}

/// What only this server suits.
fn at(server: usize) -> Criteria {
    Criteria { selector: ServerSelector::AnyOf([address(server)].into()), ..Criteria::default() }
}

/// A client of three routers, and everything that its driver holds.
struct Driver {
    topology: Topology<()>,
    now: Instant,
    limit: u32,
    pending: Vec<Handle>,
    checking: Vec<Handle>,
    in_use: Vec<(usize, CheckOutId, Handle)>,
    /// The check-outs that wait, with their servers.
    waiting: BTreeMap<CheckOut, usize>,
    /// The order in which waiters were served.
    served: Vec<CheckOut>,
}

impl Driver {
    fn new(limit: u32, pool_options: PoolOptions) -> Self {
        let mut options = TopologyOptions::of_seeds((0..3).map(address).collect());
        options.max_connections = limit;
        // A check-out stays at its server, so that the test knows it.
        options.reselect = false;
        let mut topology = Topology::new(options, pool_options).unwrap();
        topology.observe(false);
        let now = Instant::from_millis(1);
        topology.open(now);
        let mut driver = Self {
            topology,
            now,
            limit,
            pending: Vec::new(),
            checking: Vec::new(),
            in_use: Vec::new(),
            waiting: BTreeMap::new(),
            served: Vec::new(),
        };
        (0..3).for_each(|server| driver.find(server));
        driver.drain();
        driver
    }

    fn id(&self, server: usize) -> ServerId {
        let found = self.topology.servers().find(|(_, it)| *it.description().address == address(server));
        found.unwrap().0
    }

    /// The server is a router that answers.
    fn find(&mut self, server: usize) {
        let mut description = ServerDescription::new(address(server).into(), ServerType::Mongos);
        description.wire_versions = Some((0, 21));
        let id = self.id(server);
        self.topology.handle_check(self.now, id, Finding::Description(Box::new(description))).unwrap();
    }

    /// The server fails a check.
    fn lose(&mut self, server: usize) {
        let finding = Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
        self.topology.handle_check(self.now, self.id(server), finding).unwrap();
        self.drain();
    }

    fn check_out(&mut self, server: usize) -> CheckOut {
        self.check_out_with(server, CheckOutRequest::default())
    }

    fn check_out_with(&mut self, server: usize, request: CheckOutRequest) -> CheckOut {
        let (check_out, delivery) = self.topology.check_out(self.now, &at(server), request);
        if let Some(delivery) = delivery {
            self.in_use.push((server, delivery.check_out, delivery.connection));
        } else if let CheckOut::Started(_) = check_out {
            self.waiting.insert(check_out, server);
        } else {
            // Its server is unknown for the moment.
            let _ = self.topology.cancel_check_out(self.now, check_out);
        }
        self.drain();
        check_out
    }

    fn check_in(&mut self, nth: usize, condition: Condition) {
        if self.in_use.is_empty() {
            return;
        }
        let (_, check_out, connection) = self.in_use.remove(nth % self.in_use.len());
        let checked_in = self.topology.check_in(self.now, check_out, connection, (), condition).unwrap();
        if let Some(delivery) = checked_in.delivery() {
            self.deliver(delivery.check_out, delivery.connection);
        }
        self.drain();
    }

    fn establish(&mut self, nth: usize) {
        if !self.pending.is_empty() {
            let connection = self.pending.remove(nth % self.pending.len());
            self.topology.handle_established(self.now, connection, ()).unwrap();
            self.drain();
        }
    }

    fn deliver(&mut self, id: CheckOutId, connection: Handle) {
        let check_out = CheckOut::Started(id);
        let server = self.waiting.remove(&check_out).unwrap();
        self.served.push(check_out);
        self.in_use.push((server, id, connection));
    }

    /// Carries out the outputs, and checks what always holds.
    fn drain(&mut self) {
        while let Some(output) = self.topology.poll_output() {
            let Output::Pool { output: PoolOutput::Action(action), .. } = output else { continue };
            match action {
                Action::Connect { connection } => self.pending.push(connection),
                Action::Check { connection } => self.checking.push(connection),
                Action::Deliver { check_out, connection, .. } => {
                    self.deliver(check_out, connection);
                }
                Action::Fail { check_out, .. } => {
                    self.waiting.remove(&CheckOut::Started(check_out)).unwrap();
                }
                Action::Close { .. } | Action::Refresh { .. } | Action::WarmedUp { .. } => {}
                Action::Interrupt { connection } => self.pending.retain(|&pending| pending != connection),
            }
        }
        self.check();
    }

    fn check(&self) {
        let pools = || self.topology.servers().map(|(_, server)| server.pool());
        let total: u32 = pools().map(|pool| pool.counts().total()).sum();
        assert!(total <= self.limit, "{total} connections, and the client may have {}", self.limit);
        for pool in pools() {
            assert_eq!(pool.check_invariants(), Ok(()));
        }
        let idle = pools().any(|pool| pool.counts().available > 0) && self.checking.is_empty();
        let needy = pools().any(|pool| pool.wants_connection_of_others());
        assert!(!idle || !needy, "a check-out waits for room, and a connection of another server lies idle");
        assert!(total == self.limit || !needy, "a check-out waits for a permit, and one is free");
    }

    /// What is due.
    fn pass(&mut self, nanos: u64) {
        self.now = self.now + Duration::from_nanos(nanos);
        self.topology.handle_timeout(self.now);
        self.drain();
        let next = self.topology.poll_timeout();
        assert!(next.is_none_or(|next| next.at > self.now), "a timer spins: {next:?}");
    }

    /// A second passes, and one connection is established, if one is under way.
    fn pass_and_establish(&mut self) {
        self.pass(1_000_000_000);
        self.establish(0);
    }

    fn total(&self, server: usize) -> u32 {
        self.topology.server(self.id(server)).unwrap().pool().counts().total()
    }

    /// Everything under way ends well, and every connection comes back: everybody is served.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.waiting.is_empty() && self.pending.is_empty() && self.in_use.is_empty() {
                return;
            }
            while let Some(connection) = self.checking.pop() {
                let _ = self.topology.handle_checked(self.now, connection, true);
                self.drain();
            }
            self.establish(0);
            self.check_in(0, Condition::Usable);
            self.pass(1_000_000_000);
        }
        panic!("check-outs wait forever: {:?}", self.waiting);
    }
}

/// What the driver does next; numbers pick among what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    CheckOut(usize),
    CheckIn(usize, bool),
    Establish(usize),
    FailEstablish(usize, bool),
    Cancel(usize),
    Checked(usize, bool),
    Lose(usize),
    Find(usize),
    Resize(u32),
    Renew,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..3_usize).prop_map(Step::CheckOut),
        8 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(nth, is_usable)| Step::CheckIn(nth, is_usable)),
        8 => any::<usize>().prop_map(Step::Establish),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(nth, overloaded)| Step::FailEstablish(nth, overloaded)),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(nth, alive)| Step::Checked(nth, alive)),
        1 => (0..3_usize).prop_map(Step::Lose),
        2 => (0..3_usize).prop_map(Step::Find),
        1 => (1..4_u32).prop_map(Step::Resize),
        1 => Just(Step::Renew),
        4 => prop_oneof![0..20_u64, 0..2_000_000_000_u64].prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_limit_holds_whatever_happens_and_everybody_is_served_in_the_end(
        limit in 1..6_u32,
        (minimum, max_connecting, idle, backoff) in (0..3_u32, 1..3_u32, any::<bool>(), any::<bool>()),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut options = PoolOptions::default();
        (options.max_pool_size, options.min_pool_size) = (Some(4), Some(minimum));
        (options.max_connecting, options.backoff) = (Some(max_connecting), Some(backoff));
        options.maintenance = Some(Maintenance::Every(Duration::from_nanos(5)));
        options.max_idle_time = idle.then_some(Duration::from_nanos(30));
        options.host_timeout = idle.then_some(Duration::from_nanos(100));
        let mut driver = Driver::new(limit, options);

        for step in steps {
            let now = driver.now;
            match step {
                Step::CheckOut(server) => drop(driver.check_out(server)),
                Step::CheckIn(nth, true) => driver.check_in(nth, Condition::Usable),
                Step::CheckIn(nth, false) => driver.check_in(nth, Condition::Errored),
                Step::Establish(nth) => driver.establish(nth),
                Step::FailEstablish(nth, overloaded) if !driver.pending.is_empty() => {
                    let connection = driver.pending.remove(nth % driver.pending.len());
                    let fault = if overloaded { Fault::Network } else { Fault::Other };
                    let error = EstablishError::new(Phase::Connect, fault, "refused");
                    driver.topology.handle_establish_failed(now, connection, error).unwrap();
                }
                Step::Cancel(nth) if !driver.waiting.is_empty() => {
                    let check_out = *driver.waiting.keys().nth(nth % driver.waiting.len()).unwrap();
                    driver.waiting.remove(&check_out);
                    let _ = driver.topology.cancel_check_out(now, check_out);
                }
                Step::Checked(nth, alive) if !driver.checking.is_empty() => {
                    let connection = driver.checking.remove(nth % driver.checking.len());
                    let _ = driver.topology.handle_checked(now, connection, alive);
                }
                Step::Lose(server) => driver.lose(server),
                Step::Find(server) => driver.find(server),
                Step::Resize(size) => {
                    let _ = driver.topology.resize(now, PoolSizes::default().max_pool_size(size));
                }
                Step::Renew => driver.topology.renew_credential(now, None),
                Step::Pass(nanos) => driver.pass(nanos),
                Step::FailEstablish(..) | Step::Cancel(_) | Step::Checked(..) => {}
            }
            driver.drain();
        }
        driver.settle();
    }
}

fn plain() -> PoolOptions {
    PoolOptions::default()
}

/// A client of so many connections, which the minimums of its servers fill: each server would have two.
fn full_of_minimums(limit: u32, change: impl FnOnce(&mut PoolOptions)) -> Driver {
    let mut options = plain();
    options.min_pool_size = Some(2);
    change(&mut options);
    let mut driver = Driver::new(limit, options);
    for _ in 0..20 {
        driver.pass_and_establish();
    }
    assert_eq!(driver.topology.stats().counts.available, limit);
    driver
}

#[test]
fn the_least_recently_used_connection_of_another_server_makes_room() {
    let mut driver = Driver::new(2, plain());
    for server in [0, 1] {
        driver.check_out(server);
        driver.establish(0);
        driver.now = driver.now + Duration::from_millis(1);
        driver.check_in(0, Condition::Usable);
    }

    driver.check_out(2);
    driver.establish(0);

    assert_eq!(
        [0, 1, 2].map(|server| driver.total(server)),
        [0, 1, 1],
        "that of the first server was the least_recent"
    );
}

#[test]
fn waiters_of_several_servers_are_served_in_the_order_of_their_arrival() {
    let mut driver = Driver::new(1, plain());
    driver.check_out(0);
    driver.establish(0);
    let waiters: Vec<CheckOut> = [1, 2, 1]
        .map(|server| {
            driver.now = driver.now + Duration::from_millis(1);
            driver.check_out(server)
        })
        .into();

    driver.settle();

    assert_eq!(driver.served[1..], waiters[..]);
}

#[test]
fn an_arrival_gets_a_connection_of_its_own_though_one_is_pending_x_15() {
    let mut options = plain();
    options.min_pool_size = Some(1);
    let mut driver = Driver::new(1000, options);
    driver.pass(1000);
    let populated = driver.pending.len();

    driver.check_out(0);

    assert_eq!(driver.pending.len(), populated + 1);
}

#[test]
fn a_check_out_that_waited_for_its_server_gets_a_connection_of_its_own_though_one_is_pending_x_15() {
    let mut options = plain();
    options.min_pool_size = Some(1);
    let mut driver = Driver::new(1000, options);
    driver.pass(1000);
    driver.lose(1);
    let (waiting, _) = driver.topology.check_out(driver.now, &at(1), CheckOutRequest::default());
    let CheckOut::Selecting(selection) = waiting else { panic!("its server is unknown") };
    let populated = driver.pending.len();

    driver.topology.change_criteria(driver.now, selection, &at(0));
    driver.drain();

    assert_eq!(driver.pending.len(), populated + 1);
}

#[test]
fn a_connection_is_held_for_its_key_while_permits_are_free_x_87() {
    let mut options = plain();
    options.affinity = Some(Affinity::Hold { time: Duration::from_secs(60), lend: true });
    let mut driver = Driver::new(1000, options);
    let key = CheckOutRequest::default().affinity(AffinityKey(1));
    driver.check_out_with(0, key);
    driver.establish(0);
    driver.check_in(0, Condition::Usable);

    driver.check_out(0);

    assert_eq!((driver.pending.len(), driver.in_use.len()), (1, 0));
}

#[test]
fn a_busy_server_does_not_starve_another() {
    let mut driver = Driver::new(2, plain());
    for _ in 0..2 {
        driver.check_out(0);
        driver.establish(0);
    }
    driver.now = driver.now + Duration::from_millis(1);
    let other = driver.check_out(1);

    let mut turns = 0;
    while driver.waiting.contains_key(&other) {
        driver.now = driver.now + Duration::from_millis(1);
        driver.check_out(0);
        driver.check_in(0, Condition::Usable);
        driver.establish(0);
        turns += 1;
        assert!(turns < 10, "the other server's waiter is never served");
    }
}

#[test]
fn two_busy_servers_keep_their_connections() {
    let mut driver = Driver::new(2, plain());
    let turn = |driver: &mut Driver, server| {
        driver.now = driver.now + Duration::from_millis(1);
        driver.check_out(server);
    };
    for server in [0, 1, 0, 1, 0, 1] {
        turn(&mut driver, server);
        driver.establish(0);
    }
    let created = driver.topology.stats().created;

    for server in [0, 1].repeat(50) {
        turn(&mut driver, server);
        driver.check_in(0, Condition::Usable);
    }

    assert_eq!(driver.topology.stats().created, created, "nothing is closed and created anew");
}

#[test]
fn floors_yield_to_waiters() {
    let mut driver = full_of_minimums(3, |_| {});
    for _ in 0..3 {
        driver.check_out(2);
        driver.establish(0);
    }

    assert_eq!(driver.topology.stats().counts.in_use, 3);
    let servers: BTreeSet<usize> = driver.in_use.iter().map(|&(server, ..)| server).collect();
    assert_eq!(servers, BTreeSet::from([2]));
}

#[test]
fn outdated_connections_are_replaced_one_at_a_time_where_the_limit_is_full_x_84() {
    let mut driver = full_of_minimums(3, |_| {});

    driver.topology.renew_credential(driver.now, None);
    driver.drain();

    for _ in 0..10 {
        assert!(driver.topology.connections() >= 2, "one goes, and its replacement comes");
        driver.pass_and_establish();
    }
    assert_eq!((driver.topology.outdated(), driver.topology.stats().counts.available), (0, 3));
}

#[test]
fn lives_end_by_age_where_the_limit_is_full_x_84() {
    let mut driver = full_of_minimums(3, |options| options.max_lifetime = Some(Duration::from_secs(60)));
    let before = driver.topology.stats().created;

    for _ in 0..70 {
        driver.pass_and_establish();
    }

    assert!(driver.topology.stats().created >= before + 3, "each was replaced once or more");
}

#[test]
fn one_that_comes_back_at_the_end_of_its_life_goes_first_where_the_limit_is_full_x_84() {
    let mut driver = full_of_minimums(2, |options| options.check_after_idle = Some(Duration::MAX));
    let server = (0..3).find(|&server| driver.total(server) == 2).unwrap();
    driver.check_out(server);
    driver.check_out(server);
    driver.topology.replace_connections(driver.now, Duration::ZERO);
    assert_eq!(driver.topology.connections(), 2);

    driver.check_in(0, Condition::Usable);
    assert_eq!(driver.topology.connections(), 1);
    driver.check_in(0, Condition::Usable);
    assert_eq!(driver.topology.connections(), 1, "the other one waits for the replacement");
    (0..4).for_each(|_| driver.pass_and_establish());

    let stats = driver.topology.stats();
    assert_eq!((stats.created, stats.counts.available), (4, 2), "both were replaced");
}

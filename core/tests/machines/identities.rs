//! Several users share the limits of one server's pools: these are never exceeded, everybody gets connections of their
//! own credential, and every waiter is served in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::Finding;
use cmap_core::options::{PoolOptions, PoolSizes};
use cmap_core::pool::{
    Action, Cause, CheckOutId, CheckOutRequest, Condition, Handle, IdentityId, Output as PoolOutput,
};
use cmap_core::server::{OperationError, ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Output, SelectionErrorKind, Topology, TopologyOptions};
use proptest::prelude::*;

const MAX_POOL_SIZE: u32 = 3;
const MAX_CONNECTING: u32 = 2;

/// A client of one server, and everything that its driver holds.
struct Driver {
    topology: Topology<()>,
    now: Instant,
    /// The first has the credential of the options.
    users: Vec<Option<IdentityId>>,
    max_pool_size: u32,
    pending: Vec<Handle>,
    in_use: Vec<(CheckOutId, Handle)>,
    waiting: BTreeMap<CheckOut, Option<IdentityId>>,
    cleared: usize,
}

impl Driver {
    fn new() -> Self {
        let mut pool_options = PoolOptions::default();
        pool_options.max_pool_size = Some(MAX_POOL_SIZE);
        pool_options.max_connecting = Some(MAX_CONNECTING);
        pool_options.min_pool_size = Some(1);
        pool_options.check_after_idle = Some(Duration::MAX);
        let mut options = TopologyOptions::of_seeds(vec![ServerAddress::tcp("a", 27017)]);
        options.reselect = false;
        let mut topology = Topology::new(options, pool_options).unwrap();
        let now = Instant::from_millis(1);
        topology.open(now);
        let users = vec![None, Some(topology.add_identity(now)), Some(topology.add_identity(now))];
        let mut driver = Self {
            topology,
            now,
            users,
            max_pool_size: MAX_POOL_SIZE,
            pending: Vec::new(),
            in_use: Vec::new(),
            waiting: BTreeMap::new(),
            cleared: 0,
        };
        driver.find();
        driver
    }

    fn server(&self) -> ServerId {
        self.topology.servers().next().unwrap().0
    }

    /// The server answers a check.
    fn find(&mut self) {
        let address = ServerAddress::tcp("a", 27017);
        let mut description = ServerDescription::new(address.into(), ServerType::Standalone);
        description.wire_versions = Some((0, 21));
        self.topology.handle_check(self.now, self.server(), Finding::Description(Box::new(description))).unwrap();
        self.drain();
    }

    fn lose(&mut self) {
        let finding = Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
        self.topology.handle_check(self.now, self.server(), finding).unwrap();
        self.drain();
    }

    fn check_out(&mut self, user: usize) -> CheckOut {
        let identity = self.users[user % self.users.len()];
        let mut request = CheckOutRequest::default();
        request.identity = identity;
        let (check_out, delivery) = self.topology.check_out(self.now, &Criteria::default(), request);
        self.waiting.insert(check_out, identity);
        if let Some(delivery) = delivery {
            self.deliver(delivery.check_out, delivery.connection);
        }
        self.drain();
        check_out
    }

    fn deliver(&mut self, check_out: CheckOutId, connection: Handle) {
        let identity = self.waiting.remove(&CheckOut::Started(check_out)).unwrap();
        assert_eq!(self.topology.identity_of(connection), identity, "it has the credential that was asked for");
        self.in_use.push((check_out, connection));
    }

    fn check_in(&mut self, nth: usize, condition: Condition) {
        if self.in_use.is_empty() {
            return;
        }
        let (check_out, connection) = self.in_use.remove(nth % self.in_use.len());
        let checked_in = self.topology.check_in(self.now, check_out, connection, (), condition).unwrap();
        if let Some(delivery) = checked_in.delivery() {
            self.deliver(delivery.check_out, delivery.connection);
        }
        self.drain();
    }

    fn establish(&mut self, nth: usize) {
        if self.pending.is_empty() {
            return;
        }
        let connection = self.pending.remove(nth % self.pending.len());
        self.topology.handle_established(self.now, connection, ()).unwrap();
        self.drain();
    }

    fn fail(&mut self, nth: usize, phase: Phase) {
        self.fail_with(nth, EstablishError::new(phase, Fault::Other, "refused"));
    }

    fn fail_with(&mut self, nth: usize, error: EstablishError) {
        if self.pending.is_empty() {
            return;
        }
        let connection = self.pending.remove(nth % self.pending.len());
        self.topology.handle_establish_failed(self.now, connection, error).unwrap();
        self.drain();
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        self.topology.handle_timeout(self.now);
        self.drain();
    }

    /// Carries out the outputs, comes back when the topology asks for it, and checks the limits.
    fn drain(&mut self) {
        self.carry_out();
        if self.topology.poll_timeout().is_some_and(|timeout| timeout.at <= self.now) {
            self.topology.handle_timeout(self.now);
            self.carry_out();
        }
        assert!(self.topology.poll_timeout().is_none_or(|timeout| timeout.at > self.now), "a timer spins");
        assert!(self.pending.len() <= MAX_CONNECTING as usize, "maxConnecting holds for all users together");
        // Connections in use may be more for a while after the limit has become smaller.
        let in_use = u32::try_from(self.in_use.len()).unwrap();
        assert!(self.topology.connections() <= self.max_pool_size.max(in_use), "so does maxPoolSize");
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.topology.poll_output() {
            match output {
                Output::Selected { selection, check_out } => {
                    let identity = self.waiting.remove(&CheckOut::Selecting(selection)).unwrap();
                    self.waiting.insert(CheckOut::Started(check_out), identity);
                }
                Output::SelectionFailed { selection, .. } => {
                    self.waiting.remove(&CheckOut::Selecting(selection)).unwrap();
                }
                Output::Pool { output: PoolOutput::Event(event), .. } => {
                    self.cleared += usize::from(event.name() == "ConnectionPoolCleared");
                }
                Output::Pool { output: PoolOutput::Action(action), .. } => match action {
                    Action::Connect { connection } => self.pending.push(connection),
                    Action::Deliver { check_out, connection, .. } => {
                        self.deliver(check_out, connection);
                    }
                    Action::Fail { check_out, .. } => {
                        self.waiting.remove(&CheckOut::Started(check_out)).unwrap();
                    }
                    Action::Interrupt { connection } => self.pending.retain(|&pending| pending != connection),
                    _ => {}
                },
                _ => {}
            }
        }
    }

    /// Connections of the first user are in use, as many as there can be.
    fn fill(&mut self) {
        for _ in 0..MAX_POOL_SIZE {
            self.check_out(0);
            self.establish_all();
        }
        assert_eq!(self.in_use.len(), MAX_POOL_SIZE as usize);
    }

    fn establish_all(&mut self) {
        while !self.pending.is_empty() {
            self.establish(0);
        }
    }

    /// Connections are established and come back, until nobody waits.
    fn settle(&mut self) {
        self.find();
        for _ in 0..200 {
            self.establish(0);
            self.check_in(0, Condition::Usable);
            self.pass(100);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    CheckOut(usize),
    CheckIn(usize, bool),
    Establish(usize),
    Fail(usize, bool),
    Cancel(usize),
    Pass(u64),
    Lose,
    Find,
    Remove(usize),
    Renew(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0_usize..3).prop_map(Step::CheckOut),
        20 => (0_usize..8, prop::bool::weighted(0.9)).prop_map(|(nth, is_usable)| Step::CheckIn(nth, is_usable)),
        20 => (0_usize..8).prop_map(Step::Establish),
        3 => (0_usize..8, any::<bool>()).prop_map(|(nth, of_login)| Step::Fail(nth, of_login)),
        4 => (0_usize..8).prop_map(Step::Cancel),
        8 => (1_u64..600).prop_map(Step::Pass),
        1 => Just(Step::Lose),
        5 => Just(Step::Find),
        1 => (1_usize..3).prop_map(Step::Remove),
        2 => (0_usize..3).prop_map(Step::Renew),
    ]
}

proptest! {
    #[test]
    fn limits_hold_for_all_users_together_and_nobody_starves(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut driver = Driver::new();
        for step in steps {
            match step {
                Step::CheckOut(user) => drop(driver.check_out(user)),
                Step::CheckIn(nth, true) => driver.check_in(nth, Condition::Usable),
                Step::CheckIn(nth, false) => driver.check_in(nth, Condition::Errored),
                Step::Establish(nth) => driver.establish(nth),
                Step::Fail(nth, of_login) => driver.fail(nth, if of_login { Phase::Authenticate } else { Phase::Hello }),
                Step::Cancel(nth) => {
                    let found = driver.waiting.keys().nth(nth).copied();
                    if let Some(check_out) = found {
                        driver.waiting.remove(&check_out);
                        let _ = driver.topology.cancel_check_out(driver.now, check_out);
                        driver.drain();
                    }
                }
                Step::Pass(millis) => driver.pass(millis),
                Step::Lose => driver.lose(),
                Step::Find => driver.find(),
                Step::Remove(user) => {
                    if let Some(identity) = driver.users[user] {
                        driver.topology.remove_identity(driver.now, identity);
                        driver.drain();
                        driver.users[user] = Some(driver.topology.add_identity(driver.now));
                    }
                }
                Step::Renew(user) => {
                    driver.topology.renew_credential(driver.now, driver.users[user]);
                    driver.drain();
                }
            }
        }
        driver.settle();
        prop_assert!(driver.waiting.is_empty(), "{:?} wait for ever", driver.waiting);
        prop_assert!(driver.in_use.is_empty());
        prop_assert_eq!(driver.topology.outdated(), 0, "X-84");
    }
}

#[test]
fn a_waiter_of_another_user_is_served_in_the_order_of_arrival() {
    let mut driver = Driver::new();
    for _ in 0..MAX_POOL_SIZE {
        driver.check_out(0);
        driver.establish(0);
    }
    let other = driver.check_out(1);
    driver.pass(1);
    let same = driver.check_out(0);

    driver.check_in(0, Condition::Usable);
    driver.establish(0);

    assert!(!driver.waiting.contains_key(&other));
    assert!(driver.waiting.contains_key(&same));
}

#[test]
fn a_user_waits_for_all_who_came_before() {
    let mut driver = Driver::new();
    driver.fill();
    for _ in 0..10 {
        driver.check_out(0);
    }
    driver.pass(1);
    let last = driver.check_out(1);

    let mut check_ins = 0;
    while driver.waiting.contains_key(&last) {
        driver.check_in(0, Condition::Usable);
        driver.establish_all();
        check_ins += 1;
    }

    assert_eq!(check_ins, 11);
}

/// The client's own user keeps up one connection, and another user has all others.
fn full_of_another_user() -> Driver {
    let mut driver = Driver::new();
    driver.establish_all();
    for _ in 1..MAX_POOL_SIZE {
        driver.check_out(1);
        driver.establish_all();
    }
    assert_eq!((driver.in_use.len(), driver.topology.connections()), (2, MAX_POOL_SIZE));
    driver
}

#[test]
fn an_outdated_connection_is_replaced_where_other_users_fill_the_pool_x_84() {
    let mut driver = full_of_another_user();

    driver.topology.renew_credential(driver.now, None);
    driver.drain();
    driver.pass(500);
    driver.establish_all();

    assert_eq!((driver.topology.outdated(), driver.topology.connections()), (0, MAX_POOL_SIZE));
}

#[test]
fn a_connection_does_not_go_first_where_only_permits_to_establish_are_taken_x_84() {
    let mut driver = full_of_another_user();
    driver.topology.resize(driver.now, PoolSizes::default().max_pool_size(9)).unwrap();
    driver.max_pool_size = 9;
    for _ in 0..MAX_CONNECTING {
        driver.check_out(2);
    }
    assert_eq!(driver.pending.len(), MAX_CONNECTING as usize);

    driver.topology.renew_credential(driver.now, None);
    driver.drain();

    assert_eq!(driver.topology.outdated(), 1, "there is room for its replacement");
    driver.establish_all();
    driver.pass(500);
    driver.establish_all();
    assert_eq!(driver.topology.outdated(), 0);
}

#[test]
fn a_users_refused_login_clears_nothing_x_92() {
    let mut driver = Driver::new();
    driver.check_out(1);

    while !driver.pending.is_empty() && driver.topology.identity_of(driver.pending[0]).is_none() {
        driver.establish(0);
    }
    driver.fail(0, Phase::Authenticate);

    assert_eq!((driver.cleared, driver.waiting.len()), (0, 0));
}

/// Two users have a connection each, and the first of them, whose credential is that of the options, asks for another one.
fn with_a_login_of_the_first_user() -> Driver {
    let mut driver = Driver::new();
    driver.establish_all();
    driver.check_out(0);
    driver.check_out(1);
    driver.establish_all();
    driver.check_out(0);
    assert_eq!(driver.topology.identity_of(driver.pending[0]), None);
    driver
}

#[test]
fn a_refused_login_of_the_clients_own_user_clears_nothing_while_there_are_other_users_x_92() {
    let mut driver = with_a_login_of_the_first_user();

    driver.fail(0, Phase::Authenticate);

    assert_eq!((driver.cleared, driver.waiting.len()), (0, 0));
    driver.check_out(1);
    assert_eq!(driver.pending.len(), 1, "the server still takes the check-outs of others");
}

#[test]
fn a_login_that_is_refused_by_a_server_that_shuts_down_clears_the_pools_of_all_users() {
    let mut driver = with_a_login_of_the_first_user();

    let error = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(91) }, "shutting down");
    driver.fail_with(0, error);

    assert_eq!(driver.cleared, 2);
}

#[test]
fn a_refused_login_clears_the_pool_again_once_the_other_users_are_removed_sdam_8() {
    let mut driver = with_a_login_of_the_first_user();
    for user in driver.users.clone().into_iter().flatten() {
        driver.topology.remove_identity(driver.now, user);
    }
    driver.drain();

    driver.fail(0, Phase::Authenticate);

    assert_eq!(driver.cleared, 1);
}

#[test]
fn a_failed_check_clears_the_pools_of_all_users() {
    let mut driver = Driver::new();
    driver.check_out(1);
    driver.establish(0);

    driver.lose();

    assert_eq!(driver.cleared, 2);
}

#[test]
fn an_error_on_a_connection_of_a_user_who_was_removed_before_a_clear_is_old_news_sdam_4() {
    let mut driver = Driver::new();
    driver.check_out(1);
    driver.establish_all();
    let (_, connection) = driver.in_use[0];
    driver.topology.remove_identity(driver.now, driver.users[1].unwrap());
    driver.lose();
    driver.find();
    let cleared = driver.cleared;

    let error = OperationError::new(Fault::Network, Cause::new("gone"));
    driver.topology.handle_operation_failed(driver.now, connection, error).unwrap();
    driver.drain();

    assert_eq!(driver.cleared, cleared, "the server has answered since");
}

#[test]
fn an_error_on_a_connection_of_a_user_who_was_removed_since_the_last_clear_speaks_against_the_server() {
    let mut driver = Driver::new();
    driver.check_out(1);
    driver.establish_all();
    let (_, connection) = driver.in_use[0];
    driver.topology.remove_identity(driver.now, driver.users[1].unwrap());

    let error = OperationError::new(Fault::Network, Cause::new("gone"));
    driver.topology.handle_operation_failed(driver.now, connection, error).unwrap();
    driver.drain();

    assert_eq!(driver.cleared, 1);
}

#[test]
fn new_limits_hold_for_all_users() {
    let mut driver = Driver::new();
    driver.check_out(0);
    driver.establish(0);
    driver.check_out(1);
    driver.establish(0);
    while !driver.in_use.is_empty() {
        driver.check_in(0, Condition::Usable);
    }

    driver.topology.resize(driver.now, PoolSizes::default().max_pool_size(1).min_pool_size(0)).unwrap();
    driver.max_pool_size = 1;
    driver.drain();

    assert_eq!(driver.topology.connections(), 1);
}

#[test]
fn a_connection_in_use_is_closed_at_check_in_while_all_users_together_have_too_many() {
    let mut driver = Driver::new();
    // Without listeners a connection comes back by the fast path, if nothing speaks against it.
    driver.topology.observe(false);
    driver.establish_all();
    driver.check_out(0);
    driver.check_out(1);
    driver.establish(0);

    driver.topology.resize(driver.now, PoolSizes::default().max_pool_size(1).min_pool_size(0)).unwrap();
    driver.max_pool_size = 1;
    driver.drain();
    assert_eq!((driver.in_use.len(), driver.topology.connections()), (2, 2));
    driver.check_in(0, Condition::Usable);
    assert_eq!(driver.topology.connections(), 1);
    driver.check_in(0, Condition::Usable);

    assert_eq!(driver.topology.connections(), 1);
}

#[test]
fn a_connection_is_closed_when_it_is_established_while_all_users_together_have_too_many() {
    let mut driver = Driver::new();
    driver.check_out(0);
    driver.establish_all();
    let given_up = driver.check_out(1);
    let _ = driver.topology.cancel_check_out(driver.now, given_up);
    assert_eq!((driver.in_use.len(), driver.pending.len()), (1, 1));
    driver.topology.resize(driver.now, PoolSizes::default().max_pool_size(1).min_pool_size(0)).unwrap();

    driver.establish(0);

    assert_eq!(driver.topology.connections(), 1);
}

#[test]
fn a_connection_that_is_closed_makes_no_room_while_all_users_together_have_too_many() {
    let mut driver = Driver::new();
    driver.check_out(2);
    driver.establish_all();
    driver.check_in(0, Condition::Usable);
    for _ in 0..3 {
        driver.check_out(1);
    }
    assert_eq!((driver.pending.len(), driver.topology.connections()), (2, MAX_POOL_SIZE));

    let sizes = PoolSizes::default().max_pool_size(1).min_pool_size(0).max_connecting(3);
    driver.topology.resize(driver.now, sizes).unwrap();
    driver.drain();

    assert_eq!((driver.pending.len(), driver.topology.connections()), (2, 2));
}

#[test]
fn a_smaller_limit_is_not_exceeded_by_the_minimum_that_comes_with_it() {
    let mut driver = Driver::new();
    driver.check_out(1);
    driver.establish_all();

    driver.topology.resize(driver.now, PoolSizes::default().max_pool_size(1).min_pool_size(1)).unwrap();

    assert_eq!(driver.topology.connections(), 1);
}

#[test]
fn a_check_out_that_waits_for_its_server_fails_at_once_when_its_user_is_removed() {
    let mut driver = Driver::new();
    driver.lose();
    let of_removed = driver.check_out(1);
    let of_another = driver.check_out(2);
    assert!(matches!(of_removed, CheckOut::Selecting(_)));

    driver.topology.remove_identity(driver.now, driver.users[1].unwrap());
    driver.drain();

    assert_eq!(driver.waiting.into_keys().collect::<Vec<_>>(), [of_another]);
}

#[test]
fn a_user_whom_nobody_has_added_gets_no_connection_and_no_pool() {
    let mut driver = Driver::new();
    let stranger = driver.users[2];
    driver.topology.remove_identity(driver.now, stranger.unwrap());
    driver.drain();
    let pools = driver.topology.pools().count();

    let mut request = CheckOutRequest::default();
    request.identity = stranger;
    let (CheckOut::Selecting(selection), None) = driver.topology.check_out(driver.now, Criteria::WRITABLE, request)
    else {
        panic!("no pool is there for it")
    };

    let refused = std::iter::from_fn(|| driver.topology.poll_output()).find_map(|output| match output {
        Output::SelectionFailed { selection: own, error } if own == selection => Some(error.kind.clone()),
        _ => None,
    });
    assert_eq!(refused, stranger.map(SelectionErrorKind::UnknownIdentity));
    assert_eq!(driver.topology.pools().count(), pools);
}

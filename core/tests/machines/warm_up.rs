//! Warm-up of a deployment: which servers it is for, and how it ends. The pool's own part is in the property test.

use core::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::Finding;
use cmap_core::options::{PoolOptions, ReadMode, ReadPreference};
use cmap_core::pool::{self, Action, Cause, CheckOutId, CheckOutRequest, Handle, WarmUpErrorKind};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{
    CheckOut, Criteria, MonitorCall, Output, SelectionErrorKind, ServerSelector, Topology, TopologyOptions,
    WarmUpError, WarmUpId,
};

/// A topology, and what its driver has to do and to tell.
struct Set {
    topology: Topology<()>,
    /// The connections to be established, and their servers.
    connecting: Vec<(String, Handle)>,
    ended: Vec<(WarmUpId, Result<Vec<ServerAddress>, WarmUpError>)>,
    failed: Vec<CheckOutId>,
    /// How often a monitor was asked for a check.
    hurried: usize,
}

const NOW: Instant = Instant::from_millis(1);
const MEMBERS: [&str; 3] = ["one.example", "two.example", "three.example"];

#[test]
fn it_warms_up_the_primary_alone_if_writes_are_meant() {
    let mut set = Set::of(&MEMBERS);

    let warm_up = set.call(|set| set.warm_up(NOW, &Criteria::default(), Some(2)));

    assert_eq!(set.establish(), [("one.example".to_owned(), 2)]);
    assert_eq!(set.ended, [(warm_up, Ok(vec![address("one.example")]))]);
}

#[test]
fn it_ends_at_once_where_a_server_is_too_old_top_38() {
    let mut set = Set::opened(&MEMBERS[..1]);
    let mut old = describe("one.example", ServerType::RsPrimary, &MEMBERS[..1]);
    old.wire_versions = Some((0, 7));
    set.learn(old);

    let warm_up = set.call(|set| set.warm_up(NOW, &Criteria::default(), Some(1)));

    let [(ended, Err(WarmUpError::Selection(error)))] = &set.ended[..] else { panic!("{:?}", set.ended) };
    assert_eq!(*ended, warm_up);
    assert!(matches!(error.kind, SelectionErrorKind::Incompatible(_)), "{error}");
}

#[test]
fn it_ends_when_every_server_that_suits_has_its_connections() {
    let mut set = Set::of(&MEMBERS);

    let warm_up = set.call(|set| set.warm_up(NOW, &nearest(), Some(3)));

    let expected = ["one.example", "three.example", "two.example"].map(|name| (name.to_owned(), 3));
    assert_eq!(set.establish(), expected);
    assert_eq!(set.warm(warm_up), MEMBERS);
}

#[test]
fn servers_that_are_found_while_it_goes_on_are_warmed_up_too() {
    let mut set = Set::opened(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &nearest(), Some(1)));

    set.learn(describe("two.example", ServerType::RsSecondary, &MEMBERS));
    assert_eq!(set.establish(), [("two.example".to_owned(), 1)]);
    assert_eq!(set.ended, [], "two servers have not been checked yet");
    set.learn(describe("one.example", ServerType::RsPrimary, &MEMBERS));
    set.learn(describe("three.example", ServerType::RsSecondary, &MEMBERS));

    assert_eq!(set.establish(), [("one.example".to_owned(), 1), ("three.example".to_owned(), 1)]);
    assert_eq!(set.warm(warm_up), MEMBERS);
}

#[test]
fn a_server_whose_check_fails_does_not_hold_it_up() {
    let mut set = Set::opened(&MEMBERS[..2]);
    let warm_up = set.call(|set| set.warm_up(NOW, &nearest(), Some(1)));
    set.learn(describe("one.example", ServerType::RsPrimary, &MEMBERS[..2]));
    set.establish();
    assert_eq!(set.ended, []);

    set.lose("two.example");

    assert_eq!(set.warm(warm_up), ["one.example"]);
}

#[test]
fn for_writes_it_waits_for_no_secondary() {
    let mut set = Set::opened(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &Criteria::default(), Some(1)));

    set.learn(describe("one.example", ServerType::RsPrimary, &MEMBERS));
    set.establish();

    assert_eq!(set.warm(warm_up), ["one.example"]);
}

#[test]
fn one_to_no_connections_ends_with_the_first_server() {
    let mut set = Set::opened(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &nearest(), Some(0)));

    set.learn(describe("two.example", ServerType::RsSecondary, &MEMBERS));

    assert_eq!(set.warm(warm_up), ["two.example"]);
}

#[test]
fn when_its_time_is_up_the_servers_that_were_found_are_enough() {
    let mut set = Set::opened(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &nearest(), Some(1)));
    set.learn(describe("one.example", ServerType::RsPrimary, &MEMBERS));
    set.establish();

    let ended = set.call(|set| set.cancel_warm_up(NOW, warm_up));

    assert_eq!(ended, Some(Ok(vec![address("one.example")])));
}

#[test]
fn it_waits_for_a_server() {
    let mut set = Set::opened(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &Criteria::default(), Some(1)));
    assert_eq!(set.establish(), []);

    set.learn(describe("one.example", ServerType::RsPrimary, &MEMBERS));

    assert_eq!(set.establish(), [("one.example".to_owned(), 1)]);
    assert_eq!(set.warm(warm_up), ["one.example"]);
}

#[test]
fn while_it_waits_for_a_server_one_check_follows_the_other_mon_3() {
    let mut set = Set::opened(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &Criteria::default(), Some(1)));
    assert_eq!(core::mem::take(&mut set.hurried), 3);

    set.learn(ServerDescription::new(address("one.example").into(), ServerType::Unknown));
    assert_eq!(core::mem::take(&mut set.hurried), 1);

    set.call(|set| set.cancel_warm_up(NOW, warm_up));
    set.learn(ServerDescription::new(address("one.example").into(), ServerType::Unknown));
    assert_eq!(set.hurried, 0);
}

#[test]
fn a_server_that_leaves_does_not_count() {
    let mut set = Set::of(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &nearest(), Some(1)));
    let connecting = core::mem::take(&mut set.connecting);

    set.learn(describe("one.example", ServerType::RsPrimary, &MEMBERS[..2]));
    for (_, connection) in connecting {
        // The one to the server that has left is closed.
        set.call(|set| set.handle_established(NOW, connection, ()).unwrap());
    }

    assert_eq!(set.warm(warm_up), ["one.example", "two.example"]);
}

#[test]
fn the_first_server_that_fails_ends_it() {
    let mut set = Set::of(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &nearest(), Some(1)));
    let (name, connection) = set.connecting.remove(1);

    let refused = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(18) }, "no such user");
    set.call(|set| set.handle_establish_failed(NOW, connection, refused).unwrap());

    let ended = &set.ended;
    let [(id, Err(WarmUpError::Pool(error)))] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!((*id, error.address.to_string()), (warm_up, format!("{name}:27017")));
    assert!(matches!(error.kind, WarmUpErrorKind::Establish(_)), "{error}");
}

#[test]
fn one_that_is_given_up_says_what_it_lacks() {
    let mut set = Set::of(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &Criteria::default(), Some(2)));
    let (_, connection) = set.connecting.remove(0);
    set.call(|set| set.handle_established(NOW, connection, ()).unwrap());

    let error = set.call(|set| set.cancel_warm_up(NOW, warm_up)).unwrap().unwrap_err();

    assert_eq!(
        error.to_string(),
        "The warm-up took longer than it was allowed to (one.example:27017; 1 of 2 connections are established); allow more \
         time, or see why the server takes so long"
    );
    assert_eq!(set.call(|set| set.cancel_warm_up(NOW, warm_up)), None, "it is over");
}

#[test]
fn one_that_is_given_up_late_leaves_no_check_out_unanswered() {
    let mut set = Set::of(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &Criteria::default(), Some(2)));
    let waiting = set.check_out_until(NOW + Duration::from_millis(5));

    let late = NOW + Duration::from_millis(6);
    let _ = set.call(|set| set.cancel_warm_up(late, warm_up));

    assert!(set.fails_when_due(late, waiting));
}

#[test]
fn one_that_fails_late_leaves_no_check_out_at_another_server_unanswered() {
    let mut set = Set::of(&MEMBERS);
    set.call(|set| set.warm_up(NOW, &nearest(), Some(1)));
    let waiting = set.check_out_until(NOW + Duration::from_millis(5));
    let secondary = set.connecting.iter().position(|(name, _)| name != "one.example").unwrap();
    let (_, connection) = set.connecting.remove(secondary);

    let late = NOW + Duration::from_millis(6);
    let refused = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(18) }, "no such user");
    set.call(|set| set.handle_establish_failed(late, connection, refused).unwrap());
    let again = set.call(|set| set.check_out(late, Criteria::WRITABLE, CheckOutRequest::default()));

    assert!(again.1.is_none());
    assert!(set.fails_when_due(late, waiting));
}

#[test]
fn one_that_found_no_server_says_what_is_known() {
    let mut set = Set::opened(&MEMBERS);
    let warm_up = set.call(|set| set.warm_up(NOW, &Criteria::default(), None));

    let Some(Err(WarmUpError::Selection(error))) = set.call(|set| set.cancel_warm_up(NOW, warm_up)) else {
        panic!("no server is known")
    };

    assert_eq!(error.kind, SelectionErrorKind::Timeout);
}

#[test]
fn a_closed_client_ends_those_under_way_and_those_to_come() {
    let mut set = Set::opened(&MEMBERS);
    let waiting = set.call(|set| set.warm_up(NOW, &Criteria::default(), Some(1)));

    set.call(|set| set.close(NOW));
    let late = set.call(|set| set.warm_up(NOW, &Criteria::default(), Some(1)));

    let ended = &set.ended;
    assert_eq!(ended.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [waiting, late]);
    let is_closed = |error: &WarmUpError| matches!(error, WarmUpError::Selection(error) if error.kind == SelectionErrorKind::Closed);
    assert!(ended.iter().all(|(_, result)| result.as_ref().is_err_and(is_closed)), "{ended:?}");
}

impl Set {
    /// A set whose first member is its primary.
    fn of(names: &[&str]) -> Self {
        let mut set = Self::opened(names);
        for (index, name) in names.iter().enumerate() {
            let server_type = if index == 0 { ServerType::RsPrimary } else { ServerType::RsSecondary };
            set.learn(describe(name, server_type, names));
        }
        set
    }

    /// One of which nothing is known yet.
    fn opened(names: &[&str]) -> Self {
        let options = TopologyOptions::of_seeds(names.iter().map(|name| address(name)).collect());
        let topology = Topology::new(options, PoolOptions::default()).unwrap();
        let mut set = Self { topology, connecting: Vec::new(), ended: Vec::new(), failed: Vec::new(), hurried: 0 };
        set.call(|set| set.open(NOW));
        set
    }

    /// Makes a call, and takes its outputs.
    fn call<T>(&mut self, call: impl FnOnce(&mut Topology<()>) -> T) -> T {
        let result = call(&mut self.topology);
        while let Some(output) = self.topology.poll_output() {
            if let Output::Monitor { call: MonitorCall::Call(_), .. } = output {
                self.hurried += 1;
            } else if let Output::Pool { output: pool::Output::Action(Action::Fail { check_out, .. }), .. } = output {
                self.failed.push(check_out);
            } else if let Output::WarmedUp { warm_up, result } = output {
                self.ended.push((warm_up, result));
            } else if let Output::Pool { server, output: pool::Output::Action(Action::Connect { connection }) } = output
            {
                let name = self.topology.server(server).unwrap().description().address.to_string();
                self.connecting.push((name.trim_end_matches(":27017").to_owned(), connection));
            }
        }
        result
    }

    /// A check-out that waits for its connection to the primary.
    fn check_out_until(&mut self, deadline: Instant) -> CheckOutId {
        let mut request = CheckOutRequest::default();
        request.deadline = Some(deadline);
        let (CheckOut::Started(waiting), None) = self.call(|set| set.check_out(NOW, Criteria::WRITABLE, request))
        else {
            panic!("the primary is known, and has no connection yet")
        };
        waiting
    }

    /// Whether the check-out has failed, or its driver comes at once and then it fails.
    fn fails_when_due(&mut self, now: Instant, check_out: CheckOutId) -> bool {
        if !self.failed.contains(&check_out) && self.topology.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            self.call(|set| set.handle_timeout(now));
        }
        self.failed.contains(&check_out)
    }

    fn learn(&mut self, description: ServerDescription) {
        self.check(&description.address.clone(), Finding::Description(Box::new(description)));
    }

    /// A check of the server fails.
    fn lose(&mut self, name: &str) {
        self.check(&address(name), Finding::Failure { fault: Fault::Network, cause: Cause::new("refused") });
    }

    fn check(&mut self, address: &ServerAddress, finding: Finding) {
        let found = self.topology.servers().find(|(_, server)| *server.description().address == *address);
        let server = found.unwrap().0;
        self.call(|set| set.handle_check(NOW, server, finding).unwrap());
    }

    /// The names of the servers that a warm-up, the only one that has ended, has made warm.
    fn warm(&self, warm_up: WarmUpId) -> Vec<String> {
        let [(ended, Ok(servers))] = &self.ended[..] else { panic!("{:?}", self.ended) };
        assert_eq!(*ended, warm_up);
        let mut names: Vec<_> = servers.iter().map(ToString::to_string).collect();
        names.sort_by_key(|name| MEMBERS.iter().position(|member| name.starts_with(member)));
        names.into_iter().map(|name| name.trim_end_matches(":27017").to_owned()).collect()
    }

    /// Establishes connections until no more are asked for; says how many to which server.
    fn establish(&mut self) -> Vec<(String, u32)> {
        let mut established = std::collections::BTreeMap::new();
        while let Some((name, connection)) = self.connecting.pop() {
            self.call(|set| set.handle_established(NOW, connection, ()).unwrap());
            *established.entry(name).or_default() += 1;
        }
        established.into_iter().collect()
    }
}

fn describe(name: &str, server_type: ServerType, members: &[&str]) -> ServerDescription {
    let mut description = ServerDescription::new(address(name).into(), server_type);
    description.wire_versions = Some((0, 21));
    description.set_name = Some("rs".into());
    description.hosts = members.iter().map(|member| format!("{member}:27017")).collect();
    description
}

fn nearest() -> Criteria {
    Criteria { selector: ServerSelector::from(ReadPreference::new(ReadMode::Nearest)), ..Criteria::default() }
}

fn address(name: &str) -> ServerAddress {
    ServerAddress::tcp(name, 27017)
}

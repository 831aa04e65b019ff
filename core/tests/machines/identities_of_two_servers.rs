//! Users who share the limits of several servers: each server has limits of its own, and waiters of its own.

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, CheckOutId, CheckOutRequest, Condition, Handle, IdentityId, Output as PoolOutput};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Output, ServerSelector, Topology, TopologyOptions};

fn address(name: &str) -> ServerAddress {
    ServerAddress::tcp(name, 27017)
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A client of two routers, with one connection to each.
fn client() -> Topology<()> {
    let options = TopologyOptions::of_seeds(["a", "b"].map(address).into());
    let mut pool_options = PoolOptions::default();
    pool_options.max_pool_size = Some(1);
    let mut topology = Topology::new(options, pool_options).unwrap();
    topology.observe(false);
    topology.open(at(1));
    for name in ["a", "b"] {
        let id = topology.servers().find(|(_, it)| *it.description().address == address(name)).unwrap().0;
        let mut description = ServerDescription::new(address(name).into(), ServerType::Mongos);
        description.wire_versions = Some((0, 21));
        topology.handle_check(at(1), id, Finding::Description(Box::new(description))).unwrap();
    }
    topology
}

fn check_out(topology: &mut Topology<()>, millis: u64, name: &str, user: Option<IdentityId>) -> CheckOut {
    let criteria = Criteria { selector: ServerSelector::AnyOf([address(name)].into()), ..Criteria::default() };
    let mut request = CheckOutRequest::default();
    request.identity = user;
    topology.check_out(at(millis), &criteria, request).0
}

/// Establishes what is to be established; the connections that were delivered, and to whom.
fn carry_out(topology: &mut Topology<()>, millis: u64) -> Vec<(CheckOutId, Handle)> {
    let mut delivered = Vec::new();
    while let Some(output) = topology.poll_output() {
        if let Output::Pool { output: PoolOutput::Action(Action::Connect { connection }), .. } = output {
            topology.handle_established(at(millis), connection, ()).unwrap();
        } else if let Output::Pool {
            output: PoolOutput::Action(Action::Deliver { check_out, connection, .. }), ..
        } = output
        {
            delivered.push((check_out, connection));
        }
    }
    delivered
}

#[test]
fn a_waiter_at_one_server_does_not_keep_those_of_another_one_from_their_turn() {
    let mut topology = client();
    let user = topology.add_identity(at(1));
    check_out(&mut topology, 1, "a", None);
    check_out(&mut topology, 1, "b", None);
    let in_use = carry_out(&mut topology, 1);
    let at_a = check_out(&mut topology, 2, "a", Some(user));
    let at_b = check_out(&mut topology, 3, "b", Some(user));
    let behind = check_out(&mut topology, 4, "b", None);

    let (user, connection) = in_use[1];
    let _ = topology.check_in(at(5), user, connection, (), Condition::Usable).unwrap();

    let served: Vec<_> =
        carry_out(&mut topology, 5).into_iter().map(|(check_out, _)| CheckOut::Started(check_out)).collect();
    assert_eq!(served, [at_b], "and neither {at_a:?} nor {behind:?}");
}

#[test]
fn a_users_operations_make_their_server_busy_sel_3() {
    let mut topology = client();
    let user = topology.add_identity(at(1));
    check_out(&mut topology, 1, "a", Some(user));
    check_out(&mut topology, 1, "a", Some(user));
    let busy = topology.servers().find(|(_, it)| *it.description().address == address("a")).unwrap().0;

    for millis in 2..12 {
        let (check_out, _) = topology.check_out(at(millis), Criteria::WRITABLE, CheckOutRequest::default());
        let CheckOut::Started(started) = check_out else { panic!("both suit") };
        assert_ne!(topology.server_of_check_out(started), Some(busy));
        let _ = topology.cancel_check_out(at(millis), check_out);
    }
}

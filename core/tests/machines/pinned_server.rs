//! Check-outs that keep to one server, for cursors and transactions: nothing is selected, and a server that has left is not
//! waited for (PIN-1, X-58).

use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::CheckOutRequest;
use cmap_core::server::{ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{
    CheckOut, Criteria, Output, SelectionDetail, SelectionErrorKind, ServerSelector, Topology, TopologyOptions,
};

const NOW: Instant = Instant::from_millis(1);

fn member(port: u16) -> ServerAddress {
    ServerAddress::tcp("a", port)
}

fn pinned_to(port: u16) -> Criteria {
    Criteria { selector: ServerSelector::Pinned(Arc::new(member(port))), ..Criteria::default() }
}

/// A set whose primary at port 1 names these members.
fn set(ports: &[u16]) -> Topology<()> {
    let options = TopologyOptions::of_seeds(vec![member(1), member(2)]);
    let mut topology = Topology::new(options, PoolOptions::default()).unwrap();
    topology.observe_selections(SelectionDetail::All);
    topology.open(NOW);
    describe(&mut topology, 1, ServerType::RsPrimary, ports);
    topology
}

/// The server at `port` answers a check; returns what follows.
fn describe(topology: &mut Topology<()>, port: u16, server_type: ServerType, members: &[u16]) -> Vec<Output<()>> {
    let mut description = ServerDescription::new(Arc::new(member(port)), server_type);
    description.wire_versions = Some((0, 21));
    description.set_name = Some("rs".into());
    description.hosts = members.iter().map(|port| member(*port).to_string()).collect();
    let server = id(topology, port);
    topology.handle_check(NOW, server, Finding::Description(Box::new(description))).unwrap();
    drain(topology)
}

fn id(topology: &Topology<()>, port: u16) -> ServerId {
    let mut servers = topology.servers();
    servers.find(|(_, server)| *server.description().address == member(port)).unwrap().0
}

fn drain(topology: &mut Topology<()>) -> Vec<Output<()>> {
    std::iter::from_fn(|| topology.poll_output()).collect()
}

fn failures(outputs: &[Output<()>]) -> Vec<SelectionErrorKind> {
    let failure = |output: &Output<()>| match output {
        Output::SelectionFailed { error, .. } => Some(error.kind.clone()),
        _ => None,
    };
    outputs.iter().filter_map(failure).collect()
}

#[test]
fn a_server_that_has_left_fails_the_check_out_at_once_x_58() {
    let mut topology = set(&[1]);

    let _ = topology.check_out(NOW, &pinned_to(2), CheckOutRequest::default());

    assert_eq!(failures(&drain(&mut topology)), [SelectionErrorKind::ServerLeft]);
}

#[test]
fn an_unknown_server_is_waited_for_until_it_leaves_x_58() {
    let mut topology = set(&[1, 2]);
    let (waiting, _) = topology.check_out(NOW, &pinned_to(2), CheckOutRequest::default());
    let before = drain(&mut topology);

    let after = describe(&mut topology, 1, ServerType::RsPrimary, &[1]);

    assert!(matches!(waiting, CheckOut::Selecting(_)));
    assert_eq!((failures(&before), failures(&after)), (vec![], vec![SelectionErrorKind::ServerLeft]));
}

#[test]
fn an_unknown_server_is_waited_for_until_it_is_known_x_58() {
    let mut topology = set(&[1, 2]);
    let (waiting, _) = topology.check_out(NOW, &pinned_to(2), CheckOutRequest::default());
    drain(&mut topology);

    let outputs = describe(&mut topology, 2, ServerType::RsSecondary, &[1, 2]);

    let selected = outputs.into_iter().find_map(|output| match output {
        Output::Selected { selection, .. } => Some(CheckOut::Selecting(selection)),
        _ => None,
    });
    assert_eq!(selected, Some(waiting));
}

#[test]
fn nobody_is_told_of_a_selection_pin_1() {
    let mut topology = set(&[1, 2]);

    let _ = topology.check_out(NOW, &pinned_to(1), CheckOutRequest::default());
    let _ = topology.check_out(NOW, &pinned_to(3), CheckOutRequest::default());

    assert!(!drain(&mut topology).iter().any(|output| matches!(output, Output::Selection(_))));
}

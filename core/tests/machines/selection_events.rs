//! What is told of selections: nothing that nobody asked for, and otherwise each step, in order (SEL-41 to SEL-43).

use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::log::LogRecord;
use cmap_core::monitor::Finding;
use cmap_core::options::{PoolOptions, ReadMode, ReadPreference};
use cmap_core::pool::{Cause, CheckOutRequest};
use cmap_core::server::{ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Operation, Output, SelectionDetail, SelectionEvent, Topology, TopologyOptions};

const NOW: Instant = Instant::from_millis(1);

fn address() -> ServerAddress {
    ServerAddress::tcp("a", 27017)
}

/// The topology of one server, which is not known yet.
fn topology(detail: SelectionDetail) -> Topology<()> {
    let mut topology = Topology::new(TopologyOptions::of_seeds(vec![address()]), PoolOptions::default()).unwrap();
    topology.observe_selections(detail);
    topology.open(NOW);
    told(&mut topology);
    topology
}

fn server(topology: &Topology<()>) -> ServerId {
    topology.servers().next().unwrap().0
}

/// The server answers a check.
fn answer(topology: &mut Topology<()>) {
    let mut description = ServerDescription::new(Arc::new(address()), ServerType::Standalone);
    description.wire_versions = Some((0, 21));
    topology.handle_check(NOW, server(topology), Finding::Description(Box::new(description))).unwrap();
}

fn told(topology: &mut Topology<()>) -> Vec<SelectionEvent> {
    let selection = |output| match output {
        Output::Selection(event) => Some(event),
        _ => None,
    };
    std::iter::from_fn(|| topology.poll_output()).filter_map(selection).collect()
}

fn names(events: &[SelectionEvent]) -> Vec<&'static str> {
    events.iter().map(SelectionEvent::name).collect()
}

#[test]
fn a_selection_that_finds_its_server_at_once_is_told_from_start_to_end() {
    let mut topology = topology(SelectionDetail::All);
    answer(&mut topology);
    told(&mut topology);

    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());

    assert_eq!(names(&told(&mut topology)), ["ServerSelectionStarted", "ServerSelectionSucceeded"]);
}

#[test]
fn a_selection_that_waits_says_so_once_and_for_how_long_it_may_sel_42() {
    let mut topology = topology(SelectionDetail::All);
    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    let waiting = told(&mut topology);
    answer(&mut topology);
    let selected = told(&mut topology);
    // It waits in the pool for its connection, and comes back.
    let failure = Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
    topology.handle_check(NOW, server(&topology), failure).unwrap();

    assert_eq!(names(&waiting), ["ServerSelectionStarted", "ServerSelectionWaiting"]);
    assert!(LogRecord::of_selection(&waiting[1]).to_string().contains("Remaining time: 30000 ms"));
    assert_eq!(names(&selected), ["ServerSelectionSucceeded"]);
    assert_eq!(names(&told(&mut topology)), ["ServerSelectionStarted"], "that it waits was told");
}

#[test]
fn a_selection_that_fails_says_why_and_describes_the_servers_once_sel_42() {
    let mut topology = topology(SelectionDetail::All);
    let criteria = Criteria {
        selector: ReadPreference::new(ReadMode::Secondary).into(),
        operation: Some(Arc::new(Operation { id: 7, name: "find".into() })),
        ..Criteria::default()
    };
    let deadline = NOW + Duration::from_secs(1);
    let _ = topology.check_out(NOW, &criteria, CheckOutRequest::until(deadline));
    told(&mut topology);

    topology.handle_timeout(deadline);

    let events = told(&mut topology);
    assert_eq!(names(&events), ["ServerSelectionFailed"]);
    assert_eq!(
        LogRecord::of_selection(&events[0]).to_string(),
        "Server selection failed for operation find with ID 7 using selector \"reads (mode secondary)\". Failure: no server \
         became suitable for reads (mode secondary) within 1s. Topology description: Unknown, a:27017 Unknown"
    );
}

#[test]
fn only_selections_that_wait_are_told_to_those_who_want_no_more() {
    let mut topology = topology(SelectionDetail::Waiting);

    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    answer(&mut topology);
    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());

    assert_eq!(names(&told(&mut topology)), ["ServerSelectionWaiting"]);
}

#[test]
fn nothing_is_told_that_nobody_asked_for() {
    let mut topology = topology(SelectionDetail::None);

    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    answer(&mut topology);
    topology.close(NOW);
    let _ = topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());

    assert_eq!(told(&mut topology), []);
}

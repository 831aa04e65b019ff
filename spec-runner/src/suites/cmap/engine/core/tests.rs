//! The virtual network and server: their effects on connections, and that a seed decides everything.

use core::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{Fault, Phase};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{CheckOutErrorKind, CheckOutRequest, Condition, Pool};
use cmap_core::time::Instant;
use cmap_core::topology::Topology;
use cmap_test_server::fail_command::FailCommand;

use super::network::{Network, VirtualServer};
use super::simulation::{News, Simulation};
use crate::suites::cmap::format::NetworkMode;

fn simulation(network: Network, server: VirtualServer, seed: u64) -> Simulation {
    let pool = Pool::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), Instant::ORIGIN).unwrap();
    let mut simulation = Simulation::new(pool, network, server, seed);
    simulation.call(Topology::ready).unwrap();
    simulation
}

/// Runs a simulation until nothing is left to happen, and returns all its news.
fn run(simulation: &mut Simulation) -> Vec<News> {
    loop {
        while simulation.step() {}
        match simulation.next_at() {
            Some(next) => simulation.wait_until(next),
            None => return std::iter::from_fn(|| simulation.poll_news()).collect(),
        }
    }
}

/// The phase, the fault and the moment of the one establishment that fails.
fn failure(mut simulation: Simulation) -> (Phase, Fault, Duration) {
    simulation.check_out(CheckOutRequest::default());
    let failed = run(&mut simulation).into_iter().find_map(|news| match news {
        News::CheckedOut(_, result) => result.err(),
        News::Event(_) | News::WarmedUp(..) => None,
    });
    let failed = failed.unwrap();
    let CheckOutErrorKind::Establish(error) = &failed.kind else { unreachable!("{failed}") };
    (error.phase, error.fault, failed.waited)
}

fn network(mode: NetworkMode) -> Network {
    Network { mode, latency: Duration::from_millis(5), jitter: Duration::ZERO }
}

fn failing(data: RawDocumentBuf) -> VirtualServer {
    let command = rawdoc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data };
    VirtualServer { fail_point: FailCommand::read(&command).unwrap(), auth: true, ..VirtualServer::default() }
}

#[test]
fn a_seed_decides_everything() {
    let story = |seed| {
        let network = Network { mode: NetworkMode::Up, latency: Duration::ZERO, jitter: Duration::from_millis(3) };
        let mut simulation = simulation(network, VirtualServer::default(), seed);
        for _ in 0..5 {
            simulation.check_out(CheckOutRequest::default());
        }
        format!("{:?}", run(&mut simulation))
    };

    assert_eq!(story(7), story(7));
    assert!((0..10).any(|seed| story(seed) != story(7)));
}

#[test]
fn each_kind_of_network_fails_in_its_own_way() {
    let of = |mode| failure(simulation(network(mode), VirtualServer::default(), 1));

    assert_eq!(of(NetworkMode::Refuse), (Phase::Connect, Fault::Network, Duration::from_millis(5)));
    assert_eq!(of(NetworkMode::Reset), (Phase::Hello, Fault::Network, Duration::from_millis(10)));
    assert_eq!(of(NetworkMode::Hang), (Phase::Connect, Fault::Timeout, Duration::from_secs(10)));
}

#[test]
fn a_fail_point_fails_the_command_it_names() {
    let of = |data| failure(simulation(network(NetworkMode::Up), failing(data), 1));

    assert_eq!(
        of(rawdoc! { "failCommands": ["hello"], "errorCode": 91, "blockConnection": true, "blockTimeMS": 100 }),
        (Phase::Hello, Fault::Server { code: Some(91) }, Duration::from_millis(110))
    );
    assert_eq!(
        of(rawdoc! { "failCommands": ["saslContinue"], "closeConnection": true }),
        (Phase::Authenticate, Fault::Network, Duration::from_millis(20))
    );
}

#[test]
fn connect_timeout_bounds_the_whole_establishment_x_17() {
    let server = failing(rawdoc! { "failCommands": ["saslStart"], "blockConnection": true, "blockTimeMS": 60_000 });
    let mut simulation = simulation(network(NetworkMode::Up), server, 1);
    simulation.connect_timeout = Duration::from_millis(300);

    assert_eq!(failure(simulation), (Phase::Authenticate, Fault::Timeout, Duration::from_millis(300)));
}

#[test]
fn a_peer_that_hung_up_unnoticed_is_found_before_the_next_delivery() {
    let mut simulation = simulation(network(NetworkMode::Up), VirtualServer::default(), 1);
    simulation.check_out(CheckOutRequest::default());
    let delivered = run(&mut simulation).into_iter().find_map(|news| match news {
        News::CheckedOut(check_out, result) => result.ok().map(|connection| (check_out, connection)),
        News::Event(_) | News::WarmedUp(..) => None,
    });
    let (check_out, connection) = delivered.unwrap();
    simulation.check_in(check_out, connection, Condition::Usable).unwrap();
    simulation.hang_up(connection, false).unwrap();
    simulation.wait_until(simulation.now() + Duration::from_secs(2));

    simulation.check_out(CheckOutRequest::default());

    let events: Vec<_> = run(&mut simulation)
        .into_iter()
        .filter_map(|news| if let News::Event(event) = news { Some(event.name()) } else { None })
        .collect();
    assert_eq!(
        events,
        [
            "ConnectionCheckedIn",
            "ConnectionCheckOutStarted",
            "ConnectionClosed",
            "ConnectionCreated",
            "ConnectionReady",
            "ConnectionCheckedOut"
        ]
    );
}

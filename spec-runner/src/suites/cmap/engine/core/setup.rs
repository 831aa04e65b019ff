//! The surroundings of a test: the pool with its options, the network, and the server.

use core::time::Duration;
use std::collections::BTreeMap;

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptionsError;
use cmap_core::pool::{IdentityId, Pool, ServiceId};
use cmap_core::time::Instant;
use cmap_core::topology::Topology;

use super::network::{Network, VirtualServer};
use super::simulation::Simulation;
use crate::suites::cmap::format::{Case, Login, NetworkMode, ServerOptions};

/// The simulation of `case` under `seed`. Seeds differ in how long a round trip takes: from no time at all to 2 ms.
pub(super) fn simulation(case: &Case, seed: u64) -> Result<Simulation, PoolOptionsError> {
    let mut options = case.pool_options.to_core();
    options.seed = seed;
    let pool = Pool::new(ServerAddress::tcp("server.example", 27017), options, Instant::ORIGIN)?;
    let jitter = Duration::from_micros([0, 100, 1000, 2000][usize::try_from(seed % 4).unwrap_or_default()]);
    let network = Network { mode: NetworkMode::Up, latency: Duration::ZERO, jitter };
    let server = VirtualServer {
        fail_point: case.fail_point.as_ref().map(|fail_point| fail_point.sets().clone()).unwrap_or_default(),
        auth: case.server.auth,
        refused: Vec::new(),
        service_ids: (0..case.server.service_ids.len()).map(service_id).collect(),
        app_name: case.pool_options.app_name.clone(),
    };
    let mut simulation = Simulation::new(pool, network, server, seed);
    if let Some(millis) = case.server.connect_timeout_ms {
        simulation.connect_timeout = Duration::from_millis(millis.into());
    }
    Ok(simulation)
}

/// Adds the further users of `case`.
pub(super) fn add_users<'a>(case: &'a Case, simulation: &mut Simulation) -> BTreeMap<&'a str, IdentityId> {
    let mut users = BTreeMap::new();
    for (name, login) in &case.server.users {
        let user = simulation.call(Topology::add_identity);
        users.insert(name.as_str(), user);
        if *login == Login::Refused {
            simulation.virtual_server.refused.push(user);
        }
    }
    users
}

/// The id of the service that the test calls `name`.
pub(super) fn service_named(server: &ServerOptions, name: &str) -> Option<ServiceId> {
    server.service_ids.iter().position(|own| own == name).map(service_id)
}

/// The test's name for the service.
pub(super) fn service_name(server: &ServerOptions, id: ServiceId) -> Option<&str> {
    let index = (0..server.service_ids.len()).find(|&index| service_id(index) == id)?;
    server.service_ids.get(index).map(String::as_str)
}

fn service_id(index: usize) -> ServiceId {
    let [a, b, c, d, ..] = index.to_le_bytes();
    ServiceId([0, 0, 0, 0, 0, 0, 0, 0, d, c, b, a])
}

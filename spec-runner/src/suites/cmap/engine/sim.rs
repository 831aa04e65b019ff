//! The engine `sim`: the public pool in virtual time, with its sockets, timers and tasks, against a virtual server.
//!
//! What happens is what happens on the engines with real sockets; only the runtime is another. So every test can be
//! carried out, under many seeds: the server and the network obey.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::options::ClientOptions;
use cmap_core::pool::ServiceId;
use cmap_runtime::bson::{RawDocument, rawdoc};
use cmap_sim::{Reachability, Server, ServerConfig, Sim, SimRuntime};

use super::sockets::control::VirtualServer;
use super::sockets::session;
use super::{Chance, Engine, Run, users};
use crate::suites::cmap::format::{Case, Deployment, NetworkMode, Operation, OperationError};

/// The public pool, in a simulation.
pub(super) struct SimEngine;

/// The name of the server's host.
const HOST: &str = "server.example";

/// A server and the network before it, which do what the test says.
struct Obedient {
    sim: Arc<Sim>,
    server: Server,
    services: usize,
    /// How much longer than its least time a message may be on its way.
    jitter: Duration,
}

impl Engine for SimEngine {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn chance(&self) -> Chance {
        Chance::Seeded
    }

    fn deployment(&self) -> Deployment {
        Deployment::VIRTUAL
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        let uses = |is_it: fn(&Operation) -> bool| case.operations.iter().any(|step| is_it(&step.operation));
        if uses(|operation| matches!(operation, Operation::HangUp { noticed: true, .. })) {
            Some("needs a client that watches idle sockets; the adapters look when they use them".into())
        } else {
            None
        }
    }

    fn run(&self, case: &Case, seed: u64) -> Run {
        let options = match options(case) {
            Ok(options) => options,
            Err(problem) => return Run { violations: vec![problem], ..Run::default() },
        };
        let sim = Arc::new(Sim::new(seed));
        let services = case.server.service_ids.len();
        let server = match services {
            0 => sim.server_with(HOST, |config| configure(config, case)),
            _ => sim.load_balancer(HOST, services, |config| configure(config, case)),
        };
        // As on the engine `core`: from no time at all to 2 ms.
        let jitter = Duration::from_micros([0, 50, 500, 1000][usize::try_from(seed % 4).unwrap_or_default()]);
        let obedient = Arc::new(Obedient { sim: Arc::clone(&sim), server, services, jitter });
        obedient.set_network(NetworkMode::Up, Some(Duration::ZERO));
        let run = session::run::<SimRuntime>(Arc::new(case.clone()), &options, Some(obedient), |pool| pool);
        sim.try_run(run).unwrap_or_else(|stuck| Run { violations: vec![stuck.to_string()], ..Run::default() })
    }
}

impl VirtualServer for Obedient {
    fn run_command(&self, command: &RawDocument) -> Result<(), String> {
        // One that counts is one for all services: the next connection meets it.
        let counts = command.get_document("mode").is_ok();
        let replies = match counts {
            true => self.server.run_command_at_next("admin", command).into_iter().collect(),
            false => self.server.run_command("admin", command),
        };
        for reply in replies {
            if !reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) {
                return Err(format!("the server refused {command:?}: {reply:?}"));
            }
        }
        Ok(())
    }

    fn service_ids(&self) -> Vec<ServiceId> {
        if self.services == 0 {
            return Vec::new();
        }
        let hellos = self.server.run_command("admin", rawdoc! { "hello": 1, "loadBalanced": true });
        let ids = hellos.iter().filter_map(|hello| hello.get_object_id("serviceId").ok());
        ids.map(|id| ServiceId(id.bytes())).collect()
    }

    fn fail(&self, connection: i64, failed: OperationError) {
        match failed {
            OperationError::Network => self.server.reset_connection(connection),
            OperationError::Timeout => self.server.lose(connection),
            OperationError::Other => false,
        };
    }

    fn hang_up(&self, connection: i64) {
        self.server.hang_up(connection);
    }

    fn set_network(&self, mode: NetworkMode, latency: Option<Duration>) {
        self.server.set_reachability(match mode {
            NetworkMode::Up => Reachability::Up,
            NetworkMode::Refuse => Reachability::Refuses,
            NetworkMode::Hang => Reachability::Silent,
            NetworkMode::Reset => Reachability::Resets,
        });
        if let Some(round_trip) = latency {
            let least = round_trip / 2;
            self.sim.set_pace(least..=least + self.jitter, None);
        }
    }
}

fn configure(config: &mut ServerConfig, case: &Case) {
    config.authorization = case.server.auth;
    if case.server.auth {
        config.users = users::at_server(case);
        // The fewest that a client accepts (AUTH-13).
        config.iterations = (4096, 4096);
    }
}

fn options(case: &Case) -> Result<ClientOptions, String> {
    let login = users::login(case);
    let parsed = ClientOptions::parse(&format!("mongodb://{login}{HOST}/"));
    parsed.map(|(options, _)| options).map_err(|error| error.to_string())
}

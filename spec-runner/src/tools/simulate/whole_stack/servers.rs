//! The servers of a run: their documents, and the faults that befall them.

use std::time::Duration;

use cmap_sim::bson::rawdoc;
use cmap_sim::{Data, DeploymentConfig, Server, Servers, Sim};

use super::plan::{DOCUMENTS, Fault, Trouble};
use crate::tools::simulate::step::Deployment;

/// MongoDB's port.
const PORT: u16 = 27017;

/// For how long a primary that stepped down is not elected.
const STEP_DOWN: Duration = Duration::from_secs(10);

/// One server, or several that belong together.
pub(super) enum Target {
    One(Server),
    Several(Servers),
}

impl Target {
    /// Starts them, with the documents that are read.
    pub(super) fn start(sim: &Sim, deployment: Deployment) -> Self {
        let hosts = deployment.hosts();
        let target = match deployment {
            Deployment::Standalone => Self::One(sim.server(hosts[0])),
            // One service: those of a simulation do not share their documents.
            Deployment::LoadBalanced => Self::One(sim.load_balancer(hosts[0], 1, |_| ())),
            Deployment::ReplicaSet => Self::Several(sim.replica_set("rs", hosts)),
            // `run` refuses a seed list, which would be such a cluster with DNS.
            Deployment::Sharded | Deployment::SeedList => Self::Several(sim.deployment(|server| {
                DeploymentConfig::sharded(server, hosts.iter().map(|host| format!("{host}:{PORT}")))
            })),
        };
        for number in 0..DOCUMENTS {
            let number = i64::try_from(number).unwrap_or_default();
            let insert = rawdoc! { "insert": "numbers", "documents": [{ "_id": number }] };
            match &target {
                Self::One(server) => drop(server.run_command("db", insert)),
                Self::Several(servers) => {
                    let first = servers.primary().or_else(|| servers.members().first().map(|(member, _)| *member));
                    drop(first.and_then(|member| servers.run_command(member, "db", insert)));
                }
            }
        }
        target
    }

    pub(super) fn uri(&self, query: &str) -> String {
        match self {
            Self::One(server) => server.uri(query),
            Self::Several(servers) => servers.uri(query),
        }
    }

    /// Lets a fault happen, from its beginning to its end.
    pub(super) async fn suffer(&self, sim: &Sim, fault: Fault) {
        sim.sleep(fault.pause).await;
        match self {
            Self::One(server) => one_suffers(sim, server, fault).await,
            Self::Several(servers) => several_suffer(sim, servers, fault).await,
        }
    }
}

async fn one_suffers(sim: &Sim, server: &Server, fault: Fault) {
    match fault.trouble {
        Trouble::Crash => {
            server.crash();
            sim.sleep(fault.lasts).await;
            server.restart(Data::Kept);
        }
        Trouble::Partition => {
            server.partition();
            sim.sleep(fault.lasts).await;
            server.heal();
        }
        Trouble::SwitchOff => {
            server.switch_off();
            sim.sleep(fault.lasts).await;
            server.restart(Data::Kept);
        }
        Trouble::Hang => {
            server.hang(true);
            sim.sleep(fault.lasts).await;
            server.hang(false);
        }
        Trouble::ResetConnections => server.reset_connections(),
        Trouble::LoseConnection => drop(server.lose_connection()),
        // A standalone server has no primary.
        Trouble::StepDown => {}
    }
}

async fn several_suffer(sim: &Sim, servers: &Servers, fault: Fault) {
    let Some((member, _)) = servers.members().get(fault.server).cloned() else { return };
    match fault.trouble {
        Trouble::Crash | Trouble::SwitchOff => {
            servers.kill(member);
            sim.sleep(fault.lasts).await;
            servers.restart(member);
        }
        Trouble::Partition => {
            servers.partition(member);
            sim.sleep(fault.lasts).await;
            servers.heal(member);
        }
        Trouble::StepDown => servers.step_down(STEP_DOWN),
        // Faults of single connections are a standalone server's.
        Trouble::Hang | Trouble::ResetConnections | Trouble::LoseConnection => {}
    }
}

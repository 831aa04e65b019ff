//! The servers of a run, and their documents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use cmap_sim::bson::rawdoc;
use cmap_sim::{DeploymentConfig, MemberConfig, Server, Servers, SetConfig, Sim};

use super::place::Place;
use super::plan::DOCUMENTS;
use crate::tools::simulate::step::Deployment;

/// MongoDB's port.
const PORT: u16 = 27017;

/// The set's name.
const SET: &str = "rs";

/// The servers: a handle, whose clones are one.
#[derive(Clone)]
pub(super) struct Target {
    what: What,
    /// The version of a set's configuration.
    pub(super) version: Arc<AtomicI32>,
}

/// One server, or several that belong together.
#[derive(Clone)]
enum What {
    One(Server),
    Several(Servers),
}

impl Target {
    /// Starts them, with the documents that are read.
    pub(super) fn start(sim: &Sim, deployment: Deployment) -> Self {
        let hosts = deployment.hosts();
        let what = match deployment {
            Deployment::Standalone => What::One(sim.server(hosts[0])),
            // One service: those of a simulation do not share their documents.
            Deployment::LoadBalanced => What::One(sim.load_balancer(hosts[0], 1, |_| ())),
            Deployment::ReplicaSet => What::Several(sim.replica_set(SET, hosts)),
            // `run` refuses a seed list, which would be such a cluster with DNS.
            Deployment::Sharded | Deployment::SeedList => What::Several(sim.deployment(|server| {
                DeploymentConfig::sharded(server, hosts.iter().map(|host| format!("{host}:{PORT}")))
            })),
        };
        let target = Self { what, version: Arc::new(AtomicI32::new(1)) };
        target.fill();
        target
    }

    /// Writes the documents that are read.
    pub(super) fn fill(&self) {
        for number in 0..DOCUMENTS {
            let number = i64::try_from(number).unwrap_or_default();
            let insert = rawdoc! { "insert": "numbers", "documents": [{ "_id": number }] };
            drop(self.main().and_then(|place| place.run_command("db", &insert)));
        }
    }

    pub(super) fn uri(&self, query: &str) -> String {
        match &self.what {
            What::One(server) => server.uri(query),
            What::Several(servers) => servers.uri(query),
        }
    }

    /// One of them by its number.
    pub(super) fn place(&self, number: usize) -> Option<Place<'_>> {
        self.places().into_iter().nth(number)
    }

    pub(super) fn places(&self) -> Vec<Place<'_>> {
        match &self.what {
            What::One(server) => vec![Place::One(server)],
            What::Several(servers) => {
                servers.members().into_iter().map(|(member, _)| Place::Member(servers, member)).collect()
            }
        }
    }

    /// The server that stands alone, if it does.
    pub(super) fn alone(&self) -> Option<&Server> {
        match &self.what {
            What::One(server) => Some(server),
            What::Several(_) => None,
        }
    }

    pub(super) fn several(&self) -> Option<&Servers> {
        match &self.what {
            What::One(_) => None,
            What::Several(servers) => Some(servers),
        }
    }

    /// How often each order is there.
    pub(super) fn orders(&self) -> Option<BTreeMap<u64, u64>> {
        let find = rawdoc! { "find": "orders", "filter": { "order": { "$exists": true } }, "batchSize": 1_000_000 };
        let reply = self.main()?.run_command("db", &find)?;
        let batch = reply.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
        let mut orders = BTreeMap::new();
        for document in batch.into_iter().flatten() {
            let number = document.as_document()?.get_i64("order").ok()?;
            *orders.entry(u64::try_from(number).ok()?).or_default() += 1;
        }
        Some(orders)
    }

    /// Where everything is that was written.
    fn main(&self) -> Option<Place<'_>> {
        match &self.what {
            What::One(server) => Some(Place::One(server)),
            What::Several(servers) => {
                let first = || servers.members().first().map(|(member, _)| *member);
                servers.primary().or_else(first).map(|member| Place::Member(servers, member))
            }
        }
    }
}

/// The configuration of a set with all its members but one.
pub(super) fn configuration(servers: &Servers, version: i32, without: Option<usize>) -> SetConfig {
    let members = servers.members().into_iter().enumerate().filter(|(number, _)| Some(*number) != without);
    let members = members.map(|(_, (member, host))| MemberConfig::new(member.get(), host)).collect();
    let mut set = SetConfig::new(SET, members);
    set.version = version;
    set
}

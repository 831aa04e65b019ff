//! The servers of a deployment: their setup, their addresses, and the data that tests put into them.

use bson::{Document, RawDocument, RawDocumentBuf, doc};
use cmap_sim::{DeploymentConfig, MemberConfig, Server, ServerConfig, SetConfig, Sim, User};
use cmap_test_server::ServerVersion;

use crate::suites::requirement::Topology;
use crate::suites::unified::failure::Failure;
use crate::suites::unified::format::{CollectionData, Deployment};

/// The name of the only user, and the password.
const USER: (&str, &str) = ("user", "pencil");

/// The access token of the only user.
pub(super) const TOKEN: &str = "token-of-the-user";

/// Few, since every test derives keys anew; no fewer are accepted (AUTH-14).
const ITERATIONS: u32 = 4096;

/// The port of every server.
const PORT: u16 = 27017;

/// The name of the replica set.
const SET: &str = "rs";

/// The hosts of the members of a replica set, or of the mongos of a cluster.
const HOSTS: [&str; 3] = ["a.example", "b.example", "c.example"];

/// The servers of a deployment.
pub(super) enum Servers {
    One(Server),
    /// A load balancer before one service, and one before two.
    Balancers([Server; 2]),
    /// A replica set of three members, or two mongos.
    Together(cmap_sim::Servers),
}

impl Servers {
    pub(super) fn start(sim: &Sim, deployment: Deployment) -> Self {
        let configure = |config: &mut ServerConfig| {
            *config = config.clone().with_version(ServerVersion::V8_0);
            config.iterations = (ITERATIONS, ITERATIONS);
            if deployment.auth {
                // Clients log in because they have a credential. Filling collections needs none.
                config.users = vec![User::with_password(USER.0, USER.1), User::with_token(USER.0, TOKEN)];
            }
        };
        let configured = |mut config| {
            configure(&mut config);
            config
        };
        match deployment.topology {
            Topology::Single => Self::One(sim.server_with("server.example", configure)),
            Topology::LoadBalanced => {
                let balancer = |host, services| sim.load_balancer(host, services, configure);
                Self::Balancers([balancer("balancer.example", 1), balancer("balancers.example", 2)])
            }
            Topology::ReplicaSet => Self::Together(sim.deployment(|config| {
                let members = (0..).zip(HOSTS).map(|(id, host)| MemberConfig::new(id, format!("{host}:{PORT}")));
                DeploymentConfig::replica_set(configured(config), SetConfig::new(SET, members.collect()))
            })),
            Topology::Sharded | Topology::ShardedReplicaSet => Self::Together(sim.deployment(|config| {
                let hosts = HOSTS.iter().take(2).map(|host| format!("{host}:{PORT}"));
                DeploymentConfig::sharded(configured(config), hosts)
            })),
        }
    }

    /// How clients reach them: all mongos, or the load balancer with several services, if `multiple`.
    pub(super) fn uri(&self, deployment: Deployment, multiple: bool) -> String {
        let credential = if deployment.auth { format!("{}:{}@", USER.0, USER.1) } else { String::new() };
        let at = |hosts: &[String], options: &str| format!("mongodb://{credential}{}/?{options}", hosts.join(","));
        match self {
            Self::One(server) => at(&[format!("{}:{PORT}", server.name())], ""),
            Self::Balancers([one, several]) => {
                let balancer = if multiple { several } else { one };
                at(&[format!("{}:{PORT}", balancer.name())], "loadBalanced=true")
            }
            Self::Together(servers) => {
                let mut hosts: Vec<_> = servers.members().into_iter().map(|(_, host)| host).collect();
                if deployment.topology == Topology::ReplicaSet {
                    return at(&hosts, &format!("replicaSet={SET}"));
                }
                hosts.truncate(if multiple { hosts.len() } else { 1 });
                at(&hosts, "")
            }
        }
    }

    /// Puts these documents, and no others, into a collection of every service.
    pub(super) fn fill(&self, data: &CollectionData) -> Result<(), Failure> {
        let CollectionData { database_name: database, collection_name: collection, create_options, documents } = data;
        // The collection may not exist.
        let _ = self.run(database, &doc! { "drop": collection });
        if documents.is_empty() || create_options.is_some() {
            let mut create = doc! { "create": collection };
            create.extend(create_options.iter().flat_map(|options| options.0.clone()));
            self.run(database, &create)?;
        }
        if documents.is_empty() {
            return Ok(());
        }
        let documents: Vec<Document> = documents.iter().map(|document| document.0.clone()).collect();
        self.run(database, &doc! { "insert": collection, "documents": documents }).map(drop)
    }

    /// The contents of a collection, by rising `_id`.
    pub(super) fn content(&self, database: &str, collection: &str) -> Result<Vec<Document>, Failure> {
        let find = doc! { "find": collection, "sort": { "_id": 1 }, "batchSize": 10_000 };
        let reply = self.ask(database, &find)?;
        let cursor = reply.get_document("cursor").map_err(|_| Failure::client("the reply has no cursor"))?;
        let batch = cursor.get_array("firstBatch").map(Vec::as_slice).unwrap_or_default();
        Ok(batch.iter().filter_map(|document| document.as_document().cloned()).collect())
    }

    /// The reply to a command, in no time. Services behind load balancers share no documents: that of the one with the most writes,
    /// which is the one that the test has written to.
    pub(super) fn ask(&self, database: &str, command: &Document) -> Result<Document, Failure> {
        let Self::Balancers(balancers) = self else { return self.run(database, command) };
        let body = body(command)?;
        let replies: Vec<_> = balancers.iter().flat_map(|balancer| balancer.run_command(database, &body)).collect();
        let writes = |reply: &RawDocumentBuf| reply.get_timestamp("operationTime").map(|time| time.increment).ok();
        // Of several with as many, the first.
        let latest = replies.iter().rev().max_by_key(|reply| writes(reply));
        read(latest.ok_or_else(|| Failure::client("the servers do not answer"))?)
    }

    /// Runs a command at each service, in no time, or at the primary. Returns the first reply.
    fn run(&self, database: &str, command: &Document) -> Result<Document, Failure> {
        match self {
            Self::One(server) => run_at(server, database, command),
            Self::Balancers(balancers) => {
                let [one, several] = balancers.each_ref().map(|balancer| run_at(balancer, database, command));
                several.and(one)
            }
            Self::Together(servers) => {
                let member = servers.primary().or_else(|| servers.members().first().map(|(member, _)| *member));
                let reply = member.and_then(|member| servers.run_command(member, database, body(command).ok()?));
                read(&reply.ok_or_else(|| Failure::client("the servers do not answer"))?)
            }
        }
    }
}

/// Runs a command at each service of a server, in no time. Returns the first one's reply.
fn run_at(server: &Server, database: &str, command: &Document) -> Result<Document, Failure> {
    let mut first = Err(Failure::client("the server does not answer"));
    for reply in server.run_command(database, body(command)?).into_iter().rev() {
        first = read(&reply);
    }
    first
}

fn body(command: &Document) -> Result<RawDocumentBuf, Failure> {
    RawDocumentBuf::try_from(command).map_err(|error| Failure::client(error.to_string()))
}

fn read(reply: &RawDocument) -> Result<Document, Failure> {
    let reply = Document::try_from(reply).map_err(|error| Failure::client(error.to_string()))?;
    Failure::of_reply(&reply).map_or(Ok(reply), Err)
}

//! The servers of a deployment: their setup, their addresses, and the data that tests put into them.

use bson::{Document, RawDocumentBuf, doc};
use cmap_sim::{Server, ServerConfig, Sim, User};

use crate::suites::requirement::Topology;
use crate::suites::unified::failure::Failure;
use crate::suites::unified::format::{CollectionData, Deployment};

/// The name of the only user, and the password.
const USER: (&str, &str) = ("user", "pencil");

/// Few, since every test derives keys anew; no fewer are accepted (AUTH-14).
const ITERATIONS: u32 = 4096;

/// A load balancer before one service and one before two; otherwise one server.
pub(super) fn start(sim: &Sim, deployment: Deployment) -> Vec<Server> {
    let configure = |config: &mut ServerConfig| {
        config.replica_set = (deployment.topology == Topology::ReplicaSet).then(|| "rs".into());
        config.iterations = (ITERATIONS, ITERATIONS);
        if deployment.auth {
            // Clients log in because they have a credential. Filling collections needs none.
            config.users = vec![User::with_password(USER.0, USER.1)];
        }
    };
    match deployment.topology {
        Topology::LoadBalanced => {
            let balancer = |host, services| sim.load_balancer(host, services, configure);
            vec![balancer("balancer.example", 1), balancer("balancers.example", 2)]
        }
        Topology::Single | Topology::ReplicaSet | Topology::Sharded | Topology::ShardedReplicaSet => {
            vec![sim.server_with("server.example", configure)]
        }
    }
}

/// The server that clients reach: behind a load balancer, the one with several services if `multiple`.
pub(super) fn reached(servers: &[Server], multiple: bool) -> usize {
    usize::from(multiple && servers.len() > 1)
}

/// How clients reach `server`.
pub(super) fn uri(deployment: Deployment, server: Option<&Server>) -> String {
    let credential = if deployment.auth { format!("{}:{}@", USER.0, USER.1) } else { String::new() };
    let options = match deployment.topology {
        Topology::LoadBalanced => "?loadBalanced=true",
        Topology::ReplicaSet => "?directConnection=true",
        Topology::Single | Topology::Sharded | Topology::ShardedReplicaSet => "",
    };
    format!("mongodb://{credential}{}:27017/{options}", server.map_or("", Server::name))
}

/// Puts these documents, and no others, into a collection of every service.
pub(super) fn fill(server: &Server, data: &CollectionData) -> Result<(), Failure> {
    let CollectionData { database_name: database, collection_name: collection, documents } = data;
    // The collection may not exist.
    let _ = run(server, database, &doc! { "drop": collection });
    if documents.is_empty() {
        return run(server, database, &doc! { "create": collection }).map(drop);
    }
    let documents: Vec<Document> = documents.iter().map(|document| document.0.clone()).collect();
    run(server, database, &doc! { "insert": collection, "documents": documents }).map(drop)
}

/// The contents of a collection, by rising `_id`; behind a load balancer, those of its first service.
pub(super) fn content(server: &Server, database: &str, collection: &str) -> Result<Vec<Document>, Failure> {
    let reply = run(server, database, &doc! { "find": collection, "sort": { "_id": 1 }, "batchSize": 10_000 })?;
    let cursor = reply.get_document("cursor").map_err(|_| Failure::client("the reply has no cursor"))?;
    let batch = cursor.get_array("firstBatch").map(Vec::as_slice).unwrap_or_default();
    Ok(batch.iter().filter_map(|document| document.as_document().cloned()).collect())
}

/// Runs a command at each service, in no time. Returns the first one's reply.
pub(super) fn run(server: &Server, database: &str, command: &Document) -> Result<Document, Failure> {
    let unusable = |error: &dyn core::fmt::Display| Failure::client(error.to_string());
    let body = RawDocumentBuf::try_from(command).map_err(|error| unusable(&error))?;
    let mut first = Err(Failure::client("the server does not answer"));
    for reply in server.run_command(database, body).into_iter().rev() {
        let reply = Document::try_from(&*reply).map_err(|error| unusable(&error))?;
        first = Failure::of_reply(&reply).map_or(Ok(reply), Err);
    }
    first
}

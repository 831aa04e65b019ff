//! The servers of a deployment: their setup, their addresses, and the data that tests put into them.

use bson::{Document, RawDocumentBuf, doc};
use cmap_core::time::Instant;
use cmap_core::wire::{Field, Flags, Limits, Message, MessageIds, MessageWriter};
use cmap_test_server::{Peer, ServerConfig, ServerOutput, TestServer, User};

use crate::suites::requirement::Topology;
use crate::suites::unified::failure::Failure;
use crate::suites::unified::format::{CollectionData, Deployment};

/// The name of the only user, and the password.
const USER: (&str, &str) = ("user", "pencil");

/// Few, since every test derives keys anew; no fewer are accepted (AUTH-14).
const ITERATIONS: u32 = 4096;

/// Two behind a load balancer, which are two services; one otherwise.
pub(super) fn start(deployment: Deployment, seed: u64) -> Vec<TestServer> {
    let count = if deployment.topology == Topology::LoadBalanced { 2 } else { 1 };
    let server = |index: u64| {
        let mut config = ServerConfig::new(format!("server{index}.example:27017"));
        config.load_balanced = deployment.topology == Topology::LoadBalanced;
        config.replica_set = (deployment.topology == Topology::ReplicaSet).then(|| "rs".into());
        config.seed = seed ^ index;
        config.iterations = (ITERATIONS, ITERATIONS);
        if deployment.auth {
            // Clients log in because they have a credential. Filling collections needs none.
            config.users = vec![User::with_password(USER.0, USER.1.to_owned())];
        }
        TestServer::new(config, Instant::ORIGIN)
    };
    (0..count).map(server).collect()
}

/// How clients reach them. Behind a load balancer the host's name says whether it is the one with several servers.
pub(super) fn uri(deployment: Deployment, multiple: bool) -> String {
    let credential = if deployment.auth { format!("{}:{}@", USER.0, USER.1) } else { String::new() };
    let (host, options) = match deployment.topology {
        Topology::LoadBalanced if multiple => (MULTIPLE, "?loadBalanced=true"),
        Topology::LoadBalanced => ("balancer.example", "?loadBalanced=true"),
        Topology::ReplicaSet => ("server0.example", "?directConnection=true"),
        Topology::Single | Topology::Sharded | Topology::ShardedReplicaSet => ("server0.example", ""),
    };
    format!("mongodb://{credential}{host}:27017/{options}")
}

/// The host of the load balancer that has several servers.
pub(super) const MULTIPLE: &str = "balancers.example";

/// Puts these documents, and no others, into a collection.
pub(super) fn fill(server: &mut TestServer, now: Instant, data: &CollectionData) -> Result<(), Failure> {
    let CollectionData { database_name: database, collection_name: collection, documents } = data;
    // The collection may not exist.
    let _ = run(server, now, database, &doc! { "drop": collection });
    if documents.is_empty() {
        return run(server, now, database, &doc! { "create": collection }).map(drop);
    }
    let documents: Vec<Document> = documents.iter().map(|document| document.0.clone()).collect();
    run(server, now, database, &doc! { "insert": collection, "documents": documents }).map(drop)
}

/// The contents of a collection, by rising `_id`.
pub(super) fn content(
    server: &mut TestServer,
    now: Instant,
    database: &str,
    collection: &str,
) -> Result<Vec<Document>, Failure> {
    let reply = run(server, now, database, &doc! { "find": collection, "sort": { "_id": 1 }, "batchSize": 10_000 })?;
    let cursor = reply.get_document("cursor").map_err(|_| Failure::client("the reply has no cursor"))?;
    let batch = cursor.get_array("firstBatch").map(Vec::as_slice).unwrap_or_default();
    Ok(batch.iter().filter_map(|document| document.as_document().cloned()).collect())
}

/// Runs a command as a client of its own, in no time.
fn run(server: &mut TestServer, now: Instant, database: &str, command: &Document) -> Result<Document, Failure> {
    let unusable = |error: &dyn core::fmt::Display| Failure::client(error.to_string());
    let body = RawDocumentBuf::try_from(command).map_err(|error| unusable(&error))?;
    let (mut request, limits) = (Vec::new(), Limits::DEFAULT);
    let fields = [Field::String("$db", database)];
    MessageWriter::begin(&mut request, MessageIds::request(1), Flags::NONE, &body, &fields, &limits)
        .map_err(|error| unusable(&error))?
        .finish();
    let client = server.accept(now, Peer::at("runner.example:50000"));
    server.handle_bytes(now, client, &request);
    let mut reply = Err(Failure::client("the server does not answer"));
    while let Some(output) = server.poll_output() {
        if let ServerOutput::Send { client: to, bytes } = output
            && to == client
        {
            let message = Message::decode(&bytes, &limits).map_err(|error| unusable(&error))?;
            reply = Document::try_from(message.body).map_err(|error| unusable(&error));
        }
    }
    server.handle_hang_up(now, client);
    reply.and_then(|reply| Failure::of_reply(&reply).map_or(Ok(reply), Err))
}

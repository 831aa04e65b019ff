//! `cmap serve --srv`, with clients of a `mongodb+srv` connection string on each runtime.

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command as Program, Stdio};

use cmap_runtime::ClientOptions;
use cmap_runtime::TopologyType;
use cmap_runtime::bson::doc;
use cmap_runtime::{Client, Runtime};

const URI: &str = "mongodb+srv://cluster.cmap.test/?tls=false&timeoutMS=10000";

/// The program, serving; it ends with its standard input.
struct Deployment {
    _process: Child,
    _output: Lines<BufReader<ChildStdout>>,
    dns: SocketAddr,
}

impl Deployment {
    fn start(options: &[&str]) -> Self {
        let mut process = Program::new(env!("CARGO_BIN_EXE_cmap"))
            .args(["serve", "--port", "0", "--until-stdin-ends", "--srv", "cluster.cmap.test"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let dns = output.next().unwrap().unwrap().strip_prefix("DNS on ").unwrap().parse().unwrap();
        Self { _process: process, _output: output, dns }
    }
}

async fn client<R: Runtime>(deployment: &Deployment) -> Client<R> {
    let (options, _) = ClientOptions::parse(URI).unwrap();
    let client = Client::builder(options).name_servers([deployment.dns]).build().await.unwrap();
    client.check_out().await.unwrap().run_command("admin", doc! { "ping": 1 }).await.unwrap();
    client
}

async fn finds_every_deployment<R: Runtime>() {
    let set = Deployment::start(&["--replica-set", "rs0", "--members", "3"]);
    let client_of_set = client::<R>(&set).await;
    assert_eq!(client_of_set.options().replica_set.as_deref(), Some("rs0"), "the TXT record says so");
    assert_eq!(client_of_set.description().topology_type, TopologyType::ReplicaSetWithPrimary);

    let cluster = Deployment::start(&["--sharded", "2"]);
    let client_of_cluster = client::<R>(&cluster).await;
    let hosts: Vec<String> = client_of_cluster.options().hosts.iter().map(ToString::to_string).collect();
    assert!(hosts.iter().all(|host| host.contains(".cluster.cmap.test:")), "{hosts:?}");
    assert_eq!((hosts.len(), client_of_cluster.description().topology_type), (2, TopologyType::Sharded));

    let balancer = Deployment::start(&["--load-balanced"]);
    assert_eq!(client::<R>(&balancer).await.description().topology_type, TopologyType::LoadBalanced);
}

#[test]
fn a_client_on_tokio_finds_every_deployment_by_dns() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(finds_every_deployment::<cmap_tokio::Tokio>());
}

#[test]
fn a_client_on_smol_finds_every_deployment_by_dns() {
    smol::block_on(finds_every_deployment::<cmap_smol::Smol>());
}

#[test]
fn a_client_on_async_std_finds_every_deployment_by_dns() {
    // async-std has threads of its own.
    smol::block_on(finds_every_deployment::<cmap_async_std::AsyncStd>());
}

#[test]
fn no_name_server_at_all_is_an_error_that_names_the_option() {
    let (options, _) = ClientOptions::parse(URI).unwrap();
    let builder = Client::<cmap_smol::Smol>::builder(options).name_servers([]);

    let error = smol::block_on(builder.build()).err().unwrap().to_string();

    assert!(error.contains("name_servers"), "{error}");
}

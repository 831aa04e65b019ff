//! Clients of `mongodb+srv` connection strings: DNS names their server.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test is told by its name and fails by panicking")]

use std::time::Duration;

use cmap_sim::bson::doc;
use cmap_sim::core::topology::seed_list::{SrvRecord, TxtRecord};
use cmap_sim::{Client, Sim};

const URI: &str = "mongodb+srv://cluster.example.com/?tls=false";

fn record(host: &str) -> SrvRecord {
    SrvRecord::new(host, 27017, Duration::from_secs(60))
}

#[test]
fn a_client_talks_to_the_server_that_dns_names() {
    let sim = Sim::new(1);
    let _server = sim.server_with("db.example.com", |config| config.replica_set = Some("rs".into()));
    sim.set_dns("cluster.example.com", vec![record("db.example.com.")], vec![TxtRecord::new("replicaSet=rs")]);

    sim.run(async {
        let client = Client::connect(URI).await.unwrap();
        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", doc! { "ping": 1 }).await.unwrap();
        assert_eq!(client.options().replica_set.as_deref(), Some("rs"));
        assert_eq!(client.options().hosts, ["db.example.com:27017".parse().unwrap()]);
    });
}

#[test]
fn no_client_is_made_without_records_that_can_be_used() {
    let sim = Sim::new(1);
    let error = |sim: &Sim| sim.run(async { Client::connect(URI).await.err().unwrap().to_string() });

    assert!(error(&sim).contains("_mongodb._tcp.cluster.example.com has no SRV records"));
    sim.set_dns("cluster.example.com", vec![record("db.evil.com")], Vec::new());
    assert!(error(&sim).contains(r#"the host "db.evil.com" is not below the domain example.com"#));
}

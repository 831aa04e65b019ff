//! A user's choice among suitable servers (SEL-11), in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_sim::bson::rawdoc;
use cmap_sim::cmap_core::options::{ClientOptions, ReadMode, ReadPreference};
use cmap_sim::cmap_core::server::ServerDescription;
use cmap_sim::{Client, MemberId, Servers, Sim};

const HOSTS: [&str; 3] = ["a.example", "b.example", "c.example"];

async fn client(set: &Servers, filter: impl Fn(&mut Vec<Arc<ServerDescription>>) + Send + Sync + 'static) -> Client {
    let (options, _) = ClientOptions::parse(&set.uri("replicaSet=rs0&serverSelectionTimeoutMS=20000")).unwrap();
    Client::builder(options).filter_servers(filter).build().await.unwrap()
}

fn primary(set: &Servers) -> MemberId {
    set.primary().unwrap()
}

/// Keeps the server with this name.
fn only(host: &'static str) -> impl Fn(&mut Vec<Arc<ServerDescription>>) {
    move |servers| servers.retain(|server| server.address.to_string().starts_with(host))
}

#[test]
fn a_check_out_goes_to_a_server_that_the_filter_has_left_sel_11() {
    let sim = Sim::new(1);
    let set = sim.replica_set("rs0", &HOSTS);

    sim.run(async {
        let client = client(&set, only("c.example")).await;
        for _ in 0..5 {
            let nearest = client.check_out_for(ReadPreference::new(ReadMode::Nearest)).await.unwrap();

            assert_eq!(nearest.address().to_string(), "c.example:27017");
        }
    });
}

#[test]
fn a_filter_cannot_send_a_write_to_a_secondary() {
    let sim = Sim::new(2);
    let set = sim.replica_set("rs0", &HOSTS);

    sim.run(async {
        // The primary is "a".
        let client = client(&set, only("c.example")).await;

        let error = client.check_out_within(Duration::from_secs(1)).await.unwrap_err();

        assert!(error.to_string().contains("for writes, by a custom selector within 1s"), "{error}");
        assert!(error.to_string().contains("what the custom selector left"), "{error}");
    });
}

#[test]
fn a_check_out_that_waits_chooses_anew_when_the_servers_change() {
    let sim = Sim::new(3);
    let set = sim.replica_set("rs0", &HOSTS);

    sim.run(async {
        // Any primary but the first one.
        let others = |servers: &mut Vec<Arc<ServerDescription>>| {
            servers.retain(|server| !server.address.to_string().starts_with("a.example"));
        };
        let client = client(&set, others).await;
        let written_by = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&written_by);
        sim.spawn(async move {
            let mut connection = client.check_out().await.unwrap();
            connection.run_command("db", rawdoc! { "insert": "c", "documents": [{}] }).await.unwrap();
            *noted.lock().unwrap() = Some(connection.address().to_string());
        });
        sim.sleep(Duration::from_secs(1)).await;
        assert_eq!(*written_by.lock().unwrap(), None, "the filter leaves no primary");

        set.kill(primary(&set));
        sim.sleep(Duration::from_secs(5)).await;

        assert_eq!(written_by.lock().unwrap().as_deref(), Some("b.example:27017"));
    });
}

#[test]
fn a_filter_is_never_called_without_a_server() {
    let sim = Sim::new(4);
    let set = sim.replica_set("rs0", &HOSTS);

    sim.run(async {
        let client = client(&set, |servers| assert!(!servers.is_empty())).await;
        drop(client.check_out().await.unwrap());
        set.kill(primary(&set));

        drop(client.check_out().await.unwrap());
    });
}

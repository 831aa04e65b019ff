//! The whole stack in virtual time: a client, the network, and servers.

use std::process::{self, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fs};

use cmap_sim::bson::{RawDocumentBuf, rawdoc};
use cmap_sim::cmap_core::options::ClientOptions;
use cmap_sim::rustls;
use cmap_sim::tls::{PemTexts, TlsConfig};
use cmap_sim::{CheckOutError, Client, Data, Sim, Stuck};
use cmap_test_server::certificates::{Authority, Validity};

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1 }
}

async fn client(query: &str) -> Client {
    Client::connect(&format!("mongodb://db.example/?{query}")).await.unwrap()
}

#[test]
fn a_command_is_answered() {
    let sim = Sim::new(1);
    let _server = sim.server("db.example");

    sim.run(async {
        let client = client("").await;
        let mut connection = client.check_out().await.unwrap();

        let reply = connection.run_command("admin", ping()).await.unwrap();

        assert!(reply.get("ok").unwrap().is_some());
    });
}

/// The server's side of TLS, and the authority that a client has to trust.
fn tls(sim: &Sim) -> (Arc<rustls::ServerConfig>, String) {
    let authority = Authority::made_at("the authority", sim.unix_time()).unwrap();
    let server = authority.server(&["db.example"], Validity::Now).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![server.certificate().clone()], server.key()).unwrap();
    (Arc::new(config), authority.pem())
}

/// A client under TLS that trusts the authority.
async fn tls_client(authority: &str) -> Client {
    let (options, _) = ClientOptions::parse("mongodb://db.example/?tls=true").unwrap();
    let mut texts = PemTexts::default();
    texts.authorities = Some(authority.as_bytes());
    let config = TlsConfig::with_pem(&options.tls, texts).unwrap();
    Client::builder(options).tls(config).build().await.unwrap()
}

#[test]
fn a_server_speaks_tls() {
    let sim = Sim::new(1);
    let (tls, authority) = tls(&sim);
    let _server = sim.server_under_tls("db.example", tls, |_| {});

    sim.run(async {
        let mut connection = tls_client(&authority).await.check_out().await.unwrap();
        connection.run_command("admin", ping()).await.unwrap();
    });
}

#[test]
fn a_certificate_expires_in_virtual_time() {
    let sim = Sim::new(1);
    let (tls, authority) = tls(&sim);
    let _server = sim.server_under_tls("db.example", tls, |_| {});

    sim.run(async {
        sim.sleep(Duration::from_secs(40 * 86_400)).await;

        let error = tls_client(&authority).await.check_out().await.unwrap_err();

        assert!(error.to_string().contains("expired"), "{error}");
    });
}

#[test]
fn time_jumps_to_where_something_happens() {
    let sim = Sim::new(2);

    sim.run(sim.sleep(Duration::from_secs(86_400)));

    assert_eq!(sim.elapsed(), Duration::from_secs(86_400));
}

/// Every event of a client and its time, while 20 tasks use it and its server restarts.
fn log(seed: u64) -> String {
    let sim = Sim::new(seed);
    let server = sim.server("db.example");
    let log = Arc::new(Mutex::new(String::new()));
    sim.run(async {
        let options = "mongodb://db.example/?maxPoolSize=3&heartbeatFrequencyMS=500&serverSelectionTimeoutMS=3000";
        let (options, _) = cmap_sim::cmap_core::options::ClientOptions::parse(options).unwrap();
        let (noted, runtime) = (Arc::clone(&log), sim.runtime().clone());
        let client = Client::builder(options)
            .on_event(move |_, event| {
                let line = format!("{:?} {event:?}\n", runtime.elapsed());
                noted.lock().unwrap().push_str(&line);
            })
            .build()
            .await
            .unwrap();
        for _ in 0..20 {
            let client = client.clone();
            sim.spawn(async move {
                for _ in 0..20 {
                    if let Ok(mut connection) = client.check_out().await {
                        let _ = connection.run_command("admin", ping()).await;
                    }
                }
            });
        }
        sim.sleep(Duration::from_millis(20)).await;
        server.restart(Data::Lost);
        sim.sleep(Duration::from_secs(60)).await;
    });
    let log = log.lock().unwrap();
    log.clone()
}

#[test]
fn the_same_seed_is_the_same_run() {
    let first = log(3);

    assert!(first == log(3), "the second run differs");
    assert!(first != log(4));
    assert!(first.contains("PoolCleared") && first.rfind("PoolReady") > first.rfind("PoolCleared"));
}

#[test]
fn the_same_seed_is_the_same_run_in_another_process() {
    const FILE: &str = "CMAP_SIM_LOG";
    if let Some(file) = env::var_os(FILE) {
        return fs::write(file, log(3)).unwrap();
    }
    let file = env::temp_dir().join(format!("cmap-sim-log-{}", process::id()));

    let test = ["--exact", "whole_stack::the_same_seed_is_the_same_run_in_another_process"];
    let other = Command::new(env::current_exe().unwrap()).args(test).env(FILE, &file).output().unwrap();

    let others = fs::read_to_string(&file);
    let _ = fs::remove_file(&file);
    assert!(other.status.success(), "{other:?}");
    assert!(others.unwrap() == log(3), "the run of the other process differs");
}

#[test]
fn a_server_that_crashed_keeps_its_documents_or_loses_them() {
    for (data, expected) in [(Data::Kept, 1), (Data::Lost, 0)] {
        let sim = Sim::new(5);
        let server = sim.server("db.example");
        sim.run(async {
            let client = client("").await;
            let insert = rawdoc! { "insert": "orders", "documents": [{ "_id": 1 }] };
            client.check_out().await.unwrap().run_command("shop", insert).await.unwrap();

            server.crash();
            sim.sleep(Duration::from_secs(1)).await;
            server.restart(data);

            let mut connection = client.check_out().await.unwrap();
            let count = connection.run_command("shop", rawdoc! { "count": "orders" }).await.unwrap();
            assert_eq!(count.get_i32("n").unwrap(), expected);
        });
    }
}

#[test]
fn a_restarted_server_gives_cursors_other_ids() {
    let sim = Sim::new(5);
    let server = sim.server("db.example");
    let open = || {
        server.run_command("shop", rawdoc! { "insert": "orders", "documents": [{}, {}] });
        let opened = server.run_command("shop", rawdoc! { "find": "orders", "batchSize": 1 });
        opened[0].get_document("cursor").unwrap().get_i64("id").unwrap()
    };

    let before = open();
    server.restart(Data::Kept);

    assert_ne!(open(), before);
}

#[test]
fn a_partition_is_silent_and_ends() {
    let sim = Sim::new(6);
    let server = sim.server("db.example");
    sim.run(async {
        let client = client("").await;
        let mut connection = client.check_out().await.unwrap();

        server.partition();
        let began = sim.elapsed();
        let healed = {
            let (server, runtime) = (server.clone(), sim.runtime().clone());
            async move {
                runtime.sleep(Duration::from_secs(3)).await;
                server.heal();
            }
        };
        sim.spawn(healed);
        connection.run_command("admin", ping()).await.unwrap();

        assert!(sim.elapsed() - began >= Duration::from_secs(3));
    });
}

#[test]
fn a_machine_that_is_switched_off_is_noticed_by_its_silence() {
    let sim = Sim::new(7);
    let server = sim.server("db.example");
    sim.run(async {
        let client = client("heartbeatFrequencyMS=1000&connectTimeoutMS=2000&serverSelectionTimeoutMS=5000").await;
        drop(client.check_out().await.unwrap());

        server.switch_off();
        sim.sleep(Duration::from_secs(20)).await;

        assert!(matches!(client.check_out().await, Err(CheckOutError::Selection(_))));
    });
}

#[test]
fn a_name_that_is_unknown_is_said_so() {
    let sim = Sim::new(8);
    sim.run(async {
        let client = Client::connect("mongodb://nowhere.example/?serverSelectionTimeoutMS=100").await.unwrap();

        let error = client.check_out().await.unwrap_err();

        assert!(error.to_string().contains("nowhere.example"), "{error}");
    });
}

#[test]
fn tasks_that_wait_for_each_other_end_the_run_by_their_names() {
    let sim = Sim::new(9);
    sim.spawn(std::future::pending());

    let stuck = sim.try_run(std::future::pending::<()>()).unwrap_err();

    assert!(matches!(stuck, Stuck::Deadlock { .. }));
    assert!(stuck.to_string().contains("Pending"), "{stuck}");
}

#[test]
fn a_client_whose_simulation_has_ended_says_so() {
    let sim = Sim::new(10);
    let _server = sim.server("db.example");
    let client = sim.run(client(""));
    drop(sim);

    let other = Sim::new(11);
    let outcome = other.run(async { client.check_out().await });

    assert!(matches!(outcome, Err(CheckOutError::RuntimeGone(_))));
}

//! Clients of `mongodb+srv` connection strings: DNS names their servers, and is asked again as long as they are a sharded
//! cluster.

use std::time::Duration;

use cmap_sim::bson::doc;
use cmap_sim::cmap_core::options::ClientOptions;
use cmap_sim::cmap_core::topology::seed_list::{SrvRecord, TxtRecord};
use cmap_sim::cmap_core::topology::{ServerSelector, TopologyEvent};
use cmap_sim::{Client, DeploymentConfig, Event, Notice, Servers, Sim, Subscription};

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

/// A cluster with a router on each of the hosts `router0.example.com` and so on; DNS names the first `listed` ones.
fn cluster(sim: &Sim, routers: usize, listed: usize) -> Servers {
    let hosts = (0..routers).map(|number| format!("{}:27017", router(number)));
    let cluster = sim.deployment(|server| DeploymentConfig::sharded(server, hosts));
    list(sim, 0..listed);
    cluster
}

fn router(number: usize) -> String {
    format!("router{number}.example.com")
}

/// DNS names these routers from now on.
fn list(sim: &Sim, routers: impl IntoIterator<Item = usize>) {
    let records = routers.into_iter().map(|number| record(&router(number))).collect();
    sim.set_dns("cluster.example.com", records, Vec::new());
}

/// The routers that the client knows of, in order.
fn routers(client: &Client) -> Vec<String> {
    let servers = client.servers();
    let mut hosts: Vec<String> = servers.iter().map(|server| server.description.address.to_string()).collect();
    hosts.sort();
    hosts.iter().map(|host| host.trim_end_matches(".example.com:27017").to_owned()).collect()
}

/// The names of the topology's events that have come meanwhile.
fn topology_events(subscription: &mut Subscription) -> Vec<&'static str> {
    let mut names = Vec::new();
    while let Some(notice) = subscription.try_next() {
        if let Notice::Event { event: Event::Topology(event), .. } = notice {
            names.push(event.name());
        }
    }
    names
}

async fn ping(client: &Client) {
    client.check_out().await.unwrap().run_command("admin", doc! { "ping": 1 }).await.unwrap();
}

#[test]
fn a_client_follows_the_routers_that_join_and_leave_dns_17() {
    let sim = Sim::new(2);
    let _cluster = cluster(&sim, 4, 2);

    sim.run(async {
        let client = Client::connect(URI).await.unwrap();
        ping(&client).await;
        assert_eq!(routers(&client), ["router0", "router1"]);
        let mut events = client.subscribe(1_000);

        list(&sim, [1, 2, 3]);
        sim.sleep(Duration::from_secs(61)).await;

        assert_eq!(routers(&client), ["router1", "router2", "router3"]);
        let changes = topology_events(&mut events);
        assert!(changes.iter().all(|name| *name == "TopologyDescriptionChanged"), "{changes:?}");
        let new = ServerSelector::AnyOf([format!("{}:27017", router(3)).parse().unwrap()].into());
        client.check_out_for(new).await.unwrap().run_command("admin", doc! { "ping": 1 }).await.unwrap();
    });
}

#[test]
fn a_connection_in_use_outlives_the_record_of_its_router() {
    let sim = Sim::new(3);
    let _cluster = cluster(&sim, 2, 1);

    sim.run(async {
        let client = Client::connect(URI).await.unwrap();
        let mut connection = client.check_out().await.unwrap();

        list(&sim, [1]);
        sim.sleep(Duration::from_secs(61)).await;

        assert_eq!(routers(&client), ["router1"]);
        connection.run_command("admin", doc! { "ping": 1 }).await.unwrap();
        drop(connection);
        ping(&client).await;
    });
}

#[test]
fn dns_that_fails_changes_nothing_and_is_asked_again_after_a_heartbeat_dns_16() {
    let sim = Sim::new(4);
    let _cluster = cluster(&sim, 2, 1);

    sim.run(async {
        let client = Client::connect(URI).await.unwrap();
        ping(&client).await;
        let mut events = client.subscribe(1_000);

        sim.fail_dns("cluster.example.com");
        sim.sleep(Duration::from_secs(65)).await;
        assert_eq!(routers(&client), ["router0"]);
        assert_eq!(topology_events(&mut events), ["SrvPollingFailed"]);
        ping(&client).await;

        list(&sim, [0, 1]);
        sim.sleep(Duration::from_secs(10)).await;
        assert_eq!(routers(&client), ["router0", "router1"]);
    });
}

#[test]
fn hosts_of_another_domain_are_not_contacted_dns_15() {
    let sim = Sim::new(5);
    let _cluster = cluster(&sim, 2, 1);

    sim.run(async {
        let client = Client::connect(URI).await.unwrap();
        ping(&client).await;
        let mut events = client.subscribe(1_000);

        let records = vec![record(&router(1)), record("db.evil.com")];
        sim.set_dns("cluster.example.com", records, Vec::new());
        sim.sleep(Duration::from_secs(61)).await;

        assert_eq!(routers(&client), ["router1"]);
        let mut causes = Vec::new();
        while let Some(notice) = events.try_next() {
            if let Notice::Event { event: Event::Topology(TopologyEvent::SrvRecordsIgnored { cause, .. }), .. } = notice
            {
                causes.push(cause.to_string());
            }
        }
        assert_eq!(causes, [r#"the host "db.evil.com" is not below the domain example.com of the connection string"#]);
    });
}

#[test]
fn a_host_that_the_application_refuses_makes_no_client_and_is_left_out_later_dns_20() {
    let sim = Sim::new(10);
    let _cluster = cluster(&sim, 3, 2);
    let (options, _) = ClientOptions::parse(URI).unwrap();

    sim.run(async {
        let refuses = |number| Client::builder(options.clone()).allow_srv_hosts(move |host| host != router(number));
        let error = refuses(1).build().await.err().unwrap().to_string();
        assert!(error.contains(r#"the host "router1.example.com" is not allowed by this application"#), "{error}");

        let client = refuses(2).build().await.unwrap();
        ping(&client).await;
        list(&sim, [1, 2]);
        sim.sleep(Duration::from_secs(61)).await;

        assert_eq!(routers(&client), ["router1"]);
    });
}

#[test]
fn a_suffix_in_the_connection_string_replaces_the_domain_at_each_look_dns_20() {
    let sim = Sim::new(11);
    let _cluster = cluster(&sim, 2, 0);
    let of_other_domain = |number| {
        let records = vec![record(&router(number).to_uppercase()), record("db.example.net")];
        sim.set_dns("cluster.example.net", records.into_iter().take(1 + number).collect(), Vec::new());
    };
    of_other_domain(0);

    sim.run(async {
        let uri = "mongodb+srv://cluster.example.net/?tls=false&srvAllowedHostsSuffix=.Example.com";
        let client = Client::connect(uri).await.unwrap();
        ping(&client).await;
        assert_eq!(routers(&client), ["router0"]);

        of_other_domain(1);
        sim.sleep(Duration::from_secs(61)).await;

        assert_eq!(routers(&client), ["router1"]);
    });
}

#[test]
fn srv_max_hosts_keeps_the_routers_that_are_still_listed_dns_18() {
    let sim = Sim::new(6);
    let _cluster = cluster(&sim, 5, 5);

    sim.run(async {
        let client = Client::connect(&format!("{URI}&srvMaxHosts=2")).await.unwrap();
        ping(&client).await;
        let first = routers(&client);
        assert_eq!(first.len(), 2);

        sim.sleep(Duration::from_secs(61)).await;
        assert_eq!(routers(&client), first, "both are still listed");

        let stays: usize = first[0].trim_start_matches("router").parse().unwrap();
        let leaves: usize = first[1].trim_start_matches("router").parse().unwrap();
        list(&sim, (0..5).filter(|number| *number != leaves));
        sim.sleep(Duration::from_secs(61)).await;

        let now = routers(&client);
        assert_eq!(now.len(), 2);
        assert!(now.contains(&format!("router{stays}")) && !now.contains(&first[1]), "{first:?}, then {now:?}");
    });
}

#[test]
fn a_replica_set_is_not_polled_dns_12() {
    let sim = Sim::new(7);
    let _set = sim.replica_set("rs0", &["router0.example.com", "router1.example.com"]);
    list(&sim, [0, 1]);

    sim.run(async {
        let client = Client::connect(URI).await.unwrap();
        ping(&client).await;

        list(&sim, [0]);
        sim.sleep(Duration::from_secs(300)).await;

        assert_eq!(routers(&client), ["router0", "router1"]);
    });
}

#[test]
fn a_lookup_that_hangs_stalls_nobody_dns_14() {
    let sim = Sim::new(8);
    let _cluster = cluster(&sim, 2, 2);

    sim.run(async {
        let client = Client::connect(URI).await.unwrap();
        ping(&client).await;
        sim.hang_dns("cluster.example.com");
        sim.sleep(Duration::from_secs(61)).await;

        let before = sim.elapsed();
        for _ in 0..100 {
            ping(&client).await;
        }
        let took = sim.elapsed() - before;
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn srv_and_txt_records_are_asked_for_together() {
    let sim = Sim::new(10);
    let _set = sim.replica_set("rs0", &["router0.example.com"]);
    list(&sim, [0]);

    sim.run(async {
        let before = sim.elapsed();

        let _client = Client::connect(URI).await.unwrap();

        // A lookup takes a millisecond.
        assert_eq!(sim.elapsed() - before, Duration::from_millis(1));
    });
}

#[test]
fn a_client_is_not_made_while_dns_hangs_for_longer_than_connect_timeout_ms_or_timeout_ms() {
    for (query, limit) in [("&connectTimeoutMS=3000", 3), ("&timeoutMS=2000", 2)] {
        let sim = Sim::new(11);
        sim.hang_dns("cluster.example.com");

        sim.run(async {
            let before = sim.elapsed();
            let error = Client::connect(&format!("{URI}{query}")).await.err().unwrap();

            assert_eq!(sim.elapsed() - before, Duration::from_secs(limit), "{query}");
            let option = if query.contains("&timeoutMS") { "timeoutMS" } else { "connectTimeoutMS" };
            let expected = format!(
                "the connection string gave no hosts, because the SRV records of _mongodb._tcp.cluster.example.com could not be \
                 looked up: no answer within {limit}s; {option} allows more"
            );
            assert!(error.to_string().starts_with(&expected), "{error}");
        });
    }
}

#[test]
fn a_txt_record_that_does_not_come_in_time_is_named() {
    let sim = Sim::new(14);
    // The records of another service than the usual one are those of a zone without a name.
    sim.set_dns("", vec![record("db.example.com.")], Vec::new());
    sim.hang_dns("cluster.example.com");

    sim.run(async {
        let before = sim.elapsed();
        let error = Client::connect(&format!("{URI}&srvServiceName=other&connectTimeoutMS=3000")).await.err().unwrap();

        assert_eq!(sim.elapsed() - before, Duration::from_secs(3));
        let expected = "the TXT record of cluster.example.com, which may hold options, could not be looked up: no answer within 3s; \
                        connectTimeoutMS allows more";
        assert!(error.to_string().starts_with(expected), "{error}");
    });
}

#[test]
fn a_lookup_ends_when_nobody_waits_for_the_client_any_more() {
    let sim = Sim::new(12);
    sim.hang_dns("cluster.example.com");

    sim.run(async {
        let before = sim.tasks();
        let mut connecting = Box::pin(Client::connect(URI));
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(connecting.as_mut().poll(cx).is_pending())).await);
        sim.sleep(Duration::from_secs(1)).await;
        assert_eq!(sim.tasks(), before + 1);

        drop(connecting);
        sim.sleep(Duration::from_secs(1)).await;

        assert_eq!(sim.tasks(), before);
    });
}

#[test]
fn a_later_lookup_that_hangs_is_given_up_after_connect_timeout_ms() {
    let sim = Sim::new(13);
    let _cluster = cluster(&sim, 2, 1);

    sim.run(async {
        let client = Client::connect(URI).await.unwrap();
        ping(&client).await;
        let mut events = client.subscribe(1_000);

        sim.hang_dns("cluster.example.com");
        sim.sleep(Duration::from_secs(72)).await;
        assert_eq!(topology_events(&mut events), ["SrvPollingFailed"]);

        list(&sim, [0, 1]);
        sim.sleep(Duration::from_secs(21)).await;
        assert_eq!(routers(&client), ["router0", "router1"]);
    });
}

#[test]
fn a_lookup_ends_with_its_client() {
    for is_closed in [true, false] {
        let sim = Sim::new(9);
        let _cluster = cluster(&sim, 1, 1);

        sim.run(async {
            let before = sim.tasks();
            let client = Client::connect(URI).await.unwrap();
            ping(&client).await;
            sim.hang_dns("cluster.example.com");
            sim.sleep(Duration::from_secs(61)).await;

            let kept = if is_closed {
                client.close(Duration::ZERO).await.unwrap();
                Some(client)
            } else {
                drop(client);
                None
            };
            sim.sleep(Duration::from_secs(1)).await;

            // A closed client keeps its driver.
            assert_eq!(sim.tasks(), before + kept.iter().len(), "closed: {is_closed}");
        });
    }
}

//! A replica set in virtual time: what a client of a member sees of it.

use std::time::Duration;

use cmap_sim::bson::rawdoc;
use cmap_sim::{Client, DeploymentConfig, MemberConfig, MemberId, Servers, SetConfig, Sim};

const HOSTS: [&str; 3] = ["a.example", "b.example", "c.example"];

fn member(set: &Servers, number: i32) -> MemberId {
    set.members().into_iter().map(|(member, _)| member).find(|member| member.get() == number).unwrap()
}

async fn client(host: &str) -> Client {
    Client::connect(&format!("mongodb://{host}/?directConnection=true&serverSelectionTimeoutMS=20000")).await.unwrap()
}

#[test]
fn a_secondary_answers_reads_of_what_the_primary_wrote() {
    let sim = Sim::new(1);
    let _set = sim.replica_set("rs0", &HOSTS);

    sim.run(async {
        let (primary, secondary) = (client("a.example").await, client("b.example").await);
        let insert = rawdoc! { "insert": "c", "documents": [{}] };
        primary.check_out().await.unwrap().run_command("db", insert).await.unwrap();

        let count = rawdoc! { "count": "c", "$readPreference": { "mode": "secondary" } };
        let reply = secondary.check_out().await.unwrap().run_command("db", count).await.unwrap();

        assert_eq!(reply.get_i32("n").unwrap(), 1);
    });
}

#[test]
fn another_member_is_elected_when_the_primary_is_killed() {
    let sim = Sim::new(2);
    let set = sim.replica_set("rs0", &HOSTS);

    sim.run(async {
        let other = client("b.example").await;
        set.kill(member(&set, 0));
        sim.sleep(Duration::from_millis(500)).await;

        let insert = rawdoc! { "insert": "c", "documents": [{}] };
        let reply = other.check_out().await.unwrap().run_command("db", insert).await.unwrap();

        assert_eq!(set.primary(), Some(member(&set, 1)));
        assert_eq!(reply.get_i32("n").unwrap(), 1);
    });
}

#[test]
fn a_member_that_is_back_listens_and_has_caught_up() {
    let sim = Sim::new(3);
    let set = sim.replica_set("rs0", &HOSTS);
    let first = member(&set, 0);

    sim.run(async {
        set.kill(first);
        sim.sleep(Duration::from_secs(1)).await;
        set.run_command(
            member(&set, 1),
            "db",
            rawdoc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 1 } },
        );
        set.restart(first);

        let count = rawdoc! { "count": "c", "$readPreference": { "mode": "secondary" } };
        let back = client("a.example").await;
        let reply = back.check_out().await.unwrap().run_command("db", count).await.unwrap();

        assert_eq!(reply.get_i32("n").unwrap(), 1);
    });
}

#[test]
fn a_member_that_is_added_has_a_host_of_its_own() {
    let sim = Sim::new(4);
    let set = sim.replica_set("rs0", &HOSTS[..2]);
    let mut config = SetConfig::new("rs0", Vec::new());
    config.version = 2;
    config.members = (0..).zip(HOSTS).map(|(id, host)| MemberConfig::new(id, format!("{host}:27017"))).collect();

    sim.run(async {
        set.reconfigure(config);
        let added = client("c.example").await;
        let hello = added.check_out().await.unwrap().run_command("admin", rawdoc! { "hello": 1 }).await.unwrap();

        assert!(hello.get_bool("secondary").unwrap());
        assert_eq!(
            set.uri("replicaSet=rs0"),
            "mongodb://a.example:27017,b.example:27017,c.example:27017/?replicaSet=rs0"
        );
    });
}

#[test]
fn the_mongos_of_a_cluster_share_their_documents() {
    let sim = Sim::new(5);
    let hosts = HOSTS[..2].iter().map(|host| format!("{host}:27017"));
    let _cluster = sim.deployment(|server| DeploymentConfig::sharded(server, hosts));

    sim.run(async {
        let (first, second) = (client("a.example").await, client("b.example").await);
        first.check_out().await.unwrap().run_command("db", rawdoc! { "insert": "c", "documents": [{}] }).await.unwrap();

        let reply = second.check_out().await.unwrap().run_command("db", rawdoc! { "count": "c" }).await.unwrap();

        assert_eq!(reply.get_i32("n").unwrap(), 1);
    });
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || {
        let sim = Sim::new(6);
        let set = sim.replica_set("rs0", &HOSTS);
        sim.run(async {
            let client = client("b.example").await;
            set.step_down(Duration::from_secs(10));
            sim.sleep(Duration::from_millis(100)).await;
            let hello = client.check_out().await.unwrap().run_command("admin", rawdoc! { "hello": 1 }).await.unwrap();
            (hello.get_object_id("electionId").unwrap(), hello.get_datetime("localTime").unwrap(), sim.elapsed())
        })
    };

    assert_eq!(run(), run());
}

#[test]
fn a_server_that_a_hello_makes_known_is_as_far_away_as_the_hello_took_sel_2() {
    let sim = Sim::new(6);
    let server = sim.server("db.example");
    sim.set_pace(Duration::from_millis(5)..=Duration::from_millis(5), None);
    sim.set_splits(false);

    sim.run(async {
        let client = Client::connect("mongodb://db.example/?serverMonitoringMode=poll").await.unwrap();
        let round_trip = || client.servers()[0].description.round_trip_time;
        let mut connection = client.check_out().await.unwrap();
        let data = rawdoc! { "failCommands": ["find"], "errorCode": 13436 };
        server.run_command(
            "admin",
            rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data },
        );

        // The server says that it is recovering, while another connection to it is being established.
        let other = client.clone();
        sim.spawn(async move { drop(other.check_out().await.unwrap()) });
        connection.run_command("db", rawdoc! { "find": "c" }).await.unwrap_err();
        assert_eq!(round_trip(), None);
        sim.sleep(Duration::from_millis(50)).await;

        assert_eq!(round_trip(), Some(Duration::from_millis(10)));
    });
}

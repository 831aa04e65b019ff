//! What befalls single members of a deployment: their processes, their hosts, their connections. And the application's clock.

use std::time::Duration;

use cmap_sim::bson::{RawDocumentBuf, rawdoc};
use cmap_sim::cmap_core::options::{ReadMode, ReadPreference};
use cmap_sim::{Client, CommandErrorKind, Data, MemberId, Reachability, Servers, Sim};

const SECOND: Duration = Duration::from_secs(1);

fn set(sim: &Sim) -> (Servers, MemberId) {
    let set = sim.replica_set("rs0", &["a.example", "b.example", "c.example"]);
    let first = set.primary().unwrap();
    (set, first)
}

/// A client of the first member alone.
async fn client() -> Client {
    let uri = "mongodb://a.example/?directConnection=true&timeoutMS=500&connectTimeoutMS=200&heartbeatFrequencyMS=500";
    Client::connect(uri).await.unwrap()
}

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1 }
}

async fn answers(client: &Client) -> bool {
    let Ok(mut connection) = client.check_out().await else { return false };
    connection.run_command("admin", ping()).await.is_ok()
}

#[test]
fn a_member_that_hangs_answers_nobody_and_goes_on_later() {
    let sim = Sim::new(1);
    let (set, first) = set(&sim);

    sim.run(async {
        let client = client().await;
        assert!(answers(&client).await);

        set.hang(first, true);
        assert!(!answers(&client).await);

        set.hang(first, false);
        sim.sleep(2 * SECOND).await;
        assert!(answers(&client).await);
    });
}

#[test]
fn a_member_that_restarts_at_once_listens_once() {
    let sim = Sim::new(1);
    let (set, first) = set(&sim);

    sim.run(async {
        sim.sleep(SECOND).await;
        let tasks = sim.tasks();

        set.kill(first);
        set.restart(first);

        sim.sleep(SECOND).await;
        assert_eq!(sim.tasks(), tasks);
    });
}

#[test]
fn a_member_that_is_killed_while_it_hangs_does_not_hang_when_it_is_back() {
    let sim = Sim::new(2);
    let (set, first) = set(&sim);

    sim.run(async {
        set.hang(first, true);
        set.kill(first);
        set.restart(first);

        assert!(answers(&client().await).await);
    });
}

#[test]
fn the_connections_of_a_member_are_reset() {
    let sim = Sim::new(3);
    let (set, first) = set(&sim);

    sim.run(async {
        let client = client().await;
        let mut connection = client.check_out().await.unwrap();

        set.reset_connections(first);

        let error = connection.run_command("admin", ping()).await.unwrap_err();
        assert!(matches!(error.kind, CommandErrorKind::Network(_)), "{error}");
    });
}

#[test]
fn what_is_used_of_a_silent_member_is_lost_for_ever() {
    let sim = Sim::new(4);
    let (set, first) = set(&sim);

    sim.run(async {
        let client = client().await;
        let mut connection = client.check_out().await.unwrap();

        set.set_reachability(first, Reachability::Silent);
        let error = connection.run_command("admin", ping()).await.unwrap_err();
        assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
        set.set_reachability(first, Reachability::Up);
        drop(connection);

        sim.sleep(3 * SECOND).await;
        assert!(answers(&client).await);
    });
}

#[test]
fn a_client_that_has_just_begun_warms_up_all_members_and_does_not_wait_for_a_silent_one_x_96() {
    for seed in 0..20 {
        let sim = Sim::new(seed);
        let (set, _) = set(&sim);

        sim.run(async {
            let client = Client::connect("mongodb://a.example,b.example,c.example/?replicaSet=rs0").await.unwrap();
            let nearest = ReadPreference::new(ReadMode::Nearest);

            let warm = client.warm_up_for(nearest.clone(), 2, SECOND).await.unwrap();
            assert_eq!((warm.len(), client.stats().established), (3, 6), "seed {seed}");

            let secondary =
                set.members().into_iter().map(|(member, _)| member).find(|&member| set.primary() != Some(member));
            set.set_reachability(secondary.unwrap(), Reachability::Silent);
            let other = Client::connect("mongodb://a.example,b.example,c.example/?replicaSet=rs0").await.unwrap();
            let warm = other.warm_up_for(nearest, 2, SECOND).await.unwrap();
            assert_eq!((warm.len(), other.stats().established), (2, 4), "seed {seed}");
        });
    }
}

#[test]
fn a_machine_that_is_switched_off_tells_nobody() {
    let sim = Sim::new(5);
    let (set, first) = set(&sim);

    sim.run(async {
        let client = client().await;
        let mut connection = client.check_out().await.unwrap();

        set.switch_off(first);
        let error = connection.run_command("admin", ping()).await.unwrap_err();
        assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
        drop(connection);
        set.restart(first);

        sim.sleep(3 * SECOND).await;
        assert!(answers(&client).await);
    });
}

#[test]
fn a_lost_connection_ends_at_its_server_when_its_client_has_gone() {
    let sim = Sim::new(6);
    let (set, first) = set(&sim);

    sim.run(async {
        let before = sim.tasks();
        let client = client().await;
        assert!(answers(&client).await);
        while set.lose_connection(first) && sim.elapsed() < SECOND {
            sim.sleep(SECOND / 10).await;
        }

        set.end_lost_connections(first);
        assert!(sim.tasks() > before, "the client uses them still");
        client.close(Duration::ZERO).await.unwrap();
        drop(client);
        sim.sleep(5 * SECOND).await;
        set.end_lost_connections(first);
        sim.sleep(SECOND).await;

        assert_eq!(sim.tasks(), before);
    });
}

#[test]
fn a_connection_is_lost_once() {
    let sim = Sim::new(8);
    let server = sim.server("db.example.com");

    sim.run(async {
        let client = Client::connect("mongodb://db.example.com/?serverMonitoringMode=poll").await.unwrap();
        drop(client.check_out().await.unwrap());

        let lost = (0..100).filter(|_| server.lose_connection()).count();

        assert!((1..10).contains(&lost), "{lost}");
    });
}

#[test]
fn a_clock_that_is_set_goes_on_from_there_and_time_as_before() {
    let sim = Sim::new(7);
    sim.run(async {
        let (day, elapsed) = (sim.unix_time(), sim.elapsed());

        sim.set_unix_time(day + 86_400 * SECOND);
        sim.sleep(SECOND).await;
        assert_eq!(sim.unix_time(), day + 86_401 * SECOND);
        sim.set_unix_time(Duration::ZERO);
        sim.sleep(SECOND).await;

        assert_eq!((sim.unix_time(), sim.elapsed()), (SECOND, elapsed + 2 * SECOND));
    });
}

#[test]
fn a_numbered_write_is_known_after_a_restart() {
    let sim = Sim::new(8);
    let server = sim.load_balancer("db.example", 1, |_| ());
    let session = cmap_sim::bson::Binary { subtype: cmap_sim::bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    let insert = rawdoc! {
        "insert": "orders", "documents": [{ "order": 1 }], "lsid": { "id": session }, "txnNumber": 1_i64,
    };

    for _ in 0..2 {
        let reply = server.run_command("shop", &insert).remove(0);
        assert_eq!(reply.get_i32("n").unwrap(), 1);
        server.restart(Data::Kept);
    }

    let count = server.run_command("shop", rawdoc! { "count": "orders" }).remove(0);
    assert_eq!(count.get_i32("n").unwrap(), 1);
}

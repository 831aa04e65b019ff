//! Cursors of a client of a replica set: what becomes of them when members change their roles, and of pauses when the client is
//! closed.

use std::time::Duration;

use cmap_sim::bson::{Bson, Document, doc, rawdoc};
use cmap_sim::cmap_core::address::ServerAddress;
use cmap_sim::cmap_core::topology::ServerSelector::{self, Writable};
use cmap_sim::{Client, Cursor, CursorError, MemberConfig, OperationErrorKind, Servers, SetConfig, Sim, for_seeds};

const HOUR: Duration = Duration::from_secs(3600);

fn set(sim: &Sim) -> Servers {
    sim.replica_set("rs", &["a.example", "b.example", "c.example"])
}

async fn fill(client: &Client) {
    let documents: Vec<Document> = (0..10).map(|n| doc! { "_id": n }).collect();
    let majority = doc! { "w": "majority" };
    let insert = doc! { "insert": "numbers", "documents": documents, "writeConcern": majority };
    client.operation(("db", insert)).on(Writable).run().await.unwrap();
}

async fn fail(client: &Client, mode: Bson, data: Document) {
    let fail_point = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
    client.operation(("admin", fail_point)).on(Writable).run().await.unwrap();
}

async fn find(client: &Client) -> Cursor {
    let find = rawdoc! { "find": "numbers", "sort": { "_id": 1 }, "batchSize": 2 };
    client.operation(("db", find)).on(Writable).cursor().await.unwrap()
}

async fn count(cursor: &mut Cursor) -> usize {
    let mut count = 0;
    while cursor.try_next().await.unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn a_cursor_survives_that_its_primary_steps_down_pin_3() {
    for_seeds(0..20, |seed| {
        let sim = Sim::new(seed);
        let set = set(&sim);
        sim.run(async {
            let client = Client::connect(&set.uri("")).await.unwrap();
            fill(&client).await;
            let mut cursor = find(&client).await;
            cursor.try_next().await.unwrap();

            set.step_down(Duration::from_secs(60));

            assert_eq!(count(&mut cursor).await, 9);
        });
    });
}

#[test]
fn a_cursor_says_that_its_server_has_left_x_58() {
    let sim = Sim::new(0);
    let set = set(&sim);
    sim.run(async {
        let client = Client::connect(&set.uri("")).await.unwrap();
        fill(&client).await;
        let leaving: ServerAddress = "c.example:27017".parse().unwrap();
        let find = rawdoc! { "find": "numbers", "batchSize": 1 };
        let find = client.operation(("db", find)).on(ServerSelector::AnyOf([leaving.clone()].into()));
        let mut cursor = find.cursor().await.unwrap();
        cursor.try_next().await.unwrap();

        let members = ["a.example", "b.example"].map(|host| format!("{host}:27017"));
        let mut config = SetConfig::new("rs", Vec::new());
        config.version = 2;
        config.members = (0..).zip(members).map(|(id, host)| MemberConfig::new(id, host)).collect();
        set.reconfigure(config);
        while client.description().servers.len() > 2 {
            sim.sleep(Duration::from_millis(10)).await;
        }

        let error = cursor.try_next().await.unwrap_err();
        let OperationErrorKind::Cursor(CursorError::ServerGone(address)) = &error.kind else { panic!("{error}") };
        assert_eq!(**address, leaving);
    });
}

#[test]
fn a_cursor_whose_get_more_takes_too_long_is_ended_on_the_server() {
    for_seeds(0..20, |seed| {
        let sim = Sim::new(seed);
        let server = sim.server("a.example");
        sim.run(async {
            let client = Client::connect(&server.uri("")).await.unwrap();
            fill(&client).await;
            let data = rawdoc! { "failCommands": ["getMore"], "blockConnection": true, "blockTimeMS": 5000 };
            let slow = rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
            client.operation(("admin", slow)).on(Writable).run().await.unwrap();
            let find = client.operation(("db", rawdoc! { "find": "numbers", "batchSize": 2 })).on(Writable);
            let mut cursor = find.within(Duration::from_secs(1)).cursor().await.unwrap();
            cursor.try_next().await.unwrap();
            cursor.try_next().await.unwrap();

            let error = cursor.try_next().await.unwrap_err();
            cursor.close().await;

            assert!(error.is_timeout(), "{error}");
            assert!(sim.elapsed() < Duration::from_secs(5), "the limit of killCursors begins anew");
            let reply = client.operation(("db", rawdoc! { "dbStats": 1 })).on(Writable).run().await.unwrap();
            assert_eq!(reply.get_i32("openCursors").unwrap(), 0);
        });
    });
}

#[test]
fn closing_a_client_ends_the_pauses_of_its_operations() {
    for_seeds(0..20, |seed| {
        let sim = Sim::new(seed);
        let server = sim.server("a.example");
        sim.run(async {
            let client = Client::connect(&server.uri("timeoutMS=3600000&maxAdaptiveRetries=1000")).await.unwrap();
            let labels = ["SystemOverloadedError", "RetryableError"];
            let data = doc! { "failCommands": ["find"], "errorCode": 462, "errorLabels": labels.to_vec() };
            fail(&client, "alwaysOn".into(), data).await;
            let (closing, runtime) = (client.clone(), sim.runtime().clone());
            sim.spawn(async move {
                runtime.sleep(Duration::from_secs(100)).await;
                closing.close(HOUR).await.unwrap();
            });

            let error = client.operation(("db", rawdoc! { "find": "numbers" })).on(Writable).run().await.unwrap_err();

            assert_eq!(error.code(), Some(462), "RTY-10: {error}");
            // A pause of seconds would have gone on.
            assert!(sim.elapsed() < Duration::from_millis(100_500), "{:?}", sim.elapsed());
        });
    });
}

#[test]
fn closing_a_client_does_not_hide_that_a_write_may_have_been_done_rty_11() {
    for_seeds(0..20, |seed| {
        let sim = Sim::new(seed);
        let set = sim.replica_set("rs", &["a.example"]);
        sim.run(async {
            let client = Client::connect(&set.uri("timeoutMS=3600000&maxAdaptiveRetries=1000")).await.unwrap();
            let cut_off = doc! {
                "failCommands": ["insert"], "blockConnection": true, "blockTimeMS": 1000, "closeConnection": true,
            };
            fail(&client, doc! { "times": 1 }.into(), cut_off).await;
            let (closing, runtime) = (client.clone(), sim.runtime().clone());
            sim.spawn(async move {
                // The first attempt is under way by then, and ends as was said before.
                runtime.sleep(Duration::from_millis(500)).await;
                let labels = vec!["SystemOverloadedError", "RetryableError", "NoWritesPerformed"];
                let refuse = doc! { "failCommands": ["insert"], "errorCode": 462, "errorLabels": labels };
                fail(&closing, "alwaysOn".into(), refuse).await;
                runtime.sleep(Duration::from_secs(100)).await;
                closing.close(HOUR).await.unwrap();
            });

            let insert = doc! { "insert": "numbers", "documents": [{ "_id": 1 }] };
            let error = client.operation(("db", insert)).on(Writable).run().await.unwrap_err();

            assert!(error.is_network() && error.retries > 1, "{error}");
        });
    });
}

//! `currentOp` and `killOp`.

use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_tokio::{Client, Connection, OperationError};
use tokio::task::JoinHandle;

use super::house::{Plan, SOON, ask, code, eventually, slow};
use super::servers::Servers;

/// Runs a command that takes a minute.
fn run_long(client: &Client) -> JoinHandle<Result<(), OperationError>> {
    let client = client.clone();
    tokio::spawn(async move { client.operation(("test", slow())).on(Writable).run().await.map(drop) })
}

async fn insert_one(client: &Client) {
    client.run(("test", rawdoc! { "insert": "c", "documents": [{ "pin": "4711" }] })).await.unwrap();
}

async fn current(connection: &mut Connection, command: RawDocumentBuf) -> Vec<RawDocumentBuf> {
    let reply = ask(connection, "admin", command).await;
    let list = reply.get_array("inprog").unwrap_or_else(|_| panic!("{reply:?}"));
    list.into_iter().map(|operation| operation.unwrap().as_document().unwrap().to_owned()).collect()
}

/// Whether it is the command that takes long. The one before is listed, too, until the hub knows that its client has the reply.
fn is_long(operation: &RawDocument) -> bool {
    operation.get_document("command").unwrap().get("find").unwrap().is_some()
}

fn is_long_and_active(operation: &RawDocument) -> bool {
    is_long(operation) && operation.get_bool("active").unwrap()
}

fn id_of(operation: &RawDocument) -> i64 {
    operation.get_i64("opid").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_see_and_end_their_own_operations_and_no_others_x_138() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("anna", "").user("ben", "").start().await;
    let (anna, ben) = (house.client_as("anna", "").await, house.client_as("ben", "").await);
    insert_one(&anna).await;
    let (mut own, mut other) = (anna.check_out().await.unwrap(), ben.check_out().await.unwrap());
    let running = run_long(&anna);
    let mut listed = Vec::new();
    eventually("it runs", async || {
        listed = current(&mut own, rawdoc! { "currentOp": 1 }).await;
        listed.len() == 1 && is_long_and_active(&listed[0])
    })
    .await;
    let id = id_of(&listed[0]);
    assert_eq!(listed[0].get_str("ns").unwrap(), "test.c");
    assert_eq!(listed[0].get_document("command").unwrap(), &*rawdoc! { "find": "c", "$db": "test" }, "no contents");

    assert!(current(&mut other, rawdoc! { "currentOp": 1 }).await.is_empty());
    let foreign = ask(&mut other, "admin", rawdoc! { "killOp": 1, "op": id }).await;
    let unknown = ask(&mut other, "admin", rawdoc! { "killOp": 1, "op": id + 1000 }).await;
    assert_eq!((code(&foreign), code(&unknown)), (Some(13), Some(13)));
    let told = |reply: &RawDocument, id: i64| reply.get_str("errmsg").unwrap().replace(&id.to_string(), "N");
    assert_eq!(told(&foreign, id), told(&unknown, id + 1000), "it does not say which of them there is");
    assert!(!running.is_finished());

    assert_eq!(code(&ask(&mut own, "admin", rawdoc! { "killOp": 1, "op": id }).await), None);
    let error = tokio::time::timeout(SOON, running).await.unwrap().unwrap().unwrap_err();
    assert!(error.to_string().contains("Interrupted"), "{error}");
    eventually("it is gone", async || current(&mut own, rawdoc! { "currentOp": 1 }).await.is_empty()).await;
    anna.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_waits_for_its_turn_is_listed_and_can_be_ended_x_138() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").user("anna", "").start().await;
    let anna = house.client_as("anna", "").await;
    insert_one(&anna).await;
    let mut connection = anna.check_out().await.unwrap();
    let (first, second) = (run_long(&anna), run_long(&anna));
    let mut listed = Vec::new();
    eventually("one runs, and one waits", async || {
        listed = current(&mut connection, rawdoc! { "currentOp": 1 }).await;
        let active = listed.iter().filter(|operation| is_long_and_active(operation)).count();
        (listed.len(), active) == (2, 1) && listed.iter().all(|operation| is_long(operation))
    })
    .await;

    for operation in listed.iter().rev() {
        let killed = ask(&mut connection, "admin", rawdoc! { "killOp": 1, "op": id_of(operation) }).await;
        assert_eq!(code(&killed), None);
    }

    for task in [first, second] {
        let error = tokio::time::timeout(SOON, task).await.unwrap().unwrap().unwrap_err();
        assert!(error.to_string().contains("Interrupted"), "{error}");
    }
    anna.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_names_the_commands_makes_an_operator_x_138() {
    let servers = Servers::single().await;
    let operator = "[[user.allow]]\ncommands = ['currentOp', 'killOp']";
    let house = Plan::before(&servers, "").user("anna", "").user("operator", operator).start().await;
    let (anna, operator) = (house.client_as("anna", "").await, house.client_as("operator", "").await);
    insert_one(&anna).await;
    let running = run_long(&anna);
    let mut connection = operator.check_out().await.unwrap();
    let mut listed = Vec::new();
    eventually("it is seen", async || {
        listed = current(&mut connection, rawdoc! { "currentOp": 1 }).await;
        listed.len() == 1 && is_long_and_active(&listed[0])
    })
    .await;
    let users = listed[0].get_array("effectiveUsers").unwrap();
    assert_eq!(users.get_document(0).unwrap().get_str("user").unwrap(), "anna");
    assert!(current(&mut connection, rawdoc! { "currentOp": 1, "$ownOps": true }).await.is_empty());

    let killed = ask(&mut connection, "admin", rawdoc! { "killOp": 1, "op": id_of(&listed[0]) }).await;

    assert_eq!(code(&killed), None);
    assert!(tokio::time::timeout(SOON, running).await.unwrap().unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stage_shows_a_users_own_operations_alone_x_138() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("anna", "").user("ben", "").start().await;
    let (anna, ben) = (house.client_as("anna", "").await, house.client_as("ben", "").await);
    insert_one(&anna).await;
    let running = run_long(&anna);
    let (mut own, mut other) = (anna.check_out().await.unwrap(), ben.check_out().await.unwrap());
    // As mongosh asks.
    let shell = || rawdoc! { "aggregate": 1, "pipeline": [{ "$currentOp": { "allUsers": true } }], "cursor": {} };
    let count = |reply: &RawDocument| {
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().into_iter().count()
    };

    eventually("it is seen", async || count(&ask(&mut own, "admin", shell()).await) == 1).await;
    assert_eq!(count(&ask(&mut other, "admin", shell()).await), 0);
    let filtered = rawdoc! {
        "aggregate": 1, "pipeline": [{ "$currentOp": {} }, { "$match": { "secs_running": { "$gt": 3 } } }], "cursor": {},
    };
    assert_eq!(code(&ask(&mut own, "admin", filtered).await), Some(72));
    assert_eq!(code(&ask(&mut own, "test", shell()).await), Some(13), "of admin alone");
    running.abort();
}

//! Tests in the unified format: matching, skipped tests and their reasons, and that a wrong expectation fails.

use crate::program::{Folder, spec_runner, stderr, stdout};
use bson::Bson;
use cmap_core::topology::ServerSelector;
use serde_json::{Value, json};
use spec_runner::suites::outcome::{Outcome, Round};
use spec_runner::suites::requirement::Topology;
use spec_runner::suites::unified::client::{Client, Engine};
use spec_runner::suites::unified::commands::Sending;
use spec_runner::suites::unified::engine::SimEngine;
use spec_runner::suites::unified::entities;
use spec_runner::suites::unified::format::{ClientEntity, Deployment, EventName, Severity, UnifiedFile};
use spec_runner::suites::unified::matching::Pattern;
use spec_runner::suites::unified::run;

fn nothing_saved(_: &str) -> Option<Bson> {
    None
}

fn compare(expected: Value, actual: Value) -> Result<(), String> {
    let actual = Bson::try_from(actual).unwrap();
    let pattern = Pattern::try_from(expected).unwrap();
    pattern.compare(Some(&actual), &nothing_saved).map_err(|mismatch| mismatch.to_string())
}

#[track_caller]
fn matches(expected: Value, actual: Value) {
    assert_eq!(compare(expected, actual), Ok(()));
}

#[track_caller]
fn differs(expected: Value, actual: Value, why: &str) {
    assert_eq!(compare(expected, actual), Err(why.to_owned()));
}

#[test]
fn only_documents_of_the_top_level_may_have_more_keys() {
    matches(json!({ "insert": "c" }), json!({ "insert": "c", "ordered": true }));
    matches(json!([{ "_id": 1 }]), json!([{ "_id": 1, "x": 2 }]));
    differs(json!({ "a": { "b": 1 } }), json!({ "a": { "b": 1, "c": 2 } }), "a.c: expected nothing, got 2");
    differs(json!({ "a": 1 }), json!({}), "a: expected 1, got nothing");
    differs(json!([1]), json!([1, 2]), "expected 1 items, got [1,2]");
}

#[test]
fn numbers_match_by_value_and_types_by_name() {
    matches(json!({ "ok": 1 }), json!({ "ok": 1.0 }));
    matches(json!({ "id": 5 }), json!({ "id": { "$numberLong": "5" } }));
    matches(json!({ "id": { "$$type": ["int", "long"] } }), json!({ "id": { "$numberLong": "5" } }));
    differs(
        json!({ "id": { "$$type": ["int", "long"] } }),
        json!({ "id": "5" }),
        "id: expected a value of type int or long, got \"5\"",
    );
    matches(json!({ "maxTimeMS": { "$$lte": 450 } }), json!({ "maxTimeMS": 450 }));
    differs(
        json!({ "maxTimeMS": { "$$lte": 450 } }),
        json!({ "maxTimeMS": 451 }),
        "maxTimeMS: expected at most 450, got 451",
    );
}

#[test]
fn rules_say_what_may_be_missing() {
    matches(json!({ "lsid": { "$$exists": true } }), json!({ "lsid": null }));
    differs(json!({ "lsid": { "$$exists": true } }), json!({}), "lsid: expected anything, got nothing");
    differs(json!({ "lsid": { "$$exists": false } }), json!({ "lsid": 1 }), "lsid: expected nothing, got 1");
    matches(json!({ "n": { "$$unsetOrMatches": 1 } }), json!({}));
    differs(json!({ "n": { "$$unsetOrMatches": 1 } }), json!({ "n": 2 }), "n: expected 1, got 2");
}

#[test]
fn a_text_can_be_a_document() {
    let reply = json!({ "reply": { "$$matchAsDocument": { "$$matchAsRoot": { "ok": 1 } } } });
    matches(reply.clone(), json!({ "reply": "{\"ok\": 1.0, \"x\": true}" }));
    differs(reply.clone(), json!({ "reply": "{\"ok\": 0.0}" }), "reply.ok: expected 1, got 0.0");
    differs(reply, json!({ "reply": "ok" }), "reply: expected a text that is a document, got \"ok\"");
}

#[test]
fn a_rule_that_is_not_known_is_no_document() {
    let problem = Pattern::try_from(json!({ "lsid": { "$$sessionId": "session0" } })).unwrap_err();
    assert_eq!(problem, "unknown rule `$$sessionId`");
}

/// A file with one client, its database, and one test that has these entries.
fn file(test: Value) -> Value {
    let mut entries = json!({ "description": "a test", "operations": [] });
    entries.as_object_mut().unwrap().extend(test.as_object().unwrap().clone());
    json!({
        "description": "a file",
        "schemaVersion": "1.4",
        "createEntities": [
            { "client": {
                "id": "client",
                "observeEvents": ["commandStartedEvent", "connectionCheckedOutEvent", "poolClearedEvent"],
                "uriOptions": { "retryReads": false },
            } },
            { "database": { "id": "db", "client": "client", "databaseName": "test" } },
            { "collection": { "id": "coll", "database": "db", "collectionName": "c" } },
        ],
        "initialData": [{ "databaseName": "test", "collectionName": "c", "documents": [{ "_id": 1 }] }],
        "tests": [entries],
    })
}

fn outcome(file: Value) -> Outcome {
    let file = UnifiedFile::from_json(file).unwrap();
    run(&file, 0..=3).map(|(_, outcome)| outcome).next().unwrap()
}

#[track_caller]
fn fails(test: Value, reason: &str) {
    let Outcome::Failed { round: Some(Round::Seed(0)), reasons } = outcome(file(test)) else {
        panic!("it does not fail")
    };
    assert!(reasons[0].contains(reason), "\n expected: {reason}\n   actual: {}", reasons[0]);
}

#[track_caller]
fn is_skipped(file: Value, reason: &str) {
    let Outcome::Skipped { reason: actual } = outcome(file) else { panic!("it is not skipped") };
    assert!(actual.contains(reason), "\n expected: {reason}\n   actual: {actual}");
}

fn ping() -> Value {
    json!({ "name": "runCommand", "object": "db", "arguments": { "commandName": "ping", "command": { "ping": 1 } } })
}

fn find(expectation: Value) -> Value {
    let mut find = json!({ "name": "find", "object": "coll", "arguments": { "filter": {} } });
    find.as_object_mut().unwrap().extend(expectation.as_object().unwrap().clone());
    find
}

fn fail_point(data: Value) -> Value {
    let fail_point = json!({ "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data });
    json!({ "name": "failPoint", "object": "testRunner", "arguments": { "client": "client", "failPoint": fail_point } })
}

#[test]
fn what_is_as_expected_passes() {
    let test = json!({
        "operations": [ping(), find(json!({ "expectResult": [{ "_id": 1 }] }))],
        "expectEvents": [{ "client": "client", "events": [
            { "commandStartedEvent": { "commandName": "ping", "databaseName": "test", "command": { "ping": 1 } } },
            { "commandStartedEvent": { "commandName": "find" } },
        ] }],
        "outcome": [{ "databaseName": "test", "collectionName": "c", "documents": [{ "_id": 1 }] }],
    });
    assert_eq!(outcome(file(test)), Outcome::Passed);
}

#[test]
fn a_wrong_event_fails() {
    let events =
        |events: Value| json!({ "operations": [ping()], "expectEvents": [{ "client": "client", "events": events }] });
    let started = |name: &str| json!({ "commandStartedEvent": { "commandName": name } });
    fails(events(json!([started("pong")])), "commandName: expected \"pong\", got \"ping\"");
    fails(events(json!([started("ping"), started("ping")])), "expected CommandStartedEvent, got no more events");
    fails(events(json!([])), "expected no more events, got CommandStartedEvent");
}

#[test]
fn a_wrong_result_error_or_outcome_fails() {
    fails(json!({ "operations": [find(json!({ "expectResult": [{ "_id": 2 }] }))] }), "[0]._id: expected 2, got 1");
    fails(
        json!({ "operations": [find(json!({ "expectError": { "isError": true } }))] }),
        "expected an error, got none",
    );
    let hit = fail_point(json!({ "failCommands": ["find"], "errorCode": 2 }));
    let wrong_code = find(json!({ "expectError": { "errorCode": 3 } }));
    fails(json!({ "operations": [hit, wrong_code] }), "the code 3; got the server's error 2");
    let outcome = json!([{ "databaseName": "test", "collectionName": "c", "documents": [] }]);
    fails(json!({ "operations": [ping()], "outcome": outcome }), "test.c afterwards: expected [], got [{\"_id\":1}]");
}

#[test]
fn a_failure_that_keeps_back_what_the_server_said_is_told_from_one_that_does_not() {
    let sasl_start = json!({
        "name": "runCommand", "object": "db", "expectError": { "isError": true },
        "arguments": { "commandName": "saslStart", "command": { "saslStart": 1, "payload": "none" } },
    });
    let logged = |is_redacted: bool| {
        let failed = json!({
            "level": "debug", "component": "command", "failureIsRedacted": is_redacted,
            "data": { "message": "Command failed", "failure": { "$$exists": true } },
        });
        let started = json!({ "level": "debug", "component": "command", "data": { "message": "Command started" } });
        let expected = json!([{ "client": "client", "messages": [started, failed] }]);
        let mut file = file(json!({ "operations": [sasl_start.clone()], "expectLogMessages": expected }));
        file["createEntities"][0]["client"]["observeLogMessages"] = json!({ "command": "debug" });
        file
    };

    assert_eq!(outcome(logged(true)), Outcome::Passed);
    let Outcome::Failed { reasons, .. } = outcome(logged(false)) else { panic!("it passes") };
    assert!(reasons[0].contains("expected a failure as the operation had it"), "{reasons:?}");
}

#[test]
fn an_event_that_does_not_come_is_not_waited_for_for_ever() {
    let event = json!({ "client": "client", "event": { "poolClearedEvent": {} }, "count": 1 });
    let wait = json!({ "name": "waitForEvent", "object": "testRunner", "arguments": event });
    fails(json!({ "operations": [wait] }), "client has had 0 of ");
}

#[test]
fn a_network_error_clears_the_pool_before_the_operation_ends() {
    let hit = fail_point(json!({ "failCommands": ["find"], "closeConnection": true }));
    let test = json!({
        "operations": [hit, find(json!({ "expectError": { "isClientError": true } }))],
        "expectEvents": [{ "client": "client", "eventType": "cmap", "events": [
            { "connectionCheckedOutEvent": {} },
            { "connectionCheckedOutEvent": {} },
            { "poolClearedEvent": { "hasServiceId": false, "interruptInUseConnections": false } },
        ] }],
    });
    let mut file = file(test);
    // Behind a load balancer the event has a service.
    file["runOnRequirements"] = json!([{ "topologies": ["single", "replicaset", "sharded"] }]);

    assert_eq!(outcome(file), Outcome::Passed);
}

#[test]
fn what_is_lacking_is_told() {
    let operation = |name: &str, arguments: Value| {
        file(json!({ "operations": [{ "name": name, "object": "coll", "arguments": arguments }] }))
    };
    is_skipped(operation("find", json!({ "filter": { "$where": "true" } })), "needs a server that runs JavaScript");
    is_skipped(operation("explode", json!({})), "tests[0].operations[0]: name: unknown value `explode`");
    is_skipped(operation("find", json!({ "filter": {}, "tailable": 1 })), "unknown argument `tailable` of find");
    is_skipped(operation("mapReduce", json!({})), "needs a server that runs JavaScript (mapReduce)");
    is_skipped(file(json!({ "skipReason": "nobody can" })), "its file says: nobody can");
    let sharded = json!([{ "topologies": ["sharded"], "minServerVersion": "9.0" }]);
    is_skipped(
        file(json!({ "runOnRequirements": sharded })),
        "is for version 9.0.0 or above, topology sharded; there is",
    );
    let mut unknown_option = file(json!({}));
    unknown_option["createEntities"][0]["client"]["uriOptions"] = json!({ "waitQueueSize": 5 });
    is_skipped(unknown_option, "needs the option \"waitQueueSize\"");
}

#[test]
fn a_read_is_tried_again_where_the_options_allow_it() {
    let with_retries = |retry_reads: bool, expected: Value| {
        let hit = fail_point(json!({ "failCommands": ["find"], "closeConnection": true }));
        let mut file = file(json!({ "operations": [hit, find(expected)] }));
        file["createEntities"][0]["client"]["uriOptions"] = json!({ "retryReads": retry_reads });
        file
    };
    assert_eq!(outcome(with_retries(true, json!({}))), Outcome::Passed);
    assert_eq!(outcome(with_retries(false, json!({ "expectError": { "isError": true } }))), Outcome::Passed);
}

#[test]
fn each_test_has_a_line_and_a_broken_outline_is_a_mistake() {
    let folder = Folder::new("unified");
    let good = folder.write("good.json", &file(json!({ "operations": [ping()] })).to_string());
    let bad = folder.write("outline.json", &json!({ "schemaVersion": "1.0", "tests": [] }).to_string());
    let output = spec_runner(&["run"], &[&folder.0]);
    assert_eq!(stdout(&output), format!("PASS {}: a test\n1 passed, 0 failed, 0 skipped\n", good.display()));
    assert_eq!(stderr(&output), format!("ERROR {}: missing field `description`\n", bad.display()));
    assert_eq!(output.status.code(), Some(2));
}

/// Everything that a client notes under a seed, times included.
fn notes(seed: u64) -> String {
    let engine = SimEngine::new(Deployment { topology: Topology::Single, auth: false }, seed);
    let entity = ClientEntity {
        id: "client".into(),
        observe_events: vec![EventName::ServerHeartbeatSucceededEvent, EventName::ConnectionReadyEvent],
        observe_log_messages: [("connection", Severity::Debug), ("topology", Severity::Debug)]
            .map(|(component, level)| (component.to_owned(), level))
            .into(),
        ..ClientEntity::default()
    };
    let notes = engine.run(async {
        let caller = entities::connect(&engine, &entity).await.unwrap();
        let session = caller.session(None, None);
        let sending = Sending { selector: ServerSelector::Writable, is_once: true };
        caller.run("admin", &bson::doc! { "ping": 1 }, sending, &session).await.unwrap();
        engine.sleep(core::time::Duration::from_secs(30)).await;
        caller.client.close().await;
        let notes = format!("{:?}", *caller.journal.read());
        notes
    });
    notes.unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let first = notes(3);
    assert!(first.contains("Connection ready") && first.contains("Server heartbeat succeeded"), "{first}");
    assert_eq!(first, notes(3));
    assert_ne!(first, notes(2));
}

//! The words that the test format allows, and how each mistake in a file is reported.

use serde_json::{Value, json};
use spec_runner::suites::cmap::format::{Case, ConnectionName, Interval, Operation, Style};

/// A file of style "unit" with these entries added to it, or put in place of its own.
fn unit(changes: Value) -> Value {
    let mut file = json!({ "version": 1, "style": "unit", "description": "d", "operations": [] });
    file.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    file
}

fn scenario(changes: Value) -> Value {
    let mut file = unit(json!({ "style": "scenario", "rules": ["CMAP-14"] }));
    file.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    file
}

#[track_caller]
fn refused(file: Value, problem: &str) {
    let actual = Case::from_json(file).unwrap_err().to_string();
    assert!(actual.starts_with(problem), "\n expected: {problem}\n   actual: {actual}");
}

#[track_caller]
fn operation_refused(operation: Value, problem: &str) {
    refused(unit(json!({ "operations": [{ "name": "ready" }, operation] })), problem);
}

#[track_caller]
fn scenario_refused(operation: Value, problem: &str) {
    refused(scenario(json!({ "operations": [operation] })), problem);
}

#[test]
fn words_outside_the_vocabulary_are_refused_with_their_place() {
    refused(unit(json!({ "foo": 1 })), "foo: unknown field `foo`");
    refused(unit(json!({ "style": "prose" })), "style: unknown value `prose`");
    refused(unit(json!({ "version": 2 })), "version: only version 1 is known, not 2");
    refused(unit(json!({ "poolOptions": { "foo": 1 } })), "poolOptions.foo: unknown field `foo`");
    refused(unit(json!({ "ignore": ["Foo"] })), "ignore[0]: unknown value `Foo`");
    refused(unit(json!({ "runOn": [{ "foo": 1 }] })), "runOn[0].foo: unknown field `foo`");
    refused(unit(json!({ "runOn": [{ "topology": ["ring"] }] })), "runOn[0].topology[0]: unknown value `ring`");
    refused(unit(json!({ "runOn": [{ "minServerVersion": "new" }] })), "runOn[0].minServerVersion: \"new\" is not");
    refused(unit(json!({ "error": { "type": "FooError" } })), "error.type: unknown value `FooError`");
    refused(unit(json!({ "error": { "type": "PoolClosedError", "code": 1 } })), "error.code: unknown field `code`");
    refused(unit(json!({ "failPoint": { "mode": "off" } })), "failPoint: the command does not configure");
    let fail_point = json!({ "configureFailPoint": "failCommand", "mode": "off", "data": { "foo": 1 } });
    refused(unit(json!({ "failPoint": fail_point })), "failPoint: the fail point failCommand has no field 'foo'");
    operation_refused(json!({ "name": "explode" }), "operations[1]: unknown operation `explode`, expected one of");
    operation_refused(json!({ "name": "close", "foo": 1 }), "operations[1].foo: unknown field `foo`");
    operation_refused(json!({ "name": "wait", "ms": 1, "foo": 1 }), "operations[1].foo: unknown field `foo`");
    operation_refused(json!({ "name": "waitForEvent", "event": "Foo", "count": 1 }), "operations[1].event: unknown");
    operation_refused(json!({ "ms": 1 }), "operations[1]: missing field `name`");
    operation_refused(json!({ "name": "wait" }), "operations[1]: missing field `ms`");
}

#[test]
fn values_of_a_wrong_type_or_size_are_refused_with_their_place() {
    refused(unit(json!({ "poolOptions": 5 })), "poolOptions: invalid type: integer `5`, expected an object");
    refused(unit(json!({ "poolOptions": null })), "poolOptions: null has no meaning here");
    for size in [json!(-1), json!(4_294_967_296_u64), json!("5"), json!(1.5)] {
        refused(unit(json!({ "poolOptions": { "maxPoolSize": size } })), "poolOptions.maxPoolSize: invalid ");
    }
    for interval in [json!(0), json!(4_294_967_296_u64), json!("5")] {
        let options = json!({ "backgroundThreadIntervalMS": interval });
        refused(unit(json!({ "poolOptions": options })), "poolOptions.backgroundThreadIntervalMS: ");
    }
    operation_refused(json!("ready"), "operations[1]: invalid type: string \"ready\", expected a map");
    operation_refused(json!({ "name": "ready", "thread": 1 }), "operations[1].thread: invalid type");
    operation_refused(
        json!({ "name": "wait", "ms": -1 }),
        "operations[1].ms: invalid value: integer `-1`, expected an integer from 0 to 4294967295",
    );
    operation_refused(json!({ "name": "clear", "interruptInUseConnections": 1 }), "operations[1].interruptInUse");
    refused(unit(json!({ "error": { "type": "PoolClosedError", "message": 1 } })), "error.message: expected a string");
}

#[test]
fn events_that_no_pool_can_report_are_refused_with_their_place() {
    let event_refused = |event: Value, problem: &str| refused(unit(json!({ "events": [event] })), problem);
    event_refused(json!({ "type": "Foo" }), "events[0].type: unknown value `Foo`");
    event_refused(json!({ "address": 42 }), "events[0]: missing field `type`");
    event_refused(json!({ "type": "ConnectionReady", "foo": 1 }), "events[0].foo: unknown field of an event");
    event_refused(json!({ "type": "ConnectionClosed", "reason": "timeout" }), "events[0].reason: unknown reason");
    event_refused(json!({ "type": "ConnectionReady", "reason": "idle" }), "events[0].reason: ConnectionReady has no");
    event_refused(json!({ "type": "ConnectionReady", "connectionId": 0 }), "events[0].connectionId: expected");
    event_refused(json!({ "type": "ConnectionPoolCreated", "options": { "foo": 1 } }), "events[0].options.foo: ");
    refused(
        unit(json!({ "events": [{ "type": "ConnectionReady" }], "ignore": ["ConnectionReady"] })),
        "events[0]: ConnectionReady is expected and ignored at once",
    );
}

#[test]
fn names_that_mean_nothing_are_refused_with_their_place() {
    operation_refused(json!({ "name": "checkIn", "connection": "c" }), "operations[1].connection: no earlier checkOut");
    operation_refused(json!({ "name": "checkOut", "thread": "t" }), "operations[1].thread: thread \"t\" was never");
    operation_refused(json!({ "name": "waitForThread", "target": "t" }), "operations[1].target: thread \"t\" was");
    let start = json!({ "name": "start", "target": "t" });
    refused(unit(json!({ "operations": [start, start] })), "operations[1].target: thread \"t\" is started twice");
    let itself = json!({ "name": "waitForThread", "target": "t", "thread": "t" });
    refused(unit(json!({ "operations": [start, itself] })), "operations[1].target: thread \"t\" would wait for itself");
    scenario_refused(json!({ "name": "clear", "service": "s" }), "operations[0].service: server.serviceIds");
    scenario_refused(json!({ "name": "hangUp", "connection": "c" }), "operations[0].connection: no earlier checkOut");
    scenario_refused(json!({ "name": "hangUp", "connection": 0 }), "operations[0].connection: connections are");
    scenario_refused(
        json!({ "name": "checkOut", "user": "u" }),
        "operations[0].user: server.users does not name \"u\"",
    );
    refused(
        scenario(json!({ "server": { "users": { "u": "accepted" } } })),
        "server.users: users need a server that has",
    );
    refused(
        scenario(json!({ "events": [{ "type": "ConnectionPoolCleared", "serviceId": "s" }] })),
        "events[0].serviceId: server.serviceIds does not name \"s\"",
    );
}

#[test]
fn another_thread_may_check_in_what_is_checked_out_later() {
    let operations = json!([
        { "name": "start", "target": "t" },
        { "name": "waitForEvent", "event": "ConnectionCheckedOut", "count": 1, "thread": "t" },
        { "name": "checkIn", "connection": "c", "thread": "t" },
        { "name": "checkOut", "label": "c" },
    ]);
    assert!(Case::from_json(unit(json!({ "operations": operations }))).is_ok());
}

#[test]
fn official_styles_refuse_the_words_of_scenarios() {
    let extension = |changes: Value, place: &str| {
        refused(unit(changes), &format!("{place}: belongs to style \"scenario\""));
    };
    extension(json!({ "rules": ["CMAP-1"] }), "rules");
    extension(json!({ "exact": true }), "exact");
    extension(json!({ "server": {} }), "server");
    extension(json!({ "poolOptions": { "loadBalanced": true } }), "poolOptions.loadBalanced");
    extension(json!({ "poolOptions": { "checkAfterIdleMS": 1 } }), "poolOptions.checkAfterIdleMS");
    extension(json!({ "error": { "type": "CancelledError" } }), "error.type");
    extension(json!({ "events": [{ "type": "ConnectionClosed", "error": "reset" }] }), "events[0].error");
    for (field, operation) in [
        ("timeoutMS", json!({ "name": "checkOut", "timeoutMS": 5 })),
        ("user", json!({ "name": "checkOut", "user": "u" })),
        ("error", json!({ "name": "checkOut", "error": { "type": "PoolClosedError" } })),
        ("name", json!({ "name": "network", "mode": "up" })),
        ("name", json!({ "name": "assertCounts", "total": 1 })),
        ("name", json!({ "name": "hangUp", "connection": 1 })),
    ] {
        extension(json!({ "operations": [operation] }), &format!("operations[0].{field}"));
    }
}

#[test]
fn a_scenario_names_its_rules() {
    refused(unit(json!({ "style": "scenario" })), "rules: a scenario names the rules");
    refused(scenario(json!({ "rules": [] })), "rules: a scenario names the rules");
    refused(scenario(json!({ "rules": ["CMAP-1", "cmap 2"] })), "rules[1]: \"cmap 2\" is not a rule's id");
}

#[test]
fn every_word_of_scenarios_is_read() {
    let file = scenario(json!({
        "poolOptions": { "loadBalanced": true, "checkAfterIdleMS": -1, "backgroundThreadIntervalMS": 5 },
        "server": { "auth": true, "serviceIds": ["s"], "connectTimeoutMS": 100 },
        "operations": [
            { "name": "start", "target": "t" },
            { "name": "checkOut", "label": "c", "timeoutMS": 5, "error": { "type": "CancelledError" }, "thread": "t" },
            { "name": "cancel", "target": "t" },
            { "name": "hangUp", "connection": "c", "noticed": true },
            { "name": "hangUp", "connection": 1 },
            { "name": "network", "mode": "hang", "latencyMS": 5 },
            { "name": "failPoint", "failPoint": { "configureFailPoint": "failCommand", "mode": "off" } },
            { "name": "assertCounts", "total": 1, "available": 0, "pending": 0, "inUse": 1, "waiting": 0 },
            { "name": "clear", "service": "s" },
            { "name": "resize", "maxPoolSize": 5, "minPoolSize": 1, "maxConnecting": 0, "refused": "maxConnecting" },
            { "name": "checkIn", "connection": "c", "error": "timeout" },
        ],
        "events": [{ "type": "ConnectionPoolCleared", "serviceId": "s" }],
        "exact": false,
    }));
    let case = Case::from_json(file).unwrap();
    assert_eq!((case.style, case.exact), (Style::Scenario, false));
    assert_eq!(case.pool_options.check_after_idle, Some(Interval::Never));
    assert_eq!(case.pool_options.background_thread_interval, Some(Interval::Millis(5)));
    let by_id = Operation::HangUp { connection: ConnectionName::Id(1), noticed: false };
    assert_eq!(case.operations[4].operation, by_id);
    assert!(Case::from_json(scenario(json!({}))).unwrap().exact);
}

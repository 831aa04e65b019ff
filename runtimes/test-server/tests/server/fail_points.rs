//! The fail point `failCommand`.

use core::time::Duration;

use bson::{RawDocumentBuf, rawdoc};

use super::network::{Client, Network, anonymous, config};

fn configure(network: &mut Network, mode: impl Into<bson::RawBson>, data: RawDocumentBuf) {
    let mut admin = network.connect();
    let mode = mode.into();
    network.admin(&mut admin, &rawdoc! { "configureFailPoint": "failCommand", "mode": mode, "data": data });
}

fn pings(network: &mut Network, client: &mut Client, count: usize) -> Vec<Option<i32>> {
    (0..count).map(|_| network.run(client, "admin", &rawdoc! { "ping": 1 }).get_i32("code").ok()).collect()
}

#[test]
fn an_error_code_replaces_the_reply() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    let data = rawdoc! { "failCommands": ["ping"], "errorCode": 10107, "errorLabels": ["Mine"] };
    configure(&mut network, "alwaysOn", data);

    let error = network.fail(&mut client, "admin", &rawdoc! { "ping": 1 });

    assert_eq!((error.code, error.code_name.as_deref()), (Some(10107), Some("NotWritablePrimary")));
    assert_eq!(error.message, "Failing command via 'failCommand' failpoint");
    assert_eq!((error.labels, error.topology_version), (vec!["Mine".into()], None), "SRV-3");
}

#[test]
fn modes_say_how_often_and_numbers_may_have_any_type() {
    for (mode, expected) in [
        (bson::RawBson::from(rawdoc! { "times": 2 }), [Some(91), Some(91), None]),
        (rawdoc! { "times": 2_i64 }.into(), [Some(91), Some(91), None]),
        (rawdoc! { "times": 2.0 }.into(), [Some(91), Some(91), None]),
        (rawdoc! { "skip": 2 }.into(), [None, None, Some(91)]),
        ("alwaysOn".into(), [Some(91), Some(91), Some(91)]),
        ("off".into(), [None, None, None]),
    ] {
        let mut network = Network::new(config());
        let mut client = network.connect();
        configure(&mut network, mode.clone(), rawdoc! { "failCommands": ["ping"], "errorCode": 91.0 });

        assert_eq!(pings(&mut network, &mut client, 3), expected, "{mode:?}");
    }
}

#[test]
fn off_ends_it() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    configure(&mut network, "alwaysOn", rawdoc! { "failCommands": ["ping", "configureFailPoint"], "errorCode": 91 });

    network.admin(&mut client, &rawdoc! { "configureFailPoint": "failCommand", "mode": "off" });

    assert_eq!(pings(&mut network, &mut client, 1), [None]);
}

#[test]
fn only_the_application_that_is_named_is_hit() {
    let mut network = Network::new(config());
    let mut options = anonymous();
    options.metadata.app_name = Some("mine".into());
    let (mut mine, mut other) = (network.establish(&options).unwrap(), network.connect());
    configure(&mut network, "alwaysOn", rawdoc! { "failCommands": ["ping"], "errorCode": 91, "appName": "mine" });

    assert_eq!(pings(&mut network, &mut other, 1), [None]);
    assert_eq!(pings(&mut network, &mut mine, 1), [Some(91)]);
}

#[test]
fn a_first_hello_says_its_application_before_it_fails() {
    let mut network = Network::new(config());
    let data = rawdoc! { "failCommands": ["hello"], "errorCode": 91, "appName": "mine" };
    configure(&mut network, rawdoc! { "times": 1 }, data);
    let mut options = anonymous();
    options.metadata.app_name = Some("mine".into());

    assert!(network.establish(&anonymous()).is_ok());
    assert!(network.establish(&options).is_err());
    assert!(network.establish(&options).is_ok());
}

#[test]
fn only_the_collection_that_is_named_is_hit() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    configure(&mut network, "alwaysOn", rawdoc! { "failCommands": ["find"], "errorCode": 91, "namespace": "db.one" });

    assert_eq!(network.run(&mut client, "db", &rawdoc! { "find": "two" }).get_i32("code").ok(), None);
    assert_eq!(network.run(&mut client, "db", &rawdoc! { "find": "one" }).get_i32("code").ok(), Some(91));
}

#[test]
fn a_get_more_is_one_of_its_cursors_collection() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    network.run(&mut client, "db", &rawdoc! { "insert": "one", "documents": [{}, {}] });
    let find = rawdoc! { "find": "one", "batchSize": 1 };
    let id = network.run(&mut client, "db", &find).get_document("cursor").unwrap().get_i64("id").unwrap();
    configure(
        &mut network,
        "alwaysOn",
        rawdoc! { "failCommands": ["getMore"], "errorCode": 91, "namespace": "db.one" },
    );

    assert_eq!(network.fail(&mut client, "db", &rawdoc! { "getMore": id, "collection": "one" }).code, Some(91));
}

#[test]
fn it_hangs_up_on_the_connection_that_it_hits_alone() {
    let mut network = Network::new(config());
    let (mut client, mut other) = (network.connect(), network.connect());
    configure(&mut network, rawdoc! { "times": 1 }, rawdoc! { "failCommands": ["ping"], "closeConnection": true });

    network.start(&mut client, "admin", &rawdoc! { "ping": 1 });

    assert!(network.has_hung_up_on(client.id) && network.receive(client.id).is_empty());
    assert_eq!(pings(&mut network, &mut other, 1), [None]);
}

#[test]
fn a_blocked_connection_waits_in_order_and_the_others_do_not() {
    let mut network = Network::new(config());
    let (mut client, mut other) = (network.connect(), network.connect());
    let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 300, "errorCode": 91 };
    configure(&mut network, rawdoc! { "times": 1 }, data);

    network.start(&mut client, "admin", &rawdoc! { "ping": 1 });
    let second = super::network::message(77, cmap_core::wire::Flags::NONE, "admin", &rawdoc! { "buildInfo": 1 });
    network.send(client.id, &second);

    assert_eq!(pings(&mut network, &mut other, 1), [None], "the other connection goes on");
    network.pass(Duration::from_millis(299));
    assert!(network.receive(client.id).is_empty());
    network.pass(Duration::from_millis(1));
    let replies = network.receive_messages(client.id);
    assert_eq!(replies.len(), 2);
    assert_eq!(replies[0].body.get_i32("code").unwrap(), 91);
    assert_eq!(replies[1].ids.response_to, 77);
}

#[test]
fn a_write_concern_error_does_not_keep_the_command_from_being_carried_out() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    let error = rawdoc! { "code": 64, "errmsg": "timed out", "errInfo": { "w": 2 } };
    configure(
        &mut network,
        rawdoc! { "times": 1 },
        rawdoc! { "failCommands": ["insert"], "writeConcernError": error.clone() },
    );
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] };

    let reply = network.run(&mut client, "db", &insert);

    assert_eq!((reply.get_f64("ok").unwrap(), reply.get_i32("n").unwrap()), (1.0, 1));
    assert_eq!(reply.get_document("writeConcernError").unwrap(), &*error);
}

#[test]
fn what_the_model_does_not_know_is_refused() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    for (command, code) in [
        (rawdoc! { "configureFailPoint": "hangAnalyze", "mode": "off" }, 167),
        (rawdoc! { "configureFailPoint": "failCommand", "mode": "sometimes" }, 2),
        (rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": -1 } }, 2),
        (rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "unknown": 1 } }, 2),
        (rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "errorCode": "x" } }, 14),
    ] {
        assert_eq!(network.fail(&mut client, "admin", &command).code, Some(code), "{command:?}");
    }
}

#[test]
fn a_time_limit_can_be_made_to_count_as_exceeded() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    network.admin(&mut client, &rawdoc! { "configureFailPoint": "maxTimeAlwaysTimeOut", "mode": "alwaysOn" });

    assert_eq!(network.fail(&mut client, "db", &rawdoc! { "find": "c", "maxTimeMS": 1 }).code, Some(50));
    network.run(&mut client, "db", &rawdoc! { "find": "c" });
    network.run(&mut client, "db", &rawdoc! { "find": "c", "maxTimeMS": 0 });
}

#[test]
fn the_time_limit_of_a_cursor_can_be_made_to_count_as_exceeded() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    network.run(&mut client, "db", &rawdoc! { "insert": "c", "documents": [{}, {}] });
    let mut open = |limit| {
        let find = rawdoc! { "find": "c", "batchSize": 1, "maxTimeMS": limit };
        let reply = network.run(&mut client, "db", &find);
        rawdoc! { "getMore": reply.get_document("cursor").unwrap().get_i64("id").unwrap(), "collection": "c" }
    };
    let (limited, unlimited) = (open(1000), open(0));
    network.admin(&mut client, &rawdoc! { "configureFailPoint": "maxTimeAlwaysTimeOut", "mode": "alwaysOn" });

    assert_eq!(network.fail(&mut client, "db", &limited).code, Some(50));
    network.run(&mut client, "db", &unlimited);
}

#[test]
fn a_get_more_whose_cursor_is_open_fails_and_closes_it() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    network.run(&mut client, "db", &rawdoc! { "insert": "c", "documents": [{}, {}, {}] });
    let find = rawdoc! { "find": "c", "batchSize": 1 };
    let id = network.run(&mut client, "db", &find).get_document("cursor").unwrap().get_i64("id").unwrap();
    let name = "failGetMoreAfterCursorCheckout";
    let on = rawdoc! { "configureFailPoint": name, "mode": { "times": 1 }, "data": { "errorCode": 280 } };
    network.admin(&mut client, &on);

    let unknown = network.fail(&mut client, "db", &rawdoc! { "getMore": 7_i64, "collection": "c" });
    let failed = network.fail(&mut client, "db", &rawdoc! { "getMore": id, "collection": "c" });
    let closed = network.fail(&mut client, "db", &rawdoc! { "getMore": id, "collection": "c" });

    assert_eq!([unknown.code, failed.code, closed.code], [Some(43), Some(280), Some(43)]);
    let without_code = rawdoc! { "configureFailPoint": name, "mode": "alwaysOn" };
    assert_eq!(network.fail(&mut client, "admin", &without_code).code, Some(2));
}

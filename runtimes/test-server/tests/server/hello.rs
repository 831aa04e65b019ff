//! The hello: its names and forms, metadata, compression, load balancers, and news that are waited for.

use core::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use cmap_core::wire::{Content, Decoder, Flags, Limits};
use cmap_test_server::ClientId;

use super::network::{Network, anonymous, config, message, query};

fn hello(network: &mut Network, client: ClientId, command: &RawDocumentBuf) -> RawDocumentBuf {
    network.send(client, &message(1, Flags::NONE, "admin", command));
    network.receive_messages(client).remove(0).body
}

/// A client that streams hellos, every second.
fn stream(network: &mut Network) -> ClientId {
    let client = network.accept();
    let first = hello(network, client, &rawdoc! { "hello": 1 });
    let version = first.get_document("topologyVersion").unwrap().to_owned();
    let awaited = rawdoc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 1000 };
    network.send(client, &message(2, Flags::EXHAUST_ALLOWED, "admin", &awaited));
    client
}

#[test]
fn an_op_query_asks_for_the_hello_and_for_nothing_else_srv_1() {
    let mut network = Network::new(config());
    for (command, code) in [
        (rawdoc! { "isMaster": 1 }, None),
        (rawdoc! { "ismaster": 1 }, None),
        (rawdoc! { "hello": 1 }, None),
        (rawdoc! { "ping": 1 }, Some(352)),
    ] {
        let client = network.accept();
        network.send(client, &query(9, &command));

        let bytes = network.receive(client);
        let mut decoder = Decoder::new();
        let Content::Reply(reply) = decoder.decode(&bytes, &Limits::DEFAULT).unwrap().content else { panic!() };
        assert_eq!(reply.header.ids.response_to, 9);
        let body = reply.documents().next().unwrap();
        assert_eq!(body.get_i32("code").ok(), code, "{command:?}");
        assert_eq!(body.get_bool("ismaster").is_ok(), command.get("hello").unwrap().is_none() && code.is_none());
    }
}

#[test]
fn the_reply_says_what_the_server_takes() {
    let mut network = Network::new(config());
    let client = network.accept();

    let reply = hello(&mut network, client, &rawdoc! { "hello": 1, "helloOk": true });

    assert!(reply.get_bool("helloOk").unwrap() && reply.get_bool("isWritablePrimary").unwrap());
    assert_eq!(reply.get_i32("maxBsonObjectSize").unwrap(), 16_777_216);
    assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 21);
    assert_eq!(reply.get_i32("connectionId").unwrap(), 1);
    assert_eq!(reply.get_datetime("localTime").unwrap().timestamp_millis(), 1_700_000_000_000);
}

#[test]
fn metadata_comes_once_and_is_short_srv_6_hs_6() {
    let mut network = Network::new(config());
    let (driver, os) = (rawdoc! { "name": "d", "version": "1" }, rawdoc! { "type": "Linux" });
    let long = "x".repeat(512);
    for (metadata, code) in [
        (rawdoc! { "driver": driver.clone(), "os": os.clone() }, None),
        (rawdoc! { "driver": driver.clone(), "os": os.clone(), "platform": long }, Some(185)),
        (rawdoc! { "driver": driver.clone() }, Some(183)),
        (rawdoc! { "os": os.clone() }, Some(183)),
        (rawdoc! { "application": { "name": "y".repeat(129) }, "driver": driver, "os": os }, Some(184)),
    ] {
        let client = network.accept();
        let command = rawdoc! { "hello": 1, "client": metadata };

        let reply = hello(&mut network, client, &command);
        assert_eq!(reply.get_i32("code").ok(), code);
        if code.is_none() {
            let again = hello(&mut network, client, &command);
            assert_eq!(again.get_i32("code").ok(), Some(186));
        }
    }
}

#[test]
fn a_service_id_is_for_those_who_say_load_balanced_srv_7() {
    let (mut plain, mut balanced) = (
        Network::new(config()),
        Network::new({
            let mut config = config();
            config.load_balanced = true;
            config
        }),
    );
    let mut options = anonymous();
    options.load_balanced = true;

    let first = balanced.establish(&options).unwrap().connection.description().service_id;
    let second = balanced.establish(&options).unwrap().connection.description().service_id;

    assert!(first.is_some() && first == second, "one service for each process");
    assert!(balanced.connect().connection.description().service_id.is_none());
    assert!(plain.establish(&options).is_err());
}

#[test]
fn a_hello_that_knows_everything_waits_for_news() {
    let mut network = Network::new(config());
    let client = network.accept();
    let version =
        hello(&mut network, client, &rawdoc! { "hello": 1 }).get_document("topologyVersion").unwrap().to_owned();
    let awaited = rawdoc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 500 };

    network.send(client, &message(2, Flags::NONE, "admin", &awaited));

    network.pass(Duration::from_millis(499));
    assert!(network.receive(client).is_empty());
    network.pass(Duration::from_millis(1));
    assert_eq!(network.receive_messages(client).len(), 1);
    network.pass(Duration::from_secs(5));
    assert!(network.receive(client).is_empty(), "it did not ask for more than one");
}

#[test]
fn a_hello_that_knows_another_process_is_answered_at_once() {
    let mut network = Network::new(config());
    let client = network.accept();
    let other = rawdoc! { "processId": bson::oid::ObjectId::from_bytes([9; 12]), "counter": 0_i64 };

    let awaited = rawdoc! { "hello": 1, "topologyVersion": other, "maxAwaitTimeMS": 500 };

    assert_eq!(hello(&mut network, client, &awaited).get_f64("ok").unwrap(), 1.0);
}

#[test]
fn a_streaming_hello_is_answered_again_and_again_msg_8() {
    let mut network = Network::new(config());
    let client = stream(&mut network);

    network.pass(Duration::from_millis(3500));

    let replies = network.receive_messages(client);
    assert_eq!(replies.len(), 3);
    assert!(replies.iter().all(|reply| reply.flags.contains(Flags::MORE_TO_COME)));
    let answered: Vec<_> = replies.iter().map(|reply| reply.ids.response_to).collect();
    assert_eq!(answered, [2, replies[0].ids.request_id, replies[1].ids.request_id]);
    network.server.handle_hang_up(network.now, client);
    assert_eq!(network.server.poll_timeout(), None, "nothing is left of a client that hung up");
}

#[test]
fn a_stream_waits_for_a_client_that_does_not_read() {
    let mut network = Network::new(config());
    let client = stream(&mut network);
    network.server.hold(network.now, client);

    network.pass(Duration::from_secs(10));
    assert!(network.receive(client).is_empty());
    network.server.release(network.now, client);
    network.pass(Duration::from_millis(100));

    assert_eq!(network.receive_messages(client).len(), 1);
}

#[test]
fn a_fail_point_hits_every_streamed_reply_srv_3() {
    let mut network = Network::new(config());
    let client = stream(&mut network);
    let mut admin = network.connect();
    let fail = rawdoc! {
        "configureFailPoint": "failCommand", "mode": { "skip": 1 },
        "data": { "failCommands": ["isMaster"], "errorCode": 91 },
    };
    network.admin(&mut admin, &fail);

    // The reply that is awaited already, the one that is skipped, then the error: nothing follows it.
    network.pass(Duration::from_secs(10));

    let replies = network.receive_messages(client);
    let codes: Vec<_> = replies.iter().map(|reply| reply.body.get_i32("code").ok()).collect();
    assert_eq!(codes, [None, None, Some(91)]);
    let last = replies.last().unwrap();
    assert!(!last.flags.contains(Flags::MORE_TO_COME));
    assert!(last.body.get("topologyVersion").unwrap().is_none());
}

#[test]
fn a_blocking_fail_point_adds_to_the_time_a_hello_waits_srv_3() {
    let mut network = Network::new(config());
    let mut admin = network.connect();
    let fail = rawdoc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn",
        "data": { "failCommands": ["hello"], "blockConnection": true, "blockTimeMS": 250, "appName": "other" },
    };
    let client = stream(&mut network);
    network.admin(&mut admin, &fail);
    network.pass(Duration::from_millis(1000));
    assert_eq!(network.receive_messages(client).len(), 1, "another application's name");
    let mut fail = fail;
    fail = rawdoc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn",
        "data": { "failCommands": ["hello"], "blockConnection": true, "blockTimeMS": fail.get_document("data").unwrap().get_i32("blockTimeMS").unwrap() },
    };
    network.admin(&mut admin, &fail);
    network.pass(Duration::from_millis(1000));
    assert_eq!(network.receive_messages(client).len(), 1, "it waits already");

    network.pass(Duration::from_millis(1249));

    assert!(network.receive(client).is_empty());
    network.pass(Duration::from_millis(1));
    assert_eq!(network.receive_messages(client).len(), 1);
}

#[test]
fn behind_a_load_balancer_it_is_a_mongos() {
    for load_balanced in [true, false] {
        let mut config = config();
        config.load_balanced = load_balanced;
        let mut network = Network::new(config);
        let client = network.accept();

        let reply = hello(&mut network, client, &rawdoc! { "hello": 1 });

        assert_eq!(reply.get_str("msg").ok(), load_balanced.then_some("isdbgrid"));
    }
}

#[test]
fn a_stream_that_a_fail_point_holds_does_not_miss_news() {
    let mut config = config();
    config.replica_set = Some("rs0".into());
    let mut network = Network::new(config);
    let mut admin = network.connect();
    let client = stream(&mut network);
    let data = rawdoc! { "failCommands": ["hello"], "blockConnection": true, "blockTimeMS": 500 };
    network.admin(&mut admin, &rawdoc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data });
    network.pass(Duration::from_secs(1));
    assert_eq!(network.receive_messages(client).len(), 1);

    network.pass(Duration::from_millis(200));
    network.admin(&mut admin, &rawdoc! { "replSetStepDown": 60, "force": true });
    network.pass(Duration::from_millis(299));
    assert!(network.receive_messages(client).is_empty(), "it is held");
    network.pass(Duration::from_millis(1));

    let news = network.receive_messages(client);
    assert_eq!(news.len(), 1);
    assert!(!news[0].body.get_bool("isWritablePrimary").unwrap());
}

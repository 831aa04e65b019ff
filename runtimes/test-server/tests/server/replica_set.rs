//! The server as the only member of a replica set (SRV-8).

use core::time::Duration;

use bson::{RawDocumentBuf, rawdoc};

use super::network::{Network, config};

fn network() -> Network {
    let mut config = config();
    config.replica_set = Some("rs0".into());
    Network::new(config)
}

fn insert(number: i64, id: i32) -> RawDocumentBuf {
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![3; 16] };
    rawdoc! { "insert": "c", "documents": [{ "_id": id }], "lsid": { "id": session }, "txnNumber": number }
}

#[test]
fn its_hello_names_the_set_and_its_primary() {
    let mut network = network();
    let mut client = network.connect();

    let reply = network.admin(&mut client, &rawdoc! { "hello": 1 });

    assert_eq!(reply.get_str("setName").unwrap(), "rs0");
    assert_eq!(
        (reply.get_str("me").unwrap(), reply.get_str("primary").unwrap()),
        ("localhost:27017", "localhost:27017")
    );
    assert_eq!(reply.get_i32("setVersion").unwrap(), 1);
    assert!(reply.get_object_id("electionId").is_ok() && reply.get_document("lastWrite").is_ok());
    assert!(reply.get_document("$clusterTime").is_ok() && reply.get_timestamp("operationTime").is_ok());
}

#[test]
fn a_write_that_is_sent_twice_is_done_once() {
    let mut network = network();
    let mut client = network.connect();

    let first = network.run(&mut client, "db", &insert(1, 1));
    let second = network.run(&mut client, "db", &insert(1, 1));

    assert_eq!((first.get_i32("n").unwrap(), second.get_i32("n").unwrap()), (1, 1));
    let found = network.run(&mut client, "db", &rawdoc! { "find": "c" });
    assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().into_iter().count(), 1);
    network.run(&mut client, "db", &insert(2, 2));
    assert_eq!(network.fail(&mut client, "db", &insert(1, 1)).code, Some(225), "an older number");
}

#[test]
fn retryable_codes_of_a_fail_point_get_their_label_unless_it_says_otherwise() {
    let mut network = network();
    let mut client = network.connect();
    for (code, labels, command, expected) in [
        (91, None, insert(1, 1), vec!["RetryableWriteError"]),
        (2, None, insert(2, 1), vec![]),
        (91, Some(bson::RawArrayBuf::new()), insert(3, 1), vec![]),
        (91, None, rawdoc! { "insert": "c", "documents": [] }, vec![]),
    ] {
        let mut data = rawdoc! { "failCommands": ["insert"], "errorCode": code };
        if let Some(labels) = labels {
            data.append(bson::cstr!("errorLabels"), labels);
        }
        let fail = rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        network.admin(&mut client, &fail);

        assert_eq!(network.fail(&mut client, "db", &command).labels, expected, "{command:?}");
    }
}

#[test]
fn a_primary_that_steps_down_refuses_writes_until_it_is_elected_again() {
    let mut network = network();
    let mut client = network.connect();
    network.admin(&mut client, &rawdoc! { "replSetStepDown": 10, "force": true });

    assert_eq!(network.fail(&mut client, "db", &rawdoc! { "insert": "c", "documents": [] }).code, Some(10107));
    assert_eq!(network.fail(&mut client, "db", &rawdoc! { "find": "c" }).code, Some(13435));
    let hello = network.admin(&mut client, &rawdoc! { "hello": 1 });
    assert!(hello.get_bool("secondary").unwrap() && !hello.get_bool("isWritablePrimary").unwrap());

    network.pass(Duration::from_secs(10));
    assert_eq!(network.run(&mut client, "db", &insert(1, 1)).get_i32("n").unwrap(), 1);
}

#[test]
fn a_hello_that_awaits_news_gets_them_at_once() {
    let mut network = network();
    let (mut watcher, mut client) = (network.connect(), network.connect());
    let hello = network.admin(&mut watcher, &rawdoc! { "hello": 1 });
    let known = hello.get_document("topologyVersion").unwrap().to_owned();
    network.start(&mut watcher, "admin", &rawdoc! { "hello": 1, "topologyVersion": known, "maxAwaitTimeMS": 60_000 });
    assert!(network.finish(&mut watcher).is_none());

    network.admin(&mut client, &rawdoc! { "replSetStepDown": 10, "force": true });

    assert!(!network.finish(&mut watcher).unwrap().get_bool("isWritablePrimary").unwrap());
}

#[test]
fn it_tells_its_status_and_its_config_and_a_standalone_has_none() {
    let mut network = network();
    let mut client = network.connect();
    assert_eq!(network.admin(&mut client, &rawdoc! { "replSetGetStatus": 1 }).get_i32("myState").unwrap(), 1);
    let config = network.admin(&mut client, &rawdoc! { "replSetGetConfig": 1 });
    assert_eq!(config.get_document("config").unwrap().get_str("_id").unwrap(), "rs0");

    let mut standalone = Network::new(super::network::config());
    let mut client = standalone.connect();
    assert_eq!(standalone.fail(&mut client, "admin", &rawdoc! { "replSetGetStatus": 1 }).code, Some(76));
}

fn on_transactional_write(network: &mut Network, data: RawDocumentBuf) {
    configure_on_transactional_write(network, rawdoc! { "times": 1 }, data);
}

fn configure_on_transactional_write(network: &mut Network, mode: RawDocumentBuf, data: RawDocumentBuf) {
    let mut admin = network.connect();
    let name = "onPrimaryTransactionalWrite";
    network.admin(&mut admin, &rawdoc! { "configureFailPoint": name, "mode": mode, "data": data });
}

#[test]
fn a_write_whose_answer_is_lost_is_done_once_although_it_is_sent_again() {
    let mut network = network();
    let (mut client, mut second) = (network.connect(), network.connect());
    on_transactional_write(&mut network, rawdoc! {});

    network.start(&mut client, "db", &insert(1, 1));
    assert!(network.has_hung_up_on(client.id));

    assert_eq!(network.run(&mut second, "db", &rawdoc! { "count": "c" }).get_i32("n").unwrap(), 1);
    assert_eq!(network.run(&mut second, "db", &insert(1, 1)).get_i32("n").unwrap(), 1);
    assert_eq!(network.run(&mut second, "db", &rawdoc! { "count": "c" }).get_i32("n").unwrap(), 1);
}

#[test]
fn the_fail_point_of_such_writes_counts_their_documents() {
    let mut network = network();
    let mut client = network.connect();
    let data = rawdoc! { "closeConnection": false, "failBeforeCommitExceptionCode": 91 };
    configure_on_transactional_write(&mut network, rawdoc! { "skip": 3 }, data);
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![3; 16] };
    let pair = |number: i64, first: i32| {
        let documents = bson::raw::RawArrayBuf::from_iter([rawdoc! { "_id": first }, rawdoc! { "_id": first + 1 }]);
        rawdoc! { "insert": "c", "documents": documents, "lsid": { "id": session.clone() }, "txnNumber": number }
    };

    network.run(&mut client, "db", &pair(1, 1));
    let failure = network.fail(&mut client, "db", &pair(2, 3));

    assert_eq!(failure.code, Some(91), "the second of its documents is the fourth");
    assert_eq!(network.run(&mut client, "db", &rawdoc! { "count": "c" }).get_i32("n").unwrap(), 2);
}

#[test]
fn a_write_that_fails_before_its_commit_is_not_done() {
    let mut network = network();
    let (mut client, mut second) = (network.connect(), network.connect());
    on_transactional_write(&mut network, rawdoc! { "failBeforeCommitExceptionCode": 1 });

    network.start(&mut client, "db", &insert(1, 1));
    assert!(network.has_hung_up_on(client.id));
    assert_eq!(network.run(&mut second, "db", &rawdoc! { "count": "c" }).get_i32("n").unwrap(), 0);

    let data = rawdoc! { "closeConnection": false, "failBeforeCommitExceptionCode": 1 };
    on_transactional_write(&mut network, data);
    assert_eq!(network.fail(&mut second, "db", &insert(1, 1)).code, Some(1));
    assert_eq!(network.run(&mut second, "db", &insert(1, 1)).get_i32("n").unwrap(), 1);
}

#[test]
fn a_write_is_done_although_too_few_members_can_acknowledge_it() {
    let mut network = network();
    let mut client = network.connect();
    for (w, expected) in [
        (bson::RawBson::from(1), None),
        ("majority".into(), None),
        (2.into(), Some(100)),
        ("elsewhere".into(), Some(79)),
    ] {
        let insert = rawdoc! { "insert": "c", "documents": [{}], "writeConcern": { "w": w.clone() } };

        let reply = network.run(&mut client, "db", &insert);

        let error = reply.get_document("writeConcernError").ok().map(|error| error.get_i32("code").unwrap());
        assert_eq!((reply.get_i32("n").unwrap(), error), (1, expected), "{w:?}");
    }

    let mut standalone = Network::new(config());
    let mut client = standalone.connect();
    let alone = rawdoc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 2 } };
    assert_eq!(standalone.fail(&mut client, "db", &alone).code, Some(2));
}

#[test]
fn a_snapshot_is_for_commands_that_read_and_for_members() {
    let snapshot = || rawdoc! { "level": "snapshot" };
    let find = rawdoc! { "find": "c", "readConcern": snapshot() };
    let insert = rawdoc! { "insert": "c", "documents": [{}], "readConcern": snapshot() };
    let (mut member, mut standalone) = (network(), Network::new(config()));
    let (mut client, mut alone) = (member.connect(), standalone.connect());

    assert_eq!(member.fail(&mut client, "db", &insert).code, Some(72));
    assert_eq!(standalone.fail(&mut alone, "db", &find).code, Some(123));
    let unknown = rawdoc! { "find": "c", "readConcern": { "level": "newest" } };
    assert_eq!(standalone.fail(&mut alone, "db", &unknown).code, Some(2));
}

#[test]
fn a_write_is_done_once_although_its_session_was_killed() {
    let mut network = network();
    let mut client = network.connect();
    let first = network.run(&mut client, "db", &insert(1, 1));
    let session = insert(1, 1).get_document("lsid").unwrap().to_owned();

    network.admin(&mut client, &rawdoc! { "killSessions": [session] });

    let again = network.run(&mut client, "db", &insert(1, 1));
    assert_eq!((first.get_i32("n").unwrap(), again.get_i32("n").unwrap()), (1, 1));
    assert!(again.get_array("writeErrors").is_err(), "{again:?}");
}

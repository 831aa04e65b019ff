//! Transactions of several commands: what they see, what they conflict with, and how they end.

use core::time::Duration;

use bson::{RawDocument, RawDocumentBuf, doc, rawdoc};

use super::network::{Client, Network, config};

const TRANSIENT: &str = "TransientTransactionError";

fn network() -> (Network, Client) {
    let mut config = config();
    config.replica_set = Some("rs0".into());
    let mut network = Network::new(config);
    let mut client = network.connect();
    network.run(&mut client, "db", &rawdoc! { "insert": "c", "documents": [{ "_id": 0, "n": 0 }] });
    (network, client)
}

/// A command of transaction `number` in a session; the first of it starts it.
fn part(session: u8, number: i64, is_first: bool, command: &RawDocument) -> RawDocumentBuf {
    let mut part = command.to_owned();
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![session; 16] };
    let mut fields = doc! { "lsid": { "id": id }, "txnNumber": number, "autocommit": false };
    if is_first {
        fields.insert("startTransaction", true);
    }
    for (name, value) in RawDocumentBuf::try_from(&fields).unwrap().iter().map(Result::unwrap) {
        part.append(name, value);
    }
    part
}

fn insert(id: i32) -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "_id": id }] }
}

fn increment(id: i32) -> RawDocumentBuf {
    rawdoc! { "update": "c", "updates": [{ "q": { "_id": id }, "u": { "$inc": { "n": 1 } } }] }
}

fn commit(session: u8, number: i64) -> RawDocumentBuf {
    part(session, number, false, &rawdoc! { "commitTransaction": 1 })
}

fn abort(session: u8, number: i64) -> RawDocumentBuf {
    part(session, number, false, &rawdoc! { "abortTransaction": 1 })
}

fn ids(reply: &RawDocument) -> Vec<i32> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.into_iter().map(|found| found.unwrap().as_document().unwrap().get_i32("_id").unwrap()).collect()
}

fn stored(network: &mut Network, client: &mut Client) -> Vec<i32> {
    ids(&network.run(client, "db", &rawdoc! { "find": "c" }))
}

#[test]
fn writes_are_seen_inside_at_once_and_outside_after_the_commit() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &insert(1)));

    let inside = network.run(&mut client, "db", &part(1, 1, false, &rawdoc! { "find": "c" }));
    assert_eq!(ids(&inside), [0, 1]);
    assert_eq!(stored(&mut network, &mut client), [0]);

    network.run(&mut client, "admin", &commit(1, 1));
    assert_eq!(stored(&mut network, &mut client), [0, 1]);
}

#[test]
fn a_transaction_sees_nothing_that_was_written_after_its_beginning() {
    let (mut network, mut client) = network();
    let find = rawdoc! { "find": "c" };
    network.run(&mut client, "db", &part(1, 1, true, &find));

    network.run(&mut client, "db", &insert(1));

    assert_eq!(ids(&network.run(&mut client, "db", &part(1, 1, false, &find))), [0]);
}

#[test]
fn an_abort_leaves_nothing_behind() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &insert(1)));

    network.run(&mut client, "admin", &abort(1, 1));

    assert_eq!(stored(&mut network, &mut client), [0]);
    let failure = network.fail(&mut client, "admin", &commit(1, 1));
    assert_eq!((failure.code, &*failure.labels), (Some(251), &[TRANSIENT.to_owned()][..]));
}

#[test]
fn a_commit_that_is_sent_twice_is_done_once() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &increment(0)));

    network.run(&mut client, "admin", &commit(1, 1));
    network.run(&mut client, "admin", &commit(1, 1));

    let found = network.run(&mut client, "db", &rawdoc! { "find": "c", "filter": { "n": 1 } });
    assert_eq!(ids(&found), [0]);
}

#[test]
fn what_comes_after_a_commit_must_not_repeat_the_transaction() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &increment(0)));
    network.run(&mut client, "admin", &commit(1, 1));

    for (database, command) in [("db", part(1, 1, false, &increment(0))), ("admin", abort(1, 1))] {
        let failure = network.fail(&mut client, database, &command);
        assert_eq!((failure.code, &*failure.labels), (Some(256), &[][..]), "{command:?}");
    }
}

#[test]
fn an_older_transaction_cannot_be_ended_any_more() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &increment(0)));
    network.run(&mut client, "db", &part(1, 2, true, &increment(0)));

    assert_eq!(network.fail(&mut client, "admin", &commit(1, 1)).code, Some(225));
    assert_eq!(network.fail(&mut client, "admin", &abort(1, 1)).code, Some(225));
    network.admin(&mut client, &commit(1, 2));
}

#[test]
fn the_first_of_two_transactions_to_write_a_document_wins() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &increment(0)));

    let failure = network.fail(&mut client, "db", &part(2, 1, true, &increment(0)));

    assert_eq!((failure.code, &*failure.labels), (Some(112), &[TRANSIENT.to_owned()][..]));
    assert_eq!(network.fail(&mut client, "db", &part(2, 1, false, &increment(0))).code, Some(251));
    network.run(&mut client, "admin", &commit(1, 1));
}

#[test]
fn a_document_that_was_written_after_the_beginning_is_a_conflict() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &rawdoc! { "find": "c" }));
    network.run(&mut client, "db", &increment(0));

    assert_eq!(network.fail(&mut client, "db", &part(1, 1, false, &increment(0))).code, Some(112));
}

#[test]
fn a_write_outside_that_comes_first_makes_the_commit_a_conflict() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &insert(1)));
    network.run(&mut client, "db", &insert(1));

    let failure = network.fail(&mut client, "admin", &commit(1, 1));

    assert_eq!((failure.code, &*failure.labels), (Some(112), &[TRANSIENT.to_owned()][..]));
}

#[test]
fn a_failed_command_aborts_its_transaction() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &insert(1)));

    network.run(&mut client, "db", &part(1, 1, false, &insert(0)));

    assert_eq!(network.fail(&mut client, "admin", &commit(1, 1)).code, Some(251));
    assert_eq!(stored(&mut network, &mut client), [0]);
}

#[test]
fn collections_and_indexes_are_made_with_the_commit() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &rawdoc! { "create": "d" }));
    let index = rawdoc! { "createIndexes": "d", "indexes": [{ "key": { "a": 1 }, "name": "a", "unique": true }] };
    network.run(&mut client, "db", &part(1, 1, false, &index));
    network.run(&mut client, "db", &part(1, 1, false, &rawdoc! { "insert": "d", "documents": [{ "a": 1 }] }));
    assert_eq!(network.fail(&mut client, "db", &rawdoc! { "listIndexes": "d" }).code, Some(26));

    network.run(&mut client, "admin", &commit(1, 1));

    let indexes = network.run(&mut client, "db", &rawdoc! { "listIndexes": "d" });
    assert_eq!(indexes.get_document("cursor").unwrap().get_array("firstBatch").unwrap().into_iter().count(), 2);
    let count = network.run(&mut client, "db", &rawdoc! { "count": "d" });
    assert_eq!(count.get_i32("n").unwrap(), 1);
}

/// A network whose documents have the unique keys 1 and 2 in `u`, and a client.
fn network_with_keys() -> (Network, Client) {
    let (mut network, mut client) = network();
    let index = rawdoc! { "createIndexes": "k", "indexes": [{ "key": { "u": 1 }, "name": "u", "unique": true }] };
    network.run(&mut client, "db", &index);
    network.run(
        &mut client,
        "db",
        &rawdoc! { "insert": "k", "documents": [{ "_id": 1, "u": 1 }, { "_id": 2, "u": 2 }] },
    );
    (network, client)
}

fn give_key(id: i32, key: i32) -> RawDocumentBuf {
    rawdoc! { "update": "k", "updates": [{ "q": { "_id": id }, "u": { "$set": { "u": key } } }] }
}

#[test]
fn a_unique_key_moves_from_document_to_document() {
    for moves in [&[(2, 3), (1, 2)][..], &[(1, 3), (2, 1), (1, 2)]] {
        let (mut network, mut client) = network_with_keys();
        for (index, (id, key)) in moves.iter().enumerate() {
            let reply = network.run(&mut client, "db", &part(1, 1, index == 0, &give_key(*id, *key)));
            assert_eq!(reply.get_i32("nModified").unwrap(), 1, "{reply:?}");
        }

        network.admin(&mut client, &commit(1, 1));

        let owner = network.run(&mut client, "db", &rawdoc! { "find": "k", "filter": { "u": 2 } });
        assert_eq!(ids(&owner), [1]);
        let taken = rawdoc! { "insert": "k", "documents": [{ "_id": 3, "u": 2 }] };
        assert!(network.run(&mut client, "db", &taken).get_array("writeErrors").is_ok(), "the key is in use");
        let free = rawdoc! { "insert": "k", "documents": [{ "_id": 4, "u": 4 }] };
        assert!(network.run(&mut client, "db", &free).get_array("writeErrors").is_err());
    }
}

#[test]
fn a_unique_key_that_another_write_took_is_a_conflict() {
    let (mut network, mut client) = network_with_keys();
    network.run(&mut client, "db", &part(1, 1, true, &give_key(1, 3)));
    network.run(&mut client, "db", &rawdoc! { "insert": "k", "documents": [{ "_id": 3, "u": 3 }] });

    assert_eq!(network.fail(&mut client, "admin", &commit(1, 1)).code, Some(112));

    let owners = network.run(&mut client, "db", &rawdoc! { "find": "k", "filter": { "u": 1 } });
    assert_eq!(ids(&owners), [1], "nothing has changed");
}

#[test]
fn documents_of_a_transaction_stay_in_the_order_of_their_insertion() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &insert(9)));
    network.run(&mut client, "db", &part(1, 1, false, &insert(3)));
    let delete = rawdoc! { "delete": "c", "deletes": [{ "q": { "_id": 0 }, "limit": 1 }] };
    network.run(&mut client, "db", &part(1, 1, false, &delete));
    network.run(&mut client, "db", &part(1, 1, false, &insert(0)));
    network.run(&mut client, "db", &part(1, 1, false, &insert(5)));

    network.admin(&mut client, &commit(1, 1));

    assert_eq!(stored(&mut network, &mut client), [9, 3, 0, 5]);
}

#[test]
fn a_commit_may_be_more_work_than_one_command() {
    let mut config = config();
    config.replica_set = Some("rs0".into());
    config.limits.command_time = Duration::from_millis(5);
    let mut network = Network::new(config);
    let mut client = network.connect();
    for batch in 0..20 {
        let documents = (0..500).map(|id| rawdoc! { "_id": batch * 500 + id, "a": "a text of some length" });
        let documents: bson::RawArrayBuf = documents.collect();
        let insert = rawdoc! { "insert": "c", "documents": documents };
        let reply = network.run(&mut client, "db", &part(1, 1, batch == 0, &insert));
        assert_eq!(reply.get_i32("n").unwrap(), 500, "{reply:?}");
    }

    network.admin(&mut client, &commit(1, 1));

    let count = network.run(&mut client, "db", &rawdoc! { "count": "c" });
    assert_eq!(count.get_i32("n").unwrap(), 10_000);
}

#[test]
fn a_commit_without_room_says_so() {
    let mut config = config();
    config.replica_set = Some("rs0".into());
    config.limits.bytes = 2_500_000;
    let mut network = Network::new(config);
    let mut client = network.connect();
    network.run(&mut client, "db", &rawdoc! { "create": "c" });
    let big = rawdoc! { "insert": "c", "documents": [{ "_id": 1, "a": "x".repeat(1_500_000) }] };
    let reply = network.run(&mut client, "db", &part(1, 1, true, &big));
    assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply:?}");
    // The key takes as much as the document.
    let index = rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a", "unique": true }] };
    network.run(&mut client, "db", &index);

    let failure = network.fail(&mut client, "admin", &commit(1, 1));

    assert_eq!((failure.code, &*failure.labels), (Some(14031), &[][..]));
}

#[test]
fn a_transaction_ends_with_its_session_with_a_newer_number_and_after_a_minute() {
    let (mut network, mut client) = network();
    let id = |session: u8| {
        let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![session; 16] };
        rawdoc! { "endSessions": [{ "id": id }] }
    };
    for session in 1..=3 {
        network.run(&mut client, "db", &part(session, 1, true, &insert(i32::from(session))));
    }

    network.run(&mut client, "admin", &id(1));
    network.run(&mut client, "db", &part(2, 2, true, &insert(9)));
    network.pass(Duration::from_secs(61));

    assert_eq!(network.fail(&mut client, "admin", &commit(1, 1)).code, Some(251));
    assert_eq!(network.fail(&mut client, "db", &part(2, 1, false, &insert(5))).code, Some(225));
    assert_eq!(network.fail(&mut client, "admin", &commit(3, 1)).code, Some(251));
}

#[test]
fn a_step_down_aborts_what_is_open() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &insert(1)));

    network.admin(&mut client, &rawdoc! { "replSetStepDown": 1, "force": true });
    assert_eq!(network.fail(&mut client, "admin", &commit(1, 1)).code, Some(10107));
    network.pass(Duration::from_secs(2));

    assert_eq!(network.fail(&mut client, "admin", &commit(1, 1)).code, Some(251));
}

#[test]
fn a_transaction_does_not_begin_by_the_end_of_cursors() {
    let (mut network, mut client) = network();
    let kill = rawdoc! { "killCursors": "c", "cursors": [7_i64] };

    assert_eq!(network.fail(&mut client, "db", &part(1, 1, true, &kill)).code, Some(263));
    assert_eq!(network.fail(&mut client, "db", &part(1, 1, false, &insert(1))).code, Some(251));

    network.run(&mut client, "db", &part(1, 1, true, &insert(1)));
    network.run(&mut client, "db", &part(1, 1, false, &kill));
}

#[test]
fn commands_that_do_not_belong_there_are_refused() {
    let (mut network, mut client) = network();
    network.run(&mut client, "db", &part(1, 1, true, &insert(1)));

    for (command, code) in [
        (rawdoc! { "count": "c" }, 263),
        (rawdoc! { "drop": "c" }, 263),
        (rawdoc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 1 } }, 72),
        (rawdoc! { "find": "c", "readConcern": { "level": "local" } }, 72),
    ] {
        assert_eq!(network.fail(&mut client, "db", &part(1, 1, false, &command)).code, Some(code), "{command:?}");
    }
    network.run(&mut client, "admin", &commit(1, 1));
}

#[test]
fn a_server_alone_has_no_transactions() {
    let mut network = Network::new(config());
    let mut client = network.connect();

    assert_eq!(network.fail(&mut client, "db", &part(1, 1, true, &insert(1))).code, Some(20));
    assert_eq!(network.fail(&mut client, "admin", &commit(1, 1)).code, Some(20));
}

#[test]
fn a_snapshot_read_goes_on_to_see_what_it_saw() {
    let (mut network, mut client) = network();
    let first = network.run(&mut client, "db", &rawdoc! { "find": "c", "readConcern": { "level": "snapshot" } });
    let at = first.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();

    network.run(&mut client, "db", &insert(1));

    let concern = rawdoc! { "level": "snapshot", "atClusterTime": at };
    let again = network.run(&mut client, "db", &rawdoc! { "find": "c", "readConcern": concern.clone() });
    assert_eq!(ids(&again), [0]);
    let values = network.run(&mut client, "db", &rawdoc! { "distinct": "c", "key": "_id", "readConcern": concern });
    assert_eq!(values.get_timestamp("atClusterTime").unwrap(), at);
    assert_eq!(stored(&mut network, &mut client), [0, 1]);
}

#[test]
fn a_cursor_on_a_snapshot_goes_on_where_its_session_names_the_snapshot_again() {
    let (mut network, mut client) = network();
    let find = rawdoc! { "find": "c", "batchSize": 0, "readConcern": { "level": "snapshot" } };
    let first = network.run(&mut client, "db", &find);
    let cursor = first.get_document("cursor").unwrap();
    let (id, at) = (cursor.get_i64("id").unwrap(), cursor.get_timestamp("atClusterTime").unwrap());
    network.run(&mut client, "db", &insert(1));

    let concern = rawdoc! { "level": "snapshot", "atClusterTime": at };
    let more = network.run(&mut client, "db", &rawdoc! { "getMore": id, "collection": "c", "readConcern": concern });

    let batch = more.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
    assert_eq!(batch.into_iter().count(), 1, "the document that was there");
}

#[test]
fn a_time_at_which_nobody_has_read_is_too_old_after_the_next_write() {
    let (mut network, mut client) = network();
    let at = network.run(&mut client, "db", &insert(1)).get_timestamp("operationTime").unwrap();
    network.run(&mut client, "db", &insert(2));

    let concern = rawdoc! { "level": "snapshot", "atClusterTime": at };

    let find = rawdoc! { "find": "c", "readConcern": concern };
    assert_eq!(network.fail(&mut client, "db", &find).code, Some(239));
}

#[test]
fn a_read_at_one_time_and_after_another_is_refused() {
    let (mut network, mut client) = network();
    let at = network.run(&mut client, "db", &insert(1)).get_timestamp("operationTime").unwrap();

    let concern = rawdoc! { "level": "snapshot", "atClusterTime": at, "afterClusterTime": at };

    let find = rawdoc! { "find": "c", "readConcern": concern };
    assert_eq!(network.fail(&mut client, "db", &find).code, Some(72));
}

#[test]
fn what_is_put_out_is_not_read_from_a_snapshot() {
    let (mut network, mut client) = network();
    let out = rawdoc! {
        "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {}, "readConcern": { "level": "snapshot" },
    };

    assert_eq!(network.fail(&mut client, "db", &out).code, Some(115));
}

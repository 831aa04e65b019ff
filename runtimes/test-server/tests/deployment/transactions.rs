//! Transactions in a set: a commit is one entry of the log.

use core::time::Duration;

use bson::{RawDocument, RawDocumentBuf, doc, rawdoc};

use super::network::Network;

fn part(number: i64, is_first: bool, command: &RawDocument) -> RawDocumentBuf {
    let mut part = command.to_owned();
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    let mut fields = doc! { "lsid": { "id": id }, "txnNumber": number, "autocommit": false };
    if is_first {
        fields.insert("startTransaction", true);
    }
    for (name, value) in RawDocumentBuf::try_from(&fields).unwrap().iter().map(Result::unwrap) {
        part.append(name, value);
    }
    part
}

fn inserts(network: &mut Network) -> super::network::Client {
    let client = network.connect(0);
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }] };
    network.run(client, "db", &part(1, true, &insert));
    client
}

#[test]
fn a_commit_reaches_every_member_as_a_whole() {
    let mut network = Network::of_three();
    let client = inserts(&mut network);

    network.run(client, "admin", &part(1, false, &rawdoc! { "commitTransaction": 1 }));

    assert_eq!([network.count(0), network.count(1), network.count(2)], [2, 2, 2]);
}

#[test]
fn a_commit_that_is_repeated_at_the_next_primary_is_done_once() {
    let mut network = Network::of_three();
    let client = inserts(&mut network);
    network.run(client, "admin", &part(1, false, &rawdoc! { "commitTransaction": 1 }));
    network.run(client, "admin", &rawdoc! { "replSetStepDown": 10 });
    network.pass(Duration::from_millis(50));
    let next = network.connect(1);

    network.run(next, "admin", &part(1, false, &rawdoc! { "commitTransaction": 1 }));

    assert_eq!(network.count(1), 2);
}

#[test]
fn an_open_transaction_ends_with_its_primary() {
    let mut network = Network::of_three();
    let client = inserts(&mut network);
    network.run(client, "admin", &rawdoc! { "replSetStepDown": 10 });
    network.pass(Duration::from_millis(50));
    let next = network.connect(1);

    let failure = network.fail(next, "admin", &part(1, false, &rawdoc! { "commitTransaction": 1 }));

    assert_eq!((failure.code, network.count(1)), (Some(251), 0));
}

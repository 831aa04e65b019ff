//! `bulkWrite`: its counts, its results and their cursor, and writes that fail.

use bson::doc;

use super::*;

/// The reply of `admin` to a bulk write with these operations on `test.pets`, and further fields.
fn bulk_write(server: &mut Server, operations: &[Document], more: Document) -> Document {
    let mut command = doc! { "bulkWrite": 1, "ops": operations, "nsInfo": [{ "ns": "test.pets" }] };
    command.extend(more);
    server.ok_in_admin(command)
}

/// The counts: of errors, insertions, matches, modifications, upserts, deletions.
fn counts(reply: &Document) -> [i32; 6] {
    ["nErrors", "nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"].map(|name| reply.get_i32(name).unwrap())
}

fn insertion(id: i32) -> Document {
    doc! { "insert": 0, "document": { "_id": id } }
}

#[test]
fn it_inserts_updates_and_deletes_and_counts_each() {
    let mut server = Server::with_pets([1, 2, 3].map(|id| doc! { "_id": id, "x": 0 }));
    let operations = [
        insertion(4),
        doc! { "update": 0, "filter": { "_id": 1 }, "updateMods": { "$set": { "x": 1 } } },
        doc! { "update": 0, "filter": {}, "updateMods": { "$set": { "x": 1 } }, "multi": true },
        doc! { "update": 0, "filter": { "_id": 5 }, "updateMods": { "x": 5 }, "upsert": true },
        doc! { "delete": 0, "filter": { "_id": 2 } },
        doc! { "delete": 0, "filter": {}, "multi": true },
    ];

    let reply = bulk_write(&mut server, &operations, doc! {});

    assert_eq!(counts(&reply), [0, 1, 5, 4, 1, 5]);
    let expected = [
        doc! { "ok": 1.0, "idx": 0, "n": 1 },
        doc! { "ok": 1.0, "idx": 1, "n": 1, "nModified": 1 },
        doc! { "ok": 1.0, "idx": 2, "n": 4, "nModified": 3 },
        doc! { "ok": 1.0, "idx": 3, "n": 1, "nModified": 0, "upserted": { "_id": 5 } },
        doc! { "ok": 1.0, "idx": 4, "n": 1 },
        doc! { "ok": 1.0, "idx": 5, "n": 4 },
    ];
    assert_eq!(batch(&reply), expected);
    assert_eq!(reply.get_document("cursor").unwrap().get_str("ns").ok(), Some("admin.$cmd.bulkWrite"));
}

#[test]
fn it_writes_into_each_collection_that_it_lists() {
    let mut server = Server::default();
    let namespaces = doc! { "nsInfo": [{ "ns": "test.pets" }, { "ns": "test.people" }] };
    let operations = [insertion(1), doc! { "insert": 1, "document": { "_id": 2 } }];

    bulk_write(&mut server, &operations, namespaces);

    assert_eq!(ids(&server.pets()), [1]);
    assert_eq!(ids(&server.find(doc! { "find": "people" })), [2]);
}

#[test]
fn an_ordered_one_ends_with_its_first_error_and_an_unordered_one_goes_on() {
    for (ordered, expected, found) in [(true, [1, 1, 0, 0, 0, 0], vec![1]), (false, [1, 2, 0, 0, 0, 0], vec![1, 2])] {
        let mut server = Server::default();

        let reply = bulk_write(&mut server, &[insertion(1), insertion(1), insertion(2)], doc! { "ordered": ordered });

        assert_eq!(counts(&reply), expected);
        let results = batch(&reply);
        let error = &results[1];
        assert_eq!(["idx", "code", "n"].map(|name| error.get_i32(name).unwrap()), [1, 11000, 0]);
        assert_eq!(error.get("ok"), Some(&Bson::Double(0.0)));
        assert_eq!(error.get_document("keyValue").unwrap(), &doc! { "_id": 1 });
        assert_eq!(ids(&server.pets()), found);
    }
}

#[test]
fn only_errors_are_shown_if_that_is_asked_for() {
    let mut server = Server::default();

    let reply = bulk_write(&mut server, &[insertion(1), insertion(1)], doc! { "errorsOnly": true });

    assert_eq!(batch(&reply).iter().map(|result| result.get_i32("idx").unwrap()).collect::<Vec<_>>(), [1]);
    assert_eq!(counts(&reply), [1, 1, 0, 0, 0, 0]);
}

#[test]
fn its_results_are_a_cursor() {
    let mut server = Server::default();
    let operations = [1, 2, 3].map(insertion);

    let reply = bulk_write(&mut server, &operations, doc! { "cursor": { "batchSize": 2 } });
    let next = server.ok_in_admin(doc! { "getMore": cursor_id(&reply), "collection": "$cmd.bulkWrite" });

    assert_eq!((batch(&reply).len(), counts(&reply)[1]), (2, 3));
    assert_eq!((batch(&next), cursor_id(&next)), (vec![doc! { "ok": 1.0, "idx": 2, "n": 1 }], 0));
}

#[test]
fn a_first_batch_has_16_mib_at_most() {
    let mut server = Server::default();
    let upsert = |letter: &str| {
        doc! { "update": 0, "filter": { "_id": letter.repeat(7 << 20) }, "updateMods": { "x": 1 }, "upsert": true }
    };

    let reply = bulk_write(&mut server, &["a", "b", "c"].map(upsert), doc! {});

    assert_eq!((batch(&reply).len(), counts(&reply)[4]), (2, 3));
    assert_ne!(cursor_id(&reply), 0);
}

#[test]
fn variables_are_those_of_let_and_others_are_errors_of_their_write() {
    let mut server = Server::with_pets([1, 2].map(|id| doc! { "_id": id }));
    let equals = |variable: &str| doc! { "$expr": { "$eq": ["$_id", variable] } };
    let operations = [
        doc! { "update": 0, "filter": equals("$$first"), "updateMods": [{ "$set": { "x": "$$second" } }] },
        doc! { "delete": 0, "filter": equals("$$second") },
        doc! { "delete": 0, "filter": equals("$$third") },
    ];

    let reply = bulk_write(&mut server, &operations, doc! { "let": { "first": 1, "second": 2 } });

    assert_eq!(server.pets(), [doc! { "_id": 1, "x": 2 }]);
    assert_eq!(batch(&reply)[2].get_i32("code").unwrap(), 17276);
}

#[test]
fn a_sort_chooses_the_document_to_update() {
    let mut server = Server::with_pets([1, 2, 3].map(|id| doc! { "_id": id }));
    let update = doc! { "update": 0, "filter": {}, "updateMods": { "$set": { "x": 1 } }, "sort": { "_id": -1 } };

    bulk_write(&mut server, &[update], doc! {});

    assert_eq!(server.ids(doc! { "x": 1 }), [3]);
}

#[test]
fn what_cannot_be_read_is_an_error_of_the_command() {
    let mut server = Server::default();
    let mut code = |operation: Document, more: Document| {
        let mut command = doc! { "bulkWrite": 1, "ops": [operation], "nsInfo": [{ "ns": "test.pets" }] };
        command.extend(more);
        let body = RawDocumentBuf::try_from(&command).unwrap();
        server.run_in("admin", &body).unwrap_err().code
    };

    assert_eq!(code(insertion(1), doc! { "ops": [] }), 16);
    assert_eq!(code(insertion(1), doc! { "nsInfo": [] }), 2);
    assert_eq!(code(insertion(1), doc! { "nsInfo": [{ "ns": "test" }] }), 73);
    assert_eq!(code(insertion(1), doc! { "unknown": 1 }), 40415);
    assert_eq!(code(doc! { "replace": 0 }, doc! {}), 9);
    assert_eq!(code(doc! { "insert": 0 }, doc! {}), 40414);
    assert_eq!(code(doc! { "insert": 0, "document": {}, "filter": {} }, doc! {}), 40415);
    let multi = doc! { "delete": 0, "filter": {}, "multi": true };
    assert_eq!(code(multi, doc! { "txnNumber": 1_i64 }), 72);
}

#[test]
fn it_belongs_to_the_database_admin() {
    let mut server = Server::default();

    let command = doc! { "bulkWrite": 1, "ops": [insertion(1)], "nsInfo": [{ "ns": "test.pets" }] };

    assert_eq!(server.code(command), 13);
}

//! insert.

use bson::{Bson, doc};

use super::*;

#[test]
fn a_missing_id_is_added_in_front_and_a_present_one_moved_there() {
    let mut server = Server::with_pets([doc! { "name": "Ada" }, doc! { "name": "Bo", "_id": 7 }]);

    let pets = server.pets();
    assert_eq!(pets[0].keys().collect::<Vec<_>>(), ["_id", "name"]);
    assert!(matches!(pets[0].get("_id"), Some(Bson::ObjectId(_))));
    assert_eq!(pets[1].to_string(), r#"{ "_id": 7, "name": "Bo" }"#);
}

#[test]
fn generated_ids_are_all_different() {
    let mut server = Server::default();
    for _ in 0..3 {
        server.ok(doc! { "insert": "pets", "documents": [{}, {}] });
    }

    assert_eq!(server.ok(doc! { "distinct": "pets", "key": "_id" }).get_array("values").unwrap().len(), 6);
}

#[test]
fn an_ordered_batch_ends_at_its_first_error() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    let reply = server.ok(doc! { "insert": "pets", "documents": [{ "_id": 2 }, { "_id": 1 }, { "_id": 3 }] });

    assert_eq!(
        reply,
        doc! { "n": 1, "writeErrors": [{
            "index": 1, "code": 11000, "keyPattern": { "_id": 1 }, "keyValue": { "_id": 1 },
            "errmsg": "E11000 duplicate key error collection: test.pets index: _id_ dup key: { _id: 1 }",
        }] }
    );
    assert_eq!(server.ids(doc! {}), [1, 2]);
}

#[test]
fn an_unordered_batch_goes_on() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);
    let documents = [doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 2.0 }, doc! { "_id": 3 }];

    let reply = server.ok(doc! { "insert": "pets", "documents": documents.to_vec(), "ordered": false });

    assert_eq!(reply.get_i32("n").ok(), Some(2));
    assert_eq!(write_errors(&reply), [(11000, 0), (11000, 2)]);
}

#[test]
fn ids_of_some_types_are_refused() {
    let mut server = Server::default();
    let documents = vec![doc! { "_id": [1] }, doc! { "_id": regex("a", "") }, doc! { "_id": Bson::Undefined }];

    let reply = server.ok(doc! { "insert": "pets", "documents": documents, "ordered": false });

    assert_eq!(write_errors(&reply), [(53, 0), (53, 1), (53, 2)]);
}

#[test]
fn a_batch_has_at_least_one_document_and_at_most_100000() {
    let mut server = Server::default();

    assert_eq!(server.code(doc! { "insert": "pets", "documents": [] }), 16);
    assert_eq!(server.code(doc! { "insert": "pets", "documents": vec![doc! {}; 100_001] }), 16);
    assert_eq!(server.ok(doc! { "insert": "pets", "documents": vec![doc! {}; 100_000] }), doc! { "n": 100_000 });
}

#[test]
fn a_document_has_at_most_16_mb() {
    let mut server = Server::default();
    let overhead = RawDocumentBuf::try_from(&doc! { "_id": 1, "x": "" }).unwrap().as_bytes().len();
    let longest = "x".repeat(16 * 1024 * 1024 - overhead);

    let reply = server.ok(doc! { "insert": "pets", "documents": [
        { "_id": 1, "x": &longest }, { "_id": 2, "x": longest.clone() + "x" },
    ] });

    assert_eq!(reply.get_i32("n").ok(), Some(1));
    assert_eq!(write_errors(&reply), [(10334, 1)]);
}

#[test]
fn a_capped_collection_forgets_its_oldest_documents() {
    let mut server = Server::default();
    server.ok(doc! { "create": "pets", "capped": true, "size": 1000, "max": 2 });
    server.ok(doc! { "create": "small", "capped": true, "size": 40 });

    server.ok(doc! { "insert": "pets", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] });
    server.ok(doc! { "insert": "small", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] });

    assert_eq!(server.ids(doc! {}), [2, 3]);
    assert_eq!(ids(&server.find(doc! { "find": "small" })), [2, 3]);
}

#[test]
fn arguments_of_the_wrong_type_are_named() {
    let mut server = Server::default();

    assert_eq!(
        server.fails(doc! { "insert": "pets" }),
        (40414, "Location40414", "BSON field 'insert.documents' is missing but a required field".into())
    );
    assert_eq!(
        server.fails(doc! { "insert": "pets", "documents": [1] }),
        (14, "TypeMismatch", "BSON field 'insert.documents.0' is the wrong type 'int', expected type 'object'".into())
    );
    assert_eq!(
        server.fails(doc! { "insert": "pets", "documents": [{}], "document": {} }),
        (40415, "Location40415", "BSON field 'insert.document' is an unknown field.".into())
    );
    assert_eq!(server.code(doc! { "insert": 1, "documents": [{}] }), 73);
    for name in ["", ".pets", "a$b", "a\0b"] {
        assert_eq!(server.code(doc! { "insert": name, "documents": [{}] }), 73, "{name:?}");
    }
}

#[test]
fn fields_of_every_command_are_accepted() {
    let mut server = Server::default();

    server.ok(doc! {
        "insert": "pets", "documents": [{}], "$db": "test", "lsid": { "id": 1 }, "txnNumber": 1_i64, "apiVersion": "1",
        "writeConcern": { "w": 1 }, "maxTimeMS": 1, "comment": "any", "bypassDocumentValidation": true,
        "$clusterTime": {}, "$readPreference": { "mode": "primary" },
    });
}

#[test]
fn an_id_has_no_fields_with_dollars_but_those_of_a_reference() {
    let mut server = Server::default();

    let reply = server.ok(doc! { "insert": "pets", "documents": [{ "_id": { "$a": 1 } }] });
    assert_eq!(write_errors(&reply), [(52, 0)]);
    server.ok(doc! { "insert": "pets", "documents": [{ "_id": { "$ref": "owners", "$id": 1 } }] });
    assert_eq!(server.pets().len(), 1);
}

//! createIndexes, listIndexes, dropIndexes, and unique keys.

use bson::doc;

use super::*;

fn create(index: Document) -> Document {
    doc! { "createIndexes": "pets", "indexes": [index] }
}

fn unique(key: Document, name: &str) -> Document {
    create(doc! { "key": key, "name": name, "unique": true })
}

#[test]
fn indexes_are_made_listed_and_dropped() {
    let mut server = Server::default();

    assert_eq!(
        server.ok(unique(doc! { "x": 1 }, "x_1")),
        doc! { "numIndexesBefore": 1, "numIndexesAfter": 2, "createdCollectionAutomatically": true }
    );
    assert_eq!(
        server.ok(unique(doc! { "x": 1 }, "x_1")),
        doc! {
            "numIndexesBefore": 2, "numIndexesAfter": 2, "createdCollectionAutomatically": false,
            "note": "all indexes already exist",
        }
    );
    assert_eq!(
        batch(&server.ok(doc! { "listIndexes": "pets" })),
        [
            doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" },
            doc! { "v": 2, "key": { "x": 1 }, "name": "x_1", "unique": true },
        ]
    );
    assert_eq!(server.ok(doc! { "dropIndexes": "pets", "index": "x_1" }), doc! { "nIndexesWas": 2 });
    assert_eq!(batch(&server.ok(doc! { "listIndexes": "pets" })).len(), 1);
}

#[test]
fn indexes_are_dropped_by_name_pattern_or_all_together() {
    let mut server = Server::default();
    let mut after = |index: Bson| {
        server.ok(create(doc! { "key": { "a": 1 }, "name": "a" }));
        server.ok(create(doc! { "key": { "b": -1, "c": "text" }, "name": "b" }));
        server.ok(doc! { "dropIndexes": "pets", "index": index });
        batch(&server.ok(doc! { "listIndexes": "pets" })).len()
    };

    assert_eq!(after("*".into()), 1);
    assert_eq!(after(doc! { "b": -1, "c": "text" }.into()), 2);
    assert_eq!(after(vec!["a", "b"].into()), 1);
}

#[test]
fn conflicts_and_mistakes_are_errors() {
    let mut server = Server::default();
    server.ok(unique(doc! { "x": 1 }, "x_1"));

    assert_eq!(server.code(unique(doc! { "x": 1 }, "other")), 85);
    assert_eq!(server.code(unique(doc! { "y": 1 }, "x_1")), 86);
    assert_eq!(server.code(create(doc! { "key": { "x": 1 }, "name": "x_1" })), 86);
    assert_eq!(server.code(create(doc! { "key": {}, "name": "empty" })), 67);
    assert_eq!(server.code(create(doc! { "key": { "a": 0 }, "name": "zero" })), 67);
    assert_eq!(server.code(create(doc! { "key": { "a": 1 } })), 40414);
    assert_eq!(server.code(doc! { "dropIndexes": "pets", "index": "none" }), 27);
    assert_eq!(server.code(doc! { "dropIndexes": "pets", "index": { "z": 1 } }), 27);
    assert_eq!(server.code(doc! { "dropIndexes": "pets", "index": "_id_" }), 72);
    assert_eq!(server.code(doc! { "dropIndexes": "none", "index": "*" }), 26);
    assert_eq!(server.code(doc! { "listIndexes": "none" }), 26);
}

#[test]
fn a_collection_has_at_most_64() {
    let mut server = Server::default();
    for number in 0..63 {
        server.ok(create(doc! { "key": { format!("f{number}"): 1 }, "name": number.to_string() }));
    }

    assert_eq!(server.code(create(doc! { "key": { "x": 1 }, "name": "x" })), 67);
}

#[test]
fn a_unique_key_is_taken_once() {
    let mut server = Server::with_pets([doc! { "_id": 1, "x": 1, "y": 1 }, doc! { "_id": 2, "x": 1, "y": 2 }]);
    server.ok(unique(doc! { "x": 1, "y": -1 }, "xy"));

    let reply = server.ok(doc! { "insert": "pets", "documents": [{ "_id": 3, "x": 1.0, "y": 2_i64 }] });

    assert_eq!(
        reply.get_array("writeErrors").unwrap()[0].as_document().unwrap(),
        &doc! {
            "index": 0, "code": 11000, "keyPattern": { "x": 1, "y": -1 }, "keyValue": { "x": 1.0, "y": 2_i64 },
            "errmsg": "E11000 duplicate key error collection: test.pets index: xy dup key: { x: 1, y: 2 }",
        }
    );
}

#[test]
fn what_is_missing_is_one_null_key_unless_the_index_is_sparse() {
    let mut server = Server::default();
    server.ok(unique(doc! { "x": 1 }, "x_1"));
    let sparse = doc! { "key": { "y": 1 }, "name": "y_1", "unique": true, "sparse": true };
    server.ok(create(sparse));

    let reply =
        server.ok(doc! { "insert": "pets", "ordered": false, "documents": [{ "x": 1 }, { "x": 2 }, {}, { "y": 1 }] });

    assert_eq!(write_errors(&reply), [(11000, 3)]);
}

#[test]
fn an_array_has_a_key_for_each_element() {
    let mut server = Server::default();
    server.ok(unique(doc! { "x": 1 }, "x_1"));

    let documents =
        vec![doc! { "x": [1, 1, 2] }, doc! { "x": 2 }, doc! { "x": [] }, doc! { "x": [3, 1] }, doc! { "x": [3] }];
    let reply = server.ok(doc! { "insert": "pets", "ordered": false, "documents": documents });

    assert_eq!(write_errors(&reply), [(11000, 1), (11000, 3)]);
}

#[test]
fn a_unique_index_is_not_made_where_keys_are_taken_twice() {
    let mut server = Server::with_pets([doc! { "x": 1 }, doc! { "x": 1 }]);

    assert_eq!(server.code(unique(doc! { "x": 1 }, "x_1")), 11000);
    assert_eq!(batch(&server.ok(doc! { "listIndexes": "pets" })).len(), 1);
}

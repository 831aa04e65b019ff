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
        server.ok(create(doc! { "key": { "b": -1, "c": "hashed" }, "name": "b" }));
        server.ok(doc! { "dropIndexes": "pets", "index": index });
        batch(&server.ok(doc! { "listIndexes": "pets" })).len()
    };

    assert_eq!(after("*".into()), 1);
    assert_eq!(after(doc! { "b": -1, "c": "hashed" }.into()), 2);
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
fn the_option_background_is_listed_as_it_was_given() {
    let mut server = Server::default();
    server.ok(create(doc! { "key": { "a": 1 }, "name": "a" }));
    server.ok(create(doc! { "key": { "b": 1 }, "name": "b", "background": false }));
    server.ok(create(doc! { "key": { "c": 1 }, "name": "c", "background": true }));

    let listed = batch(&server.ok(doc! { "listIndexes": "pets" }));

    let background: Vec<_> = listed.iter().map(|index| index.get_bool("background").ok()).collect();
    assert_eq!(background, [None, None, Some(false), Some(true)]);
}

/// An index with this filter.
fn partial(filter: impl Into<Bson>) -> Document {
    let filter = filter.into();
    create(doc! { "key": { "x": 1 }, "name": "x", "partialFilterExpression": filter })
}

#[test]
fn a_partial_index_takes_the_filters_that_mongodb_takes() {
    for filter in [
        doc! {},
        doc! { "a": 1, "b": { "$eq": "x" } },
        doc! { "a": { "$gt": 1, "$lte": 9 }, "b": { "$gte": 1 }, "c": { "$lt": 1.5 } },
        doc! { "a": { "$exists": true }, "b": { "$type": "string" } },
        doc! { "$or": [{ "a": { "$in": [1, 2] } }, { "$and": [{ "b": 1 }, { "c": 1 }] }] },
    ] {
        let mut server = Server::default();
        server.ok(partial(filter.clone()));
        let listed = batch(&server.ok(doc! { "listIndexes": "pets" }));
        assert_eq!(listed[1].get_document("partialFilterExpression").unwrap(), &filter);
    }
}

#[test]
fn a_partial_index_refuses_other_filters() {
    let mut server = Server::default();

    for filter in [
        doc! { "a": { "$exists": false } },
        doc! { "a": { "$ne": 1 } },
        doc! { "a": { "$not": { "$gt": 1 } } },
        doc! { "a": { "$nin": [1] } },
        doc! { "a": { "$size": 1 } },
        doc! { "a": regex("^x", "") },
        doc! { "a": { "$elemMatch": { "b": 1 } } },
        doc! { "$nor": [{ "a": 1 }] },
        doc! { "$or": [{ "a": 1 }, { "b": { "$mod": [2, 0] } }] },
    ] {
        let (code, name, message) = server.fails(partial(filter.clone()));
        assert_eq!((code, name), (67, "CannotCreateIndex"), "{filter}");
        assert!(message.starts_with("Expression not supported in partial index: "), "{message}");
    }
    let sparse = doc! { "key": { "x": 1 }, "name": "x", "sparse": true, "partialFilterExpression": { "a": 1 } };
    assert_eq!(server.code(create(sparse)), 67);
    let of_id = doc! { "key": { "_id": 1 }, "name": "i", "partialFilterExpression": { "a": 1 } };
    assert_eq!(server.code(create(of_id)), 67);
    // What is no query has the error that it has in a find.
    assert_eq!(server.code(partial(5)), 14);
    assert_eq!(server.code(partial(doc! { "a": { "$asdasd": 3 } })), 2);
    assert_eq!(server.code(partial(doc! { "$and": 5 })), 2);
    assert_eq!(server.code(doc! { "listIndexes": "pets" }), 26);
}

#[test]
fn a_partial_index_conflicts_with_one_that_has_another_filter() {
    let mut server = Server::default();
    server.ok(partial(doc! { "a": 1 }));

    assert_eq!(server.ok(partial(doc! { "a": 1 })).get_str("note").unwrap(), "all indexes already exist");
    assert_eq!(server.code(partial(doc! { "a": 2 })), 86);
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

#[test]
fn an_option_that_no_index_has_is_refused() {
    let mut server = Server::default();
    let mut create = doc! { "createIndexes": "pets", "indexes": [{ "key": { "a": 1 }, "name": "a", "colour": true }] };
    assert_eq!(server.fails(create.clone()).0, 197);
    create.insert("ignoreUnknownIndexOptions", true);
    server.ok(create);

    let listed = batch(&server.ok(doc! { "listIndexes": "pets" }));
    assert_eq!(listed[1], doc! { "v": 2, "key": { "a": 1 }, "name": "a" });
    let known = doc! { "key": { "b": 1 }, "name": "b", "background": true, "hidden": false, "expireAfterSeconds": 1 };
    server.ok(doc! { "createIndexes": "pets", "indexes": [known] });
}

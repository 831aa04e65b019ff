//! findAndModify.

use bson::{Bson, doc};

use super::*;

fn three() -> Server {
    Server::with_pets([1, 2, 3].map(|id| doc! { "_id": id, "x": 10 * id }))
}

#[test]
fn a_document_is_returned_as_it_was_or_as_it_became() {
    let mut server = three();
    let mut command = doc! { "findAndModify": "pets", "query": { "_id": 2 }, "update": { "$inc": { "x": 1 } }, "fields": { "_id": 0 } };

    assert_eq!(
        server.ok(command.clone()),
        doc! { "lastErrorObject": { "n": 1, "updatedExisting": true }, "value": { "x": 20 } }
    );
    command.insert("new", true);
    assert_eq!(server.ok(command).get_document("value").ok(), Some(&doc! { "x": 22 }));
}

#[test]
fn the_first_in_the_order_is_removed() {
    let mut server = three();

    let reply = server.ok(doc! { "findandmodify": "pets", "sort": { "x": -1 }, "remove": true });

    assert_eq!(reply, doc! { "lastErrorObject": { "n": 1 }, "value": { "_id": 3, "x": 30 } });
    assert_eq!(server.ids(doc! {}), [1, 2]);
}

#[test]
fn nothing_found_is_null() {
    let mut server = three();

    assert_eq!(
        server.ok(doc! { "findAndModify": "pets", "query": { "_id": 9 }, "update": { "x": 1 } }),
        doc! { "lastErrorObject": { "n": 0, "updatedExisting": false }, "value": null }
    );
    assert_eq!(
        server.ok(doc! { "findAndModify": "none", "remove": true }),
        doc! { "lastErrorObject": { "n": 0 }, "value": null }
    );
}

#[test]
fn an_upsert_says_what_it_inserted() {
    let mut server = three();
    let command =
        doc! { "findAndModify": "pets", "query": { "_id": 9 }, "update": { "$set": { "x": 1 } }, "upsert": true };

    let reply = server.ok(command);

    let last_error = doc! { "n": 1, "updatedExisting": false, "upserted": 9 };
    assert_eq!(reply, doc! { "lastErrorObject": last_error, "value": Bson::Null });
    assert_eq!(server.ids(doc! { "x": 1 }), [9]);
}

#[test]
fn failures_are_those_of_the_command() {
    let mut server = three();
    server.ok(doc! { "createIndexes": "pets", "indexes": [{ "key": { "x": 1 }, "name": "x_1", "unique": true }] });

    assert_eq!(server.code(doc! { "findAndModify": "pets", "query": { "_id": 1 } }), 9);
    assert_eq!(server.code(doc! { "findAndModify": "pets", "update": {}, "remove": true }), 9);
    assert_eq!(server.code(doc! { "findAndModify": "pets", "new": true, "remove": true }), 9);
    assert_eq!(
        server.code(doc! { "findAndModify": "pets", "query": { "_id": 1 }, "update": { "$set": { "x": 20 } } }),
        11000
    );
}

#[test]
fn a_key_that_another_document_has_is_told() {
    let mut server = Server::with_pets([doc! { "_id": 1, "x": 1 }, doc! { "_id": 2, "x": 2 }]);
    server.ok(doc! { "createIndexes": "pets", "indexes": [{ "key": { "x": 1 }, "name": "x_1", "unique": true }] });
    let command = doc! { "findAndModify": "pets", "query": { "_id": 2 }, "update": { "$set": { "x": 1 } } };

    let failure = server.run(&command).unwrap_err();

    let details = Document::try_from(failure.details).unwrap();
    assert_eq!((failure.code, details), (11000, doc! { "keyPattern": { "x": 1 }, "keyValue": { "x": 1 } }));
}

//! find: sorting, cutting, projecting. Batches are in `cursors`.

use bson::{Bson, doc};

use super::*;

#[test]
fn documents_come_in_the_order_of_their_insertion_unless_sorted() {
    let mut server = Server::with_pets([doc! { "_id": 3 }, doc! { "_id": 1 }, doc! { "_id": 2 }]);

    let mut sorted = |sort: Document| ids(&server.find(doc! { "find": "pets", "sort": sort }));

    assert_eq!(sorted(doc! {}), [3, 1, 2]);
    assert_eq!(sorted(doc! { "_id": 1 }), [1, 2, 3]);
    assert_eq!(sorted(doc! { "_id": -1 }), [3, 2, 1]);
    assert_eq!(sorted(doc! { "$natural": -1 }), [2, 1, 3]);
}

#[test]
fn sorts_follow_the_order_of_kinds_and_are_stable() {
    let mut server = Server::with_pets([
        doc! { "_id": 0, "x": "a" },
        doc! { "_id": 1, "x": 2 },
        doc! { "_id": 2 },
        doc! { "_id": 3, "x": 1.5 },
        doc! { "_id": 4, "x": [0, 9] },
        doc! { "_id": 5, "x": [] },
        doc! { "_id": 6, "x": 2_i64, "y": -1 },
    ]);
    let mut sorted = |sort: Document| ids(&server.find(doc! { "find": "pets", "sort": sort }));

    assert_eq!(sorted(doc! { "x": 1 }), [5, 2, 4, 3, 1, 6, 0]);
    assert_eq!(sorted(doc! { "x": -1 }), [0, 4, 1, 6, 3, 2, 5]);
    assert_eq!(sorted(doc! { "x": 1, "y": 1 }), [5, 2, 4, 3, 1, 6, 0]);
    assert_eq!(sorted(doc! { "x": 1, "y": -1 }), [5, 2, 4, 3, 6, 1, 0]);
}

#[test]
fn skip_comes_before_limit() {
    let mut server = Server::with_pets([1, 2, 3, 4, 5].map(|id| doc! { "_id": id }));

    assert_eq!(ids(&server.find(doc! { "find": "pets", "skip": 1, "limit": 2 })), [2, 3]);
    assert_eq!(ids(&server.find(doc! { "find": "pets", "skip": 1, "limit": 2, "sort": { "_id": -1 } })), [4, 3]);
    assert_eq!(ids(&server.find(doc! { "find": "pets", "skip": 9 })), [0_i32; 0]);
    assert_eq!(ids(&server.find(doc! { "find": "pets", "limit": 0 })).len(), 5);
}

#[test]
fn projections_keep_or_leave_out() {
    let mut server =
        Server::with_pets([doc! { "_id": 1, "a": 1, "b": { "c": 2, "d": 3 }, "e": [{ "c": 4, "d": 5 }, 6] }]);
    let mut projected =
        |projection: Document| server.find(doc! { "find": "pets", "projection": projection })[0].clone();

    assert_eq!(projected(doc! { "a": 1 }), doc! { "_id": 1, "a": 1 });
    assert_eq!(projected(doc! { "a": true, "_id": 0 }), doc! { "a": 1 });
    assert_eq!(projected(doc! { "_id": 1 }), doc! { "_id": 1 });
    assert_eq!(projected(doc! { "b.c": 1, "e.c": 1 }), doc! { "_id": 1, "b": { "c": 2 }, "e": [{ "c": 4 }] });
    assert_eq!(projected(doc! { "a.x": 1 }), doc! { "_id": 1 });
    assert_eq!(projected(doc! { "b": 0, "e.c": 0 }), doc! { "_id": 1, "a": 1, "e": [{ "d": 5 }, 6] });
    assert_eq!(projected(doc! { "_id": 0, "b": 0, "e": 0 }), doc! { "a": 1 });
    assert_eq!(projected(doc! {}).len(), 4);
}

#[test]
fn projections_that_contradict_themselves_are_errors() {
    let mut server = Server::with_pets([doc! {}]);
    let mut code = |projection: Document| server.code(doc! { "find": "pets", "projection": projection });

    assert_eq!(code(doc! { "a": 1, "b": 0 }), 31254);
    assert_eq!(code(doc! { "a": 0, "b": 1 }), 31253);
    assert_eq!(code(doc! { "a": 1, "a.b": 1 }), 31250);
    assert_eq!(code(doc! { "a.b": 1, "a": 1 }), 31250);
    assert_eq!(code(doc! { "a": { "$slice": 1 } }), 115);
}

#[test]
fn an_id_is_found_whatever_its_numeric_type() {
    let mut server = Server::with_pets([doc! { "_id": 1 }, doc! { "_id": { "a": 1 } }]);

    assert_eq!(server.find(doc! { "find": "pets", "filter": { "_id": 1.0 } }), [doc! { "_id": 1 }]);
    assert_eq!(server.find(doc! { "find": "pets", "filter": { "_id": { "a": 1_i64 } } }).len(), 1);
    assert_eq!(server.find(doc! { "find": "pets", "filter": { "_id": Bson::Null } }), []);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut server = Server::with_pets([doc! {}]);

    for (option, value, code) in [
        ("batchSize", Bson::Int32(-1), 51024),
        ("limit", Bson::Int32(-1), 51024),
        ("skip", Bson::Int64(-1), 51024),
        ("batchSize", "1".into(), 14),
        ("filter", Bson::Int32(1), 14),
        ("sort", doc! { "a": 2 }.into(), 15975),
        ("sort", doc! { "a": "up" }.into(), 15974),
        ("tailable", true.into(), 2),
        ("awaitData", true.into(), 9),
        ("filters", doc! {}.into(), 40415),
    ] {
        assert_eq!(server.code(doc! { "find": "pets", option: value.clone() }), code, "{option}: {value}");
    }
}

#[test]
fn a_hint_names_an_index_that_there_is() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    for hint in [Bson::from("_id_"), doc! { "_id": 1 }.into(), doc! { "$natural": -1 }.into()] {
        assert_eq!(server.find(doc! { "find": "pets", "hint": hint }).len(), 1);
    }
    for hint in [Bson::from("x_1"), doc! { "x": 1 }.into()] {
        assert_eq!(server.code(doc! { "find": "pets", "hint": hint.clone() }), 2);
        assert_eq!(server.code(doc! { "count": "pets", "hint": hint.clone() }), 2);
        assert_eq!(server.code(doc! { "findAndModify": "pets", "remove": true, "hint": hint.clone() }), 2);
        let deletes = vec![doc! { "q": {}, "limit": 1, "hint": hint }];
        assert_eq!(write_errors(&server.ok(doc! { "delete": "pets", "deletes": deletes })), [(2, 0)]);
    }
}

#[test]
fn keys_are_shown_in_place_of_documents() {
    let mut server = Server::with_pets([doc! { "_id": 1, "x": 2, "y": 3 }]);
    let index = doc! { "key": { "x": 1 }, "name": "x_1" };
    server.ok(doc! { "createIndexes": "pets", "indexes": [index] });
    let mut keys = |rest: Document| {
        let mut find = doc! { "find": "pets", "returnKey": true };
        find.extend(rest);
        server.find(find)
    };

    assert_eq!(keys(doc! { "hint": "x_1" }), [doc! { "x": 2 }]);
    assert_eq!(keys(doc! { "sort": { "_id": 1 }, "showRecordId": true }), [doc! { "_id": 1 }]);
}

#[test]
fn keys_of_no_certain_index_are_refused() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    assert_eq!(server.code(doc! { "find": "pets", "returnKey": true }), 115);
    let projected = doc! { "find": "pets", "returnKey": true, "hint": "_id_", "projection": { "x": 1 } };
    assert_eq!(server.code(projected), 115);
}

#[test]
fn places_in_the_collection_are_not_shown() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    assert_eq!(server.code(doc! { "find": "pets", "showRecordId": true }), 115);
    server.ok(doc! { "find": "pets", "max": {}, "min": {}, "returnKey": false, "showRecordId": false });
}

//! Hints: documents in the order of an index, and hints that name none.

use bson::doc;

use super::*;

/// A server whose pets are out of order, and have an index of two fields.
fn with_index() -> Server {
    let mut server = Server::with_pets([
        doc! { "_id": 1, "x": 2, "y": 1 },
        doc! { "_id": 2, "x": 1, "y": 1 },
        doc! { "_id": 3, "x": 2, "y": 2 },
    ]);
    server.create_index(doc! { "key": { "x": 1, "y": -1 }, "name": "xy" });
    server
}

impl Server {
    fn create_index(&mut self, index: Document) {
        self.ok(doc! { "createIndexes": "pets", "indexes": [index] });
    }

    /// The `_id`s of the pets in the order in which they are found.
    fn ids_by(&mut self, hint: impl Into<Bson>) -> Vec<i32> {
        ids(&self.find(doc! { "find": "pets", "hint": hint }))
    }

    /// The code and the sentence of a find that fails.
    fn refuses_hint(&mut self, hint: impl Into<Bson>) -> (i32, String) {
        let (code, _, message) = self.fails(doc! { "find": "pets", "hint": hint });
        (code, message)
    }
}

#[test]
fn documents_come_in_the_order_of_the_index() {
    let mut server = with_index();

    assert_eq!(server.ids_by("xy"), [2, 3, 1]);
    assert_eq!(server.ids_by(doc! { "x": 1, "y": -1 }), [2, 3, 1]);
    assert_eq!(server.ids_by("_id_"), [1, 2, 3]);
    let limited = doc! { "find": "pets", "hint": "xy", "skip": 1, "limit": 1 };
    assert_eq!(ids(&server.find(limited)), [3]);
    let sorted = doc! { "find": "pets", "hint": "xy", "sort": { "y": 1 } };
    assert_eq!(ids(&server.find(sorted)), [2, 1, 3]);
}

#[test]
fn an_index_is_read_from_min_up_to_max() {
    let mut server = with_index();
    let mut between = |bounds: Document| {
        let mut find = doc! { "find": "pets", "hint": "xy" };
        find.extend(bounds);
        ids(&server.find(find))
    };

    assert_eq!(between(doc! { "min": { "x": 2, "y": 2 } }), [3, 1]);
    assert_eq!(between(doc! { "max": { "x": 2, "y": 1 } }), [2, 3]);
    assert_eq!(between(doc! { "min": { "x": 1, "y": 0 }, "limit": 1 }), [3]);
    assert_eq!(between(doc! { "min": { "x": 2, "y": 2 }, "max": { "x": 2, "y": 2 } }), [0; 0]);
    assert_eq!(server.code(doc! { "find": "pets", "min": { "x": 1 } }), 51173);
    assert_eq!(server.code(doc! { "find": "pets", "min": { "x": 1 }, "hint": "xy" }), 51174);
}

#[test]
fn natural_is_the_order_of_insertion_or_its_reverse() {
    let mut server = with_index();

    assert_eq!(server.ids_by(doc! { "$natural": 1 }), [1, 2, 3]);
    assert_eq!(server.ids_by(doc! { "$natural": -1 }), [3, 2, 1]);
    assert_eq!(server.refuses_hint(doc! { "$natural": 2 }).0, 2);
}

#[test]
fn an_empty_hint_is_none() {
    let mut server = with_index();

    assert_eq!(server.ids_by(doc! {}), [1, 2, 3]);
    assert_eq!(server.ids_by(""), [1, 2, 3]);
}

#[test]
fn every_command_follows_it() {
    let mut server = with_index();
    let hint = doc! { "x": 1, "y": -1 };

    let aggregate = doc! { "aggregate": "pets", "pipeline": [], "cursor": {}, "hint": hint.clone() };
    assert_eq!(ids(&batch(&server.ok(aggregate))), [2, 3, 1]);
    let distinct = doc! { "distinct": "pets", "key": "x", "hint": hint.clone() };
    assert_eq!(server.ok(distinct), doc! { "values": [1, 2] });
    let update = doc! { "q": {}, "u": { "$set": { "seen": true } }, "hint": hint.clone() };
    server.ok(doc! { "update": "pets", "updates": [update] });
    assert_eq!(server.ids(doc! { "seen": true }), [2]);
    let changed = doc! { "findAndModify": "pets", "query": { "seen": null }, "remove": true, "hint": hint.clone() };
    assert_eq!(server.ok(changed).get_document("value").unwrap().get_i32("_id").unwrap(), 3);
    server.ok(doc! { "delete": "pets", "deletes": [{ "q": {}, "limit": 1, "hint": hint }] });
    assert_eq!(ids(&server.pets()), [1]);
}

#[test]
fn a_sparse_index_lacks_documents_without_its_fields() {
    let mut server = Server::with_pets([doc! { "_id": 1 }, doc! { "_id": 2, "x": null }, doc! { "_id": 3, "x": 1 }]);
    server.create_index(doc! { "key": { "x": -1 }, "name": "x", "sparse": true });

    assert_eq!(server.ids_by("x"), [3, 2]);
    assert_eq!(server.ok(doc! { "count": "pets", "hint": "x" }), doc! { "n": 2 });
    assert_eq!(server.ok(doc! { "count": "pets", "hint": "x", "skip": 1, "limit": 5 }), doc! { "n": 1 });
}

#[test]
fn one_that_names_no_index_is_an_error_for_every_command() {
    let mut server = with_index();

    let (code, message) = server.refuses_hint("yx");
    assert_eq!(code, 2);
    assert_eq!(
        message,
        "error processing query: ns=test.pets: planner returned error :: caused by :: hint provided does not correspond to \
         an existing index"
    );
    // The order of keys counts, and so do their directions.
    for pattern in [doc! { "y": -1, "x": 1 }, doc! { "x": 1 }, doc! { "x": 1, "y": 1 }] {
        assert_eq!(server.refuses_hint(pattern.clone()).0, 2, "{pattern}");
    }
    for command in [
        doc! { "aggregate": "pets", "pipeline": [], "cursor": {}, "hint": "yx" },
        doc! { "count": "pets", "hint": "yx" },
        doc! { "distinct": "pets", "key": "x", "hint": "yx" },
        doc! { "explain": { "find": "pets", "hint": "yx" } },
        doc! { "findAndModify": "pets", "remove": true, "hint": "yx" },
    ] {
        assert_eq!(server.code(command.clone()), 2, "{command}");
    }
    for command in [
        doc! { "delete": "pets", "deletes": [{ "q": {}, "limit": 0, "hint": "yx" }] },
        doc! { "update": "pets", "updates": [{ "q": {}, "u": { "$set": { "z": 1 } }, "hint": "yx" }] },
    ] {
        assert_eq!(write_errors(&server.ok(command.clone())), [(2, 0)], "{command}");
    }
    assert_eq!(server.refuses_hint(7), (9, "hint must be either a string or nested object".to_string()));
    assert_eq!(server.pets().len(), 3);
}

#[test]
fn one_that_cannot_be_followed_here_is_refused() {
    let mut server = with_index();
    server.create_index(doc! { "key": { "h": "hashed" }, "name": "h" });
    server.create_index(doc! { "key": { "p": 1 }, "name": "p", "partialFilterExpression": { "p": { "$gt": 1 } } });

    assert_eq!(server.refuses_hint("h").0, 115);
    assert_eq!(server.refuses_hint("p").0, 115);
}

//! Features of MongoDB that the store lacks: refused as such, and never ignored.

use bson::doc;

use super::*;

const NOT_SUPPORTED: i32 = 115;

fn aggregate(stage: Document) -> Document {
    doc! { "aggregate": "pets", "pipeline": [stage], "cursor": {} }
}

fn update(u: Document) -> Document {
    doc! { "update": "pets", "updates": [{ "q": {}, "u": u }] }
}

#[test]
fn operators_of_mongodb_are_told_from_misspelled_ones() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    let (code, name, message) = server.fails(aggregate(doc! { "$lookup": { "from": "x" } }));

    assert_eq!((code, name), (NOT_SUPPORTED, "CommandNotSupported"));
    assert_eq!(message, "the pipeline stage $lookup is not supported by this test server");
    for stage in ["$facet", "$sample", "$unionWith"] {
        assert_eq!(server.code(aggregate(doc! { stage: {} })), NOT_SUPPORTED, "{stage}");
    }
    let group = doc! { "$group": { "_id": 1, "n": { "$avg": "$x" } } };
    assert_eq!(server.code(aggregate(group)), NOT_SUPPORTED);
    assert_eq!(server.code(aggregate(doc! { "$set": { "x": { "$add": [1, 2] } } })), NOT_SUPPORTED);
    for filter in [
        doc! { "$jsonSchema": {} },
        doc! { "$expr": { "$gt": [1, 2] } },
        doc! { "$text": { "$search": "x" } },
        doc! { "x": { "$bitsAllSet": 1 } },
        doc! { "x": { "$near": [0, 0] } },
    ] {
        assert_eq!(server.code(doc! { "find": "pets", "filter": filter.clone() }), NOT_SUPPORTED, "{filter}");
    }
    for modifier in ["$bit", "$currentDate"] {
        let reply = server.ok(update(doc! { modifier: { "x": 1 } }));
        assert_eq!(write_errors(&reply), [(NOT_SUPPORTED, 0)], "{modifier}");
    }
}

#[test]
fn a_collation_is_simple_or_refused() {
    let mut server = Server::with_pets([doc! { "_id": 1, "x": "a" }]);
    let english = doc! { "locale": "en", "strength": 2 };
    let simple = doc! { "locale": "simple" };
    let unique = |collation: &Document| {
        let index = doc! { "key": { "x": 1 }, "name": "x", "unique": true, "collation": collation.clone() };
        doc! { "createIndexes": "pets", "indexes": [index] }
    };
    let commands = |collation: &Document| {
        let collation = collation.clone();
        [
            doc! { "find": "pets", "collation": collation.clone() },
            doc! { "count": "pets", "collation": collation.clone() },
            doc! { "distinct": "pets", "key": "x", "collation": collation.clone() },
            doc! { "aggregate": "pets", "pipeline": [], "cursor": {}, "collation": collation.clone() },
            doc! { "findAndModify": "pets", "remove": true, "query": { "_id": 9 }, "collation": collation.clone() },
            doc! { "delete": "pets", "deletes": [{ "q": { "_id": 9 }, "limit": 1, "collation": collation.clone() }] },
            doc! { "update": "pets", "updates": [{ "q": {}, "u": { "$set": { "y": 1 } }, "collation": collation.clone() }] },
            doc! { "create": "others", "collation": collation.clone() },
            unique(&collation),
        ]
    };

    for command in commands(&english) {
        assert_eq!(server.code(command.clone()), NOT_SUPPORTED, "{command}");
    }
    for command in commands(&simple).into_iter().chain(commands(&doc! {})) {
        // The index and the collection exist the second time, with other options.
        if !command.contains_key("create") && !command.contains_key("createIndexes") {
            server.ok(command);
        }
    }
    assert_eq!(server.code(doc! { "find": "pets", "collation": { "strength": 2 } }), 40414);
}

#[test]
fn a_validator_is_refused() {
    let mut server = Server::default();

    let (code, _, message) = server.fails(doc! { "create": "pets", "validator": { "x": { "$type": "string" } } });

    assert_eq!((code, message.as_str()), (115, "a collection with a validator is not supported by this test server"));
    server.ok(doc! { "create": "pets", "validator": {} });
}

#[test]
fn a_text_index_is_refused_and_one_of_no_known_type_is_a_mistake() {
    let mut server = Server::default();
    let create = |kind: &str| doc! { "createIndexes": "pets", "indexes": [{ "key": { "t": kind }, "name": "t" }] };

    let (code, _, message) = server.fails(create("text"));

    assert_eq!((code, message.as_str()), (NOT_SUPPORTED, "a text index is not supported by this test server"));
    assert_eq!(server.code(create("texts")), 67);
    for kind in ["2d", "2dsphere", "hashed"] {
        let mut server = Server::default();
        server.ok(create(kind));
    }
}

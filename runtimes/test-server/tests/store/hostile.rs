//! Commands that no well-meaning client sends: each has an answer, soon.

use bson::{Bson, doc};
use proptest::prelude::*;

use super::*;

/// Nested documents, this many around the innermost.
fn nested(levels: usize) -> Document {
    (0..levels).fold(doc! {}, |inner, _| doc! { "a": inner })
}

#[test]
fn deep_documents_are_refused_where_they_come_in_and_where_they_would_come_about() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    assert_eq!(server.code(doc! { "insert": "pets", "documents": [nested(250)] }), 22);
    let reply = server.ok(doc! { "insert": "pets", "documents": [nested(190)] });
    assert_eq!(write_errors(&reply), [(15, 0)]);
    assert_eq!(write_errors(&server.ok(doc! { "insert": "pets", "documents": [nested(170)] })), []);
    let path = vec!["a"; 150].join(".");
    let deeper = doc! { "q": { "_id": 1 }, "u": { "$set": { path: nested(100) } } };
    assert_eq!(write_errors(&server.ok(doc! { "update": "pets", "updates": [deeper] })), [(15, 0)]);
}

#[test]
fn deep_queries_are_answered() {
    let mut server = Server::with_pets([doc! { "_id": 1, "a": 1 }]);
    let deep = (0..60).fold(doc! { "a": { "$not": { "$gt": 5 } } }, |inner, _| doc! { "$and": [inner] });

    assert_eq!(server.ids(deep), [1]);
}

#[test]
fn long_paths_are_refused() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);
    let long = vec!["a"; 1000].join(".");

    assert_eq!(server.code(doc! { "find": "pets", "filter": { &long: 1 } }), 15);
    assert_eq!(server.code(doc! { "find": "pets", "sort": { &long: 1 } }), 15);
    assert_eq!(server.code(doc! { "find": "pets", "projection": { &long: 1 } }), 15);
    assert_eq!(server.code(doc! { "distinct": "pets", "key": &long }), 15);
}

#[test]
fn paths_through_many_arrays_do_not_multiply() {
    let array = (0..60).fold(Bson::Int32(1), |inner, _| Bson::Array(vec![doc! { "0": inner }.into()]));
    let mut server = Server::with_pets([doc! { "_id": 1, "x": array }]);

    assert_eq!(server.ids(doc! { format!("x{}", ".0".repeat(8)): 1 }), [0_i32; 0]);
    assert_eq!(server.code(doc! { "find": "pets", "filter": { format!("x{}", ".0".repeat(9)): 1 } }), 15);
}

#[test]
fn an_update_cannot_make_an_array_of_any_length() {
    let mut server = Server::with_pets([doc! { "_id": 1, "a": [], "b": [] }]);
    let set = doc! { "$set": { "a.1000000": 1, "b.1000000": 1 } };

    let reply = server.ok(doc! { "update": "pets", "updates": [{ "q": {}, "u": set }] });

    assert_eq!(write_errors(&reply), [(2, 0)]);
}

#[test]
fn a_pipeline_cannot_grow_a_document_without_end() {
    let mut server = Server::with_pets([doc! { "_id": 1, "x": "x".repeat(1000) }]);
    let doubling = vec![doc! { "$set": { "a": ["$$ROOT", "$$ROOT"] } }; 100];
    let wide: Document = (0..20_000).map(|number| (number.to_string(), Bson::from("$x"))).collect();

    assert!([15, 10334].contains(&server.code(doc! { "aggregate": "pets", "pipeline": doubling, "cursor": {} })));
    assert_eq!(server.code(doc! { "aggregate": "pets", "pipeline": [{ "$set": wide }], "cursor": {} }), 10334);
}

#[test]
fn bytes_that_are_no_document_are_refused() {
    // A text with a wrong length, and one that is not UTF-8.
    for text in [&b"\xff\0\0\0pets\0"[..], b"\x05\0\0\0p\xff\xffs\0"] {
        let bytes = [&[20, 0, 0, 0][..], b"\x02find\0", text, b"\0"].concat();
        let body = RawDocument::from_bytes(&bytes).unwrap();
        let command = StoreCommand { name: "find", database: "test", body };
        let failure = Store::default().run(&command).unwrap().unwrap_err();
        assert_eq!(failure.code, 22, "{failure}");
    }
}

/// Values of every shape for arguments.
fn value() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        Just(Bson::Null),
        any::<i32>().prop_map(Bson::Int32),
        (-3..3_i32).prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        any::<f64>().prop_map(Bson::Double),
        any::<bool>().prop_map(Bson::Boolean),
        prop::sample::select(vec!["", "a", "$a", "a.0", "pets", "$$ROOT", "^a.*b", "*", "number"]).prop_map(Bson::from),
        prop::sample::select(vec![Bson::MinKey, Bson::MaxKey, Bson::Undefined]),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            prop::collection::vec((prop::sample::select(NAMES.to_vec()), inner), 0..4).prop_map(|fields| {
                Bson::Document(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

#[rustfmt::skip]
const NAMES: &[&str] = &[
    "_id", "a", "a.0", "a.b", "", "$and", "$or", "$not", "$gt", "$in", "$exists", "$type", "$regex", "$options", "$size",
    "$all", "$elemMatch", "$mod", "$set", "$inc", "$push", "$each", "$pull", "$rename", "$pop", "$unset", "$match",
    "$group", "$sum", "$project", "$sort", "$limit", "$count", "$out", "$natural", "$ref", "q", "u", "limit", "multi",
    "upsert", "key", "name", "unique", "batchSize", "coll",
];

#[rustfmt::skip]
const COMMANDS: &[&str] = &[
    "aggregate", "collStats", "count", "create", "createIndexes", "dbStats", "delete", "distinct", "drop",
    "dropDatabase", "dropIndexes", "explain", "find", "findAndModify", "getMore", "insert", "killCursors",
    "listCollections", "listDatabases", "listIndexes", "renameCollection", "update", "validate",
];

#[rustfmt::skip]
const ARGUMENTS: &[&str] = &[
    "filter", "query", "sort", "projection", "fields", "documents", "updates", "deletes", "pipeline", "cursor", "cursors",
    "collection", "batchSize", "limit", "skip", "update", "remove", "new", "upsert", "indexes", "index", "key", "capped",
    "size", "max", "to", "ordered", "singleBatch", "tailable", "verbosity",
];

/// A command: its name with some first argument, and others.
fn command() -> impl Strategy<Value = Document> {
    let first = prop_oneof![3 => Just(Bson::from("pets")), 1 => value()];
    let argument = (prop::sample::select(ARGUMENTS.to_vec()), value());
    let others = prop::collection::vec(argument, 0..5);
    (prop::sample::select(COMMANDS.to_vec()), first, others).prop_map(|(name, first, others)| {
        let mut command = doc! { name: first };
        command.extend(others.into_iter().map(|(name, value)| (name.to_owned(), value)));
        command
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_arguments_are_there_is_a_reply_or_an_error(commands in prop::collection::vec(command(), 1..8)) {
        let mut server = Server::with_pets([doc! { "_id": 1, "a": [{ "b": 1 }, 2] }, doc! { "_id": 2, "a": { "b": "x" } }]);
        for command in commands {
            if let Err(failure) = server.run(&command) {
                prop_assert!(failure.code > 0 && !failure.message.is_empty(), "{command}");
                prop_assert_ne!(failure.code_name, "UnknownError");
            }
        }
    }

    #[test]
    fn whatever_the_bytes_are_there_is_a_reply_or_an_error(
        command in command(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = RawDocumentBuf::try_from(&command).unwrap().into_bytes();
        let at = 4 + at.index(bytes.len() - 5);
        bytes[at] = byte;
        let body = RawDocument::from_bytes(&bytes).unwrap();
        let mut store = Store::default();
        if let Some(name) = cmap_core::wire::document::command_name(body) {
            let _ = store.run(&StoreCommand { name, database: "test", body });
        }
    }
}

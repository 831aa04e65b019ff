//! create, drop, dropDatabase, renameCollection, listCollections, listDatabases, and statistics.

use bson::doc;

use super::*;

fn names(documents: &[Document]) -> Vec<&str> {
    documents.iter().map(|document| document.get_str("name").unwrap()).collect()
}

#[test]
fn a_collection_is_created_once_with_its_options() {
    let mut server = Server::default();
    let capped = doc! { "create": "pets", "capped": true, "size": 4096 };

    assert_eq!(server.ok(capped.clone()), doc! {});
    assert_eq!(server.ok(capped), doc! {}, "the same once more is no mistake");
    assert_eq!(server.fails(doc! { "create": "pets" }).1, "NamespaceExists");
    assert_eq!(server.code(doc! { "create": "x", "capped": true }), 72);
    assert_eq!(server.code(doc! { "create": "x", "size": 1 }), 72);
    assert_eq!(server.code(doc! { "create": "x", "timeseries": { "timeField": "t" } }), 115);
    assert_eq!(server.code(doc! { "create": "x", "colour": "red" }), 40415);
    assert_eq!(server.code(doc! { "create": "" }), 73);
}

#[test]
fn collections_are_listed() {
    let mut server = Server::with_pets([doc! {}]);
    server.ok(doc! { "create": "capped", "capped": true, "size": 4096 });

    let listed = batch(&server.ok(doc! { "listCollections": 1 }));
    assert_eq!(names(&listed), ["capped", "pets"]);
    assert_eq!(listed[0].get_document("options").ok(), Some(&doc! { "capped": true, "size": 4096 }));
    assert_eq!(listed[1].get_str("type").ok(), Some("collection"));
    assert_eq!(listed[1].get_document("idIndex").unwrap().get_str("name").ok(), Some("_id_"));
    let filtered = server.ok(doc! { "listCollections": 1, "filter": { "name": "pets" }, "nameOnly": true });
    assert_eq!(batch(&filtered), [doc! { "name": "pets", "type": "collection" }]);
    assert_eq!(filtered.get_document("cursor").unwrap().get_str("ns").ok(), Some("test.$cmd.listCollections"));
}

#[test]
fn collections_are_listed_in_batches() {
    let mut server = Server::default();
    for name in ["a", "b", "c"] {
        server.ok(doc! { "create": name });
    }

    let first = server.ok(doc! { "listCollections": 1, "cursor": { "batchSize": 2 } });
    assert_eq!(names(&batch(&first)), ["a", "b"]);
    let next = server.ok(doc! { "getMore": cursor_id(&first), "collection": "$cmd.listCollections" });
    assert_eq!((names(&batch(&next)), cursor_id(&next)), (vec!["c"], 0));
}

#[test]
fn what_is_dropped_is_gone_and_what_is_not_there_is_dropped_too() {
    let mut server = Server::with_pets([doc! {}]);

    assert_eq!(server.ok(doc! { "drop": "pets" }), doc! { "nIndexesWas": 1, "ns": "test.pets" });
    assert_eq!(server.ok(doc! { "drop": "pets" }), doc! {});
    assert_eq!(server.pets(), []);
    server.ok(doc! { "create": "pets" });
    assert_eq!(server.ok(doc! { "dropDatabase": 1 }), doc! { "dropped": "test" });
    assert_eq!(server.ok(doc! { "dropDatabase": 1 }), doc! {});
    assert_eq!(batch(&server.ok(doc! { "listCollections": 1 })), []);
}

#[test]
fn databases_are_those_with_collections_and_those_every_server_has() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);
    let listed = |reply: &Document| -> Vec<String> {
        let databases = reply.get_array("databases").unwrap();
        databases.iter().map(|database| database.as_document().unwrap().get_str("name").unwrap().to_owned()).collect()
    };

    let all = server.ok_in_admin(doc! { "listDatabases": 1 });
    assert_eq!(listed(&all), ["admin", "config", "local", "test"]);
    assert_eq!(all.get_i64("totalSize").ok(), Some(14));
    assert_eq!(
        server.ok_in_admin(doc! { "listDatabases": 1, "nameOnly": true, "filter": { "name": "test" } }),
        doc! { "databases": [{ "name": "test" }] }
    );
    assert_eq!(server.code(doc! { "listDatabases": 1 }), 13);
}

#[test]
fn a_collection_is_renamed_with_all_it_has() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);
    server.ok(doc! { "create": "taken" });

    server.ok_in_admin(doc! { "renameCollection": "test.pets", "to": "other.animals" });

    let find = RawDocumentBuf::try_from(&doc! { "find": "animals" }).unwrap();
    let found = Document::try_from(server.run_in("other", &find).unwrap()).unwrap();
    assert_eq!(ids(&batch(&found)), [1]);
    let mut code = |command: Document| {
        let body = RawDocumentBuf::try_from(&command).unwrap();
        server.run_in("admin", &body).unwrap_err().code
    };
    assert_eq!(code(doc! { "renameCollection": "other.animals", "to": "test.taken" }), 48);
    assert_eq!(code(doc! { "renameCollection": "test.none", "to": "test.x" }), 26);
    assert_eq!(code(doc! { "renameCollection": "test.taken", "to": "test.taken" }), 20);
    assert_eq!(code(doc! { "renameCollection": "test.taken", "to": "test" }), 73);
    assert_eq!(server.code(doc! { "renameCollection": "test.taken", "to": "test.x" }), 13);
}

#[test]
fn statistics_count_documents_and_bytes() {
    let mut server = Server::with_pets([doc! { "_id": 1 }, doc! { "_id": 2 }]);

    let collection = server.ok(doc! { "collStats": "pets" });
    assert_eq!((collection.get_i32("count").ok(), collection.get_i32("size").ok()), (Some(2), Some(28)));
    let database = server.ok(doc! { "dbStats": 1 });
    assert_eq!((database.get_i32("objects").ok(), database.get_i32("collections").ok()), (Some(2), Some(1)));
    let validated = server.ok(doc! { "validate": "pets" });
    assert_eq!((validated.get_bool("valid").ok(), validated.get_i32("nrecords").ok()), (Some(true), Some(2)));
    assert_eq!(server.code(doc! { "validate": "none" }), 26);
}

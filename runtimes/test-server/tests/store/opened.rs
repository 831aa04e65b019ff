//! Which collections commands open.

use bson::{Document, RawDocumentBuf, doc};
use cmap_core::wire::document::command_name;
use cmap_test_server::store::StoreCommand;

use super::Server;

/// What a command opens, whether it succeeds or not.
fn opens(server: &mut Server, command: Document) -> Vec<String> {
    server.store.take_opened();
    let body = RawDocumentBuf::try_from(&command).unwrap();
    let _ = server.store.run(&StoreCommand { name: command_name(&body).unwrap(), database: "test", body: &body });
    server.store.take_opened().into_iter().collect()
}

#[test]
fn a_command_opens_what_it_reads_writes_makes_and_removes() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    assert_eq!(opens(&mut server, doc! { "find": "pets" }), ["test.pets"]);
    assert_eq!(opens(&mut server, doc! { "insert": "new", "documents": [{}] }), ["test.new"]);
    let out = doc! { "aggregate": "pets", "pipeline": [{ "$out": { "db": "other", "coll": "o" } }], "cursor": {} };
    assert_eq!(opens(&mut server, out), ["other.o", "test.pets"]);
    assert_eq!(opens(&mut server, doc! { "dropDatabase": 1 }), ["test.new", "test.pets"]);
    assert!(opens(&mut server, doc! { "listCollections": 1 }).is_empty());
}

#[test]
fn stages_and_commands_that_the_store_lacks_open_what_they_do_in_mongodb() {
    let mut server = Server::default();
    let lookup = doc! { "$lookup": {
        "from": { "db": "other", "coll": "a" }, "as": "x", "pipeline": [{ "$facet": { "y": [{ "$unionWith": "b" }] } }],
    } };
    let pipeline = vec![lookup, doc! { "$merge": { "into": "c" } }];

    assert_eq!(
        opens(&mut server, doc! { "aggregate": "pets", "pipeline": pipeline.clone() }),
        ["other.a", "other.b", "test.c", "test.pets"]
    );
    let view = doc! { "create": "view", "viewOn": "pets", "pipeline": pipeline };
    assert_eq!(opens(&mut server, view), ["other.a", "other.b", "test.c", "test.pets", "test.view"]);
    let bulk = doc! { "bulkWrite": 1, "nsInfo": [{ "ns": "a.b" }, { "ns": "c.d" }] };
    assert_eq!(opens(&mut server, bulk), ["a.b", "c.d"]);
    assert_eq!(
        opens(&mut server, doc! { "mapReduce": "pets", "out": { "merge": "m", "db": "other" } }),
        ["other.m", "test.pets"]
    );
    assert_eq!(opens(&mut server, doc! { "group": { "ns": "a" } }), ["test.a"]);
    assert_eq!(opens(&mut server, doc! { "filemd5": 1, "root": "fs" }), ["test.fs.chunks"]);
}

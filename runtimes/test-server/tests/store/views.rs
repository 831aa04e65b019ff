//! Views: they can be made, listed and dropped, and no command reads or writes one.

use bson::doc;

use super::*;

fn with_view() -> Server {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);
    server.ok(doc! { "create": "view", "viewOn": "pets", "pipeline": [{ "$match": {} }] });
    server
}

#[test]
fn a_view_is_listed_as_one() {
    let mut server = with_view();

    let listed = batch(&server.ok(doc! { "listCollections": 1, "filter": { "name": "view" } }));

    assert_eq!(listed[0].get_str("type").unwrap(), "view");
    assert_eq!(listed[0].get_document("options").unwrap().get_str("viewOn").unwrap(), "pets");
    server.ok(doc! { "drop": "view" });
    assert_eq!(batch(&server.ok(doc! { "listCollections": 1 })).len(), 1);
}

#[test]
fn other_commands_on_it_are_refused() {
    let mut server = with_view();

    for command in [
        doc! { "find": "view" },
        doc! { "aggregate": "view", "pipeline": [], "cursor": {} },
        doc! { "count": "view" },
        doc! { "insert": "view", "documents": [{}] },
        doc! { "aggregate": "pets", "pipeline": [{ "$out": "view" }], "cursor": {} },
    ] {
        assert_eq!(server.code(command.clone()), 115, "{command}");
    }
    let bulk = doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }], "nsInfo": [{ "ns": "test.view" }] };
    let rename = doc! { "renameCollection": "test.view", "to": "test.other" };
    for command in [bulk, rename] {
        let body = RawDocumentBuf::try_from(&command).unwrap();
        assert_eq!(server.run_in("admin", &body).unwrap_err().code, 115, "{command}");
    }
}

#[test]
fn what_is_no_view_is_refused() {
    let mut server = Server::default();

    assert_eq!(server.code(doc! { "create": "view", "pipeline": [] }), 72);
    assert_eq!(server.code(doc! { "create": "view", "viewOn": "pets", "pipeline": [{ "$unknown": 1 }] }), 40324);
}

//! Documents as they were before and after changes.

use super::*;

/// Updates and deletes the document 1 of a collection with these options, and returns both events.
fn events(options: Document, stage: Document) -> Result<Vec<Document>, CommandFailure> {
    let mut cluster = Cluster::new();
    let mut create = doc! { "create": "pets" };
    create.extend(options);
    cluster.write(create);
    cluster.insert(1);
    let stream = cluster.watch(stage);
    let update = |x: i32| doc! { "update": "pets", "updates": [{ "q": {}, "u": { "$set": { "x": x } } }] };
    cluster.write(update(1));
    cluster.write(update(2));
    cluster.get_more(&stream).map(|reply| batch(&reply))
}

fn images() -> Document {
    doc! { "changeStreamPreAndPostImages": { "enabled": true } }
}

#[test]
fn an_update_looks_up_the_document_as_it_is() {
    let events = events(doc! {}, doc! { "fullDocument": "updateLookup" }).unwrap();

    let found: Vec<_> = events.iter().map(|event| event.get_document("fullDocument").unwrap().clone()).collect();
    assert_eq!(found, [doc! { "_id": 1, "x": 2 }, doc! { "_id": 1, "x": 2 }]);
}

#[test]
fn a_document_that_is_gone_cannot_be_looked_up() {
    let mut cluster = Cluster::new();
    cluster.insert(1);
    let stream = cluster.watch(doc! { "fullDocument": "updateLookup" });
    cluster.write(doc! { "update": "pets", "updates": [{ "q": {}, "u": { "$set": { "x": 1 } } }] });
    cluster.write(doc! { "delete": "pets", "deletes": [{ "q": {}, "limit": 0 }] });

    let events = cluster.next(&stream);

    assert_eq!(events[0].get("fullDocument"), Some(&Bson::Null));
}

#[test]
fn a_collection_may_keep_documents_as_they_were() {
    for kind in ["whenAvailable", "required"] {
        let stage = doc! { "fullDocument": kind, "fullDocumentBeforeChange": kind };

        let events = events(images(), stage).unwrap();

        let shown =
            |name: &str| events.iter().map(|event| event.get_document(name).unwrap().clone()).collect::<Vec<_>>();
        assert_eq!(shown("fullDocumentBeforeChange"), [doc! { "_id": 1 }, doc! { "_id": 1, "x": 1 }]);
        assert_eq!(shown("fullDocument"), [doc! { "_id": 1, "x": 1 }, doc! { "_id": 1, "x": 2 }]);
    }
}

#[test]
fn what_was_not_kept_is_null_or_an_error() {
    let available = doc! { "fullDocument": "whenAvailable", "fullDocumentBeforeChange": "whenAvailable" };

    let events_without = events(doc! {}, available).unwrap();

    let event = &events_without[0];
    assert_eq!(
        (event.get("fullDocument"), event.get("fullDocumentBeforeChange")),
        (Some(&Bson::Null), Some(&Bson::Null))
    );
    for name in ["fullDocument", "fullDocumentBeforeChange"] {
        assert_eq!(events(doc! {}, doc! { name: "required" }).unwrap_err().code, 47, "{name}");
    }
}

#[test]
fn by_default_they_are_not_shown() {
    for options in [doc! {}, images()] {
        let events = events(options, doc! { "fullDocumentBeforeChange": "off" }).unwrap();

        assert!(!events[0].contains_key("fullDocument") && !events[0].contains_key("fullDocumentBeforeChange"));
    }
}

#[test]
fn coll_mod_switches_it_on_and_off() {
    let mut cluster = Cluster::new();
    cluster.insert(1);
    let stream = cluster.watch(doc! { "fullDocument": "whenAvailable" });
    for (x, enabled) in [(1, true), (2, false)] {
        cluster.write(doc! { "collMod": "pets", "changeStreamPreAndPostImages": { "enabled": enabled } });
        cluster.write(doc! { "update": "pets", "updates": [{ "q": {}, "u": { "$set": { "x": x } } }] });
    }

    let events = cluster.next(&stream);

    assert_eq!(events[0].get("fullDocument"), Some(&Bson::Document(doc! { "_id": 1, "x": 1 })));
    assert_eq!(events[1].get("fullDocument"), Some(&Bson::Null));
}

#[test]
fn coll_mod_refuses_what_it_cannot_change() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    assert_eq!(server.code(doc! { "collMod": "pets", "validator": { "x": 1 } }), 115);
    assert_eq!(server.code(doc! { "collMod": "pets", "unknown": 1 }), 40415);
    assert_eq!(server.code(doc! { "collMod": "missing" }), 26);
}

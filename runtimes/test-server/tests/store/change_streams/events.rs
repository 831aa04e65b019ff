//! Which changes are events, of which streams, and which end them.

use super::*;

#[test]
fn documents_that_are_inserted_updated_replaced_and_deleted() {
    let mut cluster = Cluster::new();
    let stream = cluster.watch(doc! {});
    let update = |u: Document| doc! { "update": "pets", "updates": [{ "q": { "_id": 1 }, "u": u }] };

    cluster.insert(1);
    cluster.write(update(doc! { "$set": { "x": 1 } }));
    cluster.write(update(doc! { "y": 1 }));
    cluster.write(doc! { "delete": "pets", "deletes": [{ "q": {}, "limit": 1 }] });

    let mut events = cluster.next(&stream);
    let first = events[0].clone();
    assert_eq!(first.get_timestamp("clusterTime").unwrap(), Timestamp { time: 1000, increment: 1 });
    assert_eq!(first.get_datetime("wallTime").unwrap(), &DateTime::from_millis(5));
    for event in &mut events {
        ["_id", "clusterTime", "wallTime"].iter().for_each(|name| drop(event.remove(name).unwrap()));
    }
    let (ns, key) = (doc! { "db": "test", "coll": "pets" }, doc! { "_id": 1 });
    let description = doc! { "updatedFields": { "x": 1 }, "removedFields": [], "truncatedArrays": [] };
    let expected = [
        doc! { "operationType": "insert", "fullDocument": { "_id": 1 }, "ns": &ns, "documentKey": &key },
        doc! { "operationType": "update", "ns": &ns, "documentKey": &key, "updateDescription": description },
        doc! { "operationType": "replace", "fullDocument": { "_id": 1, "y": 1 }, "ns": &ns, "documentKey": &key },
        doc! { "operationType": "delete", "ns": &ns, "documentKey": &key },
    ];
    assert_eq!(events, expected);
}

#[test]
fn every_command_that_writes_is_seen() {
    let mut cluster = Cluster::new();
    let stream = cluster.watch(doc! {});

    cluster.write_in(
        "admin",
        doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 1 } }], "nsInfo": [{ "ns": "test.pets" }] },
    );
    let upsert = doc! { "q": { "_id": 2 }, "u": { "$set": { "x": 1 } }, "upsert": true };
    cluster.write(doc! { "update": "pets", "updates": [upsert] });
    cluster.write(doc! { "findAndModify": "pets", "query": { "_id": 1 }, "update": { "$set": { "x": 2 } } });
    cluster.write(doc! { "findAndModify": "pets", "query": { "_id": 2 }, "remove": true });
    let merge = doc! { "$merge": "pets" };
    cluster.write(doc! { "aggregate": "pets", "pipeline": [{ "$set": { "x": 3 } }, merge], "cursor": {} });

    let events = cluster.next(&stream);
    assert_eq!(types(&events), ["insert", "insert", "update", "delete", "update"]);
    assert_eq!(keys(&events), [1, 2, 1, 2, 1]);
}

#[test]
fn what_changes_nothing_or_fails_is_no_event() {
    let mut cluster = Cluster::new();
    cluster.insert(1);
    let stream = cluster.watch(doc! {});

    cluster.write(doc! { "update": "pets", "updates": [{ "q": {}, "u": { "$set": { "_id": 1 } } }] });
    cluster.write(doc! { "insert": "pets", "documents": [{ "_id": 1 }] });
    cluster.write(doc! { "drop": "missing" });

    assert_eq!(cluster.next(&stream), []);
}

#[test]
fn a_stream_is_of_a_collection_a_database_or_all() {
    let mut cluster = Cluster::new();
    let collection = cluster.watch(doc! {});
    let database = cluster.watch_database(doc! {});
    let all = cluster.open("admin", 1.into(), doc! { "allChangesForCluster": true }, &[]).unwrap();

    cluster.insert(1);
    cluster.write(doc! { "insert": "others", "documents": [{ "_id": 2 }] });
    cluster.write_in("elsewhere", doc! { "insert": "pets", "documents": [{ "_id": 3 }] });

    let seen = [&collection, &database, &all].map(|stream| keys(&cluster.next(stream)));
    assert_eq!(seen, [vec![1], vec![1, 2], vec![1, 2, 3]]);
    let namespaces = [collection, database, all].map(|stream| stream.namespace);
    assert_eq!(namespaces, ["test.pets", "test.$cmd.aggregate", "admin.$cmd.aggregate"]);
}

#[test]
fn the_end_of_a_collection_ends_its_stream() {
    let rename = doc! { "renameCollection": "test.pets", "to": "test.others" };
    for (database, end, expected) in [
        ("test", doc! { "drop": "pets" }, "drop"),
        ("admin", rename, "rename"),
        ("test", doc! { "dropDatabase": 1 }, "drop"),
    ] {
        let mut cluster = Cluster::new();
        cluster.insert(1);
        let stream = cluster.watch(doc! {});

        cluster.write_in(database, end);

        let reply = cluster.get_more(&stream).unwrap();
        assert_eq!(types(&batch(&reply)), [expected, "invalidate"]);
        assert_eq!(cursor_id(&reply), 0);
        assert_eq!(cluster.get_more(&stream).unwrap_err().code, 43);
    }
}

#[test]
fn the_end_of_a_database_ends_its_stream_and_no_other() {
    let mut cluster = Cluster::new();
    cluster.insert(1);
    let database = cluster.watch_database(doc! {});
    let all = cluster.open("admin", 1.into(), doc! { "allChangesForCluster": true }, &[]).unwrap();

    cluster.write(doc! { "dropDatabase": 1 });

    assert_eq!(types(&cluster.next(&database)), ["drop", "dropDatabase", "invalidate"]);
    let reply = cluster.get_more(&all).unwrap();
    assert_eq!((types(&batch(&reply)), cursor_id(&reply)), (vec!["drop", "dropDatabase"], all.cursor));
}

#[test]
fn a_collection_that_gets_another_name_says_which() {
    let mut cluster = Cluster::new();
    cluster.insert(1);
    let stream = cluster.watch_database(doc! {});

    cluster.write_in("admin", doc! { "renameCollection": "test.pets", "to": "test.others" });

    let event = &cluster.next(&stream)[0];
    assert_eq!(event.get_document("ns").unwrap(), &doc! { "db": "test", "coll": "pets" });
    assert_eq!(event.get_document("to").unwrap(), &doc! { "db": "test", "coll": "others" });
}

#[test]
fn more_events_are_shown_to_those_who_ask() {
    let mut cluster = Cluster::new();
    let (usual, expanded) = (cluster.watch(doc! {}), cluster.watch(doc! { "showExpandedEvents": true }));
    let index = doc! { "key": { "x": 1 }, "name": "x_1" };

    cluster.write(doc! { "create": "pets" });
    cluster.write(doc! { "createIndexes": "pets", "indexes": [index] });
    cluster.write(doc! { "dropIndexes": "pets", "index": "x_1" });
    cluster.write(doc! { "collMod": "pets" });
    cluster.insert(1);

    assert_eq!(types(&cluster.next(&usual)), ["insert"]);
    let events = cluster.next(&expanded);
    assert_eq!(types(&events), ["create", "createIndexes", "dropIndexes", "modify", "insert"]);
    assert!(events.iter().all(|event| event.contains_key("collectionUUID")));
    assert!(events[..4].iter().all(|event| event.contains_key("operationDescription")));
}

#[test]
fn without_a_history_there_are_no_streams() {
    let mut server = Server::default();

    let watch = doc! { "aggregate": "pets", "pipeline": [{ "$changeStream": {} }], "cursor": {} };

    assert_eq!(server.code(watch), 40573);
}

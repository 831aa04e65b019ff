//! The limits of the store: of its size, of what a command gathers, of open cursors, and of a command's work.

use bson::doc;
use cmap_test_server::store::StoreLimits;

use super::*;

/// A store with other limits, and 100 pets.
fn limited(change: impl FnOnce(&mut StoreLimits)) -> Server {
    let mut limits = StoreLimits::default();
    change(&mut limits);
    let mut server = Server { store: Store::new(limits) };
    let pets: Vec<_> = (0..100).map(|id| doc! { "_id": id, "x": 99 - id }).collect();
    server.ok(doc! { "insert": "pets", "documents": pets });
    server
}

fn aggregate<const N: usize>(stages: [Document; N]) -> Document {
    doc! { "aggregate": "pets", "pipeline": stages.to_vec(), "cursor": {} }
}

fn milliseconds(count: u64) -> impl FnOnce(&mut StoreLimits) {
    move |limits| limits.command_time = std::time::Duration::from_millis(count)
}

#[test]
fn no_stage_makes_more_bytes_than_a_command_may_gather() {
    let mut server = limited(|limits| limits.command_bytes = 30_000);
    let text = "x".repeat(1000);

    for stage in [
        doc! { "$set": { "y": &text } },
        doc! { "$addFields": { "y": ["$$ROOT", &text] } },
        doc! { "$replaceWith": { "y": &text } },
        doc! { "$replaceRoot": { "newRoot": { "y": &text } } },
        doc! { "$group": { "_id": "$_id", "y": { "$first": &text } } },
        doc! { "$group": { "_id": { "id": "$_id", "y": &text } } },
        doc! { "$group": { "_id": null, "y": { "$push": &text } } },
    ] {
        assert_eq!(server.code(aggregate([stage.clone()])), 146, "{stage}");
    }
    let (_, name, message) = server.fails(aggregate([doc! { "$set": { "y": &text } }]));
    assert_eq!(name, "ExceededMemoryLimit");
    assert_eq!(message, "Exceeded memory limit for $addFields: more than 30000 bytes");
}

#[test]
fn a_stage_makes_only_so_many_documents_however_small_they_are() {
    let mut server = limited(|limits| limits.command_bytes = 10_000);

    assert_eq!(server.code(aggregate([doc! { "$project": { "_id": 1 } }])), 146);
    assert_eq!(server.code(aggregate([doc! { "$unset": "x" }])), 146);
    assert_eq!(batch(&server.ok(aggregate([doc! { "$limit": 50 }, doc! { "$unset": "x" }]))).len(), 50);
}

#[test]
fn the_names_of_a_groups_fields_count_for_each_group() {
    let mut server = limited(|limits| limits.command_bytes = 100_000);
    let mut group = doc! { "_id": "$_id" };
    group.insert("n".repeat(2000), doc! { "$sum": 1 });
    let wide: Document = (0..100).map(|field| (format!("f{field}"), doc! { "$sum": 1 }.into())).collect();

    assert_eq!(server.code(aggregate([doc! { "$group": group }])), 146);
    let wide = doc! { "_id": "$_id" }.into_iter().chain(wide).collect::<Document>();
    assert_eq!(server.code(aggregate([doc! { "$group": wide }])), 146);
}

#[test]
fn stages_that_only_choose_documents_make_none() {
    let mut server = limited(|limits| limits.command_bytes = 10_000);

    let reply = server.ok(aggregate([doc! { "$match": { "x": { "$gte": 0 } } }, doc! { "$skip": 1 }]));

    assert_eq!(batch(&reply).len(), 99);
}

#[test]
fn nested_expressions_do_not_multiply_a_long_document() {
    let mut server = Server::with_pets([doc! { "_id": 1, "x": "x".repeat(6 << 20) }]);
    let nested = (0..40).fold(doc! { "a": 1 }, |inner, _| doc! { "a": "$$ROOT", "b": inner });
    let set = (0..40).fold(doc! { "a": 1 }, |inner, _| {
        doc! { "$setField": { "field": "a", "input": "$$ROOT", "value": inner } }
    });

    assert_eq!(server.code(aggregate([doc! { "$replaceWith": nested }])), 10334);
    assert_eq!(server.code(aggregate([doc! { "$replaceWith": set }])), 10334);
}

#[test]
fn the_keys_of_a_sort_are_limited() {
    let mut server = limited(|limits| limits.command_bytes = 10_000);
    let name = "QueryExceededMemoryLimitNoDiskUseAllowed";

    let (code, found, message) = server.fails(doc! { "find": "pets", "sort": { "x": 1, "y": 1, "z": 1 } });

    assert_eq!((code, found, &*message), (292, name, "Sort exceeded memory limit of 10000 bytes"));
    assert_eq!(server.code(aggregate([doc! { "$sort": { "x": 1, "y": 1, "z": 1 } }])), 292);
    assert_eq!(ids(&server.find(doc! { "find": "pets", "sort": { "x": 1 }, "limit": 1 })), [99]);
}

#[test]
fn distinct_values_are_limited() {
    let mut server = limited(|limits| limits.command_bytes = 5_000);

    assert_eq!(server.code(doc! { "distinct": "pets", "key": "x" }), 146);
    assert!(server.run(&doc! { "distinct": "pets", "key": "x", "query": { "_id": { "$lt": 9 } } }).is_ok());
}

#[test]
fn a_query_and_an_update_have_an_end() {
    let mut server = limited(|_| ());
    let many = vec![Bson::Null; 1_000_001];
    let pad = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": { "$literal": 0 } } } };

    assert_eq!(server.code(doc! { "find": "pets", "filter": { "x": { "$in": many.clone() } } }), 146);
    let set = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": many } } };
    assert_eq!(server.code(doc! { "update": "pets", "updates": [set] }), 146);
    assert_eq!(write_errors(&server.ok(doc! { "update": "pets", "updates": [pad] })), []);
}

#[test]
fn a_unique_index_has_only_so_many_keys_of_a_document() {
    let mut server = Server::default();
    let unique = |key: Document, name: &str| doc! { "key": key, "name": name, "unique": true };
    let indexes = [unique(doc! { "a": 1, "b": 1 }, "ab")];
    server.ok(doc! { "createIndexes": "pets", "indexes": indexes.to_vec() });
    let numbers = |count: i32| (0..count).collect::<Vec<_>>();

    let many = server.ok(doc! { "insert": "pets", "documents": [{ "_id": 1, "a": numbers(100_001) }] });
    assert_eq!(write_errors(&many), [(201, 0)]);
    let long = doc! { "_id": 1, "a": numbers(1000), "b": "x".repeat(1 << 20) };
    assert_eq!(write_errors(&server.ok(doc! { "insert": "pets", "documents": [long] })), [(146, 0)]);
}

#[test]
fn the_store_has_room_for_so_many_bytes_and_then_says_so() {
    let mut server = limited(|limits| limits.bytes = 50_000);
    let long = |id: i32| doc! { "_id": id, "x": "x".repeat(5_000) };

    let reply = server.ok(doc! { "insert": "pets", "documents": (100..110).map(long).collect::<Vec<_>>() });

    let stored = reply.get_i32("n").unwrap();
    assert!((1..9).contains(&stored), "{reply}");
    assert_eq!(write_errors(&reply), [(14031, stored)], "an ordered batch ends there");
    let failed = doc! { "findAndModify": "pets", "query": { "_id": 1 }, "update": long(1) };
    let (code, name, message) = server.fails(failed);
    assert_eq!((code, name), (14031, "OutOfDiskSpace"));
    assert!(message.starts_with("this test server holds 50000 bytes of documents at most: "), "{message}");
}

#[test]
fn a_full_store_takes_no_growth_but_smaller_documents() {
    let mut server = limited(|limits| limits.bytes = 50_000);
    let text = |length: usize| doc! { "$set": { "x": "x".repeat(length) } };
    let update = |id: i32, length| doc! { "update": "pets", "updates": [{ "q": { "_id": id }, "u": text(length) }] };
    let fill: Vec<_> = (100..1000).map(|id| doc! { "_id": id, "x": "x".repeat(100) }).collect();
    server.ok(doc! { "insert": "pets", "documents": fill });

    assert_eq!(write_errors(&server.ok(update(1, 20_000))), [(14031, 0)]);
    assert_eq!(write_errors(&server.ok(update(100, 50))), []);
    let upsert = doc! { "q": { "_id": 5000 }, "u": text(5_000), "upsert": true };
    assert_eq!(write_errors(&server.ok(doc! { "update": "pets", "updates": [upsert] })), [(14031, 0)]);
    assert_eq!(server.code(doc! { "aggregate": "pets", "pipeline": [{ "$out": "copy" }], "cursor": {} }), 14031);
    assert_eq!(server.ids(doc! { "_id": 1 }), [1], "a write that fails changes nothing");
}

#[test]
fn what_is_removed_makes_room() {
    let mut server = limited(|limits| limits.bytes = 75_000);
    let insert = doc! { "insert": "pets", "documents": [{ "_id": 500, "x": "x".repeat(25_000) }] };
    let remove = doc! { "delete": "pets", "deletes": [{ "q": { "_id": 500 }, "limit": 1 }] };

    for _ in 0..10 {
        assert_eq!(write_errors(&server.ok(insert.clone())), []);
        assert_eq!(
            write_errors(&server.ok(doc! { "insert": "big", "documents": [{ "x": "x".repeat(25_000) }] })),
            [(14031, 0)]
        );
        server.ok(remove.clone());
    }
    server.ok(insert.clone());
    server.ok(doc! { "drop": "pets" });
    assert_eq!(write_errors(&server.ok(insert)), []);
}

#[test]
fn a_document_counts_as_long_as_a_cursor_has_it() {
    let mut server = limited(|limits| limits.bytes = 60_000);
    let long = doc! { "x": "x".repeat(10_000) };
    let insert = doc! { "insert": "big", "documents": [long.clone(), long] };
    server.ok(insert.clone());
    let cursor = cursor_id(&server.ok(doc! { "find": "big", "batchSize": 0 }));
    server.ok(doc! { "delete": "big", "deletes": [{ "q": {}, "limit": 0 }] });

    assert_eq!(write_errors(&server.ok(insert.clone())), [(14031, 0)]);
    server.ok(doc! { "killCursors": "big", "cursors": [cursor] });
    assert_eq!(write_errors(&server.ok(insert)), []);
}

#[test]
fn collections_and_indexes_count_too() {
    let mut server = limited(|limits| limits.bytes = 100_000);
    let create = |name: usize| doc! { "create": format!("c{name}"), "storageEngine": { "x": "x".repeat(1000) } };

    let made = (0..1000).take_while(|name| server.run(&create(*name)).is_ok()).count();

    assert!((10..90).contains(&made), "{made}");
    assert_eq!(server.code(create(5000)), 14031);
    let failed = (0..100).find_map(|name| server.run(&doc! { "create": format!("small{name}") }).err());
    assert_eq!(failed.map(|failure| failure.code), Some(14031));
    assert_eq!(server.code(doc! { "insert": "another", "documents": [{}] }), 14031);
    let index = doc! { "key": { "x": 1 }, "name": "n".repeat(10_000), "unique": true };
    assert_eq!(server.code(doc! { "createIndexes": "pets", "indexes": [index] }), 14031);
}

#[test]
fn only_so_many_cursors_are_open() {
    let mut server = limited(|limits| limits.cursors = 3);
    let find = doc! { "find": "pets", "batchSize": 1 };
    let ids: Vec<_> = (0..3).map(|_| cursor_id(&server.ok(find.clone()))).collect();

    let (code, name, message) = server.fails(find.clone());

    assert_eq!((code, name), (146, "ExceededMemoryLimit"));
    assert_eq!(message, "this test server has at most 3 open cursors: read others to their ends, or kill them");
    assert_eq!(server.pets().len(), 100, "a result of one batch needs no cursor");
    server.ok(doc! { "getMore": ids[0], "collection": "pets" });
    server.ok(find);
}

#[test]
fn open_cursors_hold_only_so_many_bytes() {
    let mut server = limited(|limits| limits.cursor_bytes = 20_000);
    let open = |server: &mut Server, command: Document| (0..100).take_while(|_| server.run(&command).is_ok()).count();

    // Pointers, and then documents that only the cursor has.
    let found = open(&mut server, doc! { "find": "pets", "batchSize": 1 });
    assert!((8..12).contains(&found), "{found}");
    server.ok(doc! { "drop": "pets" });
    let mut server = limited(|limits| limits.cursor_bytes = 20_000);
    let mut made = aggregate([doc! { "$set": { "y": "y".repeat(100) } }]);
    made.insert("cursor", doc! { "batchSize": 1 });
    assert_eq!(open(&mut server, made), 0);
}

#[test]
fn a_command_with_a_time_limit_does_only_so_much_work() {
    let mut server = Server::default();
    server.ok(
        doc! { "insert": "pets", "documents": (0..20_000).map(|id| doc! { "_id": id, "x": 1 }).collect::<Vec<_>>() },
    );
    let any: Vec<_> = (0..100).map(|y| doc! { "y": y }).collect();
    let filter = doc! { "$or": any };
    let stages = |stage: Document| doc! { "aggregate": "pets", "pipeline": [stage], "cursor": {} };
    let update = |u: Document| doc! { "update": "pets", "updates": [{ "q": {}, "u": u, "multi": true }] };

    for mut command in [
        doc! { "find": "pets", "filter": &filter },
        doc! { "find": "pets", "sort": { "x": 1, "y": 1 } },
        doc! { "count": "pets", "query": &filter },
        doc! { "distinct": "pets", "key": "x", "query": &filter },
        doc! { "findAndModify": "pets", "query": &filter, "remove": true },
        doc! { "delete": "pets", "deletes": [{ "q": &filter, "limit": 0 }] },
        update(doc! { "$inc": { "x": 1 } }),
        update(doc! { "$push": { "a": 1 } }),
        doc! { "createIndexes": "pets", "indexes": [{ "key": { "_id": 1, "x": 1 }, "name": "i", "unique": true }] },
        stages(doc! { "$match": &filter }),
        stages(doc! { "$sort": { "x": 1 } }),
        stages(doc! { "$project": { "x": 1 } }),
        stages(doc! { "$set": { "y": 1 } }),
        stages(doc! { "$replaceWith": { "y": "$x" } }),
        stages(doc! { "$group": { "_id": "$x" } }),
        doc! { "insert": "more", "documents": (0..20_000).map(|id| doc! { "_id": id }).collect::<Vec<_>>() },
    ] {
        command.insert("maxTimeMS", 3);
        let failure = server.fails(command.clone());
        assert_eq!(failure, (50, "MaxTimeMSExpired", "operation exceeded time limit".to_owned()), "{command}");
    }
    assert_eq!(server.ok(doc! { "count": "pets", "query": &filter, "maxTimeMS": 60_000 }), doc! { "n": 0 });
}

#[test]
fn no_command_does_more_work_than_the_server_allows_whatever_its_time_limit() {
    let mut server = limited(milliseconds(1));
    let any: Vec<_> = (0..300).map(|y| doc! { "y": y }).collect();
    let message = "operation exceeded the work that this test server does for one command, whatever its maxTimeMS";

    for command in [
        doc! { "find": "pets", "filter": { "$or": &any } },
        doc! { "find": "pets", "filter": { "$or": any }, "maxTimeMS": 60_000 },
    ] {
        assert_eq!(server.fails(command), (50, "MaxTimeMSExpired", message.to_owned()));
    }
    assert_eq!(server.ids(doc! { "_id": 7 }), [7]);
}

#[test]
fn a_time_limit_lasts_for_all_batches() {
    let mut server = Server::default();
    server.ok(doc! { "insert": "pets", "documents": (0..20_000).map(|id| doc! { "_id": id }).collect::<Vec<_>>() });
    let find = doc! { "find": "pets", "batchSize": 0, "projection": { "_id": 1 }, "maxTimeMS": 2 };
    let id = cursor_id(&server.ok(find));

    assert_eq!(server.code(doc! { "getMore": id, "collection": "pets" }), 50);
    assert_eq!(server.code(doc! { "getMore": id, "collection": "pets" }), 43);
}

#[test]
fn a_time_limit_is_a_number_of_milliseconds() {
    let mut server = limited(|_| ());

    let found = server.fails(doc! { "find": "pets", "maxTimeMS": -1 });
    assert_eq!((found.0, &*found.2), (2, "-1 value for maxTimeMS is out of range [0, 2147483647]"));
    assert_eq!(server.code(doc! { "find": "pets", "maxTimeMS": "1" }), 2);
    assert_eq!(server.code(doc! { "find": "pets", "maxTimeMS": 1_i64 << 31 }), 2);
    assert!(server.run(&doc! { "find": "pets", "maxTimeMS": 0 }).is_ok(), "zero is no limit");
}

#[test]
fn a_delete_that_runs_out_of_time_leaves_whole_documents_and_their_keys() {
    let mut server = limited(milliseconds(1));
    let left = |server: &mut Server| server.ok(doc! { "count": "pets" }).get_i32("n").unwrap();
    let mut before = left(&mut server);

    while server.run(&doc! { "delete": "pets", "deletes": [{ "q": {}, "limit": 0 }] }).is_err() {
        let now = left(&mut server);
        assert!(now < before, "each goes on where the last one ended");
        before = now;
    }
    let again: Vec<_> = (0..100).map(|id| doc! { "_id": id }).collect();
    assert_eq!(write_errors(&server.ok(doc! { "insert": "pets", "documents": again })), []);
}

#[test]
fn errors_of_many_writes_make_no_endless_reply() {
    let mut server = Server::default();
    let same: Vec<_> = (0..50_000).map(|_| doc! { "_id": "x".repeat(100) }).collect();

    let reply = server.ok(doc! { "insert": "pets", "documents": same, "ordered": false });

    assert_eq!(write_errors(&reply).len(), 49_999);
    assert!(RawDocumentBuf::try_from(&reply).unwrap().as_bytes().len() < 4 << 20);
}

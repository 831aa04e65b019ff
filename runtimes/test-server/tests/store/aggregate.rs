//! aggregate, distinct, count and explain.

use bson::doc;

use super::*;

fn five() -> Server {
    Server::with_pets([1, 2, 3, 4, 5].map(|id| doc! { "_id": id, "odd": id % 2 == 1, "x": { "y": id } }))
}

fn aggregate(pipeline: Vec<Document>) -> Document {
    doc! { "aggregate": "pets", "pipeline": pipeline, "cursor": {} }
}

#[test]
fn stages_run_in_turn() {
    let mut server = five();
    let mut run = |pipeline| batch(&server.ok(aggregate(pipeline)));

    assert_eq!(ids(&run(vec![doc! { "$match": { "odd": true } }, doc! { "$skip": 1 }, doc! { "$limit": 1 }])), [3]);
    assert_eq!(ids(&run(vec![doc! { "$limit": 2 }, doc! { "$sort": { "_id": -1 } }])), [2, 1]);
    assert_eq!(
        run(vec![doc! { "$limit": 1 }, doc! { "$project": { "x.y": 1, "_id": 0 } }]),
        [doc! { "x": { "y": 1 } }]
    );
    assert_eq!(run(vec![doc! { "$limit": 1 }, doc! { "$unset": ["x", "odd"] }]), [doc! { "_id": 1 }]);
    assert_eq!(
        run(vec![
            doc! { "$limit": 1 },
            doc! { "$addFields": { "x": "$x.y", "z": { "$literal": "$x" }, "w": "$none" } }
        ]),
        [doc! { "_id": 1, "odd": true, "x": 1, "z": "$x" }]
    );
    assert_eq!(run(vec![doc! { "$match": { "_id": { "$gt": 1 } } }, doc! { "$count": "n" }]), [doc! { "n": 4 }]);
    assert_eq!(run(vec![doc! { "$match": { "_id": 9 } }, doc! { "$count": "n" }]), []);
}

#[test]
fn groups_are_what_drivers_count_with() {
    let mut server = five();
    let mut run = |pipeline| batch(&server.ok(aggregate(pipeline)));

    assert_eq!(
        run(vec![doc! { "$match": {} }, doc! { "$skip": 1 }, doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } }]),
        [doc! { "_id": 1, "n": 4 }]
    );
    assert_eq!(
        run(vec![doc! { "$group": {
            "_id": "$odd", "sum": { "$sum": "$_id" }, "least": { "$min": "$_id" }, "all": { "$push": "$_id" },
            "last": { "$last": "$_id" }, "first": { "$first": "$_id" }, "greatest": { "$max": "$_id" },
        } }]),
        [
            doc! { "_id": true, "sum": 9, "least": 1, "all": [1, 3, 5], "last": 5, "first": 1, "greatest": 5 },
            doc! { "_id": false, "sum": 6, "least": 2, "all": [2, 4], "last": 4, "first": 2, "greatest": 4 },
        ]
    );
}

#[test]
fn an_object_that_is_set_is_merged_into_what_is_there() {
    let mut server = Server::with_pets([
        doc! { "_id": 1, "a": { "c": 2 } },
        doc! { "_id": 2, "a": [{ "c": 2, "b": 0 }, 7, [{ "c": 3 }]] },
        doc! { "_id": 3, "a": 7 },
        doc! { "_id": 4 },
    ]);

    let set = vec![doc! { "$set": { "a": { "b": "$_id" } } }];
    let expected = [
        doc! { "_id": 1, "a": { "c": 2, "b": 1 } },
        doc! { "_id": 2, "a": [{ "c": 2, "b": 2 }, { "b": 2 }, [{ "c": 3, "b": 2 }]] },
        doc! { "_id": 3, "a": { "b": 3 } },
        doc! { "_id": 4, "a": { "b": 4 } },
    ];
    assert_eq!(batch(&server.ok(aggregate(set.clone()))), expected);
    server.ok(doc! { "update": "pets", "updates": [{ "q": {}, "u": set, "multi": true }] });
    assert_eq!(server.pets(), expected);

    let deep = vec![doc! { "$match": { "_id": 1 } }, doc! { "$set": { "a": { "d": { "e": 1 }, "c": "$none" } } }];
    assert_eq!(batch(&server.ok(aggregate(deep))), [doc! { "_id": 1, "a": { "b": 1, "d": { "e": 1 } } }]);
    let whole = vec![doc! { "$match": { "_id": 1 } }, doc! { "$set": { "a": { "$literal": { "d": 1 } } } }];
    assert_eq!(batch(&server.ok(aggregate(whole))), [doc! { "_id": 1, "a": { "d": 1 } }]);
    assert_eq!(server.code(aggregate(vec![doc! { "$set": { "a": {} } }])), 40180);
    assert_eq!(server.code(aggregate(vec![doc! { "$set": { "a": { "b.c": 1 } } }])), 115);
}

#[test]
fn a_path_through_an_array_leads_to_all_its_documents() {
    let mut server = Server::with_pets([
        doc! { "_id": 1, "items": [{ "p": 1 }, { "q": 0 }, 7, [{ "p": 9 }], { "p": [2, 3] }] },
        doc! { "_id": 2, "items": [] },
        doc! { "_id": 3, "items": 7 },
    ]);

    let found =
        batch(&server.ok(aggregate(vec![
            doc! { "$set": { "p": "$items.p", "none": "$items.p.x" } },
            doc! { "$unset": "items" },
        ])));

    let expected =
        [doc! { "_id": 1, "p": [1, [2, 3]], "none": [[]] }, doc! { "_id": 2, "p": [], "none": [] }, doc! { "_id": 3 }];
    assert_eq!(found, expected);
}

#[test]
fn a_sum_that_is_too_great_is_a_double_and_one_of_decimals_is_refused() {
    let mut server = Server::with_pets([doc! { "x": i64::MAX }, doc! { "x": 1 }, doc! { "x": "one" }]);
    let sum = vec![doc! { "$group": { "_id": 1, "sum": { "$sum": "$x" } } }];
    assert_eq!(batch(&server.ok(aggregate(sum.clone()))), [doc! { "_id": 1, "sum": 9_223_372_036_854_775_808.0 }]);

    let decimal: bson::Decimal128 = "1.5".parse().unwrap();
    server.ok(doc! { "insert": "pets", "documents": [{ "x": decimal }] });

    assert_eq!(server.code(aggregate(sum)), 115);
}

#[test]
fn the_least_and_the_greatest_are_not_null_unless_all_are() {
    let mut server = Server::with_pets([
        doc! { "n": 1, "x": null },
        doc! { "n": 1, "x": 3 },
        doc! { "n": 1 },
        doc! { "n": 1, "x": Bson::Undefined },
        doc! { "n": 1, "x": 5 },
        doc! { "n": 2, "x": null },
    ]);

    let group = doc! { "$group": { "_id": "$n", "least": { "$min": "$x" }, "greatest": { "$max": "$x" } } };

    let nothing = doc! { "_id": 2, "least": null, "greatest": null };
    assert_eq!(batch(&server.ok(aggregate(vec![group]))), [doc! { "_id": 1, "least": 3, "greatest": 5 }, nothing]);
}

#[test]
fn its_cursor_is_that_of_find() {
    let mut server = five();

    let first = server.ok(doc! { "aggregate": "pets", "pipeline": [], "cursor": { "batchSize": 2 } });
    assert_eq!(ids(&batch(&first)), [1, 2]);
    let next = server.ok(doc! { "getMore": cursor_id(&first), "collection": "pets" });
    assert_eq!((ids(&batch(&next)), cursor_id(&next)), (vec![3, 4, 5], 0));
}

#[test]
fn out_replaces_a_collection() {
    let mut server = five();
    server.ok(doc! { "insert": "odd", "documents": [{ "_id": 99 }] });

    let reply = server.ok(aggregate(vec![doc! { "$match": { "odd": true } }, doc! { "$out": "odd" }]));

    assert_eq!(batch(&reply), []);
    assert_eq!(ids(&server.find(doc! { "find": "odd" })), [1, 3, 5]);
}

#[test]
fn merge_adds_documents_and_sets_the_fields_of_those_that_are_there() {
    let mut server = five();
    server.ok(doc! { "insert": "odd", "documents": [{ "_id": 1, "odd": "?", "kept": 1 }, { "_id": 99 }] });

    let merge = doc! { "$merge": { "into": { "db": "test", "coll": "odd" }, "on": "_id", "whenMatched": "merge" } };
    let reply =
        server.ok(aggregate(vec![doc! { "$match": { "odd": true } }, doc! { "$project": { "odd": 1 } }, merge]));

    assert_eq!(batch(&reply), []);
    let odd = server.find(doc! { "find": "odd" });
    assert_eq!(ids(&odd), [1, 99, 3, 5]);
    assert_eq!(odd[0], doc! { "_id": 1, "odd": true, "kept": 1 });
}

#[test]
fn a_merge_that_does_anything_else_is_refused() {
    let mut server = five();
    let mut code = |options: Document| server.code(aggregate(vec![doc! { "$merge": options }]));

    assert_eq!(code(doc! { "into": "odd", "whenMatched": "replace" }), 115);
    assert_eq!(code(doc! { "into": "odd", "unknown": 1 }), 40415);
    assert_eq!(code(doc! { "on": "_id" }), 9);
}

#[test]
fn the_database_itself_knows_its_sessions() {
    let mut server = Server::default();
    let pipeline = vec![
        doc! { "$listLocalSessions": {} },
        doc! { "$limit": 1 },
        doc! { "$addFields": { "dummy": "dummy field" } },
        doc! { "$project": { "_id": 0, "dummy": 1 } },
    ];

    let reply = server.ok(doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {} });

    assert_eq!(batch(&reply), [doc! { "dummy": "dummy field" }]);
    assert_eq!(reply.get_document("cursor").unwrap().get_str("ns").ok(), Some("test.$cmd.aggregate"));
}

#[test]
fn pipelines_that_make_no_sense_are_errors() {
    let mut server = five();
    let mut fails = |stage: Document| server.fails(aggregate(vec![stage]));

    assert_eq!(
        fails(doc! { "$fuzzy": 1 }),
        (40324, "Location40324", "Unrecognized pipeline stage name: '$fuzzy'".into())
    );
    assert_eq!(fails(doc! {}).0, 40323);
    assert_eq!(fails(doc! { "$limit": 0 }).0, 15958);
    assert_eq!(fails(doc! { "$limit": -1 }).0, 15958);
    assert_eq!(fails(doc! { "$match": 1 }).0, 15998);
    assert_eq!(fails(doc! { "$match": { "$bad": 1 } }).0, 2);
    assert_eq!(fails(doc! { "$count": "a.b" }).0, 40156);
    assert_eq!(fails(doc! { "$group": {} }).0, 15955);
    assert_eq!(fails(doc! { "$group": { "_id": 1, "n": { "$fuzzy": 1 } } }).0, 15952);
    assert_eq!(fails(doc! { "$set": { "x": { "$fuzzy": 1 } } }).0, 168);
    assert_eq!(server.code(doc! { "aggregate": "pets", "pipeline": [] }), 9);
    assert_eq!(server.code(doc! { "aggregate": "pets", "pipeline": [1], "cursor": {} }), 14);
    assert_eq!(server.code(doc! { "aggregate": 1, "pipeline": [], "cursor": {} }), 73);
    assert_eq!(server.code(doc! { "aggregate": "pets", "pipeline": [], "cursor": { "batchSize": -1 } }), 51024);
    assert_eq!(server.code(aggregate(vec![doc! { "$out": "x" }, doc! { "$match": {} }])), 40601);
    assert_eq!(server.code(aggregate(vec![doc! { "$limit": 1 }; 1001])), 7_749_501);
}

#[test]
fn distinct_values_are_those_of_arrays_too() {
    let mut server = Server::with_pets([doc! { "x": 1 }, doc! { "x": [1.0, 2] }, doc! { "y": 3 }, doc! { "x": null }]);

    assert_eq!(server.ok(doc! { "distinct": "pets", "key": "x" }), doc! { "values": [1, 2, null] });
    assert_eq!(server.ok(doc! { "distinct": "pets", "key": "x", "query": { "x": 2 } }), doc! { "values": [1.0, 2] });
    assert_eq!(server.ok(doc! { "distinct": "none", "key": "x" }), doc! { "values": [] });
    assert_eq!(server.code(doc! { "distinct": "pets" }), 40414);
}

#[test]
fn counts_are_cut_by_skip_and_limit() {
    let mut server = five();

    assert_eq!(server.ok(doc! { "count": "pets" }), doc! { "n": 5 });
    assert_eq!(server.ok(doc! { "count": "pets", "query": { "odd": true } }), doc! { "n": 3 });
    assert_eq!(server.ok(doc! { "count": "pets", "skip": 1, "limit": 3 }), doc! { "n": 3 });
    assert_eq!(server.ok(doc! { "count": "pets", "skip": 4, "limit": -3 }), doc! { "n": 1 });
    assert_eq!(server.ok(doc! { "count": "none" }), doc! { "n": 0 });
    assert_eq!(server.code(doc! { "count": "pets", "query": { "$bad": 1 } }), 2);
}

#[test]
fn explain_says_what_is_true_of_every_query_here() {
    let mut server = five();

    let reply = server.ok(doc! { "explain": { "find": "pets" }, "verbosity": "queryPlanner" });

    let planner = reply.get_document("queryPlanner").unwrap();
    assert_eq!(planner.get_str("namespace").ok(), Some("test.pets"));
    assert_eq!(planner.get_document("winningPlan").unwrap().get_str("stage").ok(), Some("COLLSCAN"));
    assert_eq!(server.code(doc! { "explain": { "fuzzy": 1 } }), 59);
    assert_eq!(server.code(doc! { "explain": { "find": "pets" }, "verbosity": "loud" }), 9);
}

#[test]
fn an_aggregate_that_explains_itself_does_nothing_else() {
    let mut server = five();
    let command = doc! { "aggregate": "pets", "pipeline": [{ "$out": "odd" }], "explain": true };

    let reply = server.ok(command);

    assert_eq!(reply.get_document("queryPlanner").unwrap().get_str("namespace").ok(), Some("test.pets"));
    assert!(reply.get("cursor").is_none());
    assert_eq!(server.find(doc! { "find": "odd" }), []);
    assert_eq!(server.code(doc! { "aggregate": "pets", "pipeline": [{ "$fuzzy": 1 }], "explain": true }), 40324);
}

#[test]
fn what_is_put_out_is_not_read_linearizably() {
    let mut server = Server::default();
    let command = doc! {
        "aggregate": "pets", "pipeline": [{ "$out": "copies" }], "cursor": {}, "readConcern": { "level": "linearizable" },
    };

    assert_eq!(server.code(command), 72);
}

#[test]
fn search_indexes_are_known_and_there_are_none() {
    let mut server = Server::default();

    assert_eq!(server.code(doc! { "createSearchIndexes": "pets", "indexes": [] }), 31082);
    let list = doc! { "aggregate": "pets", "pipeline": [{ "$listSearchIndexes": {} }], "cursor": {} };
    assert_eq!(server.code(list), 31082);
}

//! What commands touch, and which of them are refused because of what is in them.

use bson::{Bson, RawDocumentBuf, doc, rawdoc};
use cmap_core::time::Instant;
use cmap_core::wire::{Field, Flags, Limits, MessageIds, MessageWriter};

use super::super::request::Fault;
use super::*;

fn read(body: &RawDocument) -> Request {
    let mut out = Vec::new();
    MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, body, &[], &Limits::DEFAULT).unwrap().finish();
    Request::read(&out, &Limits::DEFAULT, Instant::ORIGIN).unwrap()
}

fn with_sequences(body: &RawDocument, sequences: &[(&str, &[RawDocumentBuf])]) -> Result<Request, Fault> {
    let (mut out, database) = (Vec::new(), [Field::String("$db", "admin")]);
    let mut message =
        MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, body, &database, &Limits::DEFAULT).unwrap();
    for (name, documents) in sequences {
        message.sequence(name, documents.iter().map(|document| &**document)).unwrap();
    }
    message.finish();
    Request::read(&out, &Limits::DEFAULT, Instant::ORIGIN)
}

fn of(body: &RawDocument) -> Vec<String> {
    let request = read(body);
    targets(&request).unwrap().iter().map(|it| format!("{} {}.{}", it.action, it.database, it.collection)).collect()
}

#[test]
fn a_command_touches_the_collection_it_names() {
    assert_eq!(of(&rawdoc! { "find": "c", "$db": "d" }), ["find d.c"]);
    assert_eq!(of(&rawdoc! { "getMore": 1_i64, "collection": "c", "$db": "d" }), ["getMore d.c"]);
    assert_eq!(of(&rawdoc! { "dropDatabase": 1, "$db": "d" }), ["dropDatabase d."]);
    assert_eq!(
        of(&rawdoc! { "renameCollection": "a.b", "to": "c.d.e", "$db": "admin" }),
        ["renameCollection a.b", "renameCollection c.d.e"]
    );
}

#[test]
fn what_is_of_another_type_hides_nothing_next_to_it_x_133() {
    let code = Bson::JavaScriptCode("a.b".into());
    let rename =
        RawDocumentBuf::try_from(&doc! { "renameCollection": code, "to": "config.c", "$db": "admin" }).unwrap();
    assert_eq!(of(&rename), ["renameCollection .", "renameCollection config.c"]);
    let inner = doc! { "db": "config", "pipeline": [{ "$unionWith": "secret" }] };
    let mut of_code = inner.clone();
    of_code.insert("coll", Bson::JavaScriptCode("c".into()));
    for union in [inner, of_code] {
        let command = doc! { "aggregate": "c", "$db": "d", "pipeline": [{ "$unionWith": union }] };
        assert_eq!(
            of(&RawDocumentBuf::try_from(&command).unwrap()),
            ["aggregate config.secret", "aggregate d.c", "aggregate d.secret"]
        );
    }
}

#[test]
fn stages_that_join_and_write_touch_their_collections_too_x_133() {
    let pipeline = rawdoc! {
        "aggregate": "c", "$db": "d", "pipeline": [
            { "$lookup": { "from": "joined", "pipeline": [{ "$unionWith": "deep" }], "as": "x" } },
            { "$facet": { "a": [{ "$graphLookup": { "from": { "db": "other", "coll": "graph" } } }] } },
            { "$merge": { "into": { "db": "other", "coll": "target" } } },
        ],
    };

    assert_eq!(
        of(&pipeline),
        ["aggregate d.c", "aggregate d.deep", "aggregate d.joined", "aggregate other.graph", "$merge other.target"]
    );
    assert_eq!(
        of(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [{ "$out": "o" }] }),
        ["aggregate d.c", "$out d.o"]
    );
}

#[test]
fn an_explained_command_and_a_view_touch_what_they_read() {
    assert_eq!(of(&rawdoc! { "explain": { "find": "c" }, "$db": "d" }), ["explain d.", "find d.c"]);
    assert_eq!(of(&rawdoc! { "create": "v", "viewOn": "secret", "$db": "d" }), ["aggregate d.secret", "create d.v"]);
}

#[test]
fn stages_that_show_what_others_do_are_targets_of_their_own_x_133() {
    let of_stage = |stage: bson::RawDocumentBuf| of(&rawdoc! { "aggregate": 1, "$db": "d", "pipeline": [stage] });

    assert!(of_stage(rawdoc! { "$currentOp": { "allUsers": true } }).contains(&"$currentOp d.".into()));
    assert!(of_stage(rawdoc! { "$changeStream": {} }).contains(&"$changeStream d.".into()));
    let all = of_stage(rawdoc! { "$changeStream": { "allChangesForCluster": true } });
    assert!(all.contains(&"allChangesForCluster admin.".into()), "{all:?}");
}

#[test]
fn a_command_has_a_thousand_targets_at_most_however_often_each_is_there_x_133() {
    let to_each = |names: &mut dyn Iterator<Item = String>| {
        let mut stages = bson::RawArrayBuf::new();
        names.for_each(|name| stages.push(rawdoc! { "$out": name }));
        targets(&read(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": stages })).map(|targets| targets.len())
    };

    assert_eq!(to_each(&mut (0..999).map(|number| number.to_string())), Ok(1_000));
    assert_eq!(to_each(&mut (0..1_000).map(|number| number.to_string())).unwrap_err().code, 72);
    assert_eq!(to_each(&mut (0..5_000).map(|_| "o".to_owned())), Ok(2));
}

#[test]
fn an_old_name_of_a_command_is_checked_as_the_new_one_x_133() {
    assert_eq!(of(&rawdoc! { "findandmodify": "c", "$db": "d" }), ["findAndModify d.c"]);
    assert_eq!(of(&rawdoc! { "mapreduce": "c", "$db": "d" }), ["mapReduce d.c"]);
    assert_eq!(
        of(&rawdoc! { "cloneCollectionAsCapped": "c", "toCollection": "t", "$db": "d" }),
        ["cloneCollectionAsCapped d.c", "cloneCollectionAsCapped d.t"]
    );
}

#[test]
fn a_collection_that_is_named_with_its_database_is_one_of_that_database_x_133() {
    assert_eq!(of(&rawdoc! { "dataSize": "shop.secret", "$db": "d" }), ["dataSize shop.secret"]);
    assert_eq!(of(&rawdoc! { "shardcollection": "shop.a.b", "$db": "admin" }), ["shardcollection shop.a.b"]);
    assert_eq!(of(&rawdoc! { "validate": "shop.secret", "$db": "d" }), ["validate d.shop.secret"]);
}

#[test]
fn what_a_map_reduce_writes_is_a_target_x_133() {
    let with = |out: bson::RawBson| of(&rawdoc! { "mapReduce": "c", "out": out, "$db": "d" });

    assert_eq!(with(bson::RawBson::String("o".into())), ["mapReduce d.c", "$out d.o"]);
    let other = rawdoc! { "replace": "secret", "db": "other" };
    assert_eq!(with(bson::RawBson::Document(other)), ["mapReduce d.c", "$out other.secret"]);
    assert_eq!(with(bson::RawBson::Document(rawdoc! { "inline": 1 })), ["mapReduce d.c"]);
}

#[test]
fn a_name_in_a_stage_of_another_database_may_be_one_of_there_x_133() {
    let inner = || rawdoc! { "$lookup": { "from": "deep", "as": "x" } };
    let from = rawdoc! { "from": { "db": "other", "coll": "c" }, "pipeline": [inner()] };

    let both = of(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [{ "$lookup": from }, inner()] });
    assert_eq!(both, ["aggregate d.c", "aggregate d.deep", "aggregate other.c", "aggregate other.deep"]);
    let union = rawdoc! { "db": "other", "coll": "c", "pipeline": [] };
    let after = of(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [{ "$unionWith": union }, inner()] });
    assert_eq!(after, ["aggregate d.c", "aggregate d.deep", "aggregate other.c"]);
}

#[test]
fn a_field_that_is_there_twice_where_it_names_a_collection_is_refused_x_133() {
    let of_stage = |stage| rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [stage] };
    for twice in [
        of_stage(rawdoc! { "$lookup": { "from": "orders", "from": "secret" } }),
        of_stage(rawdoc! { "$unionWith": { "coll": "orders", "db": "d", "db": "other" } }),
        of_stage(rawdoc! { "$merge": { "into": { "coll": "orders", "coll": "secret" } } }),
        rawdoc! { "explain": { "find": "orders", "find": "secret" }, "$db": "d" },
        rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "d.orders", "ns": "d.secret" }], "$db": "admin" },
    ] {
        assert_eq!(targets(&read(&twice)).unwrap_err().code, 9, "{twice:?}");
    }
}

#[test]
fn a_name_that_a_server_could_take_for_another_one_is_refused_x_133() {
    for (database, collection) in [("shop.a", "b"), ("shop\0", "b"), ("shop", "secret\0b")] {
        let out = rawdoc! { "$out": { "db": database, "coll": collection } };
        let refusal = targets(&read(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [out] })).unwrap_err();
        assert_eq!(refusal.code, 73, "{database:?} {collection:?}");
    }
}

#[test]
fn a_bulk_write_is_what_its_namespaces_and_its_writes_are_x_133() {
    let bulk_write = rawdoc! {
        "bulkWrite": 1, "$db": "admin", "nsInfo": [{ "ns": "a.b" }, { "ns": "a.c" }],
        "ops": [{ "insert": 1, "document": {} }, { "delete": 0, "filter": {}, "multi": true }],
    };

    assert_eq!(of(&bulk_write), ["bulkWrite a.b", "delete a.b", "bulkWrite a.c", "insert a.c", "bulkWrite admin."]);
    assert_eq!(
        of(&rawdoc! { "explain": bulk_write, "$db": "admin" }),
        ["bulkWrite a.b", "delete a.b", "bulkWrite a.c", "insert a.c", "bulkWrite admin.", "explain admin."]
    );
}

#[test]
fn a_bulk_write_in_document_sequences_is_the_same_x_133() {
    let namespaces = [rawdoc! { "ns": "a.b" }];
    let writes = [rawdoc! { "update": 0, "filter": {}, "updateMods": {} }];
    let request = with_sequences(&rawdoc! { "bulkWrite": 1 }, &[("ops", &writes), ("nsInfo", &namespaces)]).unwrap();

    let found = targets(&request).unwrap();

    let actions: Vec<_> = found.iter().map(|it| format!("{} {}.{}", it.action, it.database, it.collection)).collect();
    assert_eq!(actions, ["bulkWrite a.b", "update a.b", "bulkWrite admin."]);
}

#[test]
fn a_bulk_write_whose_parts_cannot_be_told_is_refused_x_133() {
    for (namespace, write) in [
        (rawdoc! { "ns": "a.b" }, rawdoc! { "delete": 1, "filter": {} }),
        (rawdoc! { "ns": "a.b" }, rawdoc! { "delete": -1, "filter": {} }),
        (rawdoc! { "ns": "a.b" }, rawdoc! { "delete": "0", "filter": {} }),
        (rawdoc! { "ns": "a.b" }, rawdoc! { "remove": 0, "filter": {} }),
        (rawdoc! { "ns": 1 }, rawdoc! { "insert": 0, "document": {} }),
    ] {
        let command = rawdoc! { "bulkWrite": 1, "nsInfo": [namespace], "ops": [write], "$db": "admin" };
        assert_eq!(targets(&read(&command)).unwrap_err().code, 9, "{command:?}");
    }
    let no_document = rawdoc! { "bulkWrite": 1, "nsInfo": ["a.b"], "ops": [], "$db": "admin" };
    assert_eq!(targets(&read(&no_document)).unwrap_err().code, 9);
}

#[test]
fn a_field_that_is_there_twice_is_refused_at_every_depth_x_133() {
    let twice = || rawdoc! { "deep": [{ "b": 1, "a": 2, "b": 3 }] };
    for command in [
        rawdoc! { "find": "c", "filter": twice(), "$db": "d" },
        rawdoc! { "insert": "c", "documents": [twice()], "$db": "d" },
        rawdoc! { "explain": { "find": "c", "filter": twice() }, "$db": "d" },
        rawdoc! { "explain": { "find": "c" }, "comment": twice(), "$db": "d" },
    ] {
        let refusal = targets(&read(&command)).unwrap_err();
        assert_eq!((refusal.code, &*refusal.message), (9, "the field b is there twice; send it once"), "{command:?}");
    }
    let documents = [rawdoc! { "a": 1 }, twice()];
    let request = with_sequences(&rawdoc! { "insert": "c" }, &[("documents", &documents)]).unwrap();
    assert_eq!(targets(&request).unwrap_err().code, 9, "in a document sequence");
    assert_eq!(
        of(&rawdoc! { "find": "c", "filter": { "a": { "a": 1 }, "b": [{ "a": 1 }, { "a": 2 }] }, "$db": "d" }),
        ["find d.c"]
    );
}

#[test]
fn a_document_sequence_that_is_a_field_too_is_refused_x_133() {
    let namespaces = [rawdoc! { "ns": "a.b" }];
    let body = rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "a.c" }] };

    assert!(with_sequences(&body, &[("nsInfo", &namespaces)]).is_err());
}

#[test]
fn what_holds_a_time_series_is_that_time_series_x_133() {
    assert_eq!(of(&rawdoc! { "insert": "system.buckets.secret", "documents": [], "$db": "d" }), ["insert d.secret"]);
    assert_eq!(
        of(&rawdoc! { "renameCollection": "d.system.buckets.system.buckets.s", "to": "d.x", "$db": "admin" }),
        ["renameCollection d.s", "renameCollection d.x"]
    );
}

#[test]
fn what_servers_tell_each_other_is_refused_from_a_client_x_133() {
    for between in ["$audit", "$client", "$configTime", "$aFieldOfNextYear", "mayBypassWriteBlocking", "shardVersion"] {
        let mut command = rawdoc! { "find": "c", "$db": "d" };
        command.append(bson::raw::CString::try_from(between).unwrap(), rawdoc! { "x": 1 });
        let explained = rawdoc! { "explain": command.clone(), "$db": "d" };
        for command in [command, explained] {
            let refusal = targets(&read(&command)).unwrap_err();
            assert_eq!(refusal.code, 13, "{command:?}");
            assert!(refusal.message.contains(between), "{}", refusal.message);
        }
    }
    let of_clients = rawdoc! { "find": "c", "$db": "d", "$clusterTime": {}, "$readPreference": { "mode": "primary" } };
    assert_eq!(of(&of_clients), ["find d.c"]);
}

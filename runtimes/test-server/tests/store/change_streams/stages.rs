//! The stages behind `$changeStream`, and the arguments of the stage itself.

use super::*;

#[test]
fn stages_see_events_as_documents() {
    let mut cluster = Cluster::new();
    let stages = [doc! { "$match": { "fullDocument._id": { "$gt": 1 } } }, doc! { "$unset": "ns" }];
    let stream = cluster.watch_with(doc! {}, stages);

    [1, 2, 3].into_iter().for_each(|id| cluster.insert(id));

    let events = cluster.next(&stream);
    assert_eq!(keys(&events), [2, 3]);
    assert!(!events[0].contains_key("ns"));
}

#[test]
fn a_projection_computes_fields() {
    for (projection, expected) in [
        (
            doc! { "operationType": "other", "ns": 1 },
            doc! { "operationType": "other", "ns": { "db": "test", "coll": "pets" } },
        ),
        (doc! { "kind": "$operationType" }, doc! { "kind": "insert" }),
        (doc! { "ns.viewOn": "db.coll" }, doc! { "ns": { "viewOn": "db.coll" } }),
        (
            doc! { "ns": { "db": "$ns.db", "coll": "$ns.coll", "viewOn": "db.coll" } },
            doc! { "ns": { "db": "test", "coll": "pets", "viewOn": "db.coll" } },
        ),
    ] {
        let mut cluster = Cluster::new();
        let stream = cluster.watch_with(doc! {}, [doc! { "$project": projection }]);
        cluster.insert(1);

        let mut event = cluster.next(&stream).remove(0);

        assert!(event.remove("_id").is_some());
        assert_eq!(event, expected);
    }
}

#[test]
fn an_event_whose_token_was_changed_is_an_error() {
    for stage in [doc! { "$project": { "_id": 0 } }, doc! { "$set": { "_id": 1 } }] {
        let mut cluster = Cluster::new();
        let stream = cluster.watch_with(doc! {}, [stage]);
        cluster.insert(1);

        let failure = cluster.get_more(&stream).unwrap_err();

        assert_eq!((failure.code, failure.code_name), (280, "ChangeStreamFatalError"));
        assert_eq!(failure.labels, ["NonResumableChangeStreamError"]);
    }
}

#[test]
fn events_before_one_that_is_an_error_are_handed_out() {
    let mut cluster = Cluster::new();
    cluster.insert(1);
    let stream = cluster.watch(doc! { "fullDocumentBeforeChange": "required" });
    cluster.insert(2);
    cluster.write(doc! { "delete": "pets", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] });

    assert_eq!(keys(&cluster.next(&stream)), [2]);
    assert_eq!(cluster.get_more(&stream).unwrap_err().code, 47);
}

#[test]
fn a_large_event_comes_in_parts_if_it_may() {
    let large = |letter: &str| doc! { "$set": { "x": letter.repeat(9 << 20) } };
    let mut cluster = Cluster::with_history_of(100 << 20);
    cluster.write(doc! { "create": "pets", "changeStreamPreAndPostImages": { "enabled": true } });
    cluster.insert(1);
    let stage = doc! { "fullDocumentBeforeChange": "required" };
    let whole = cluster.watch(stage.clone());
    let split = cluster.watch_with(stage.clone(), [doc! { "$changeStreamSplitLargeEvent": {} }]);
    for letter in ["a", "b"] {
        cluster.write(doc! { "update": "pets", "updates": [{ "q": {}, "u": large(letter) }] });
    }

    let small = cluster.next(&split);
    let parts: Vec<_> = (0..2).flat_map(|_| cluster.next(&split)).collect();

    assert!(small.len() == 1 && !small[0].contains_key("splitEvent"));
    let places: Vec<_> = parts.iter().map(|part| part.get_document("splitEvent").unwrap().clone()).collect();
    assert_eq!(places, [doc! { "fragment": 1, "of": 2 }, doc! { "fragment": 2, "of": 2 }]);
    assert!(parts[0].contains_key("updateDescription") && parts[1].contains_key("fullDocumentBeforeChange"));
    let resumed = doc! { "fullDocumentBeforeChange": "required", "resumeAfter": token(&parts[0]) };
    let resumed = cluster.watch_with(resumed, [doc! { "$changeStreamSplitLargeEvent": {} }]);
    assert_eq!(batch(&resumed.first), parts[1..]);
    assert_eq!(cluster.next(&whole).len(), 1);
    assert_eq!(cluster.get_more(&whole).unwrap_err().code, 10334);
}

#[test]
fn not_every_stage_can_follow() {
    let mut cluster = Cluster::new();

    assert_eq!(cluster.refusal(doc! {}, &[doc! { "$unsupported": "foo" }]), 40324);
    for stage in [doc! { "$group": { "_id": 1 } }, doc! { "$sort": { "x": 1 } }, doc! { "$out": "x" }] {
        assert_eq!(cluster.refusal(doc! {}, std::slice::from_ref(&stage)), 20, "{stage}");
    }
    let split = doc! { "$changeStreamSplitLargeEvent": {} };
    assert_eq!(cluster.refusal(doc! {}, &[split.clone(), doc! { "$match": {} }]), 7_182_802);
    let aggregate = |stages: &[Document]| doc! { "aggregate": "pets", "pipeline": stages, "cursor": {} };
    assert_eq!(cluster.server.code(aggregate(&[split])), 20);
    assert_eq!(cluster.server.code(aggregate(&[doc! { "$match": {} }, doc! { "$changeStream": {} }])), 40602);
}

#[test]
fn what_the_stage_does_not_know_is_refused() {
    let mut cluster = Cluster::new();

    assert_eq!(cluster.refusal(doc! { "unknown": 1 }, &[]), 40415);
    assert_eq!(cluster.refusal(doc! { "fullDocument": "sometimes" }, &[]), 2);
    assert_eq!(cluster.refusal(doc! { "fullDocumentBeforeChange": "sometimes" }, &[]), 2);
    assert_eq!(cluster.refusal(doc! { "startAtOperationTime": 1 }, &[]), 14);
    assert_eq!(cluster.refusal(doc! { "allChangesForCluster": true }, &[]), 72);
    let of_admin = cluster.open("admin", 1.into(), doc! {}, &[]).unwrap_err();
    assert_eq!(of_admin.code, 73);
    let concern = doc! { "level": "local" };
    let command = doc! {
        "aggregate": "pets", "pipeline": [{ "$changeStream": {} }], "cursor": {}, "readConcern": concern,
    };
    assert_eq!(cluster.server.code(command), 72);
}

//! Resume tokens, and the places from which streams go on.

use super::*;

#[test]
fn every_reply_has_a_token_and_later_ones_are_greater() {
    let mut cluster = Cluster::new();
    let stream = cluster.watch(doc! {});
    let mut tokens = vec![token_after(&stream.first)];

    for id in 1..4 {
        cluster.insert(id);
        let reply = cluster.get_more(&stream).unwrap();
        tokens.push(token(&batch(&reply)[0]));
        tokens.push(token_after(&reply));
    }

    let texts: Vec<_> = tokens.iter().map(|token| token.get_str("_data").unwrap()).collect();
    assert!(texts.windows(2).all(|pair| pair[0] < pair[1]), "{texts:?}");
    assert!(texts.iter().all(|text| text.bytes().all(|digit| digit.is_ascii_hexdigit())), "{texts:?}");
}

#[test]
fn a_stream_goes_on_after_the_token_of_an_event_or_of_a_batch() {
    let mut cluster = Cluster::new();
    let stream = cluster.watch(doc! {});
    cluster.write(doc! { "insert": "pets", "documents": [{ "_id": 1 }, { "_id": 2 }, { "_id": 3 }] });
    let reply = cluster.get_more(&stream).unwrap();
    cluster.insert(4);

    for option in ["resumeAfter", "startAfter"] {
        let after_event = cluster.watch(doc! { option: token(&batch(&reply)[1]) });
        let after_batch = cluster.watch(doc! { option: token_after(&reply) });
        let from_the_first = cluster.watch(doc! { option: token_after(&stream.first) });

        assert_eq!(keys(&batch(&after_event.first)), [3, 4]);
        assert_eq!(keys(&batch(&after_batch.first)), [4]);
        assert_eq!(keys(&batch(&from_the_first.first)), [1, 2, 3, 4]);
    }
}

#[test]
fn the_token_of_a_batch_that_is_not_the_last_is_that_of_its_last_event() {
    let mut cluster = Cluster::new();
    let stream = cluster.watch(doc! {});
    [1, 2].into_iter().for_each(|id| cluster.insert(id));
    let command = doc! { "getMore": stream.cursor, "collection": "pets", "batchSize": 1 };

    let reply = cluster.server.ok(command);

    assert_eq!(token_after(&reply), token(&batch(&reply)[0]));
}

#[test]
fn events_that_are_left_out_are_not_looked_at_again() {
    let mut cluster = Cluster::new();
    let stream = cluster.watch_with(doc! {}, [doc! { "$match": { "operationType": "delete" } }]);
    cluster.insert(1);

    let reply = cluster.get_more(&stream).unwrap();

    let other = cluster.watch(doc! { "resumeAfter": token_after(&reply) });
    assert_eq!((batch(&reply), batch(&other.first)), (vec![], vec![]));
}

#[test]
fn a_stream_can_begin_at_a_time() {
    let mut cluster = Cluster::new();
    cluster.insert(1);
    let time = cluster.next_time();
    [2, 3].into_iter().for_each(|id| cluster.insert(id));

    let stream = cluster.watch(doc! { "startAtOperationTime": time });

    assert_eq!(keys(&batch(&stream.first)), [2, 3]);
}

#[test]
fn after_the_end_of_its_collection_a_stream_starts_anew_but_is_not_resumed() {
    let mut cluster = Cluster::new();
    cluster.insert(1);
    let stream = cluster.watch(doc! {});
    cluster.write(doc! { "drop": "pets" });
    let events = cluster.next(&stream);
    cluster.insert(2);

    let anew = cluster.watch(doc! { "startAfter": token(&events[1]) });
    let after_drop = cluster.watch(doc! { "resumeAfter": token(&events[0]) });

    assert_eq!(keys(&batch(&anew.first)), [2]);
    assert_eq!((types(&batch(&after_drop.first)), after_drop.cursor), (vec!["invalidate"], 0));
    assert_eq!(token(&batch(&after_drop.first)[0]), token(&events[1]));
    assert_eq!(cluster.refusal(doc! { "resumeAfter": token(&events[1]) }, &[]), 260);
}

#[test]
fn a_stream_that_was_opened_after_the_end_of_its_collection_is_resumed() {
    let mut cluster = Cluster::new();
    cluster.insert(1);
    cluster.write(doc! { "drop": "pets" });
    let stream = cluster.watch(doc! {});
    cluster.insert(2);

    let resumed = cluster.watch(doc! { "resumeAfter": token_after(&stream.first) });

    assert_eq!(keys(&batch(&resumed.first)), [2]);
}

#[test]
fn a_place_that_is_forgotten_is_lost() {
    let mut cluster = Cluster::with_history_of(2000);
    let stream = cluster.watch(doc! {});
    let start = cluster.next_time();

    (0..10).for_each(|id| cluster.insert(id));

    let failure = cluster.get_more(&stream).unwrap_err();
    assert_eq!((failure.code, failure.code_name), (286, "ChangeStreamHistoryLost"));
    assert_eq!(failure.labels, ["NonResumableChangeStreamError"]);
    assert_eq!(cluster.refusal(doc! { "resumeAfter": token_after(&stream.first) }, &[]), 286);
    assert_eq!(cluster.refusal(doc! { "startAtOperationTime": start }, &[]), 286);
    let anew = cluster.watch(doc! {});
    cluster.insert(10);
    assert_eq!(keys(&cluster.next(&anew)), [10]);
}

#[test]
fn what_may_yet_be_taken_back_is_not_shown() {
    let mut cluster = Cluster::new();
    let stream = cluster.watch(doc! {});
    [1, 2].into_iter().for_each(|id| cluster.insert(id));

    cluster.server.store.show_changes_until(Some(1));
    let first = cluster.next(&stream);
    let opened = cluster.watch(doc! {});
    cluster.server.store.show_changes_until(Some(2));

    assert_eq!(keys(&first), [1]);
    assert_eq!([&stream, &opened].map(|stream| keys(&cluster.next(stream))), [[2], [2]]);
}

#[test]
fn what_is_no_token_is_refused() {
    let mut cluster = Cluster::new();
    let token = token_after(&cluster.watch(doc! {}).first);

    assert_eq!(cluster.refusal(doc! { "resumeAfter": {} }, &[]), 40647);
    for data in ["", "82", "82zz", "820000000000000000000000000000000000FF", "82+0000000000000000000000000000000000"] {
        assert_eq!(cluster.refusal(doc! { "resumeAfter": { "_data": data } }, &[]), 260, "{data}");
    }
    assert_eq!(cluster.refusal(doc! { "resumeAfter": token.clone(), "startAfter": token }, &[]), 40674);
}

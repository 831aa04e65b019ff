//! Batches, getMore, killCursors, and cursors that wait for more.

use bson::spec::BinarySubtype;
use bson::{Binary, doc};

use super::*;

fn three() -> Server {
    Server::with_pets([1, 2, 3].map(|id| doc! { "_id": id }))
}

fn get_more(id: i64) -> Document {
    doc! { "getMore": id, "collection": "pets" }
}

#[test]
fn a_batch_filled_exactly_leaves_the_cursor_open_srv_5() {
    let mut server = three();

    let first = server.ok(doc! { "find": "pets", "batchSize": 1 });
    let id = cursor_id(&first);
    assert_ne!(id, 0);
    assert_eq!(first.get_document("cursor").unwrap().get_str("ns").ok(), Some("test.pets"));
    assert_eq!(ids(&batch(&first)), [1]);

    for (expected, still_open) in [(vec![2], true), (vec![3], true), (vec![], false)] {
        let mut command = get_more(id);
        command.insert("batchSize", 1);
        let next = server.ok(command);
        assert_eq!(ids(&batch(&next)), expected);
        assert_eq!(cursor_id(&next), if still_open { id } else { 0 });
    }
    assert_eq!(server.fails(get_more(id)), (43, "CursorNotFound", format!("cursor id {id} not found")));
}

#[test]
fn a_batch_that_is_not_filled_closes_the_cursor() {
    let mut server = three();

    assert_eq!(cursor_id(&server.ok(doc! { "find": "pets", "batchSize": 4 })), 0);
    assert_ne!(cursor_id(&server.ok(doc! { "find": "pets", "batchSize": 3 })), 0);
    assert_eq!(cursor_id(&server.ok(doc! { "find": "missing", "batchSize": 0 })), 0);
}

#[test]
fn a_limit_that_is_reached_closes_the_cursor() {
    let mut server = three();

    let all = server.ok(doc! { "find": "pets", "batchSize": 3, "limit": 3 });
    assert_eq!((batch(&all).len(), cursor_id(&all)), (3, 0));
    let first = server.ok(doc! { "find": "pets", "batchSize": 1, "limit": 2 });
    let next = server.ok(get_more(cursor_id(&first)));
    assert_eq!((ids(&batch(&next)), cursor_id(&next)), (vec![2], 0));
    let by_id = server.ok(doc! { "find": "pets", "filter": { "_id": 1 }, "batchSize": 1 });
    assert_eq!((batch(&by_id).len(), cursor_id(&by_id)), (1, 0));
}

#[test]
fn an_empty_first_batch_opens_a_cursor_and_a_single_one_does_not() {
    let mut server = three();

    let empty = server.ok(doc! { "find": "pets", "batchSize": 0 });
    assert_eq!(batch(&empty), []);
    assert_eq!(ids(&batch(&server.ok(get_more(cursor_id(&empty))))), [1, 2, 3]);
    let single = server.ok(doc! { "find": "pets", "batchSize": 2, "singleBatch": true });
    assert_eq!((batch(&single).len(), cursor_id(&single)), (2, 0));
}

#[test]
fn the_first_batch_has_101_documents_and_the_next_all_others() {
    let mut server = Server::default();
    server.ok(doc! { "insert": "pets", "documents": vec![doc! {}; 300] });

    let first = server.ok(doc! { "find": "pets" });
    assert_eq!(batch(&first).len(), 101);
    let next = server.ok(get_more(cursor_id(&first)));
    assert_eq!((batch(&next).len(), cursor_id(&next)), (199, 0));
}

#[test]
fn a_reply_is_cut_at_16_mb() {
    let mut server = Server::default();
    let megabytes = |count: usize| "x".repeat(count << 20);
    server.ok(doc! { "insert": "pets", "documents": [{ "x": megabytes(6) }, { "x": megabytes(6) }] });
    server.ok(doc! { "insert": "pets", "documents": [{ "x": megabytes(6) }, { "x": megabytes(15) }] });

    let reply = server.ok(doc! { "find": "pets" });
    let mut sizes = vec![batch(&reply).len()];
    let mut id = cursor_id(&reply);
    while id != 0 {
        let reply = server.ok(get_more(id));
        sizes.push(batch(&reply).len());
        id = cursor_id(&reply);
    }

    assert_eq!(sizes, [2, 1, 1]);
}

#[test]
fn a_reply_fits_into_a_message_however_small_its_documents_are() {
    let mut server = Server::default();
    for _ in 0..12 {
        let documents: Vec<_> = (0..100_000).map(|_| doc! {}).collect();
        server.ok(doc! { "insert": "pets", "documents": documents });
    }

    let command =
        RawDocumentBuf::try_from(&doc! { "find": "pets", "batchSize": 2_000_000, "projection": { "x": 1, "_id": 0 } });
    let reply = server.run_in("test", &command.unwrap()).unwrap();

    assert!(reply.as_bytes().len() <= 16 * 1024 * 1024 + 16 * 1024, "{}", reply.as_bytes().len());
}

#[test]
fn a_cursor_belongs_to_its_namespace() {
    let mut server = three();
    let id = cursor_id(&server.ok(doc! { "find": "pets", "batchSize": 1 }));

    let (code, _, message) = server.fails(doc! { "getMore": id, "collection": "people" });
    assert_eq!(code, 13);
    assert_eq!(
        message,
        "Requested getMore on namespace 'test.people', but cursor was created on different namespace 'test.pets'"
    );
    assert_eq!(server.code(doc! { "getMore": id, "collection": "" }), 73);
    assert_eq!(server.code(doc! { "getMore": id }), 40414);
    assert_eq!(server.code(doc! { "getMore": "1", "collection": "pets" }), 14);
    assert_eq!(server.code(doc! { "getMore": id, "collection": "pets", "batchSize": -1 }), 51024);
    assert_eq!(ids(&batch(&server.ok(get_more(id)))), [2, 3], "none of that cost a document");
}

#[test]
fn cursors_are_killed_by_their_ids() {
    let mut server = three();
    let id = cursor_id(&server.ok(doc! { "find": "pets", "batchSize": 1 }));

    let reply = server.ok(doc! { "killCursors": "pets", "cursors": [id, 7_i64] });

    assert_eq!(
        reply,
        doc! { "cursorsKilled": [id], "cursorsNotFound": [7_i64], "cursorsAlive": [], "cursorsUnknown": [] }
    );
    assert_eq!(server.code(get_more(id)), 43);
}

#[test]
fn a_cursor_of_a_dropped_collection_says_so() {
    let mut server = three();
    let id = cursor_id(&server.ok(doc! { "find": "pets", "batchSize": 1 }));

    server.ok(doc! { "drop": "pets" });

    assert_eq!(server.code(get_more(id)), 175);
    assert_eq!(server.code(get_more(id)), 43);
}

#[test]
fn a_cursor_shows_what_was_there_when_it_was_opened() {
    let mut server = three();
    let id = cursor_id(&server.ok(doc! { "find": "pets", "batchSize": 1 }));

    server.ok(doc! { "delete": "pets", "deletes": [{ "q": {}, "limit": 0 }] });

    assert_eq!(ids(&batch(&server.ok(get_more(id)))), [2, 3]);
}

#[test]
fn a_tailable_cursor_stays_open_and_sees_what_comes_later() {
    let mut server = Server::default();
    server.ok(doc! { "create": "pets", "capped": true, "size": 10_000 });
    assert_eq!(cursor_id(&server.ok(doc! { "find": "pets", "tailable": true })), 0, "there is nothing to wait behind");
    server.ok(doc! { "insert": "pets", "documents": [{ "_id": 1 }, { "_id": 2, "x": 1 }] });

    let first = server.ok(doc! { "find": "pets", "filter": { "x": 1 }, "tailable": true, "awaitData": true });
    let id = cursor_id(&first);
    assert_eq!(ids(&batch(&first)), [2]);
    assert_eq!(batch(&server.ok(get_more(id))), []);
    server.ok(doc! { "insert": "pets", "documents": [{ "_id": 3 }, { "_id": 4, "x": 1 }] });
    let next = server.ok(get_more(id));
    assert_eq!((ids(&batch(&next)), cursor_id(&next)), (vec![4], id));

    server.ok(doc! { "drop": "pets" });
    assert_eq!(server.code(get_more(id)), 175);
}

#[test]
fn a_tailable_cursor_whose_place_was_overwritten_is_lost() {
    let mut server = Server::default();
    server.ok(doc! { "create": "pets", "capped": true, "size": 10_000, "max": 2 });
    server.ok(doc! { "insert": "pets", "documents": [{ "_id": 1 }] });
    let id = cursor_id(&server.ok(doc! { "find": "pets", "tailable": true }));

    server.ok(doc! { "insert": "pets", "documents": [{ "_id": 2 }, { "_id": 3 }, { "_id": 4 }] });

    assert_eq!(server.code(get_more(id)), 136);
}

#[test]
fn a_tail_is_lost_when_the_document_where_it_stands_is_removed() {
    let mut server = Server::default();
    server.ok(doc! { "create": "pets", "capped": true, "size": 4096, "max": 2 });
    server.ok(doc! { "insert": "pets", "documents": [{ "_id": 1 }, { "_id": 2 }] });
    let id = cursor_id(&server.ok(doc! { "find": "pets", "tailable": true }));
    let get_more = doc! { "getMore": id, "collection": "pets" };

    server.ok(doc! { "insert": "pets", "documents": [{ "_id": 3 }] });
    assert_eq!(ids(&batch(&server.ok(get_more.clone()))), [3]);
    server.ok(doc! { "insert": "pets", "documents": [{ "_id": 4 }, { "_id": 5 }] });

    assert_eq!(server.code(get_more), 136);
}

#[test]
fn a_tail_ends_at_its_limit() {
    let mut server = Server::default();
    server.ok(doc! { "create": "pets", "capped": true, "size": 4096 });
    server.ok(doc! { "insert": "pets", "documents": [{ "_id": 1 }, { "_id": 2 }] });

    let reply = server.ok(doc! { "find": "pets", "tailable": true, "limit": 1 });

    assert_eq!((ids(&batch(&reply)), cursor_id(&reply)), (vec![1], 0));
}

#[test]
fn a_cursor_belongs_to_the_session_that_opened_it() {
    let session = |byte| doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } };
    let mut server = three();
    let opened = server.ok(doc! { "find": "pets", "batchSize": 1, "lsid": session(1) });
    let without_session = cursor_id(&server.ok(doc! { "find": "pets", "batchSize": 1 }));
    let more = |id, byte| {
        let mut command = get_more(id);
        command.insert("lsid", session(byte));
        command
    };

    assert_eq!(server.code(more(cursor_id(&opened), 2)), 50738);
    assert_eq!(server.code(get_more(cursor_id(&opened))), 50737);
    assert_eq!(server.code(more(without_session, 1)), 50736);
    assert_eq!(ids(&batch(&server.ok(more(cursor_id(&opened), 1)))), [2, 3]);
}

//! Tests of the batches, one after the other.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use bson::{RawDocument, RawDocumentBuf, rawdoc};

use super::*;
use crate::batch::Upserted;

const LIMITS: Limits = Limits { max_message_size: 1100, max_document_size: 1100, max_write_batch: 3 };

fn batches(command: &RawDocument, sequences: &[&str]) -> Batches {
    let mut batches = Batches::new(command, sequences).unwrap();
    batches.limits = LIMITS;
    batches
}

fn insert(ordered: bool) -> Batches {
    batches(&rawdoc! { "insert": "c", "ordered": ordered }, &["documents"])
}

fn bulk_write(command: &RawDocument, namespaces: &[&str]) -> Batches {
    let mut batches = batches(command, &["ops", "nsInfo"]);
    for name in namespaces {
        batches.add_namespace(Ok::<_, String>(&*rawdoc! { "ns": *name })).unwrap();
    }
    batches
}

fn add(batches: &mut Batches, item: &RawDocument) -> Result<bool, BatchError> {
    batches.take(|bytes| {
        bytes.extend_from_slice(item.as_bytes());
        Some(Ok::<_, String>(()))
    })
}

fn end_of_items(batches: &mut Batches) {
    assert_eq!(batches.take(|_| None::<Result<(), String>>), Ok(false));
}

/// Adds all items, and no further ones.
fn fill(batches: &mut Batches, items: &[RawDocumentBuf]) {
    items.iter().for_each(|item| assert_eq!(add(batches, item), Ok(true)));
    end_of_items(batches);
}

fn numbered(count: i32) -> Vec<RawDocumentBuf> {
    (0..count).map(|n| rawdoc! { "_id": n }).collect()
}

/// The items of the batch in hand.
fn items(batches: &Batches) -> Vec<RawDocumentBuf> {
    batches.sequences()[0].documents().map(|item| item.to_owned()).collect()
}

/// The sizes of all batches, which succeed.
fn sizes(batches: &mut Batches, limits: &Limits) -> Vec<usize> {
    let mut sizes = Vec::new();
    while !batches.is_empty() {
        batches.begin(limits).unwrap();
        sizes.push(items(batches).len());
        let n = i32::try_from(items(batches).len()).unwrap();
        batches.handle_reply(&rawdoc! { "ok": 1, "n": n });
        assert!(batches.end());
    }
    sizes
}

/// An item of so many bytes.
fn of_length(length: usize) -> RawDocumentBuf {
    let rest = length - rawdoc! { "a": "" }.as_bytes().len();
    rawdoc! { "a": "x".repeat(rest) }
}

#[test]
fn a_batch_is_as_large_as_the_server_takes_and_the_last_has_the_rest_bw_2() {
    for (count, expected) in [(3, vec![3]), (4, vec![3, 1]), (7, vec![3, 3, 1])] {
        let mut batches = insert(true);
        fill(&mut batches, &numbered(count));

        assert_eq!(sizes(&mut batches, &LIMITS), expected);
    }
}

#[test]
fn a_message_leaves_a_thousand_bytes_beside_the_command_and_its_items_bw_3() {
    let command = rawdoc! { "insert": "c", "ordered": true }.as_bytes().len();
    let room = 1100 - 1000 - command;
    for (lengths, expected) in [([room - 20, 20], vec![2]), ([room - 20, 21], vec![1, 1])] {
        let mut batches = insert(true);
        fill(&mut batches, &lengths.map(of_length));

        assert_eq!(sizes(&mut batches, &LIMITS), expected, "{lengths:?}");
    }
}

#[test]
fn no_more_items_are_taken_than_a_message_has_and_one() {
    let mut batches = insert(true);
    for item in numbered(4) {
        assert!(batches.wants_item());
        add(&mut batches, &item).unwrap();
    }
    assert!(!batches.wants_item());

    let mut large = insert(true);
    add(&mut large, &of_length(90)).unwrap();
    assert!(!large.wants_item(), "it is more than fits already");
}

#[test]
fn an_item_that_does_not_fit_by_itself_is_named_bw_4() {
    let mut batches = insert(true);
    fill(&mut batches, &[of_length(20), of_length(900)]);

    batches.begin(&LIMITS).unwrap();
    batches.handle_reply(&rawdoc! { "ok": 1, "n": 1 });
    batches.end();
    let error = batches.begin(&LIMITS).unwrap_err();

    let max = 100 - rawdoc! { "insert": "c", "ordered": true }.as_bytes().len();
    assert_eq!(error, BatchError::TooLarge { index: 1, length: 900, max });
    let done = batches.into_result();
    assert_eq!((done.inserted, done.has_written()), (1, true), "what was done before it counts (BW-14)");
}

#[test]
fn a_batch_has_the_collections_of_its_items_numbered_anew_bw_5() {
    let mut batches = bulk_write(&rawdoc! { "bulkWrite": 1 }, &["db.a", "db.b", "db.c"]);
    let limits = Limits { max_message_size: 2000, ..LIMITS };
    let op = |namespace: i32| rawdoc! { "insert": namespace, "document": {} };
    fill(&mut batches, &[op(2), op(1), op(2), op(1)]);

    let mut seen = Vec::new();
    while !batches.is_empty() {
        batches.begin(&limits).unwrap();
        let numbers: Vec<_> = items(&batches).iter().map(|op| op.get_i32("insert").unwrap()).collect();
        let names: Vec<_> = batches.sequences()[1].documents().map(|ns| ns.get_str("ns").unwrap().to_owned()).collect();
        seen.push((numbers, names));
        batches.end();
    }

    assert_eq!(seen, [(vec![0, 1, 0], vec!["db.c".into(), "db.b".into()]), (vec![0], vec!["db.b".into()])]);
}

#[test]
fn the_bytes_of_a_collection_count_with_its_first_item_bw_5() {
    let command = rawdoc! { "bulkWrite": 1, "errorsOnly": true, "ordered": true }.as_bytes().len();
    let (namespace, op) = (rawdoc! { "ns": "db.a" }.as_bytes().len(), rawdoc! { "insert": 0, "document": {} });
    let needed = 1000 + command + namespace + 2 * op.as_bytes().len();
    for (spare, expected) in [(0, 2), (-1, 1)] {
        let mut batches = bulk_write(&rawdoc! { "bulkWrite": 1 }, &["db.a"]);
        batches.limits.max_message_size = u32::MAX;
        fill(&mut batches, &[op.clone(), op.clone()]);
        let size = u32::try_from(needed).unwrap().saturating_add_signed(spare);

        batches.begin(&Limits { max_message_size: size, ..LIMITS }).unwrap();

        assert_eq!(items(&batches).len(), expected);
    }
}

#[test]
fn a_bulk_write_says_whether_it_is_ordered_and_wants_results_bw_6() {
    let command = |said: &RawDocument| Batches::new(said, &["ops", "nsInfo"]).unwrap().command().to_owned();

    assert_eq!(command(&rawdoc! { "bulkWrite": 1 }), rawdoc! { "bulkWrite": 1, "errorsOnly": true, "ordered": true });
    let own = rawdoc! { "bulkWrite": 1, "ordered": false, "errorsOnly": false };
    assert_eq!(command(&own), own);
    let insert = rawdoc! { "insert": "c" };
    assert_eq!(Batches::new(&insert, &["documents"]).unwrap().command(), &*insert, "others say what they want");
}

#[test]
fn nothing_to_write_is_an_error_bw_7() {
    let mut batches = insert(true);
    end_of_items(&mut batches);

    assert_eq!(batches.check_any(), Err(BatchError::NoItems { sequence: "documents" }));
}

#[test]
fn a_bulk_write_without_a_reply_has_neither_order_nor_results_bw_7() {
    let check =
        |command: &RawDocument| bulk_write(command, &[]).check_unacknowledged().map_err(|error| error.to_string());

    let results = check(&rawdoc! { "bulkWrite": 1, "ordered": false, "errorsOnly": false }).unwrap_err();
    assert!(results.contains("Cannot request unacknowledged write concern and verbose results"), "{results}");
    let order = check(&rawdoc! { "bulkWrite": 1 }).unwrap_err();
    assert!(order.contains("Cannot request unacknowledged write concern and ordered writes"), "{order}");
    assert_eq!(check(&rawdoc! { "bulkWrite": 1, "ordered": false }), Ok(()));
    assert_eq!(insert(true).check_unacknowledged(), Ok(()));
}

#[test]
fn replies_add_up_and_their_places_are_those_of_the_operation_bw_11() {
    let mut batches = batches(&rawdoc! { "update": "c", "ordered": false }, &["updates"]);
    fill(&mut batches, &numbered(5));

    batches.begin(&LIMITS).unwrap();
    let upserted = rawdoc! { "index": 1, "_id": "new" };
    batches.handle_reply(&rawdoc! { "ok": 1, "n": 3, "nModified": 1, "upserted": [upserted] });
    assert!(batches.end());
    batches.begin(&LIMITS).unwrap();
    let upserted = rawdoc! { "index": 0, "_id": "newer" };
    let failed = rawdoc! { "index": 1, "code": 11000, "errmsg": "E11000", "errInfo": { "a": 1 } };
    batches.handle_reply(&rawdoc! { "ok": 1, "n": 1, "nModified": 0, "upserted": [upserted], "writeErrors": [failed] });
    assert!(batches.end());

    let result = batches.into_result();
    assert_eq!((result.matched, result.modified, result.upserts, result.n()), (2, 1, 2, 4));
    let upserted = |index, id: &str| Upserted { index, id: id.into() };
    assert_eq!(result.upserted, [upserted(1, "new"), upserted(3, "newer")]);
    assert_eq!((result.errors[0].index, result.errors[0].code, result.code()), (Some(4), Some(11000), Some(11000)));
    assert_eq!(result.errors[0].details, Some(rawdoc! { "a": 1 }), "errInfo is passed on (BW-13)");
}

#[test]
fn the_results_of_a_bulk_write_have_the_places_of_the_operation_bw_11() {
    let command = rawdoc! { "bulkWrite": 1, "ordered": false, "errorsOnly": false };
    let mut batches = bulk_write(&command, &["db.a"]);
    let limits = Limits { max_message_size: 2000, ..LIMITS };
    fill(&mut batches, &[0; 4].map(|namespace| rawdoc! { "update": namespace }));

    batches.begin(&limits).unwrap();
    batches.handle_reply(&rawdoc! { "ok": 1, "nMatched": 3, "nModified": 3 });
    (0..3).for_each(|idx| batches.handle_result(&rawdoc! { "ok": 1, "idx": idx, "n": 1, "nModified": 1 }));
    assert!(batches.end());
    batches.begin(&limits).unwrap();
    batches.handle_reply(&rawdoc! { "ok": 1, "nErrors": 0, "nUpserted": 1 });
    batches.handle_result(&rawdoc! { "ok": 1, "idx": 0, "n": 1, "nModified": 0, "upserted": { "_id": 7 } });
    batches.end();

    let result = batches.into_result();
    assert_eq!((result.matched, result.upserts, result.n()), (3, 1, 4));
    assert_eq!(result.outcomes.iter().map(|outcome| outcome.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(result.upserted, [Upserted { index: 3, id: 7.into() }]);
}

#[test]
fn the_first_error_ends_an_ordered_operation_and_no_other_bw_12() {
    let failed = rawdoc! { "ok": 1, "n": 1, "writeErrors": [{ "index": 1, "code": 11000 }] };
    for ordered in [true, false] {
        let mut batches = insert(ordered);
        fill(&mut batches, &numbered(7));

        batches.begin(&LIMITS).unwrap();
        batches.handle_reply(&failed);

        assert_eq!(batches.end(), !ordered);
    }
}

#[test]
fn an_ordered_bulk_write_reads_no_results_behind_its_error_x_177() {
    let mut batches = bulk_write(&rawdoc! { "bulkWrite": 1, "errorsOnly": false }, &["db.a"]);
    fill(&mut batches, &[rawdoc! { "delete": 0 }, rawdoc! { "delete": 0 }]);
    batches.begin(&Limits::DEFAULT).unwrap();

    batches.handle_reply(&rawdoc! { "ok": 1, "nDeleted": 1, "nErrors": 1 });
    assert!(batches.wants_results());
    batches.handle_result(&rawdoc! { "ok": 0, "idx": 1, "code": 17276, "errmsg": "no" });

    assert!(!batches.wants_results());
    assert!(!batches.end());
}

#[test]
fn write_concern_errors_stop_nothing_and_are_all_kept_bw_13() {
    let mut batches = insert(true);
    fill(&mut batches, &numbered(4));
    for n in [3, 1] {
        batches.begin(&LIMITS).unwrap();
        let concern = rawdoc! { "code": 91, "errmsg": "shut down", "errInfo": { "n": n } };
        batches.handle_reply(&rawdoc! { "ok": 1, "n": n, "writeConcernError": concern });
        assert!(batches.end());
    }

    let result = batches.into_result();

    assert_eq!((result.inserted, result.is_complete(), result.code()), (4, false, Some(91)));
    let details: Vec<_> = result.concern_errors.iter().map(|concern| concern.details.clone()).collect();
    assert_eq!(details, [Some(rawdoc! { "n": 3 }), Some(rawdoc! { "n": 1 })]);
}

#[test]
fn a_write_is_known_to_be_done_where_a_reply_says_so_bw_16() {
    let after = |ordered: bool, replies: &[RawDocumentBuf]| {
        let mut batches = insert(ordered);
        fill(&mut batches, &numbered(6));
        for reply in replies {
            batches.begin(&LIMITS).unwrap();
            batches.handle_reply(reply);
            batches.end();
        }
        batches.into_result().has_written()
    };
    let failed = |indexes: &[i32]| {
        let mut errors = bson::RawArrayBuf::new();
        indexes.iter().for_each(|index| errors.push(rawdoc! { "index": *index, "code": 1 }));
        rawdoc! { "ok": 1, "n": 0, "writeErrors": errors }
    };

    assert!(!after(true, &[]));
    assert!(!after(true, &[failed(&[0])]) && after(true, &[failed(&[1])]));
    assert!(!after(false, &[failed(&[0, 1, 2])]) && after(false, &[failed(&[0, 2])]));
    assert!(after(false, &[rawdoc! { "ok": 1, "n": 3 }, failed(&[0, 1, 2])]), "an earlier batch was carried out");
}

#[test]
fn a_batch_that_is_sent_again_has_the_same_items_x_171() {
    let mut batches = insert(true);
    fill(&mut batches, &numbered(3));

    assert_eq!(batches.begin(&LIMITS), Ok(true));
    let first = items(&batches);
    assert_eq!(batches.begin(&Limits { max_write_batch: 1, ..LIMITS }), Ok(false));

    assert_eq!((items(&batches), first.len()), (first, 3));
}

#[test]
fn an_operation_of_a_bulk_write_has_to_name_a_collection() {
    let mut batches = bulk_write(&rawdoc! { "bulkWrite": 1 }, &["db.a"]);
    add(&mut batches, &rawdoc! { "insert": 0 }).unwrap();

    for wrong in [rawdoc! { "insert": 1 }, rawdoc! { "insert": -1 }, rawdoc! { "insert": "db.a" }, rawdoc! {}] {
        assert_eq!(add(&mut batches, &wrong), Err(BatchError::NoNamespace { index: 1, namespaces: 1 }), "{wrong:?}");
    }
    end_of_items(&mut batches);
    assert!(!batches.is_empty(), "the first one is there");
}

#[test]
fn a_command_has_the_sequences_that_it_needs_each_once_bw_1() {
    let refused = |command: &RawDocument, sequences: &[&str]| Batches::new(command, sequences).unwrap_err().to_string();

    assert!(refused(&rawdoc! { "find": "c" }, &["documents"]).contains("`find` has no sequence `documents`"));
    assert!(refused(&rawdoc! { "insert": "c" }, &["updates"]).contains("`insert` has no sequence `updates`"));
    assert!(refused(&rawdoc! { "bulkWrite": 1 }, &["ops"]).contains("`bulkWrite` needs the sequence `nsInfo`, once"));
    assert!(refused(&rawdoc! { "insert": "c" }, &["documents"; 2]).contains("`documents`, once"));
}

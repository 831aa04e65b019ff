//! The rules of change streams, one by one.

use std::borrow::ToOwned;
use std::vec;
use std::vec::Vec;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, Timestamp, rawdoc};

use super::{ChangeStream, Decision, NoResumeToken, StreamFailure};

/// The newest protocol of the tests, whose servers label their errors.
const NEW: i32 = 25;

/// MongoDB 4.2, which labels none.
const OLD: i32 = 8;

const TIME: Timestamp = Timestamp { time: 7, increment: 1 };

fn watch(options: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": options }, { "$match": { "x": 1 } }], "cursor": {} }
}

fn stream(options: RawDocumentBuf) -> ChangeStream {
    ChangeStream::of_command(&watch(options), 1).unwrap()
}

fn token(n: i32) -> RawDocumentBuf {
    rawdoc! { "_data": n }
}

fn event(n: i32) -> RawDocumentBuf {
    rawdoc! { "_id": token(n), "operationType": "insert" }
}

/// A reply with these documents, and perhaps a postBatchResumeToken.
fn reply(batch: &str, events: &[i32], post_batch: Option<i32>) -> RawDocumentBuf {
    let mut documents = RawArrayBuf::new();
    events.iter().for_each(|n| documents.push(event(*n)));
    let mut cursor = rawdoc! { "id": 5_i64, "ns": "db.c" };
    cursor.append(if batch == "firstBatch" { bson::cstr!("firstBatch") } else { bson::cstr!("nextBatch") }, documents);
    if let Some(n) = post_batch {
        cursor.append(bson::cstr!("postBatchResumeToken"), token(n));
    }
    rawdoc! { "cursor": cursor, "operationTime": TIME, "ok": 1.0 }
}

fn opened(options: RawDocumentBuf, events: &[i32], post_batch: Option<i32>) -> ChangeStream {
    let mut stream = stream(options);
    stream.handle_reply(&reply("firstBatch", events, post_batch));
    stream
}

/// The options of the stage in the command that resumes the stream.
fn resumed(stream: &mut ChangeStream) -> RawDocumentBuf {
    let (command, _) = stream.resume();
    let stages = command.get_array("pipeline").unwrap();
    let first = stages.get_document(0).unwrap();
    first.get_document("$changeStream").unwrap().to_owned()
}

fn server(code: i32, is_labelled: bool) -> StreamFailure {
    StreamFailure::Server { code: Some(code), is_labelled }
}

#[test]
fn a_stream_is_an_aggregate_that_begins_with_its_stage_cs_1() {
    let command = rawdoc! { "aggregate": 1, "pipeline": [{ "$changeStream": {} }] };
    let is_one = |command: &RawDocument| ChangeStream::of_command(command, 1).is_some();

    let stream = ChangeStream::of_command(&command, 1).unwrap();

    assert_eq!(stream.command(), &*rawdoc! { "aggregate": 1, "pipeline": [{ "$changeStream": {} }], "cursor": {} });
    assert!(!is_one(&rawdoc! { "find": "c" }));
    assert!(!is_one(&rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }] }));
    assert!(!is_one(&rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, { "$changeStream": {} }] }));
    assert!(!is_one(&rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": 1 }] }));
}

#[test]
fn the_token_at_the_start_is_the_users_cs_6() {
    assert_eq!(stream(rawdoc! {}).resume_token(), None);
    assert_eq!(stream(rawdoc! { "resumeAfter": token(1) }).resume_token(), Some(&*token(1)));
    let both = rawdoc! { "resumeAfter": token(1), "startAfter": token(2) };
    assert_eq!(stream(both).resume_token(), Some(&*token(2)));
}

#[test]
fn a_batch_that_was_not_read_leaves_the_token_as_it_was_cs_7() {
    assert_eq!(opened(rawdoc! {}, &[1], Some(9)).resume_token(), None);
    assert_eq!(opened(rawdoc! { "startAfter": token(3) }, &[4], Some(9)).resume_token(), Some(&*token(3)));
}

#[test]
fn an_empty_batch_has_the_token_of_its_end_cs_6() {
    let mut stream = opened(rawdoc! {}, &[], Some(4));
    assert_eq!(stream.resume_token(), Some(&*token(4)));

    stream.handle_reply(&reply("nextBatch", &[], Some(5)));
    assert_eq!(stream.resume_token(), Some(&*token(5)));

    stream.handle_reply(&reply("nextBatch", &[], None));
    assert_eq!(stream.resume_token(), Some(&*token(5)));
}

#[test]
fn a_document_has_its_own_token_and_the_last_one_that_of_its_batch_cs_6() {
    let mut stream = opened(rawdoc! {}, &[1, 2], Some(9));

    stream.hand_out(&event(1), false).unwrap();
    assert_eq!(stream.resume_token(), Some(&*token(1)));
    stream.hand_out(&event(2), true).unwrap();
    assert_eq!(stream.resume_token(), Some(&*token(9)));

    stream.handle_reply(&reply("nextBatch", &[10], None));
    stream.hand_out(&event(10), true).unwrap();
    assert_eq!(stream.resume_token(), Some(&*token(10)));
}

#[test]
fn a_document_without_a_token_is_an_error_cs_8() {
    let mut stream = opened(rawdoc! {}, &[1], None);

    assert_eq!(stream.hand_out(&rawdoc! { "operationType": "insert" }, false), Err(NoResumeToken));
    assert_eq!(stream.hand_out(&rawdoc! { "_id": 1 }, false), Err(NoResumeToken));
    assert_eq!(stream.resume_token(), None);
}

#[test]
fn the_time_of_the_first_aggregate_counts_only_if_nothing_else_says_where_to_begin_cs_9() {
    let at_time = rawdoc! { "startAtOperationTime": TIME };
    assert_eq!(resumed(&mut opened(rawdoc! {}, &[], None)), at_time);
    assert_eq!(resumed(&mut opened(rawdoc! {}, &[1], None)), rawdoc! {});
    assert_eq!(resumed(&mut opened(rawdoc! {}, &[], Some(4))), rawdoc! { "resumeAfter": token(4) });
    let own = rawdoc! { "startAtOperationTime": Timestamp { time: 3, increment: 0 } };
    assert_eq!(resumed(&mut opened(own.clone(), &[], None)), own);

    let mut unread = opened(rawdoc! {}, &[1], None);
    unread.resume();
    unread.handle_reply(&reply("firstBatch", &[], None));
    assert_eq!(resumed(&mut unread), rawdoc! {}, "the second aggregate");
}

#[test]
fn a_newer_servers_label_says_whether_a_get_more_can_be_resumed_cs_10() {
    let stream = opened(rawdoc! {}, &[], Some(1));
    let decide = |failure| stream.handle_failed_get_more(failure, NEW, false);

    assert_eq!(decide(server(50, true)), Decision::Resume);
    assert_eq!(decide(server(6, false)), Decision::Close);
    assert_eq!(decide(server(43, false)), Decision::Resume);
    assert_eq!(decide(server(136, false)), Decision::Close);
}

#[test]
fn an_older_servers_code_says_whether_a_get_more_can_be_resumed_cs_10() {
    let stream = opened(rawdoc! {}, &[], Some(1));
    let resumable: Vec<_> = (0..20_000)
        .filter(|code| stream.handle_failed_get_more(server(*code, false), OLD, false) == Decision::Resume)
        .collect();

    let codes = [6, 7, 43, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13388, 13435, 13436];
    assert_eq!(resumable, codes);
    assert_eq!(stream.handle_failed_get_more(server(50, true), OLD, false), Decision::Close);
}

#[test]
fn what_fails_on_the_way_is_resumed_and_what_fails_in_the_client_is_not_x_160() {
    let stream = opened(rawdoc! {}, &[], Some(1));

    assert_eq!(stream.handle_failed_get_more(StreamFailure::Unreached, NEW, false), Decision::Resume);
    assert_eq!(stream.handle_failed_get_more(StreamFailure::Client, NEW, false), Decision::Close);
}

#[test]
fn an_aggregates_error_is_never_resumed_at_once_cs_11_x_162() {
    let stream = opened(rawdoc! {}, &[], Some(1));

    assert_eq!(stream.handle_failed_resume(server(286, false), false), Decision::Close);
    assert_eq!(stream.handle_failed_resume(server(6, true), false), Decision::Close);
    assert_eq!(stream.handle_failed_resume(StreamFailure::Client, false), Decision::Close);
    assert_eq!(stream.handle_failed_resume(StreamFailure::Unreached, false), Decision::Report);
}

#[test]
fn a_step_whose_time_is_up_leaves_the_stream_valid_csot_25() {
    let stream = opened(rawdoc! {}, &[], Some(1));

    assert_eq!(stream.handle_failed_get_more(StreamFailure::Unreached, NEW, true), Decision::Report);
    assert_eq!(stream.handle_failed_resume(server(50, false), true), Decision::Report);
}

#[test]
fn a_resume_changes_the_start_point_and_nothing_else_cs_12_cs_13() {
    let options = rawdoc! { "fullDocument": "updateLookup", "resumeAfter": token(1), "showExpandedEvents": true };
    let command = rawdoc! {
        "aggregate": "c", "pipeline": [{ "$changeStream": options }, { "$match": { "x": 1 } }],
        "collation": { "locale": "en" }, "cursor": { "batchSize": 2 }, "comment": "mine",
    };
    let mut stream = ChangeStream::of_command(&command, 1).unwrap();
    stream.handle_reply(&reply("firstBatch", &[2], None));
    stream.hand_out(&event(2), true).unwrap();

    let (resumed, _) = stream.resume();

    let options = rawdoc! { "fullDocument": "updateLookup", "showExpandedEvents": true, "resumeAfter": token(2) };
    let expected = rawdoc! {
        "aggregate": "c", "pipeline": [{ "$changeStream": options }, { "$match": { "x": 1 } }],
        "collation": { "locale": "en" }, "cursor": { "batchSize": 2 }, "comment": "mine",
    };
    assert_eq!(resumed, expected);
}

#[test]
fn a_stream_that_began_with_start_after_and_handed_out_nothing_starts_after_its_token_cs_13() {
    let mut stream = opened(rawdoc! { "startAfter": token(1) }, &[], None);
    assert_eq!(resumed(&mut stream), rawdoc! { "startAfter": token(1) });

    stream.handle_reply(&reply("firstBatch", &[], Some(2)));
    assert_eq!(resumed(&mut stream), rawdoc! { "startAfter": token(2) });

    stream.handle_reply(&reply("firstBatch", &[3], None));
    stream.hand_out(&event(3), true).unwrap();
    assert_eq!(resumed(&mut stream), rawdoc! { "resumeAfter": token(3) });
}

#[test]
fn a_batch_that_was_lost_with_its_cursor_lends_no_token_to_the_next_one_cs_6() {
    let mut stream = opened(rawdoc! {}, &[1, 2], Some(9));
    stream.hand_out(&event(1), false).unwrap();

    stream.resume();
    stream.handle_reply(&reply("firstBatch", &[2], None));
    stream.hand_out(&event(2), true).unwrap();

    assert_eq!(stream.resume_token(), Some(&*token(2)));
}

#[test]
fn resumes_in_a_row_rest_and_a_batch_ends_the_row_x_161() {
    let mut stream = opened(rawdoc! {}, &[], Some(1));
    let rests: Vec<_> = (0..20).map(|_| stream.resume().1).collect();
    stream.handle_reply(&reply("firstBatch", &[], Some(1)));
    let after_an_aggregate = stream.resume().1;
    stream.handle_reply(&reply("nextBatch", &[], Some(1)));
    let after_a_get_more = stream.resume().1;

    assert!(rests[..2].iter().all(core::time::Duration::is_zero));
    assert!(rests[2..].iter().all(|rest| !rest.is_zero() && rest.as_millis() < 100), "{rests:?}");
    assert!(!after_an_aggregate.is_zero());
    assert!(after_a_get_more.is_zero());
}

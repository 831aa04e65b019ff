//! Messages in pieces, and several at once.

use bson::rawdoc;

use super::{Client, Hub, at};

#[test]
fn bytes_may_come_one_by_one() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let message = client.message("test", &rawdoc! { "find": "c" });

    let runs: usize = message.chunks(1).map(|byte| client.send(&mut hub, at(0), byte).runs.len()).sum();

    assert_eq!(runs, 1);
}

#[test]
fn commands_that_are_sent_ahead_run_one_after_the_other() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let bytes: Vec<u8> = (0..3).flat_map(|n| client.message("test", &rawdoc! { "find": "c", "limit": n })).collect();

    let mut done = client.send(&mut hub, at(0), &bytes);
    for n in 0..3 {
        let [forward] = done.runs.as_slice() else { panic!("{done:?}") };
        assert_eq!(forward.request.body().get_i32("limit").unwrap(), n);
        done = client.reply(&mut hub, at(0), &rawdoc! { "ok": 1, "n": n });
        assert_eq!(done.replies[0].get_i32("n").unwrap(), n);
    }

    assert!(done.runs.is_empty());
}

#[test]
fn a_reply_is_sent_before_the_next_message_is_looked_at() {
    let (mut hub, mut client) = (Hub::open(), Client::new());
    let hello = rawdoc! { "hello": 1, "loadBalanced": true };
    let bytes: Vec<u8> = (0..1_000).flat_map(|_| client.message("admin", &hello)).collect();

    hub.with(|around| client.line.handle_bytes(at(0), &bytes, around));

    let mut replies = client.drain().replies.len();
    assert_eq!(replies, 1);
    while client.line.has_more() {
        hub.with(|around| client.line.go_on(at(0), around));
        let done = client.drain();
        assert_eq!(done.replies.len(), 1, "one at a time");
        replies += 1;
    }
    assert_eq!(replies, 1_000);
}

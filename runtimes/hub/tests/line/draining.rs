//! What a hub that drains begins.

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf, rawdoc};
use cmap_core::wire::CommandReply;
use cmap_hub::protocol::Begins;

use super::{Client, Hub, at, code};

/// A write that its driver has numbered.
fn numbered() -> RawDocumentBuf {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    rawdoc! { "insert": "c", "documents": [{}], "lsid": { "id": id }, "txnNumber": 1_i64 }
}

/// Whether a client's command runs.
fn runs(client: &mut Client, hub: &mut Hub, millis: u64, command: &RawDocumentBuf) -> bool {
    let done = client.say(hub, at(millis), "test", command);
    if done.runs.is_empty() {
        assert_eq!(code(&done), Some(91), "{done:?}");
        return false;
    }
    client.reply(hub, at(millis), &rawdoc! { "ok": 1 });
    true
}

#[test]
fn what_drivers_repeat_is_refused_and_the_rest_at_the_end_x_189() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let update = rawdoc! { "update": "c", "updates": [] };
    let find = rawdoc! { "find": "c" };

    for (begins, expected) in [
        (Begins::Everything, [true, true, true]),
        (Begins::Unrepeatable, [false, false, true]),
        (Begins::Nothing, [false, false, false]),
    ] {
        hub.facts.begins = begins;
        let all = [&find, &numbered(), &update].map(|command| runs(&mut client, &mut hub, 0, command));
        assert_eq!(all, expected, "{begins:?}");
    }
}

#[test]
fn a_refusal_says_that_a_numbered_write_may_be_repeated_elsewhere_x_189() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    hub.facts.begins = Begins::Unrepeatable;

    let done = client.say(&mut hub, at(0), "test", &numbered());

    let refusal = CommandReply::read(&done.replies[0]).failure().unwrap();
    assert_eq!(refusal.code, Some(91));
    assert_eq!(refusal.labels, ["RetryableWriteError", "NoWritesPerformed", "SystemOverloadedError", "RetryableError"]);
}

#[test]
fn a_client_that_comes_late_is_not_refused_twice_in_a_row_x_189() {
    let mut hub = Hub::open();
    hub.facts.begins = Begins::Unrepeatable;
    let mut late = Client::greeted(&mut hub);

    assert!(runs(&mut late, &mut hub, 500, &numbered()), "its driver repeats what was refused elsewhere");
    assert!(!runs(&mut late, &mut hub, 1_000, &rawdoc! { "find": "c" }), "from then on it is as others are");
}

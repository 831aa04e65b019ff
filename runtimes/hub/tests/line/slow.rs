//! Clients that take too long, and what a stranger may announce.

use bson::rawdoc;
use cmap_core::time::Instant;
use cmap_hub::protocol::Ending;

use super::{Client, HELLO, Hub, at};

#[test]
fn a_client_that_says_nothing_is_hung_up_on_after_ten_seconds_x_136() {
    let mut client = Client::new();

    assert_eq!(client.line.poll_timeout(), Some(Instant::ORIGIN + HELLO));
    assert_eq!(client.wait(at(9_999)).ending, None);
    assert_eq!(client.wait(at(10_000)).ending, Some(Ending::TooSlow));
}

#[test]
fn one_that_does_not_log_in_gets_no_more_time_by_saying_hello_again_x_136() {
    let (mut hub, mut client) = (Hub::with_user(), Client::new());

    for millis in [0, 5_000, 9_000] {
        client.say(&mut hub, at(millis), "admin", &rawdoc! { "hello": 1, "loadBalanced": true });
    }

    assert_eq!(client.wait(at(10_000)).ending, Some(Ending::TooSlow));
}

#[test]
fn a_message_that_has_begun_must_go_on_and_a_command_takes_the_time_it_takes_x_136() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    assert_eq!(client.line.poll_timeout(), None, "an idle client may be idle");
    let message = client.message("test", &rawdoc! { "find": "c" });

    client.send(&mut hub, at(60_000), &message[..20]);
    assert_eq!(client.line.poll_timeout(), Some(at(70_000)));
    assert_eq!(client.send(&mut hub, at(65_000), &message[20..]).runs.len(), 1);

    assert_eq!(client.line.poll_timeout(), None);
}

#[test]
fn a_stranger_cannot_announce_a_large_message_x_136() {
    let header = |length: i32| [&length.to_le_bytes()[..], &[0; 8], &2013_i32.to_le_bytes()].concat();
    for (hub, length, is_too_large) in
        [(Hub::with_user as fn() -> Hub, 4_097, true), (Hub::open, 4_097, true), (Hub::with_user, 4_096, false)]
    {
        let ending = Client::new().send(&mut hub(), at(0), &header(length)).ending;
        assert_eq!(matches!(ending, Some(Ending::Fault(_))), is_too_large, "{length}");
    }

    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    assert_eq!(client.send(&mut hub, at(0), &header(48_000_000)).ending, None, "one that may run commands");
}

//! Transactions that end by an error.

use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf, cstr, rawdoc};
use cmap_core::topology::ServerSelector;
use cmap_hub::protocol::{Refusal, Route};

use super::{Client, Hub, at, server};

/// A command of a transaction, with the number 3.
fn part(mut command: RawDocumentBuf) -> RawDocumentBuf {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    command.append(cstr!("lsid"), rawdoc! { "id": id });
    command.append(cstr!("txnNumber"), 3_i64);
    command.append(cstr!("autocommit"), false);
    command
}

#[test]
fn a_transaction_whose_server_says_that_it_is_aborted_is_not_held_any_more_x_137() {
    let mut hub = Hub::open();
    let first = || part(rawdoc! { "insert": "c", "startTransaction": true });
    let next = || part(rawdoc! { "insert": "c" });
    let error = || rawdoc! { "ok": 0, "code": 112, "errorLabels": ["TransientTransactionError"] };
    for (commands, reply) in [
        (vec![first()], error()),
        (vec![first(), next()], error()),
        (vec![first(), next()], rawdoc! { "ok": 0, "code": 251 }),
    ] {
        let mut client = Client::greeted(&mut hub);
        let (last, before) = commands.split_last().unwrap();
        for command in before {
            client.say(&mut hub, at(0), "d", command);
            client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });
        }
        client.say(&mut hub, at(0), "d", last);

        let done = client.reply(&mut hub, at(0), &reply);

        assert!(client.line.is_idle() && done.cleaned_up.is_empty(), "{reply:?}");
        let done = client.say(&mut hub, at(0), "admin", &part(rawdoc! { "abortTransaction": 1 }));
        assert_eq!(done.runs[0].route, Route::Select(ServerSelector::Writable), "as one that is not known");
    }
}

#[test]
fn a_transaction_that_the_hub_calls_aborted_is_aborted_upstream_x_137() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    client.say(&mut hub, at(0), "d", &part(rawdoc! { "insert": "c", "startTransaction": true }));
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });
    client.say(&mut hub, at(0), "d", &part(rawdoc! { "insert": "c" }));
    let lost = rawdoc! { "ok": 0, "code": 6, "errorLabels": ["TransientTransactionError"] };

    hub.with(|around| client.line.handle_reply(at(0), None, &lost, false, around));

    let mut done = client.drain();
    let (_, aborted) = done.cleaned_up.remove(0).take();
    assert_eq!((aborted[0].number, &aborted[0].server), (3, &Some(server())));
    assert!(client.line.is_idle());
}

#[test]
fn a_transaction_of_which_the_hub_refuses_a_command_goes_on_x_135() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    client.say(&mut hub, at(0), "d", &part(rawdoc! { "insert": "c", "startTransaction": true }));
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });
    client.say(&mut hub, at(0), "d", &part(rawdoc! { "insert": "c" }));
    let overload = Refusal::overloaded("later", Duration::from_millis(100)).reply();

    hub.with(|around| client.line.handle_reply(at(0), None, &overload, false, around));

    assert!(client.drain().cleaned_up.is_empty() && !client.line.is_idle());
}

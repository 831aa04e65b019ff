//! What a user sees and ends of what runs.

use std::sync::Arc;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};
use cmap_hub::protocol::{Operation, OperationId};

use super::{Client, Hub, at, code, server};

#[test]
fn an_operation_that_is_killed_ends_with_its_transaction_x_138() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let session = [7; 16];
    let insert = rawdoc! {
        "insert": "c", "lsid": { "id": Binary { subtype: BinarySubtype::Uuid, bytes: session.to_vec() } },
        "txnNumber": 3_i64, "autocommit": false, "startTransaction": true,
    };
    client.say(&mut hub, at(0), "d", &insert);
    client.line.handle_sent(&server());

    hub.with(|around| client.line.handle_kill(at(0), Some((&session, &*server())), around));

    assert_eq!(code(&client.drain()), Some(11_601));
    assert!(client.line.is_idle(), "its session was killed upstream");
}

#[test]
fn what_is_asked_of_current_op_is_known_or_refused_x_138() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let mut long_filter = rawdoc! { "currentOp": 1 };
    long_filter.append(bson::raw::CString::try_from("x".repeat(1_000_000)).unwrap(), 1);

    for (database, command, expected) in [
        ("admin", rawdoc! { "currentOp": 1, "$all": true }, None),
        ("admin", rawdoc! { "currentOp": 1, "secs_running": { "$gt": 3 } }, Some(72)),
        ("admin", long_filter, Some(72)),
        ("test", rawdoc! { "currentOp": 1 }, Some(13)),
        ("admin", rawdoc! { "killOp": 1 }, Some(9)),
        ("admin", rawdoc! { "killOp": 1, "op": 5 }, Some(13)),
        ("test", rawdoc! { "killOp": 1, "op": 5 }, Some(13)),
    ] {
        let done = client.say(&mut hub, at(0), database, &command);
        assert_eq!(code(&done), expected, "{command:?}");
        assert!(done.replies[0].as_bytes().len() < 1_000, "{done:?}");
    }
}

#[test]
fn what_runs_is_shown_with_the_front_of_a_long_name_x_138() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let name = "é".repeat(1_000_000);
    let done = client.say(&mut hub, at(0), "d", &rawdoc! { "find": name });
    let request = Arc::clone(&done.runs[0].request);
    let (id, user, took) = (OperationId(1), "".into(), Duration::ZERO);
    hub.operations.0.push(Operation { id, user, connection: 1, request, took, server: None });

    let done = Client::greeted(&mut hub).say(&mut hub, at(0), "admin", &rawdoc! { "currentOp": 1 });

    assert_eq!(code(&done), None);
    assert!(done.replies[0].as_bytes().len() < 2_000, "{} bytes", done.replies[0].as_bytes().len());
}

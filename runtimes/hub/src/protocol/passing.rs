//! What upstream's replies become on their way to the client.
//!
//! Almost all of them pass as they are. An error that speaks of the state of one server (a failover, a shutdown) is about a server
//! that the client does not know: a driver would take it for the hub's, and clear its pool of good connections. So it is replaced by
//! one that lets the driver repeat this operation, where that is safe. Servers since MongoDB 4.4 say by labels where it is (RTY-5), and
//! nothing is added to those; for an older one the hub says it by the code (RTY-6).

use std::borrow::Cow;

use bson::raw::CStr;
use bson::{RawBson, RawDocument, RawDocumentBuf, cstr};
use cmap_core::retry::ErrorLabel;
use cmap_core::retry::failure::WRITE_CODES;
use cmap_core::server::StateChange;
use cmap_core::wire::{CommandReply, ServerError};

use super::refusal::{RESUMABLE, Refusal};
use super::request::{Part, Request};

/// What the client gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Passed<'r> {
    /// The reply.
    pub reply: Cow<'r, RawDocument>,
    /// Whether the command succeeded.
    pub ok: bool,
}

/// The wire version of MongoDB 4.4, whose servers label their errors themselves.
const LABELS_ITS_ERRORS: i32 = 9;

/// The client's reply for one that a server of this wire version has given.
pub fn pass<'r>(request: &Request, reply: &'r RawDocument, wire_version: i32) -> Passed<'r> {
    let read = CommandReply::read(reply);
    if let Some(error) = read.failure() {
        if StateChange::of(error.code, &error.message).is_none() {
            return Passed { reply: Cow::Borrowed(reply), ok: false };
        }
        let refusal = Refusal::unreachable(format!("the server upstream has changed its state: {error}"));
        let mut refusal = refusal.resuming_change_streams(error.labels.iter().any(|label| label == RESUMABLE));
        for label in ErrorLabel::ALL.into_iter().filter(|label| has_label(request, &error, *label, wire_version)) {
            refusal = refusal.with_label(label);
        }
        let mut replaced = refusal.reply();
        // The client's view of time goes on.
        for name in ["$clusterTime", "operationTime"] {
            if let (Ok(Some(value)), Ok(key)) = (reply.get(name), <&bson::raw::CStr>::try_from(name)) {
                replaced.append(key, value);
            }
        }
        return Passed { reply: Cow::Owned(replaced), ok: false };
    }
    match read.write_concern_failure() {
        Some(error) if StateChange::of(error.code, &error.message).is_some() => {
            Passed { reply: Cow::Owned(with_other_concern_error(reply)), ok: true }
        }
        Some(_) | None => Passed { reply: Cow::Borrowed(reply), ok: true },
    }
}

fn has_label(request: &Request, error: &ServerError, label: ErrorLabel, wire_version: i32) -> bool {
    let is_meant = label == ErrorLabel::RetryableWriteError
        && wire_version < LABELS_ITS_ERRORS
        && request.is_retryable_write()
        && error.code.is_some_and(|code| WRITE_CODES.contains(&code));
    is_meant || error.labels.iter().any(|own| own == label.name())
}

/// The error of a command that no server has answered, with the labels by which the driver knows what it may do.
pub(crate) fn unanswered(request: &Request, message: String) -> Refusal {
    // A driver that has lost its server begins a change stream anew.
    let refusal = Refusal::unreachable(message).resuming_change_streams(request.name == "getMore");
    match request.part {
        Some(Part::Starts | Part::Continues) => refusal.with_label(ErrorLabel::TransientTransactionError),
        _ if request.is_retryable_write() => refusal.with_label(ErrorLabel::RetryableWriteError),
        _ => refusal,
    }
}

/// The reply, with a write concern error whose code names no server's state.
fn with_other_concern_error(reply: &RawDocument) -> RawDocumentBuf {
    let mut replaced = RawDocumentBuf::new();
    for (key, value) in readable_fields(reply) {
        match (key.as_str(), value) {
            ("topologyVersion", _) => {}
            ("writeConcernError", RawBson::Document(error)) => {
                let mut other = RawDocumentBuf::new();
                for (key, value) in readable_fields(&error) {
                    match key.as_str() {
                        "code" => other.append(cstr!("code"), 6),
                        "codeName" => other.append(cstr!("codeName"), "HostUnreachable"),
                        _ => other.append(key, value),
                    }
                }
                replaced.append(key, other);
            }
            (_, value) => replaced.append(key, value),
        }
    }
    replaced
}

/// The fields of a reply, with the replacement character for anything that is not UTF-8: servers have cut messages in the middle of a
/// character, and the fields behind such a one count as well.
pub(super) fn readable_fields(reply: &RawDocument) -> impl Iterator<Item = (&CStr, RawBson)> {
    reply.iter_elements().filter_map(|field| {
        let field = field.ok()?;
        Some((field.key(), field.value_utf8_lossy().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use bson::{RawArrayBuf, rawdoc};
    use cmap_core::time::Instant;
    use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};

    use super::super::request::session_document;
    use super::*;

    const NEW: i32 = LABELS_ITS_ERRORS;

    fn request(mut body: RawDocumentBuf, transaction: bool) -> Request {
        body.append(cstr!("lsid"), session_document(&[1; 16]));
        body.append(cstr!("txnNumber"), 1_i64);
        if transaction {
            body.append(cstr!("autocommit"), false);
        }
        body.append(cstr!("$db"), "d");
        let mut out = Vec::new();
        MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, &body, &[], &Limits::DEFAULT)
            .unwrap()
            .finish();
        Request::read(&out, &Limits::DEFAULT, Instant::ORIGIN).unwrap()
    }

    fn labels(reply: &RawDocument) -> Vec<String> {
        let labels = reply.get_array("errorLabels").unwrap();
        labels.into_iter().map(|label| label.unwrap().as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_state_change_becomes_an_error_of_its_operation_alone_x_134() {
        for (request, label) in [
            (request(rawdoc! { "insert": "c" }, false), "RetryableWriteError"),
            (request(rawdoc! { "insert": "c" }, true), "TransientTransactionError"),
            (request(rawdoc! { "commitTransaction": 1 }, true), "RetryableWriteError"),
        ] {
            let error = rawdoc! {
                "ok": 0, "code": 10107, "errmsg": "not primary", "errorLabels": [label],
                "operationTime": bson::Timestamp { time: 5, increment: 1 },
            };

            let passed = pass(&request, &error, NEW);

            assert_eq!((passed.reply.get_i32("code").unwrap(), passed.ok), (6, false));
            assert_eq!(labels(&passed.reply), [label]);
            assert!(passed.reply.get_timestamp("operationTime").is_ok());
            assert_eq!(StateChange::of(Some(6), passed.reply.get_str("errmsg").unwrap()), None);
        }
    }

    #[test]
    fn a_change_stream_goes_on_after_a_lost_server_and_where_its_server_says_so_cs_10() {
        let error = |labels: &[&str]| {
            let mut error = rawdoc! { "ok": 0, "code": 10107, "errmsg": "not primary" };
            let mut list = RawArrayBuf::new();
            labels.iter().for_each(|label| list.push(*label));
            error.append(cstr!("errorLabels"), list);
            error
        };
        let get_more = request(rawdoc! { "getMore": 1_i64, "collection": "c" }, false);
        let find = request(rawdoc! { "find": "c" }, false);

        assert_eq!(labels(&pass(&get_more, &error(&[RESUMABLE]), NEW).reply), [RESUMABLE]);
        assert!(pass(&get_more, &error(&[]), NEW).reply.get_array("errorLabels").is_err());
        assert!(unanswered(&get_more, String::new()).resumes_change_streams);
        assert!(!unanswered(&find, String::new()).resumes_change_streams);
    }

    #[test]
    fn a_write_may_be_repeated_if_its_server_says_so_or_is_too_old_to_say_it_rty_5_rty_6() {
        let error = rawdoc! { "ok": 0, "code": 11600, "errmsg": "shutting down" };
        let write = request(rawdoc! { "insert": "c" }, false);

        assert!(pass(&write, &error, NEW).reply.get_array("errorLabels").is_err());
        assert_eq!(labels(&pass(&write, &error, 8).reply), ["RetryableWriteError"]);
    }

    #[test]
    fn so_does_one_in_a_write_concern_error() {
        let reply = rawdoc! { "ok": 1, "n": 1, "writeConcernError": { "code": 91, "errmsg": "shutting down" } };

        let passed = pass(&request(rawdoc! { "insert": "c" }, false), &reply, NEW);

        assert_eq!(
            &*passed.reply,
            &*rawdoc! { "ok": 1, "n": 1, "writeConcernError": { "code": 6, "errmsg": "shutting down" } }
        );
    }

    #[test]
    fn a_message_that_was_cut_in_the_middle_of_a_character_hides_no_field_behind_it() {
        let error = rawdoc! { "errmsg": "shutting d?", "code": 91 };
        let mut bytes = rawdoc! { "ok": 1, "writeConcernError": error, "n": 1 }.into_bytes();
        let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
        bytes[at] = 0xc3;
        let reply = RawDocumentBuf::from_bytes(bytes).unwrap();

        let passed = pass(&request(rawdoc! { "insert": "c" }, false), &reply, NEW);

        let error = passed.reply.get_document("writeConcernError").unwrap();
        assert_eq!((error.get_i32("code").unwrap(), passed.reply.get_i32("n").unwrap()), (6, 1));
    }

    #[test]
    fn everything_else_passes_as_it_is() {
        for reply in [
            rawdoc! { "ok": 1, "cursor": { "id": 5_i64 }, "$clusterTime": {} },
            rawdoc! { "ok": 0, "code": 11000, "errmsg": "duplicate" },
            rawdoc! { "ok": 0, "code": 462, "errmsg": "x", "errorLabels": ["SystemOverloadedError"], "baseBackoffMS": 5 },
        ] {
            assert!(
                matches!(pass(&request(rawdoc! { "find": "c" }, false), &reply, NEW).reply, Cow::Borrowed(_)),
                "{reply:?}"
            );
        }
    }
}

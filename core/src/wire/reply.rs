//! The success or failure that a reply reports.
//!
//! Servers, proxies and other products write these fields in many types: `ok` as a double, an integer or a boolean,
//! codes as doubles. [`CommandReply::read`] goes over the reply's own fields once, takes those that make sense and
//! ignores the rest, so a reply can be odd but never an error here.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use core::time::Duration;

use bson::raw::RawElement;
use bson::{RawArray, RawBson, RawBsonRef, RawDocument};
use serde::{Deserialize, Serialize};

use super::document::{Element, elements};
use super::write_failure::WriteFailure;
use crate::error_text::{presentable, readable_debug};
use crate::topology_version::TopologyVersion;

/// The code of an operation that exceeded the server's time limit for it.
pub(super) const MAX_TIME_MS_EXPIRED: i32 = 50;

/// The most labels that an error keeps. A server gives a handful.
const MAX_LABELS: usize = 64;

/// The most bytes that they have together.
const MAX_LABELS_LENGTH: usize = 8 * 1024;

/// The outcome of a command.
#[derive(Clone, Debug)]
pub struct CommandReply<'a> {
    /// Whether the command succeeded: `ok` is true, or a finite number other than zero. Any other value means failure.
    pub ok: bool,
    /// The fields of an error, if there are any. They may be present although the command succeeded.
    pub error: ErrorFields<'a>,
    /// The failure to satisfy a write concern, which does not fail the command.
    pub write_concern_error: Option<ErrorFields<'a>>,
    /// The server's version of its own topology, which orders errors and hellos.
    pub topology_version: Option<TopologyVersion>,
    write_errors: Option<&'a RawArray>,
    n: Option<i64>,
}

/// The fields that describe an error.
#[derive(Clone, Debug, Default)]
pub struct ErrorFields<'a> {
    /// `code`.
    pub code: Option<i32>,
    /// `codeName`.
    pub code_name: Option<Cow<'a, str>>,
    /// `errmsg`, with the replacement character for anything that is not UTF-8.
    pub message: Option<Cow<'a, str>>,
    labels: Option<&'a RawArray>,
    base_backoff_ms: Option<i64>,
}

/// An error that a server replied, to keep and to pass on.
///
/// Its texts are the server's, made safe for a log and a terminal: control characters are escaped, and each is cut at 8
/// KiB. Of the labels the first 64 are kept, up to 8 KiB together.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerError {
    /// The code, if there is one.
    pub code: Option<i32>,
    /// The code's name, if there is one.
    pub code_name: Option<String>,
    /// The server's message.
    pub message: String,
    /// errorLabels.
    pub labels: Vec<String>,
    /// The server's version of its topology at that moment.
    pub topology_version: Option<TopologyVersion>,
    /// `baseBackoffMS`, if it is greater than zero.
    pub base_backoff_ms: Option<NonZeroU32>,
}

readable_debug!(ServerError);

impl<'a> CommandReply<'a> {
    /// Reads the body of a reply.
    pub fn read(body: &'a RawDocument) -> Self {
        let mut reply = Self {
            ok: false,
            error: ErrorFields::default(),
            write_concern_error: None,
            topology_version: None,
            write_errors: None,
            n: None,
        };
        if let Some(ok) = verdict(body) {
            reply.ok = ok;
            return reply;
        }
        for element in body.iter_elements().map_while(Result::ok) {
            match element.key().as_str() {
                "ok" => reply.ok = element.value().is_ok_and(is_success),
                "topologyVersion" => reply.topology_version = document(&element).and_then(TopologyVersion::read),
                "writeConcernError" => reply.write_concern_error = document(&element).map(ErrorFields::read),
                "writeErrors" => reply.write_errors = element.value().ok().and_then(RawBsonRef::as_array),
                "n" => reply.n = element.value().ok().and_then(integer),
                _ => reply.error.take(&element),
            }
        }
        reply
    }

    /// The error, if the command failed.
    pub fn failure(&self) -> Option<ServerError> {
        (!self.ok).then(|| self.error.to_error(self.topology_version))
    }

    /// The write concern error, if there is one, as an error. Its labels are those of the whole reply, too.
    pub fn write_concern_failure(&self) -> Option<ServerError> {
        let mut error = self.write_concern_error.as_ref()?.to_error(self.topology_version);
        error.labels = kept(self.write_concern_error.iter().chain([&self.error]).flat_map(ErrorFields::labels));
        error.base_backoff_ms = error.base_backoff_ms.or_else(|| self.error.base_backoff());
        Some(error)
    }

    /// The writes that failed, and the write concern that was not satisfied, though the command succeeded.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        let write_concern = self.write_concern_failure();
        let labels = write_concern.as_ref().map(|error| error.labels.clone());
        let labels = labels.unwrap_or_else(|| kept(self.error.labels()));
        self.ok.then(|| WriteFailure::new(self.write_errors, write_concern, self.n, labels)).flatten()
    }

    /// Whether the server exceeded its time limit: for the command, one of its writes, or its write concern. The code
    /// alone decides (CSOT-15).
    pub fn is_timeout(&self) -> bool {
        let writes = values(self.write_errors).filter_map(RawBsonRef::as_document);
        let codes = writes.map(|error| ErrorFields::read(error).code);
        codes
            .chain([self.error.code, self.write_concern_error.as_ref().and_then(|error| error.code)])
            .any(|code| code == Some(MAX_TIME_MS_EXPIRED))
    }
}

impl<'a> ErrorFields<'a> {
    pub(super) fn read(document: &'a RawDocument) -> Self {
        let mut fields = Self::default();
        for element in document.iter_elements().map_while(Result::ok) {
            fields.take(&element);
        }
        fields
    }

    fn take(&mut self, element: &RawElement<'a>) {
        match element.key().as_str() {
            "code" => self.code = element.value().ok().and_then(integer).and_then(|code| i32::try_from(code).ok()),
            "codeName" => self.code_name = text(element),
            "errmsg" => self.message = text(element),
            "errorLabels" => self.labels = element.value().ok().and_then(RawBsonRef::as_array),
            "baseBackoffMS" => self.base_backoff_ms = element.value().ok().and_then(integer),
            _ => {}
        }
    }

    /// `errorLabels`.
    pub fn labels(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        values(self.labels).filter_map(RawBsonRef::as_str)
    }

    /// Whether one of the labels is `label`.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels().any(|own| own == label)
    }

    fn base_backoff(&self) -> Option<NonZeroU32> {
        let millis = self.base_backoff_ms.filter(|millis| *millis > 0)?;
        NonZeroU32::new(u32::try_from(millis).unwrap_or(u32::MAX))
    }

    pub(super) fn to_error(&self, topology_version: Option<TopologyVersion>) -> ServerError {
        ServerError {
            code: self.code,
            code_name: self.code_name.as_deref().map(|name| presentable(name).into_owned()),
            message: presentable(self.message.as_deref().unwrap_or_default()).into_owned(),
            labels: kept(self.labels()),
            topology_version,
            base_backoff_ms: self.base_backoff(),
        }
    }
}

impl TopologyVersion {
    /// Reads the document `topologyVersion`.
    pub fn read(document: &RawDocument) -> Option<Self> {
        let process_id = document.get("processId").ok()??.as_object_id()?.bytes();
        let counter = integer(document.get("counter").ok()??)?;
        Some(Self { process_id, counter })
    }
}

impl ServerError {
    /// The pause that an overloaded server asks for, to be doubled with each retry (BP-3).
    pub fn base_backoff(&self) -> Option<Duration> {
        self.base_backoff_ms.map(|millis| Duration::from_millis(millis.get().into()))
    }

    /// Whether the server exceeded its time limit; the code alone decides (CSOT-15).
    pub fn is_timeout(&self) -> bool {
        self.code == Some(MAX_TIME_MS_EXPIRED)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.message.is_empty() { "the server gave no reason" } else { &self.message })?;
        match (self.code, &self.code_name) {
            (Some(code), Some(name)) => write!(f, " ({code}, {name})"),
            (Some(code), None) => write!(f, " ({code})"),
            (None, Some(name)) => write!(f, " ({name})"),
            (None, None) => Ok(()),
        }
    }
}

impl core::error::Error for ServerError {}

/// Copies the first of a server's labels, up to the limits of an error.
fn kept<'l>(labels: impl Iterator<Item = &'l str>) -> Vec<String> {
    let mut left = MAX_LABELS_LENGTH;
    let presentable = labels.take(MAX_LABELS).map(|label| presentable(label).into_owned());
    let fitting = presentable.map_while(|label| {
        left = left.checked_sub(label.len())?;
        Some(label)
    });
    fitting.collect()
}

/// The value of `ok`, if `body` has no other field that is read here. Most replies have none, and then this is all that
/// has to be read of them.
fn verdict(body: &RawDocument) -> Option<bool> {
    let mut ok = false;
    for element in elements(body) {
        let element = element.ok()?;
        match element.name {
            b"ok" => ok = is_success_unparsed(&element),
            b"topologyVersion" | b"writeConcernError" | b"writeErrors" | b"code" | b"codeName" | b"errmsg"
            | b"errorLabels" => return None,
            _ => {}
        }
    }
    Some(ok)
}

/// The whole number that `value` is, of any type: some servers and clients send doubles for integers.
pub fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    let double = || {
        let value = value.as_f64()?;
        #[expect(clippy::cast_possible_truncation, reason = "the comparison finds out")]
        let whole = value as i64;
        #[expect(clippy::cast_precision_loss, reason = "a number that loses precision was not whole")]
        let same = whole as f64 == value && whole != i64::MAX;
        same.then_some(whole)
    };
    value.as_i32().map(i64::from).or_else(|| value.as_i64()).or_else(double)
}

/// Whether an `ok` of this value says that the command succeeded.
fn is_success(ok: RawBsonRef<'_>) -> bool {
    match (ok.as_bool(), ok.as_f64()) {
        (Some(ok), _) => ok,
        (None, Some(ok)) => is_success_double(ok),
        (None, None) => ok.as_i32().map(i64::from).or_else(|| ok.as_i64()).is_some_and(|ok| ok != 0),
    }
}

/// Whether a value that was not parsed, that of `ok`, means success.
fn is_success_unparsed(ok: &Element<'_>) -> bool {
    match ok.tag {
        0x01 => ok.value.first_chunk().is_some_and(|bytes| is_success_double(f64::from_le_bytes(*bytes))),
        // A boolean, a 32-bit and a 64-bit integer.
        0x08 | 0x10 | 0x12 => ok.value.iter().any(|byte| *byte != 0),
        _ => false,
    }
}

/// NaN differs from zero, and still means failure.
fn is_success_double(ok: f64) -> bool {
    ok.is_finite() && ok != 0.0
}

/// The values of an array. A text that is not UTF-8 is left out, and hides none that follow.
pub(super) fn values(array: Option<&RawArray>) -> impl Iterator<Item = RawBsonRef<'_>> {
    array.into_iter().flatten().filter_map(Result::ok)
}

fn document<'a>(element: &RawElement<'a>) -> Option<&'a RawDocument> {
    element.value().ok().and_then(RawBsonRef::as_document)
}

/// Text, with the replacement character for anything that is not UTF-8: servers have cut messages in the middle of a
/// character.
fn text<'a>(element: &RawElement<'a>) -> Option<Cow<'a, str>> {
    match element.value() {
        Ok(value) => value.as_str().map(Cow::Borrowed),
        Err(_) => match element.value_utf8_lossy() {
            Ok(RawBson::String(text)) => Some(Cow::Owned(text)),
            Ok(_) | Err(_) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bson::oid::ObjectId;
    use bson::{Decimal128, RawDocumentBuf, rawdoc};

    use super::*;

    #[test]
    fn success_has_many_types() {
        for ok in [rawdoc! { "ok": 1.0 }, rawdoc! { "ok": 1 }, rawdoc! { "ok": 1_i64 }, rawdoc! { "ok": true }] {
            assert!(CommandReply::read(&ok).ok, "{ok:?}");
            assert_eq!(CommandReply::read(&ok).failure(), None);
            // The same reply, with an additional field that is read.
            let mut more = ok.clone();
            more.append(bson::cstr!("code"), 1);
            assert!(CommandReply::read(&more).ok, "{more:?}");
        }
        for failure in [
            rawdoc! {},
            rawdoc! { "ok": 0.0 },
            rawdoc! { "ok": -0.0 },
            rawdoc! { "ok": 0_i64 },
            rawdoc! { "ok": false },
            rawdoc! { "ok": 1, "n": 1, "ok": 0 },
            rawdoc! { "ok": "1", "ok ": 1 },
            rawdoc! { "ok": { "ok": 1 } },
            rawdoc! { "ok": [1] },
            rawdoc! { "ok": null },
            rawdoc! { "ok": f64::NAN },
            rawdoc! { "ok": -f64::NAN },
            rawdoc! { "ok": f64::INFINITY },
            rawdoc! { "ok": f64::NEG_INFINITY },
        ] {
            assert!(!CommandReply::read(&failure).ok, "{failure:?}");
            assert!(CommandReply::read(&failure).failure().is_some());
            // The same reply, with an additional field that is read.
            let mut more = failure.clone();
            more.append(bson::cstr!("code"), 1);
            assert!(!CommandReply::read(&more).ok, "{more:?}");
        }
    }

    #[test]
    fn a_double_that_is_no_whole_number_of_64_bits_is_no_integer() {
        let integer = |double: f64| integer(RawBsonRef::Double(double));

        for double in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5, 1e300, -1e300, 9_223_372_036_854_775_808.0] {
            assert_eq!(integer(double), None, "{double}");
        }
        assert_eq!((integer(-0.0), integer(1e15)), (Some(0), Some(1_000_000_000_000_000)));
    }

    #[test]
    fn a_failure_is_read_in_full() {
        let process = ObjectId::from_bytes([7; 12]);
        let body = rawdoc! {
            "topologyVersion": { "processId": process, "counter": 3_i64 },
            "ok": 0.0,
            "errmsg": "not primary",
            "code": 10107.0,
            "codeName": "NotWritablePrimary",
            "errorLabels": ["RetryableWriteError", 5, "RetryableError"],
        };

        let reply = CommandReply::read(&body);
        let error = reply.failure().unwrap();

        assert!(reply.error.has_label("RetryableError") && !reply.error.has_label("5"));
        assert_eq!(error.labels, ["RetryableWriteError", "RetryableError"]);
        assert_eq!(error.topology_version, Some(TopologyVersion { process_id: [7; 12], counter: 3 }));
        assert_eq!(alloc::format!("{error}"), "not primary (10107, NotWritablePrimary)");
    }

    #[test]
    fn a_label_that_is_not_utf8_hides_none_behind_it() {
        let mut bytes = rawdoc! { "ok": 0, "errorLabels": ["?", "RetryableError"] }.into_bytes();
        let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
        bytes[at] = 0xff;
        let body = RawDocumentBuf::from_bytes(bytes).unwrap();

        assert!(CommandReply::read(&body).error.has_label("RetryableError"));
    }

    #[test]
    fn an_overloaded_server_may_say_how_long_to_pause_bp_3() {
        let pause = |millis: RawBson| {
            let mut body = rawdoc! { "ok": 0, "code": 462 };
            body.append(bson::cstr!("baseBackoffMS"), millis);
            CommandReply::read(&body).failure().unwrap().base_backoff()
        };

        assert_eq!(pause(RawBson::Int32(250)), Some(Duration::from_millis(250)));
        assert_eq!(pause(RawBson::Double(250.0)), Some(Duration::from_millis(250)));
        for nothing in [RawBson::Int32(0), RawBson::Int64(-1), RawBson::String("250".into())] {
            assert_eq!(pause(nothing), None);
        }
    }

    #[test]
    fn a_write_concern_error_does_not_fail_the_command() {
        let body = rawdoc! {
            "ok": 1, "n": 1,
            "writeConcernError": { "code": 91, "codeName": "ShutdownInProgress", "errmsg": "shutting down" },
            "errorLabels": ["RetryableWriteError"],
        };

        let reply = CommandReply::read(&body);

        assert_eq!(reply.failure(), None);
        let error = reply.write_concern_failure().unwrap();
        assert_eq!((error.code, error.labels), (Some(91), vec![String::from("RetryableWriteError")]));
    }

    #[test]
    fn a_timeout_is_told_by_its_code_wherever_it_stands_csot_15() {
        for timeout in [
            rawdoc! { "ok": 0, "code": 50 },
            rawdoc! { "ok": 1, "writeConcernError": { "code": 50 } },
            rawdoc! { "ok": 1, "writeErrors": [{ "index": 0, "code": 11000 }, { "index": 1, "code": 50_i64 }] },
        ] {
            assert!(CommandReply::read(&timeout).is_timeout(), "{timeout:?}");
        }
        for other in [
            rawdoc! { "ok": 0, "code": 89, "codeName": "MaxTimeMSExpired", "errmsg": "operation exceeded time limit" },
            rawdoc! { "ok": 1, "writeErrors": [50, { "code": 11000 }] },
            rawdoc! { "ok": 1 },
        ] {
            assert!(!CommandReply::read(&other).is_timeout(), "{other:?}");
        }
    }

    #[test]
    fn an_error_has_no_control_characters_of_the_servers() {
        let body = rawdoc! {
            "ok": 0, "errmsg": "gone\n2030-01-01 INFO all is well", "codeName": "\u{1b}[2J", "errorLabels": ["a\rb"],
            "writeConcernError": { "code": 64, "errmsg": "\u{9b}2J" },
        };

        let reply = CommandReply::read(&body);

        let error = reply.failure().unwrap();
        assert_eq!(alloc::format!("{error}"), r"gone\n2030-01-01 INFO all is well (\u{1b}[2J)");
        assert_eq!(error.labels, [r"a\rb"]);
        let error = reply.write_concern_failure().unwrap();
        assert_eq!((error.message.as_str(), error.labels), (r"\u{9b}2J", vec![String::from(r"a\rb")]));
    }

    #[test]
    fn an_error_keeps_8_kib_of_each_of_the_servers_texts() {
        let long = "x".repeat(1_000_000);
        let body = rawdoc! { "ok": 0, "errmsg": long.as_str(), "codeName": long.as_str() };

        let error = CommandReply::read(&body).failure().unwrap();

        assert_eq!((error.message.len(), error.code_name.map(|name| name.len())), (8192, Some(8192)));
        assert!(error.message.ends_with("x..."), "what was cut says so");
    }

    #[test]
    fn an_error_keeps_64_labels_of_8_kib() {
        let read = |labels: &[&str]| {
            let mut body = rawdoc! { "ok": 0 };
            body.append(bson::cstr!("errorLabels"), labels.iter().copied().collect::<bson::RawArrayBuf>());
            CommandReply::read(&body).failure().unwrap().labels
        };
        let half = "x".repeat(4096);

        assert_eq!(read(&[""; 100_000]).len(), 64);
        assert_eq!(read(&[&half, &half, "more"]).len(), 2);
        assert_eq!(read(&["RetryableError", &"x".repeat(1_000_000)]), ["RetryableError"]);
    }

    #[test]
    fn odd_types_are_ignored() {
        let body = rawdoc! {
            "ok": 0, "code": 1.5, "codeName": 7, "errmsg": { "a": 1 }, "errorLabels": "x",
            "topologyVersion": { "processId": "x", "counter": Decimal128::from_bytes([0; 16]) },
            "writeConcernError": [],
        };

        let reply = CommandReply::read(&body);

        assert!(reply.write_concern_error.is_none());
        let error = reply.failure().unwrap();
        assert_eq!((error.code, error.code_name, error.topology_version), (None, None, None));
        assert_eq!((error.message.as_str(), error.labels.len()), ("", 0));
    }

    #[test]
    fn a_message_that_was_cut_within_a_character_is_read() {
        let mut bytes = rawdoc! { "ok": 0, "errmsg": "th\u{e9}" }.into_bytes();
        let place = bytes.len() - 3;
        bytes[place] = b'\xc3';
        let body = RawDocumentBuf::from_bytes(bytes).unwrap();

        assert_eq!(CommandReply::read(&body).failure().unwrap().message, "th\u{fffd}\u{fffd}");
    }
}

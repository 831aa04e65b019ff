//! The writes of a command that failed although the command itself succeeded: `writeErrors` and `writeConcernError`.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use bson::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::reply::{ErrorFields, MAX_TIME_MS_EXPIRED, ServerError, integer, values};
use crate::error_text::readable_debug;

/// The most write errors that are kept: a command has at most that many writes.
const MAX_ERRORS: usize = 100_000;

/// The most bytes that their texts and details have together; the codes of the others are kept.
const MAX_TEXTS_LENGTH: usize = 256 * 1024;

/// Some writes of a command were not carried out, or not as widely as its write concern asks for. The others were.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct WriteFailure {
    /// The writes that were not carried out, in the server's order.
    pub writes: Vec<WriteError>,
    /// The write concern that was not satisfied: what was written may be lost.
    pub write_concern: Option<Box<ServerError>>,
    /// How many documents were written or matched, as the reply's `n` says.
    pub n: Option<i64>,
    /// errorLabels of the reply and of its write concern.
    pub labels: Vec<String>,
}

readable_debug!(WriteFailure);

/// A write that was not carried out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WriteError {
    /// Its place among the command's documents, updates or deletes, from 0.
    pub index: Option<u32>,
    /// The code, such as 11000 for a duplicate key.
    pub code: Option<i32>,
    /// The server's message. Of very many errors the last ones have none.
    pub message: String,
    /// `errInfo`, as the server wrote it (BW-13): which rule of a validator a document breaks, for example. Of very many errors the last
    /// ones have none.
    pub details: Option<RawDocumentBuf>,
}

impl WriteFailure {
    pub(super) fn new(
        writes: Option<&RawArray>,
        write_concern: Option<ServerError>,
        n: Option<i64>,
        labels: Vec<String>,
    ) -> Option<Self> {
        let mut texts = MAX_TEXTS_LENGTH;
        let documents = values(writes).filter_map(RawBsonRef::as_document);
        let writes: Vec<_> = documents.take(MAX_ERRORS).map(|error| WriteError::read(error, &mut texts)).collect();
        let has_failed = !writes.is_empty() || write_concern.is_some();
        has_failed.then(|| Self { writes, write_concern: write_concern.map(Box::new), n, labels })
    }

    /// Whether the server exceeded its time limit: for one of the writes, or for the write concern (CSOT-15).
    pub fn is_timeout(&self) -> bool {
        self.writes.iter().any(|write| write.code == Some(MAX_TIME_MS_EXPIRED))
            || self.write_concern.as_ref().is_some_and(|error| error.is_timeout())
    }

    /// The code of the first write that failed, or else of the write concern.
    pub fn code(&self) -> Option<i32> {
        let of_write = self.writes.iter().find_map(|write| write.code);
        of_write.or_else(|| self.write_concern.as_ref()?.code)
    }

    /// Whether one of the labels is `label`.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels.iter().any(|own| own == label)
    }
}

impl WriteError {
    /// Reads an error, as long as so many bytes are left for its text and its details.
    pub(crate) fn read(document: &RawDocument, texts_left: &mut usize) -> Self {
        let index = document.get("index").ok().flatten().and_then(integer);
        let error = ErrorFields::read(document).to_error(None);
        let details = document.get_document("errInfo").ok();
        let length = error.message.len() + details.map_or(0, |details| details.as_bytes().len());
        let (message, details) = match texts_left.checked_sub(length) {
            Some(left) => {
                *texts_left = left;
                (error.message, details.map(ToOwned::to_owned))
            }
            None => (String::new(), None),
        };
        Self { index: index.and_then(|index| u32::try_from(index).ok()), code: error.code, message, details }
    }
}

impl fmt::Display for WriteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.writes.as_slice() {
            [] => f.write_str("the writes were carried out")?,
            [write] => write!(f, "a write failed: {write}")?,
            [write, ..] => write!(f, "{} writes failed, the first one: {write}", self.writes.len())?,
        }
        match &self.write_concern {
            Some(error) => write!(f, "; the write concern was not satisfied: {error}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for WriteFailure {}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.message.is_empty() { "the server gave no reason" } else { &self.message })?;
        match (self.index, self.code) {
            (Some(index), Some(code)) => write!(f, " (index {index}, code {code})"),
            (Some(index), None) => write!(f, " (index {index})"),
            (None, Some(code)) => write!(f, " (code {code})"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use bson::{RawArrayBuf, rawdoc};

    use super::*;
    use crate::wire::CommandReply;

    fn failure(body: &RawDocument) -> Option<WriteFailure> {
        CommandReply::read(body).write_failure()
    }

    #[test]
    fn a_write_that_failed_has_its_place_its_code_and_its_reason() {
        let body = rawdoc! { "ok": 1, "n": 1, "writeErrors": [{ "index": 1, "code": 11000, "errmsg": "E11000 duplicate key" }] };

        let failure = failure(&body).unwrap();

        let [write] = failure.writes.as_slice() else { panic!("{failure}") };
        assert_eq!((write.index, write.code, failure.n), (Some(1), Some(11000), Some(1)));
        assert_eq!(failure.to_string(), "a write failed: E11000 duplicate key (index 1, code 11000)");
    }

    #[test]
    fn a_write_concern_that_was_not_satisfied_says_so() {
        let body = rawdoc! {
            "ok": 1, "n": 1, "errorLabels": ["RetryableWriteError"],
            "writeConcernError": { "code": 64, "codeName": "WriteConcernTimeout", "errmsg": "waiting for replication timed out" },
        };

        let failure = failure(&body).unwrap();

        assert_eq!(
            failure.to_string(),
            "the writes were carried out; the write concern was not satisfied: waiting for replication timed out (64, \
             WriteConcernTimeout)"
        );
        assert!(failure.has_label("RetryableWriteError"));
    }

    #[test]
    fn several_failures_are_told_by_the_first() {
        let body = rawdoc! { "ok": 1, "writeErrors": [{ "index": 2, "code": 50 }, { "code": 11000, "errmsg": "b" }] };

        let failure = failure(&body).unwrap();

        assert_eq!(failure.to_string(), "2 writes failed, the first one: the server gave no reason (index 2, code 50)");
        assert!(failure.is_timeout());
    }

    #[test]
    fn a_reply_that_names_no_failure_has_none() {
        for body in [
            rawdoc! { "ok": 1 },
            rawdoc! { "ok": 1, "n": 2, "writeErrors": [] },
            rawdoc! { "ok": 1, "writeErrors": "x", "writeConcernError": 5 },
            // The command as a whole failed, which is another error.
            rawdoc! { "ok": 0, "writeErrors": [{ "index": 0 }] },
        ] {
            assert_eq!(failure(&body), None, "{body:?}");
        }
    }

    #[test]
    fn the_texts_of_very_many_errors_are_bounded_and_their_codes_kept() {
        let long = "x".repeat(8000);
        let error = rawdoc! { "index": 7, "code": 11000, "errmsg": long.as_str() };
        let mut body = rawdoc! { "ok": 1 };
        body.append(bson::cstr!("writeErrors"), core::iter::repeat_n(error, 1000).collect::<RawArrayBuf>());

        let failure = failure(&body).unwrap();

        assert!(failure.writes.iter().map(|write| write.message.len()).sum::<usize>() <= MAX_TEXTS_LENGTH);
        assert!(failure.writes.len() == 1000 && failure.writes.iter().all(|write| write.code == Some(11000)));
    }
}

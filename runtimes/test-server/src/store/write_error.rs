//! Why one write of a command failed while others succeeded: the elements of `writeErrors`.

use bson::{RawBson, RawDocumentBuf};

use super::failure::{CommandFailure, code};
use crate::document::document;

/// A write was not carried out.
#[derive(Debug)]
pub(super) struct WriteFailure(CommandFailure);

impl WriteFailure {
    /// A key that another document has.
    pub(super) fn duplicate(message: String, pattern: RawDocumentBuf, value: RawDocumentBuf) -> Self {
        let details = document! { "keyPattern": pattern, "keyValue": value };
        Self(CommandFailure { details, ..CommandFailure::new(code::DUPLICATE_KEY, message) })
    }

    /// The element of `writeErrors` for the write at `index`; a short one has the code alone.
    pub(super) fn to_document(&self, index: i32, is_short: bool) -> RawDocumentBuf {
        let CommandFailure { code, message, details, .. } = &self.0;
        let mut document = document! { "index": index, "code": *code };
        if is_short {
            document.append(bson::cstr!("errmsg"), "");
            return document;
        }
        details.iter().filter_map(Result::ok).for_each(|(name, value)| document.append(name, value));
        document.append(bson::cstr!("errmsg"), message.as_str());
        document
    }
}

impl WriteFailure {
    /// The document of `bulkWrite`'s results for the write at `index`.
    pub(super) fn to_result(&self, index: RawBson) -> RawDocumentBuf {
        let CommandFailure { code, message, details, .. } = &self.0;
        let mut result = document! { "ok": 0.0, "idx": index, "code": *code, "errmsg": message.as_str() };
        details.iter().filter_map(Result::ok).for_each(|(name, value)| result.append(name, value));
        result.append(bson::cstr!("n"), 0);
        result
    }
}

impl From<CommandFailure> for WriteFailure {
    fn from(failure: CommandFailure) -> Self {
        Self(failure)
    }
}

impl From<WriteFailure> for CommandFailure {
    fn from(WriteFailure(failure): WriteFailure) -> Self {
        failure
    }
}

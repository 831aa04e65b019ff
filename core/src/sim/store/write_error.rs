//! Why one write of a command failed, where others succeeded: the elements of `writeErrors`.

use alloc::string::String;

use bson::RawDocumentBuf;

use super::document::document;
use super::failure::{CommandFailure, code};

/// A write was not carried out.
#[derive(Debug)]
pub(super) struct WriteFailure {
    pub(super) failure: CommandFailure,
    /// The pattern and the value of the key that another document has.
    duplicate: Option<(RawDocumentBuf, RawDocumentBuf)>,
}

impl WriteFailure {
    /// A key that another document has.
    pub(super) fn duplicate(message: String, pattern: RawDocumentBuf, value: RawDocumentBuf) -> Self {
        Self { failure: CommandFailure::new(code::DUPLICATE_KEY, message), duplicate: Some((pattern, value)) }
    }

    /// The element of `writeErrors` for the write at `index`.
    pub(super) fn to_document(&self, index: i32) -> RawDocumentBuf {
        let mut document = document! { "index": index, "code": self.failure.code };
        if let Some((pattern, value)) = &self.duplicate {
            document.append(bson::cstr!("keyPattern"), pattern);
            document.append(bson::cstr!("keyValue"), value);
        }
        document.append(bson::cstr!("errmsg"), self.failure.message.as_str());
        document
    }
}

impl From<CommandFailure> for WriteFailure {
    fn from(failure: CommandFailure) -> Self {
        Self { failure, duplicate: None }
    }
}

impl From<WriteFailure> for CommandFailure {
    fn from(WriteFailure { failure, .. }: WriteFailure) -> Self {
        failure
    }
}

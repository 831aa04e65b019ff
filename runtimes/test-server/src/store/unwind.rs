//! `$unwind`: a document for each element of an array.

use bson::raw::CString;
use bson::{Bson, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::{Arguments, values};
use super::edited::Edited;
use super::failure::{CommandFailure, code};
use super::path::Path;
use super::work::Work;

/// What to unwind.
#[derive(Clone, Debug)]
pub(super) struct Unwind {
    path: Path,
    /// The field that gets the element's index.
    index: Option<CString>,
    /// Whether a document without elements stays.
    keeps_empty: bool,
}

impl Unwind {
    /// Reads the argument of the stage: a path, or a document with it.
    pub(super) fn parse(argument: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        if let Some(path) = argument.as_str() {
            return Ok(Self { path: read_path(path)?, index: None, keeps_empty: false });
        }
        let Some(argument) = argument.as_document() else {
            let message = "expected either a string or an object as specification for $unwind stage";
            return Err(CommandFailure::new(code::INVALID_UNWIND, message));
        };
        let arguments = Arguments::new("$unwind", argument);
        let path = arguments
            .string("path")?
            .ok_or_else(|| CommandFailure::new(code::UNWIND_WITHOUT_PATH, "no path specified to $unwind stage"))?;
        let index = match arguments.string("includeArrayIndex")? {
            None => None,
            Some(name) if name.contains('.') => {
                return Err(CommandFailure::not_supported("a dotted path in $unwind's includeArrayIndex"));
            }
            Some(name) => {
                Some(name.strip_prefix('$').map_or(CString::try_from(name).ok(), |_| None).ok_or_else(|| {
                    let message =
                        format!("includeArrayIndex option to $unwind stage should not be prefixed with a '$': {name}");
                    CommandFailure::new(code::INVALID_UNWIND_INDEX, message)
                })?)
            }
        };
        Ok(Self { path: read_path(path)?, index, keeps_empty: arguments.boolean("preserveNullAndEmptyArrays")? })
    }

    /// Hands out the documents that `document` becomes.
    pub(super) fn run(
        &self,
        document: &RawDocument,
        work: &Work,
        mut out: impl FnMut(RawDocumentBuf) -> Result<(), CommandFailure>,
    ) -> Result<(), CommandFailure> {
        let with_index = |mut document: RawDocumentBuf, index: RawBson| {
            if let Some(name) = &self.index {
                document.append(name, index);
            }
            document
        };
        let value = self.path.get(document, work).filter(|value| value.as_null().is_none());
        let Some(array) = value.and_then(RawBsonRef::as_array) else {
            // A single value is its only element.
            let stays = value.is_some() || self.keeps_empty;
            return if stays { out(with_index(document.to_owned(), RawBson::Null)) } else { Ok(()) };
        };
        let mut edited = Edited::read(document, work)?;
        if array.is_empty() && self.keeps_empty {
            edited.remove(&self.path);
            return out(with_index(edited.to_raw(work)?, RawBson::Null));
        }
        for (index, element) in values(array).enumerate() {
            let element: Bson = edited.owned(&RawBson::from(element), work)?;
            edited.set(&self.path, element)?;
            work.copy(document.as_bytes().len());
            out(with_index(edited.to_raw(work)?, RawBson::Int64(i64::try_from(index).unwrap_or(i64::MAX))))?;
        }
        Ok(())
    }
}

fn read_path(text: &str) -> Result<Path, CommandFailure> {
    let message = format!("path option to $unwind stage should be prefixed with a '$': {text}");
    Path::parse(text.strip_prefix('$').ok_or_else(|| CommandFailure::new(code::UNWIND_PATH_WITHOUT_DOLLAR, message))?)
}

//! A document during an update: values at paths, read, set and removed.

use bson::{Bson, Document, RawBson, RawDocument, RawDocumentBuf};

use super::failure::{CommandFailure, code};
use super::path::{Path, position};

/// How many elements one update may add to arrays because it names an index past their end.
const MAX_PADDING: usize = 1_500_000;

/// A document that is being changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Edited {
    document: Document,
    padding: usize,
}

impl Edited {
    /// The document as it was.
    pub(super) fn read(document: &RawDocument) -> Result<Self, CommandFailure> {
        let document = Document::try_from(document);
        let document = document.map_err(|error| CommandFailure::invalid_bson(format!("{error}")))?;
        Ok(Self { document, padding: 0 })
    }

    /// The document as it is now.
    pub(super) fn to_raw(&self) -> Result<RawDocumentBuf, CommandFailure> {
        RawDocumentBuf::try_from(&self.document).map_err(|error| CommandFailure::invalid_bson(format!("{error}")))
    }

    /// The value at `path`, if there is one.
    pub(super) fn get_mut(&mut self, path: &Path) -> Option<&mut Bson> {
        let (first, rest) = path.parts().split_first()?;
        rest.iter().try_fold(self.document.get_mut(first)?, |value, part| child_mut(value, part))
    }

    /// Removes the value at `path`; in an array, null takes its place.
    pub(super) fn remove(&mut self, path: &Path) -> Option<Bson> {
        let (last, parents) = path.parts().split_last()?;
        let Some((first, rest)) = parents.split_first() else { return self.document.remove(last) };
        let parent = rest.iter().try_fold(self.document.get_mut(first)?, |value, part| child_mut(value, part))?;
        match parent.as_document_mut() {
            Some(document) => document.remove(last),
            None => child_mut(parent, last).map(|value| std::mem::replace(value, Bson::Null)),
        }
    }

    /// Puts a value at `path`, with the documents that are missing on the way.
    pub(super) fn set(&mut self, path: &Path, value: Bson) -> Result<(), CommandFailure> {
        let Some((first, rest)) = path.parts().split_first() else { return Ok(()) };
        let missing = |is_last| if is_last { Bson::Null } else { Bson::Document(Document::new()) };
        let not_viable = |part: &str| {
            let message = format!("Cannot create field '{part}' in the path '{}'", path.parts().join("."));
            CommandFailure::new(code::PATH_NOT_VIABLE, message)
        };
        let mut place = self.document.entry(first.clone()).or_insert(missing(rest.is_empty()));
        for (index, part) in rest.iter().enumerate() {
            let missing = missing(index + 1 == rest.len());
            if let Bson::Document(document) = place {
                place = document.entry(part.clone()).or_insert(missing);
                continue;
            }
            let (array, at) = place.as_array_mut().zip(position(part)).ok_or_else(|| not_viable(part))?;
            if at >= array.len() {
                self.padding = self.padding.saturating_add(at - array.len());
                if self.padding > MAX_PADDING {
                    return Err(CommandFailure::bad_value("can't backfill more than 1500000 elements of arrays"));
                }
                array.resize(at, Bson::Null);
                array.push(missing);
            }
            place = array.get_mut(at).ok_or_else(|| not_viable(part))?;
        }
        *place = value;
        Ok(())
    }
}

/// An owned value.
pub(super) fn owned(value: &RawBson) -> Result<Bson, CommandFailure> {
    Bson::try_from(value.as_raw_bson_ref()).map_err(|error| CommandFailure::invalid_bson(format!("{error}")))
}

/// The field or element of `value` that a part of a path names.
fn child_mut<'a>(value: &'a mut Bson, part: &str) -> Option<&'a mut Bson> {
    if let Bson::Document(document) = value {
        return document.get_mut(part);
    }
    value.as_array_mut()?.get_mut(position(part)?)
}

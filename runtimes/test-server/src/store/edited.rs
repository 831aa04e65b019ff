//! A document during an update: values at paths, read, set and removed.

use bson::{Bson, Document, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::failure::{CommandFailure, code};
use super::nested::count_in;
use super::path::{Path, position};
use super::work::Work;

/// The steps for each value of a document that is changed: it is allocated, copied and freed.
pub(super) const STEPS_PER_VALUE: u64 = 6;

/// How many values a document may have while it is changed: each takes many times the bytes that it has in BSON.
const MAX_VALUES: usize = 1_000_000;
/// How many elements one update may add to arrays because it names an index past their end.
const MAX_PADDING: usize = 1_500_000;

/// A document that is being changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Edited {
    document: Document,
    /// Its values, those that were removed or replaced included.
    values: usize,
    padding: usize,
}

impl Edited {
    /// The document as it was.
    pub(super) fn read(document: &RawDocument, work: &Work) -> Result<Self, CommandFailure> {
        let mut edited = Self::default();
        edited.admit(RawBsonRef::Document(document), work)?;
        let document = Document::try_from(document);
        edited.document = document.map_err(|error| CommandFailure::invalid_bson(format!("{error}")))?;
        Ok(edited)
    }

    /// An owned value, to be put into the document.
    pub(super) fn owned(&mut self, value: &RawBson, work: &Work) -> Result<Bson, CommandFailure> {
        let value = value.as_raw_bson_ref();
        self.admit(value, work)?;
        Bson::try_from(value).map_err(|error| CommandFailure::invalid_bson(format!("{error}")))
    }

    /// Counts the values of a value that is about to become part of the document.
    fn admit(&mut self, value: RawBsonRef<'_>, work: &Work) -> Result<(), CommandFailure> {
        let added = 1 + count_in(value).unwrap_or(0);
        self.values += added;
        work.step(STEPS_PER_VALUE * added as u64);
        work.check()?;
        if self.values > MAX_VALUES {
            let message = format!("a document that is updated has at most {MAX_VALUES} values on this test server");
            return Err(CommandFailure::new(code::EXCEEDED_MEMORY_LIMIT, message));
        }
        Ok(())
    }

    /// The document as it is now.
    pub(super) fn to_raw(&self, work: &Work) -> Result<RawDocumentBuf, CommandFailure> {
        work.step(STEPS_PER_VALUE * self.padding as u64);
        work.check()?;
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

/// The field or element of `value` that a part of a path names.
fn child_mut<'a>(value: &'a mut Bson, part: &str) -> Option<&'a mut Bson> {
    if let Bson::Document(document) = value {
        return document.get_mut(part);
    }
    value.as_array_mut()?.get_mut(position(part)?)
}

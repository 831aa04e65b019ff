//! `min` and `max` of `find`: the part of an index that is read; and `returnKey`, which shows its keys in place of documents.

use bson::{RawBsonRef, RawDocument};

use super::arguments::fields;
use super::collection::Collection;
use super::failure::{CommandFailure, code};
use super::hint::Hint;
use super::index::Index;
use super::projection::Projection;
use super::sort::Sort;
use super::work::Work;

/// The keys between which an index is read.
pub(super) struct Bounds<'a> {
    order: Sort,
    /// The first key that is read.
    min: Option<Vec<RawBsonRef<'a>>>,
    /// The first that is not read any more.
    max: Option<Vec<RawBsonRef<'a>>>,
}

impl<'a> Bounds<'a> {
    /// The bounds in the index that `hint` names.
    pub(super) fn read(
        collection: &Collection,
        hint: Option<RawBsonRef<'_>>,
        min: Option<&'a RawDocument>,
        max: Option<&'a RawDocument>,
    ) -> Result<Option<Self>, CommandFailure> {
        let [min, max] = [min, max].map(|bound| bound.filter(|bound| !bound.is_empty()));
        if min.is_none() && max.is_none() {
            return Ok(None);
        }
        let Some(Hint::Index { index, order }) = Hint::read(collection, hint)? else {
            let message = "When using min()/max() a hint of which index to use must be provided";
            return Err(CommandFailure::new(code::BOUNDS_WITHOUT_HINT, message));
        };
        let keys = |bound: Option<&'a RawDocument>| bound.map(|bound| keys(index, bound)).transpose();
        Ok(Some(Self { min: keys(min)?, max: keys(max)?, order }))
    }

    /// Whether the document's key is between them.
    pub(super) fn hold(&self, document: &RawDocument, work: &Work) -> bool {
        let order = |bound| self.order.compare_with(document, bound, work);
        self.min.as_ref().is_none_or(|min| order(min).is_ge()) && self.max.as_ref().is_none_or(|max| order(max).is_lt())
    }
}

/// The values of a bound, which has the fields of the index in their order.
fn keys<'a>(index: &Index, bound: &'a RawDocument) -> Result<Vec<RawBsonRef<'a>>, CommandFailure> {
    if !fields(bound).map(|(name, _)| name).eq(index.fields()) {
        let message = "The index chosen is not compatible with min/max";
        return Err(CommandFailure::new(code::BOUNDS_OF_OTHER_FIELDS, message));
    }
    Ok(fields(bound).map(|(_, value)| value).collect())
}

/// What `returnKey` leaves of a document: the fields of the index that `hint` names or that has the pattern of `sort`. Without such an
/// index a server chooses one, which is not done here.
pub(super) fn key_projection(
    collection: &Collection,
    hint: Option<RawBsonRef<'_>>,
    sort: Option<&RawDocument>,
) -> Result<Projection, CommandFailure> {
    let index = match Hint::read(collection, hint)? {
        Some(Hint::Index { index, .. }) => Some(index),
        Some(Hint::Natural { .. }) => None,
        None => sort.and_then(|sort| collection.indexes.iter().find(|index| index.has_pattern(sort))),
    };
    let index =
        index.ok_or_else(|| CommandFailure::not_supported("returnKey without the hint or the sort of an index"))?;
    let names: Vec<_> = index.fields().collect();
    if names.iter().any(|name| name.contains('.')) {
        return Err(CommandFailure::not_supported("returnKey of an index with a dotted path"));
    }
    Projection::only(&names)
}

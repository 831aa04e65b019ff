//! Hints: the index in whose order a command meets the documents.
//!
//! No plan is chosen here, and every command scans its collection. What callers see of a hint is kept: documents come in the order
//! of the index's keys, a sparse index lacks those without its fields, and a hint that names no index is an error.

use std::sync::Arc;

use bson::RawBsonRef;

use super::arguments::fields;
use super::collection::{Collection, RecordId};
use super::failure::CommandFailure;
use super::filter::Filter;
use super::index::Index;
use super::meter::Stored;
use super::number::Number;
use super::sort::Sort;
use super::work::Work;

/// Where a command reads the documents.
pub(super) enum Hint<'a> {
    /// In the collection, forwards or backwards.
    Natural { reverse: bool },
    /// In an index, forwards.
    Index { index: &'a Index, order: Sort },
}

impl Collection {
    /// The documents that match, up to `limit`, in the order of the index that `hint` names; without a hint in their natural order.
    pub(super) fn hinted(
        &self,
        hint: Option<RawBsonRef<'_>>,
        filter: &Filter,
        limit: usize,
        work: &Work,
    ) -> Result<Vec<(RecordId, Arc<Stored>)>, CommandFailure> {
        let hint = match Hint::read(self, hint)? {
            None | Some(Hint::Natural { reverse: false }) => return self.matching(filter, limit, work),
            Some(hint) => hint,
        };
        let mut matching = self.matching(filter, usize::MAX, work)?;
        let order = match hint {
            Hint::Natural { reverse } => Sort::Natural { reverse },
            Hint::Index { index, order } => {
                matching.retain(|(_, document)| index.has(document, work));
                order
            }
        };
        order.apply_to(&mut matching, work, |(_, document)| document)?;
        matching.truncate(limit);
        Ok(matching)
    }

    /// Refuses a hint that names no index, or one that cannot be followed here.
    pub(super) fn check_hint(&self, hint: Option<RawBsonRef<'_>>) -> Result<(), CommandFailure> {
        Hint::read(self, hint).map(|_| ())
    }
}

impl<'a> Hint<'a> {
    /// Reads the name of an index, its key pattern, or `$natural`. An empty pattern is no hint.
    pub(super) fn read(
        collection: &'a Collection,
        hint: Option<RawBsonRef<'_>>,
    ) -> Result<Option<Self>, CommandFailure> {
        let Some(hint) = hint else { return Ok(None) };
        let (name, pattern) = (hint.as_str(), hint.as_document());
        let is_empty = match (name, pattern) {
            (None, None) => {
                return Err(CommandFailure::failed_to_parse("hint must be either a string or nested object"));
            }
            (Some(name), _) => name.is_empty(),
            (None, Some(pattern)) => pattern.is_empty(),
        };
        if is_empty {
            return Ok(None);
        }
        if let Some(("$natural", value)) = pattern.and_then(|pattern| fields(pattern).next()) {
            return match Number::read(value).and_then(Number::to_integer) {
                Some(direction @ (1 | -1)) => Ok(Some(Self::Natural { reverse: direction < 0 })),
                _ => Err(CommandFailure::bad_value("$natural hint may only accept 1 or -1")),
            };
        }
        let is_meant = |index: &&Index| {
            name == Some(index.name.as_str()) || pattern.is_some_and(|pattern| index.has_pattern(pattern))
        };
        let index = collection.indexes.iter().find(is_meant).ok_or_else(|| {
            CommandFailure::bad_value(format!(
                "error processing query: ns={}: planner returned error :: caused by :: hint provided does not correspond \
                 to an existing index",
                collection.namespace
            ))
        })?;
        match index.order() {
            Some(order) => Ok(Some(Self::Index { index, order })),
            None => Err(CommandFailure::not_supported("a hint of a partial index, or of one that is not ordered,")),
        }
    }
}

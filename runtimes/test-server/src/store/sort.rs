//! Sorting: by the values at one or more paths, each upwards or downwards.
//!
//! An array sorts as its smallest element in ascending order, and as its greatest in descending order; missing values
//! are null. The sort is stable, so that documents that compare equal stay in their natural order.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use bson::{RawBsonRef, RawDocument};

use super::arguments::fields;
use super::failure::{CommandFailure, code};
use super::meter::Stored;
use super::number::Number;
use super::order::compare;
use super::path::Path;
use super::work::{self, Work, weight};

/// How many paths documents may be sorted by.
pub(super) const MAX_KEYS: usize = 32;

/// An order of documents.
#[derive(Clone, Debug)]
pub(super) enum Sort {
    /// As they were inserted, or the other way round.
    Natural { reverse: bool },
    /// By the values at paths.
    By(Vec<(Path, Direction)>),
}

/// Which way a key sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

impl Sort {
    /// Reads a sort specification.
    pub(super) fn parse(sort: &RawDocument) -> Result<Self, CommandFailure> {
        let mut by = Vec::new();
        for (name, value) in fields(sort) {
            let direction = match Number::read(value).and_then(Number::to_integer) {
                Some(1) => Direction::Up,
                Some(-1) => Direction::Down,
                Some(_) => {
                    let message = "$sort key ordering must be 1 (for ascending) or -1 (for descending)";
                    return Err(CommandFailure::new(code::INVALID_SORT_DIRECTION, message));
                }
                None if value.as_document().is_some() => return Err(CommandFailure::not_supported("$meta in a sort")),
                None => {
                    let message = format!("Illegal key in $sort specification: {name}");
                    return Err(CommandFailure::new(code::INVALID_SORT_KEY, message));
                }
            };
            if name == "$natural" {
                return Ok(Self::Natural { reverse: direction == Direction::Down });
            }
            by.push((Path::parse(name)?, direction));
            if by.len() > MAX_KEYS {
                return Err(CommandFailure::new(code::TOO_MANY_KEYS, "too many compound keys"));
            }
        }
        Ok(if by.is_empty() { Self::Natural { reverse: false } } else { Self::By(by) })
    }

    /// How the document's keys stand to `bound`, which has one for each path.
    pub(super) fn compare_with(&self, document: &RawDocument, bound: &[RawBsonRef<'_>], work: &Work) -> Ordering {
        match self {
            Self::Natural { .. } => Ordering::Equal,
            Self::By(by) => {
                let keys: Vec<_> = by.iter().map(|(path, direction)| key(path, *direction, document, work)).collect();
                work.step(keys.iter().map(|key| weight(*key)).sum());
                compare_keys(by, &keys, bound)
            }
        }
    }

    /// Sorts documents that are in their natural order.
    pub(super) fn apply(&self, documents: &mut Vec<Arc<Stored>>, work: &Work) -> Result<(), CommandFailure> {
        self.apply_to(documents, work, |document| document)
    }

    /// Sorts items that have a document each.
    pub(super) fn apply_to<T: Clone>(
        &self,
        items: &mut Vec<T>,
        work: &Work,
        document: impl Fn(&T) -> &RawDocument,
    ) -> Result<(), CommandFailure> {
        match self {
            Self::Natural { reverse: false } => {}
            Self::Natural { reverse: true } => items.reverse(),
            Self::By(by) => {
                let bytes = items.len() * (by.len() * size_of::<RawBsonRef<'_>>() + size_of::<(&[u8], &T, T)>());
                if bytes > work.bytes {
                    let message = format!("Sort exceeded memory limit of {} bytes", work.bytes);
                    return Err(CommandFailure::new(code::SORT_EXCEEDED_MEMORY_LIMIT, message));
                }
                let mut keys = Vec::with_capacity(items.len() * by.len());
                for item in items.iter() {
                    keys.extend(by.iter().map(|(path, direction)| key(path, *direction, document(item), work)));
                    work.check()?;
                }
                // A sort cannot be interrupted.
                let weights: u64 = keys.iter().map(|key| weight(*key)).sum();
                work.step(weights * work::depth(items.len()));
                work.check()?;
                let mut keyed: Vec<_> = keys.chunks(by.len()).zip(items.iter()).collect();
                keyed.sort_by(|(a, _), (b, _)| compare_keys(by, a, b));
                let sorted = keyed.into_iter().map(|(_, item)| item.clone()).collect();
                *items = sorted;
            }
        }
        Ok(())
    }
}

fn compare_keys(by: &[(Path, Direction)], a: &[RawBsonRef<'_>], b: &[RawBsonRef<'_>]) -> Ordering {
    let orders = by.iter().zip(a.iter().zip(b)).map(|((_, direction), (a, b))| match direction {
        Direction::Up => compare(*a, *b),
        Direction::Down => compare(*b, *a),
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

/// The value that `document` is sorted by.
fn key<'a>(path: &Path, direction: Direction, document: &'a RawDocument, work: &Work) -> RawBsonRef<'a> {
    let mut best: Option<RawBsonRef<'a>> = None;
    let _ = path.visit(document, work, &mut |found| {
        let value = match found.value {
            None => RawBsonRef::Null,
            // Its elements were found before it; an empty array is less than null.
            Some(value) if !found.is_element && value.as_array().is_some() => match best {
                Some(_) => return ControlFlow::Continue(()),
                None => RawBsonRef::Undefined,
            },
            Some(value) => value,
        };
        let wanted = if direction == Direction::Up { Ordering::Less } else { Ordering::Greater };
        work.step(best.map_or(0, |best| weight(value).min(weight(best))));
        if best.is_none_or(|best| compare(value, best) == wanted) {
            best = Some(value);
        }
        ControlFlow::Continue(())
    });
    best.unwrap_or(RawBsonRef::Null)
}

//! The modifiers of an update, one at a time: `$set`, `$inc`, `$push` and their like.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bson::{Bson, RawBson, RawBsonRef, RawDocument};

use super::arguments::{fields, shown, type_name, values};
use super::edited::{Edited, STEPS_PER_VALUE as STEPS_PER_ELEMENT};
use super::failure::{CommandFailure, code};
use super::filter::Filter;
use super::number::Number;
use super::order::{Ordered, compare};
use super::path::Path;
use super::unsupported::Place;
use super::update::field;
use super::work::{self, Work};
use crate::document::document;

/// A change of one field.
#[derive(Clone, Debug)]
pub(super) enum Modifier {
    Set(RawBson),
    /// Only in a document that is inserted.
    SetOnInsert(RawBson),
    Unset,
    Increment(RawBson),
    Multiply(RawBson),
    /// The lesser (greater) of the two values stays.
    Keep(Ordering, RawBson),
    Rename(Path),
    Push(Vec<RawBson>),
    AddToSet(Vec<RawBson>),
    /// Removes the elements that match; an element is the field `""` of a document of its own.
    Pull(Filter),
    PullAll(Vec<RawBson>),
    /// Removes the first element, or the last.
    Pop {
        first: bool,
    },
}

#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "$addToSet", "$inc", "$max", "$min", "$mul", "$pop", "$pull", "$pullAll", "$push", "$rename", "$set",
    "$setOnInsert", "$unset",
];

impl Modifier {
    /// Whether there is such a modifier.
    pub(super) fn is_known(operator: &str) -> bool {
        KNOWN.contains(&operator)
    }

    /// Reads the argument of `operator` for the field `name`.
    pub(super) fn parse(operator: &str, name: &str, argument: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        let value = RawBson::from(argument);
        let number = |verb: &str| match Number::read(argument) {
            Some(_) => Ok(RawBson::from(argument)),
            None => Err(CommandFailure::new(
                code::TYPE_MISMATCH,
                format!("Cannot {verb} with non-numeric argument: {{{name}: {}}}", shown(argument)),
            )),
        };
        Ok(match operator {
            "$set" => Self::Set(value),
            "$setOnInsert" => Self::SetOnInsert(value),
            "$unset" => Self::Unset,
            "$inc" => Self::Increment(number("increment")?),
            "$mul" => Self::Multiply(number("multiply")?),
            "$min" => Self::Keep(Ordering::Less, value),
            "$max" => Self::Keep(Ordering::Greater, value),
            "$rename" => {
                let target = argument.as_str().ok_or_else(|| {
                    CommandFailure::bad_value(format!(
                        "The 'to' field for $rename must be a string: {name}: {}",
                        shown(argument)
                    ))
                })?;
                Self::Rename(field(target)?)
            }
            "$push" => Self::Push(each(operator, argument)?),
            "$addToSet" => Self::AddToSet(each(operator, argument)?),
            "$pull" => Self::Pull(pull_filter(argument)?),
            "$pullAll" => Self::PullAll(
                values(argument.as_array().ok_or_else(|| {
                    CommandFailure::bad_value(format!(
                        "$pullAll requires an array argument but was given a {}",
                        type_name(argument.element_type())
                    ))
                })?)
                .map(RawBson::from)
                .collect(),
            ),
            "$pop" => match Number::read(argument).and_then(Number::to_integer) {
                Some(1) => Self::Pop { first: false },
                Some(-1) => Self::Pop { first: true },
                _ => return Err(CommandFailure::failed_to_parse("$pop expects 1 or -1".to_owned())),
            },
            operator => return Err(Place::Modifier.unknown(operator)),
        })
    }

    /// Changes `document` at `path`.
    pub(super) fn apply(
        &self,
        document: &mut Edited,
        path: &Path,
        inserts: bool,
        work: &Work,
    ) -> Result<(), CommandFailure> {
        work.step(path.parts().len() as u64);
        match self {
            Self::SetOnInsert(_) if !inserts => Ok(()),
            Self::Set(value) | Self::SetOnInsert(value) => {
                let value = document.owned(value, work)?;
                document.set(path, value)
            }
            Self::Unset => {
                document.remove(path);
                Ok(())
            }
            Self::Increment(by) => combine(document, path, by, "$inc", Number::plus, work),
            Self::Multiply(by) => combine(document, path, by, "$mul", Number::times, work),
            Self::Keep(kept, value) => match raw(document.get_mut(path))? {
                Some(old) if compare(value.as_raw_bson_ref(), old.as_raw_bson_ref()) != *kept => Ok(()),
                Some(_) | None => {
                    let value = document.owned(value, work)?;
                    document.set(path, value)
                }
            },
            Self::Rename(target) => match document.remove(path) {
                None => Ok(()),
                Some(value) => document.set(target, value),
            },
            Self::Push(added) => {
                let added = added.iter().map(|value| document.owned(value, work)).collect::<Result<Vec<_>, _>>()?;
                array_at(document, path, "$push")?.extend(added);
                Ok(())
            }
            Self::AddToSet(added) => {
                let array = array_at(document, path, "$addToSet")?;
                work.step((array.len() + added.len()) as u64 * (STEPS_PER_ELEMENT + work::depth(array.len())));
                work.check()?;
                let mut present = array.iter().map(ordered).collect::<Result<BTreeSet<_>, _>>()?;
                let new: Vec<_> = added.iter().filter(|value| present.insert(Ordered((*value).clone()))).collect();
                let new = new.into_iter().map(|value| document.owned(value, work)).collect::<Result<Vec<_>, _>>()?;
                array_at(document, path, "$addToSet")?.extend(new);
                Ok(())
            }
            Self::Pull(filter) => retain(document, path, "$pull", work, |element| {
                let element = RawBson::try_from(element.clone()).unwrap_or(RawBson::Null);
                !filter.matches(&document! { "": element }, work)
            }),
            Self::PullAll(pulled) => {
                let pulled: BTreeSet<_> = pulled.iter().cloned().map(Ordered).collect();
                work.step(pulled.len() as u64 * STEPS_PER_ELEMENT);
                retain(document, path, "$pullAll", work, |element| {
                    ordered(element).map_or(true, |element| !pulled.contains(&element))
                })
            }
            Self::Pop { first } => {
                let Some(value) = document.get_mut(path) else { return Ok(()) };
                let array = value.as_array_mut().ok_or_else(|| not_an_array(path, "$pop"))?;
                if *first && !array.is_empty() {
                    array.remove(0);
                } else {
                    array.pop();
                }
                Ok(())
            }
        }
    }
}

/// The values that `$push` and `$addToSet` add: one, or those of `$each`.
fn each(operator: &str, argument: RawBsonRef<'_>) -> Result<Vec<RawBson>, CommandFailure> {
    let modifiers = argument.as_document().filter(|document| fields(document).any(|(name, _)| name == "$each"));
    let Some(modifiers) = modifiers else { return Ok(vec![RawBson::from(argument)]) };
    if let Some((name, _)) = fields(modifiers).find(|(name, _)| *name != "$each") {
        return Err(CommandFailure::not_supported(&format!("{name} in {operator}")));
    }
    let values_of = |document: &RawDocument| {
        let array = document.get("$each").ok()??.as_array()?;
        Some(values(array).map(RawBson::from).collect())
    };
    values_of(modifiers).ok_or_else(|| {
        CommandFailure::new(code::TYPE_MISMATCH, format!("The argument to $each in {operator} must be an array"))
    })
}

/// The elements to pull: those that are equal, or match the conditions of a document.
fn pull_filter(argument: RawBsonRef<'_>) -> Result<Filter, CommandFailure> {
    let Some(conditions) = argument.as_document() else {
        return Filter::parse(&document! { "": document! { "$eq": argument } });
    };
    if fields(conditions).next().is_some_and(|(name, _)| name.starts_with('$')) {
        return Filter::parse(&document! { "": conditions });
    }
    let mut inner = bson::RawDocumentBuf::new();
    for (name, value) in conditions.iter().filter_map(Result::ok) {
        let name = bson::raw::CString::try_from(format!(".{name}"))
            .map_err(|error| CommandFailure::failed_to_parse(format!("{error}")))?;
        inner.append(name, value);
    }
    Filter::parse(&inner)
}

/// Combines the value at `path` and `by` into one number.
fn combine(
    document: &mut Edited,
    path: &Path,
    by: &RawBson,
    operator: &str,
    combine: fn(Number, Number) -> Option<RawBson>,
    work: &Work,
) -> Result<(), CommandFailure> {
    let Some(by_number) = Number::read(by.as_raw_bson_ref()) else { return Ok(()) };
    let value = match raw(document.get_mut(path))? {
        None if operator == "$mul" => combine(by_number, Number::Int32(0)),
        None => Some(by.clone()),
        Some(old) => match Number::read(old.as_raw_bson_ref()) {
            Some(number) => combine(number, by_number),
            None => {
                let name = path.parts().join(".");
                let found = type_name(old.element_type());
                let message = format!(
                    "Cannot apply {operator} to a value of non-numeric type. The field '{name}' has the type {found}"
                );
                return Err(CommandFailure::new(code::TYPE_MISMATCH, message));
            }
        },
    };
    let name = path.parts().join(".");
    let value = value.ok_or_else(|| {
        CommandFailure::bad_value(format!(
            "Failed to apply {operator} operations to the field '{name}': the number is too great, or a decimal, with \
             which this test server does not calculate"
        ))
    })?;
    let value = document.owned(&value, work)?;
    document.set(path, value)
}

/// The array at `path`; a new one if there is no value.
fn array_at<'a>(document: &'a mut Edited, path: &Path, operator: &str) -> Result<&'a mut Vec<Bson>, CommandFailure> {
    if document.get_mut(path).is_none() {
        document.set(path, Bson::Array(Vec::new()))?;
    }
    document.get_mut(path).and_then(Bson::as_array_mut).ok_or_else(|| not_an_array(path, operator))
}

/// Keeps those elements of the array at `path` for which `keep` is true.
fn retain(
    document: &mut Edited,
    path: &Path,
    operator: &str,
    work: &Work,
    keep: impl FnMut(&Bson) -> bool,
) -> Result<(), CommandFailure> {
    let Some(value) = document.get_mut(path) else { return Ok(()) };
    let array = value.as_array_mut().ok_or_else(|| not_an_array(path, operator))?;
    work.step(array.len() as u64 * STEPS_PER_ELEMENT);
    work.check()?;
    array.retain(keep);
    work.check()
}

fn not_an_array(path: &Path, operator: &str) -> CommandFailure {
    let name = path.parts().join(".");
    CommandFailure::bad_value(format!("The field '{name}' must be an array but is of another type, for {operator}"))
}

fn raw(value: Option<&mut Bson>) -> Result<Option<RawBson>, CommandFailure> {
    let raw = value.map(|value| RawBson::try_from(value.clone())).transpose();
    raw.map_err(|error| CommandFailure::invalid_bson(format!("{error}")))
}

fn ordered(value: &Bson) -> Result<Ordered, CommandFailure> {
    let value = RawBson::try_from(value.clone());
    value.map(Ordered).map_err(|error| CommandFailure::invalid_bson(format!("{error}")))
}

//! The expressions of a pipeline that a test server needs: values, field paths, and documents of them.

use bson::raw::{CStr, CString};
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use cmap_core::wire::Limits;

use super::arguments::{fields, values};
use super::failure::{CommandFailure, code};
use super::order::compare;
use super::path::Path;
use super::unsupported::Place;
use super::work::{Work, weight};

/// The most bytes of the parts of one document while it is computed: some documents of the greatest length.
pub(super) const MAX_INTERMEDIATE: usize = 4 * Limits::DEFAULT.max_document_size as usize;

/// MongoDB's own variables. Of them, `ROOT` and `CURRENT` are known here.
const SYSTEM_VARIABLES: [&str; 10] =
    ["CLUSTER_TIME", "CURRENT", "DESCEND", "KEEP", "NOW", "PRUNE", "REMOVE", "ROOT", "SEARCH_META", "USER_ROLES"];

/// An expression for a field's value.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    /// A constant.
    Value(RawBson),
    /// The value at a path.
    Path(Path),
    /// The document itself.
    Root,
    /// A document of expressions.
    Document(Vec<(CString, Expression)>),
    /// An array of expressions; missing values become null in it.
    Array(Vec<Expression>),
    /// Whether both have the same value.
    Equal(Box<(Expression, Expression)>),
    /// The document of `input`, in which a field has another value.
    SetField { field: CString, input: Box<Expression>, value: Box<Expression> },
}

impl Expression {
    /// Reads an expression.
    pub(super) fn parse(value: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        if let Some(text) = value.as_str().and_then(|text| text.strip_prefix('$')) {
            return match text.strip_prefix('$') {
                None => Ok(Self::Path(Path::parse(text)?)),
                Some("ROOT" | "CURRENT") => Ok(Self::Root),
                Some(name) if SYSTEM_VARIABLES.contains(&name.split('.').next().unwrap_or_default()) => {
                    Err(CommandFailure::not_supported(&format!("the variable $${name}")))
                }
                Some(name) => {
                    let message = format!("Use of undefined variable: {name}");
                    Err(CommandFailure::new(code::UNDEFINED_VARIABLE, message))
                }
            };
        }
        if let Some(array) = value.as_array() {
            return Ok(Self::Array(values(array).map(Self::parse).collect::<Result<_, _>>()?));
        }
        let Some(document) = value.as_document() else { return Ok(Self::Value(RawBson::from(value))) };
        if let Some((name, argument)) = fields(document).next().filter(|(name, _)| name.starts_with('$')) {
            return match name {
                "$literal" => Ok(Self::Value(RawBson::from(argument))),
                "$eq" => Self::equal(argument),
                "$setField" => Self::set_field(argument),
                name => Err(Place::Expression.unknown(name)),
            };
        }
        let inner = document.iter().filter_map(Result::ok);
        let inner = inner.map(|(name, value)| Ok((CString::from(name), Self::parse(value)?)));
        Ok(Self::Document(inner.collect::<Result<_, CommandFailure>>()?))
    }

    fn equal(argument: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        let operands: Vec<_> = argument.as_array().into_iter().flat_map(values).collect();
        match operands[..] {
            [a, b] => Ok(Self::Equal(Box::new((Self::parse(a)?, Self::parse(b)?)))),
            _ => {
                let found = if argument.as_array().is_some() { operands.len() } else { 1 };
                let message = format!("Expression $eq takes exactly 2 arguments. {found} were passed in.");
                Err(CommandFailure::new(code::WRONG_NUMBER_OF_OPERANDS, message))
            }
        }
    }

    fn set_field(argument: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        let part = |name: &str| {
            let value = argument.as_document().and_then(|document| document.get(name).ok().flatten());
            let missing = || CommandFailure::failed_to_parse(format!("$setField requires '{name}' to be specified"));
            Self::parse(value.ok_or_else(missing)?)
        };
        let message = "$setField requires 'field' to evaluate to a constant string without NULs";
        let not_constant = || CommandFailure::failed_to_parse(message);
        let Self::Value(RawBson::String(field)) = part("field")? else { return Err(not_constant()) };
        let field = CString::try_from(field).map_err(|_| not_constant())?;
        Ok(Self::SetField { field, input: Box::new(part("input")?), value: Box::new(part("value")?) })
    }

    /// Its value for `document`; `None` if that has no such field. A value that is longer than a document is an error.
    pub(super) fn evaluate(&self, document: &RawDocument, work: &Work) -> Result<Option<RawBson>, CommandFailure> {
        self.value(document, work, MAX_INTERMEDIATE)
    }

    /// `room` is for the bytes of all values that exist while this one is made: nesting could multiply them.
    pub(super) fn value(
        &self,
        document: &RawDocument,
        work: &Work,
        room: usize,
    ) -> Result<Option<RawBson>, CommandFailure> {
        work.step(1);
        work.check()?;
        Ok(match self {
            Self::Value(value) => {
                work.step(weight(value.as_raw_bson_ref()));
                Some(value.clone())
            }
            Self::Path(path) => value_at(document, path.parts(), work)?,
            Self::Root => {
                if document.as_bytes().len() > room {
                    return Err(too_long());
                }
                work.copy(document.as_bytes().len());
                Some(RawBson::Document(document.to_owned()))
            }
            Self::Document(inner) => {
                let mut evaluated = RawDocumentBuf::new();
                for (name, expression) in inner {
                    let room = room.saturating_sub(evaluated.as_bytes().len());
                    if let Some(value) = expression.value(document, work, room)? {
                        evaluated.append(name, value);
                        check_length(evaluated.as_bytes())?;
                    }
                }
                work.copy(evaluated.as_bytes().len());
                Some(RawBson::Document(evaluated))
            }
            Self::Array(inner) => {
                let mut evaluated = RawArrayBuf::new();
                for expression in inner {
                    let room = room.saturating_sub(evaluated.as_bytes().len());
                    evaluated.push(expression.value(document, work, room)?.unwrap_or(RawBson::Null));
                    check_length(evaluated.as_bytes())?;
                }
                work.copy(evaluated.as_bytes().len());
                Some(RawBson::Array(evaluated))
            }
            Self::Equal(operands) => {
                let (a, b) = (operands.0.value(document, work, room)?, operands.1.value(document, work, room)?);
                let is_equal = match (&a, &b) {
                    (Some(a), Some(b)) => {
                        let (a, b) = (a.as_raw_bson_ref(), b.as_raw_bson_ref());
                        work.step(weight(a).min(weight(b)));
                        compare(a, b).is_eq()
                    }
                    // A missing value is not null.
                    (a, b) => a.is_none() && b.is_none(),
                };
                Some(RawBson::Boolean(is_equal))
            }
            Self::SetField { field, input, value } => {
                let Some(RawBson::Document(input)) = input.value(document, work, room)? else {
                    return Ok(Some(RawBson::Null));
                };
                let room = room.saturating_sub(input.as_bytes().len());
                let value = value.value(document, work, room)?;
                work.step(weight(RawBsonRef::Document(&input)));
                Some(RawBson::Document(with_field(&input, field, value)?))
            }
        })
    }
}

/// The value at the end of a path. Where an array lies on the way, that is an array of the values that its documents have there.
fn value_at(document: &RawDocument, path: &[String], work: &Work) -> Result<Option<RawBson>, CommandFailure> {
    let Some((first, rest)) = path.split_first() else { return Ok(None) };
    let Some(value) = work.get(document, first) else { return Ok(None) };
    if rest.is_empty() {
        work.step(weight(value));
        return Ok(Some(RawBson::from(value)));
    }
    if let Some(document) = value.as_document() {
        return value_at(document, rest, work);
    }
    let Some(array) = value.as_array() else { return Ok(None) };
    let mut all = RawArrayBuf::new();
    for document in work.values(array).filter_map(RawBsonRef::as_document) {
        work.check()?;
        value_at(document, rest, work)?.into_iter().for_each(|value| all.push(value));
    }
    work.copy(all.as_bytes().len());
    Ok(Some(RawBson::Array(all)))
}

/// `document` with a field that has this value: in its place, or after the others.
fn with_field(document: &RawDocument, field: &CStr, value: Option<RawBson>) -> Result<RawDocumentBuf, CommandFailure> {
    let (mut result, mut value) = (RawDocumentBuf::new(), value);
    for (name, old) in document.iter().filter_map(Result::ok) {
        if name == field {
            value.take().into_iter().for_each(|value| result.append(name, value));
        } else {
            result.append(name, old);
        }
    }
    value.into_iter().for_each(|value| result.append(field, value));
    check_length(result.as_bytes())?;
    Ok(result)
}

/// Whether the computed value is no longer than a document.
pub(super) fn check_length(bytes: &[u8]) -> Result<(), CommandFailure> {
    if bytes.len() > Limits::DEFAULT.max_document_size as usize {
        return Err(too_long());
    }
    Ok(())
}

pub(super) fn too_long() -> CommandFailure {
    CommandFailure::new(code::BSON_OBJECT_TOO_LARGE, "a computed document is longer than 16 MB")
}

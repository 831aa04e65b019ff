//! The argument `let`: variables that a command's expressions use as `$$name`.
//!
//! Their values are constants, so that they are put in the places of their names before an expression is read.

use std::borrow::Cow;

use bson::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::{Arguments, fields, values};
use super::expression::{Expression, check_length};
use super::failure::CommandFailure;
use super::work::Work;
use crate::document::document;

/// The variables of a command, and their values.
#[derive(Debug, Default)]
pub(super) struct Variables<'a>(Vec<(&'a str, RawBson)>);

impl<'a> Variables<'a> {
    /// Reads the argument `let`.
    pub(super) fn read(arguments: &Arguments<'a>, work: &Work) -> Result<Self, CommandFailure> {
        let Some(variables) = arguments.document("let")? else { return Ok(Self::default()) };
        let nothing = RawDocumentBuf::new();
        let value = |value| Expression::parse(value)?.evaluate(&nothing, work);
        let variables =
            fields(variables).map(|(name, expression)| Ok((name, value(expression)?.unwrap_or(RawBson::Null))));
        variables.collect::<Result<_, _>>().map(Self)
    }

    /// A query with the values of the variables in its `$expr`.
    pub(super) fn bind<'q>(&self, query: &'q RawDocument) -> Result<Cow<'q, RawDocument>, CommandFailure> {
        if self.0.is_empty() {
            return Ok(Cow::Borrowed(query));
        }
        let mut bound = RawDocumentBuf::new();
        for (name, value) in query.iter().filter_map(Result::ok) {
            match (name.as_str(), value.as_array()) {
                ("$expr", _) => bound.append(name, self.expression(value)?),
                ("$and" | "$or" | "$nor", Some(branches)) => {
                    let mut queries = RawArrayBuf::new();
                    for branch in values(branches) {
                        match branch.as_document() {
                            Some(query) => queries.push(&*self.bind(query)?),
                            None => queries.push(branch),
                        }
                    }
                    bound.append(name, queries);
                }
                _ => bound.append(name, value),
            }
            check_length(bound.as_bytes())?;
        }
        Ok(Cow::Owned(bound))
    }

    /// An update with the values of the variables in its pipeline, if it is one.
    pub(super) fn bind_update(&self, update: RawBsonRef<'_>) -> Result<RawBson, CommandFailure> {
        match update.as_array().filter(|_| !self.0.is_empty()) {
            Some(stages) => self.array(stages).map(RawBson::Array),
            None => Ok(update.into()),
        }
    }

    /// A stage of a pipeline with the values of the variables.
    pub(super) fn bind_stage<'s>(&self, stage: &'s RawDocument) -> Result<Cow<'s, RawDocument>, CommandFailure> {
        if self.0.is_empty() {
            return Ok(Cow::Borrowed(stage));
        }
        match stage.get("$match").ok().flatten().and_then(RawBsonRef::as_document) {
            Some(query) => {
                let query = self.bind(query)?;
                Ok(Cow::Owned(document! { "$match": &*query }))
            }
            None => self.document(stage).map(Cow::Owned),
        }
    }

    fn expression(&self, expression: RawBsonRef<'_>) -> Result<RawBson, CommandFailure> {
        if let Some(text) = expression.as_str() {
            let literal = |value| RawBson::Document(document! { "$literal": value });
            return Ok(self.named(text).map_or_else(|| expression.into(), literal));
        }
        match (expression.as_document(), expression.as_array()) {
            (Some(document), _) => self.document(document).map(RawBson::Document),
            (None, Some(array)) => self.array(array).map(RawBson::Array),
            (None, None) => Ok(expression.into()),
        }
    }

    fn document(&self, document: &RawDocument) -> Result<RawDocumentBuf, CommandFailure> {
        let mut bound = RawDocumentBuf::new();
        for (name, value) in document.iter().filter_map(Result::ok) {
            match name.as_str() {
                "$literal" => bound.append(name, value),
                _ => bound.append(name, self.expression(value)?),
            }
            check_length(bound.as_bytes())?;
        }
        Ok(bound)
    }

    fn array(&self, array: &RawArray) -> Result<RawArrayBuf, CommandFailure> {
        let mut bound = RawArrayBuf::new();
        for value in values(array) {
            bound.push(self.expression(value)?);
            check_length(bound.as_bytes())?;
        }
        Ok(bound)
    }

    /// The value of the variable that a text names, or of a field in it.
    fn named(&self, text: &str) -> Option<RawBsonRef<'_>> {
        let mut path = text.strip_prefix("$$")?.split('.');
        let name = path.next()?;
        let (_, value) = self.0.iter().find(|(own, _)| *own == name)?;
        // A path that leads nowhere is a missing value, which null stands for.
        Some(path.try_fold(value.as_raw_bson_ref(), |value, part| field_of(value, part)).unwrap_or(RawBsonRef::Null))
    }
}

fn field_of<'v>(value: RawBsonRef<'v>, name: &str) -> Option<RawBsonRef<'v>> {
    value.as_document()?.get(name).ok().flatten()
}

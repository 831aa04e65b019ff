//! The stage `$set`, which is also called `$addFields`: fields that get values, in the document or in objects within it.

use std::collections::BTreeMap;

use bson::raw::{CStr, CString};
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::fields;
use super::expression::{Expression, MAX_INTERMEDIATE, check_length, too_long};
use super::failure::{CommandFailure, code};
use super::work::{self, Work};

/// Fields to set, by their names.
#[derive(Clone, Debug)]
pub(super) struct Settings(Vec<(CString, Setting)>);

/// What becomes of a field.
#[derive(Clone, Debug)]
enum Setting {
    /// It gets this value.
    Value(Expression),
    /// Its own fields are set, and the others stay.
    Fields(Settings),
}

impl Settings {
    /// Reads the argument of the stage, or an object within it.
    pub(super) fn parse(document: &RawDocument) -> Result<Self, CommandFailure> {
        let parse = |name: &CStr, value: RawBsonRef<'_>| {
            if name.as_str().contains(['.', '$']) {
                return Err(CommandFailure::not_supported("a dotted path in $set"));
            }
            let is_operator =
                |object: &RawDocument| fields(object).next().is_some_and(|(name, _)| name.starts_with('$'));
            match value.as_document().filter(|object| !is_operator(object)) {
                Some(object) if object.is_empty() => {
                    let message =
                        format!("an empty object is not a valid value. Found empty object at path {}", name.as_str());
                    Err(CommandFailure::new(code::EMPTY_OBJECT_TO_SET, message))
                }
                Some(object) => Ok((CString::from(name), Setting::Fields(Self::parse(object)?))),
                None => Ok((CString::from(name), Setting::Value(Expression::parse(value)?))),
            }
        };
        let settings = document.iter().filter_map(Result::ok).map(|(name, value)| parse(name, value));
        settings.collect::<Result<_, _>>().map(Self)
    }

    /// `document` with the fields set: in their places, or after the others.
    pub(super) fn apply(&self, document: &RawDocument, work: &Work) -> Result<RawDocumentBuf, CommandFailure> {
        self.set_in(document, document, work, MAX_INTERMEDIATE)
    }

    /// Sets the fields of `object`, a part of the document `root`. `room` is for the bytes of all parts that exist while this one is
    /// made: nesting could multiply them.
    pub(super) fn set_in(
        &self,
        object: &RawDocument,
        root: &RawDocument,
        work: &Work,
        room: usize,
    ) -> Result<RawDocumentBuf, CommandFailure> {
        let mut settings: BTreeMap<&str, &Setting> =
            self.0.iter().map(|(name, setting)| (name.as_str(), setting)).collect();
        work.step(self.0.len() as u64 * work::depth(self.0.len()));
        let mut result = RawDocumentBuf::new();
        let append = |result: &mut RawDocumentBuf, name: &CStr, setting: &Setting, old| {
            let left = room.saturating_sub(result.as_bytes().len());
            if let Some(value) = setting.value(old, root, work, left)? {
                result.append(name, value);
            }
            check(result.as_bytes(), room)
        };
        for (name, value) in object.iter().filter_map(Result::ok) {
            work.step(1);
            match settings.remove(name.as_str()) {
                None => result.append(name, value),
                Some(setting) => append(&mut result, name, setting, Some(value))?,
            }
        }
        for (name, _) in &self.0 {
            if let Some(setting) = settings.remove(name.as_str()) {
                append(&mut result, name, setting, None)?;
            }
        }
        work.copy(result.as_bytes().len());
        Ok(result)
    }
}

impl Setting {
    /// The field's value instead of `old`.
    fn value(
        &self,
        old: Option<RawBsonRef<'_>>,
        root: &RawDocument,
        work: &Work,
        room: usize,
    ) -> Result<Option<RawBson>, CommandFailure> {
        work.step(1);
        work.check()?;
        let settings = match self {
            Self::Value(expression) => return expression.value(root, work, room),
            Self::Fields(settings) => settings,
        };
        if let Some(array) = old.and_then(RawBsonRef::as_array) {
            let mut set = RawArrayBuf::new();
            for element in work.values(array) {
                let left = room.saturating_sub(set.as_bytes().len());
                set.push(self.value(Some(element), root, work, left)?.unwrap_or(RawBson::Null));
                check(set.as_bytes(), room)?;
            }
            return Ok(Some(RawBson::Array(set)));
        }
        // What is no object makes way for one.
        let empty = RawDocumentBuf::new();
        let object = old.and_then(RawBsonRef::as_document).unwrap_or(&empty);
        Ok(Some(RawBson::Document(settings.set_in(object, root, work, room)?)))
    }
}

fn check(bytes: &[u8], room: usize) -> Result<(), CommandFailure> {
    if bytes.len() > room {
        return Err(too_long());
    }
    check_length(bytes)
}

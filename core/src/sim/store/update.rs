//! Updates of one document: a replacement, or modifiers like `$set`.
//!
//! The document that results is compared with the old one byte by byte by whoever stores it, so that what changes nothing
//! counts as matched and not as modified. Positional operators (`$`, `$[]`) and pipelines are refused.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::{fields, shown, type_name};
use super::edited::{Edited, owned};
use super::failure::{CommandFailure, code};
use super::filter::Filter;
use super::modifier::Modifier;
use super::path::Path;

/// What makes a new document of an old one.
#[derive(Clone, Debug)]
pub(super) enum Update {
    /// This takes its place, under the old `_id`.
    Replace(RawDocumentBuf),
    /// These are applied in turn.
    Modify(Vec<(Path, Modifier)>),
}

impl Update {
    /// Reads an update.
    pub(super) fn parse(update: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        if update.as_array().is_some() {
            return Err(CommandFailure::not_supported("an update by a pipeline"));
        }
        let Some(update) = update.as_document() else {
            return Err(CommandFailure::failed_to_parse(
                "Update argument must be either an object or an array".to_owned(),
            ));
        };
        if fields(update).next().is_none_or(|(name, _)| !name.starts_with('$')) {
            if let Some((name, _)) = fields(update).find(|(name, _)| name.starts_with('$')) {
                let message = format!("The dollar ($) prefixed field '{name}' in '{name}' is not valid for storage.");
                return Err(CommandFailure::new(code::DOLLAR_PREFIXED_FIELD_NAME, message));
            }
            return Ok(Self::Replace(update.to_owned()));
        }
        let mut changes = Vec::new();
        for (operator, arguments) in fields(update) {
            if !Modifier::is_known(operator) {
                return Err(CommandFailure::failed_to_parse(format!(
                    "Unknown modifier: {operator}. Expected a valid update modifier or pipeline-style update specified \
                     as an array"
                )));
            }
            let Some(arguments) = arguments.as_document() else {
                let (found, shown) = (type_name(arguments.element_type()), shown(arguments));
                return Err(CommandFailure::failed_to_parse(format!(
                    "Modifiers operate on fields but we found type {found} instead. For example: {{$mod: {{<field>: ...}}}} \
                     not {{{operator}: {shown}}}"
                )));
            };
            for (name, argument) in fields(arguments) {
                changes.push((field(name)?, Modifier::parse(operator, name, argument)?));
            }
        }
        check_conflicts(&changes)?;
        Ok(Self::Modify(changes))
    }

    /// Whether it has modifiers.
    pub(super) fn modifies(&self) -> bool {
        matches!(self, Self::Modify(_))
    }

    /// The document that `old` becomes.
    pub(super) fn apply(&self, old: &RawDocument) -> Result<RawDocumentBuf, CommandFailure> {
        let id = old.get("_id").ok().flatten();
        match self {
            Self::Replace(new) => {
                if let (Some(id), Some(new_id)) = (id, new.get("_id").ok().flatten())
                    && super::order::compare(id, new_id).is_ne()
                {
                    return Err(altered_id(new_id));
                }
                Ok(with_id(id, new))
            }
            Self::Modify(changes) => {
                let new = modified(old, changes, false)?;
                let new_id = new.get("_id").ok().flatten();
                if new_id != id {
                    return Err(CommandFailure::new(
                        code::IMMUTABLE_FIELD,
                        "Performing an update on the path '_id' would modify the immutable field '_id'",
                    ));
                }
                Ok(new)
            }
        }
    }

    /// The document that is inserted where no document matches; it may have no `_id` yet.
    pub(super) fn insertion(&self, filter: &Filter) -> Result<RawDocumentBuf, CommandFailure> {
        let mut equalities = Vec::new();
        filter.equalities(&mut equalities);
        match self {
            Self::Replace(new) => {
                let wanted = equalities.iter().find(|(path, _)| path.is("_id")).map(|(_, id)| id.as_raw_bson_ref());
                let own = new.get("_id").ok().flatten();
                match (own, wanted) {
                    (Some(own), Some(wanted)) if super::order::compare(own, wanted).is_ne() => Err(altered_id(own)),
                    (Some(own), _) => Ok(with_id(Some(own), new)),
                    (None, wanted) => Ok(with_id(wanted, new)),
                }
            }
            Self::Modify(changes) => {
                let mut document = Edited::default();
                for (path, value) in equalities {
                    document.set(path, owned(value)?)?;
                }
                modified(&document.to_raw()?, changes, true)
            }
        }
    }
}

/// The path that a modifier names.
pub(super) fn field(name: &str) -> Result<Path, CommandFailure> {
    let path = Path::parse(name)?;
    if path.parts().iter().any(alloc::string::String::is_empty) {
        let message = format!("The update path '{name}' contains an empty field name, which is not allowed.");
        return Err(CommandFailure::new(code::EMPTY_FIELD_NAME, message));
    }
    if path.parts().iter().any(|part| part == "$" || part.starts_with("$[")) {
        return Err(CommandFailure::not_supported("a positional operator in an update"));
    }
    match path.parts().iter().find(|part| part.starts_with('$')) {
        None => Ok(path),
        Some(part) => {
            let message = format!("The dollar ($) prefixed field '{part}' in '{name}' is not valid for storage.");
            Err(CommandFailure::new(code::DOLLAR_PREFIXED_FIELD_NAME, message))
        }
    }
}

/// No two modifiers may change one field, or a field and one within it.
fn check_conflicts(changes: &[(Path, Modifier)]) -> Result<(), CommandFailure> {
    let mut paths: Vec<_> = changes.iter().map(|(path, _)| path).collect();
    for (_, modifier) in changes {
        if let Modifier::Rename(target) = modifier {
            paths.push(target);
        }
    }
    // In this order, whatever begins with a path follows it.
    paths.sort();
    match paths.windows(2).find(|pair| pair[1].parts().starts_with(pair[0].parts())) {
        None => Ok(()),
        Some(pair) => {
            let (outer, inner) = (pair[0].parts().join("."), pair[1].parts().join("."));
            let message = format!("Updating the path '{inner}' would create a conflict at '{outer}'");
            Err(CommandFailure::new(code::CONFLICTING_UPDATE_OPERATORS, message))
        }
    }
}

fn altered_id(id: RawBsonRef<'_>) -> CommandFailure {
    let id = shown(id);
    CommandFailure::new(
        code::IMMUTABLE_FIELD,
        format!("After applying the update, the (immutable) field '_id' was found to have been altered to _id: {id}"),
    )
}

/// `document` with this `_id` first.
pub(super) fn with_id(id: Option<RawBsonRef<'_>>, document: &RawDocument) -> RawDocumentBuf {
    let mut new = RawDocumentBuf::new();
    if let Some(id) = id {
        new.append(bson::cstr!("_id"), id);
    }
    for (name, value) in document.iter().filter_map(Result::ok) {
        if id.is_none() || name.as_str() != "_id" {
            new.append(name, value);
        }
    }
    new
}

fn modified(old: &RawDocument, changes: &[(Path, Modifier)], inserts: bool) -> Result<RawDocumentBuf, CommandFailure> {
    let mut document = Edited::read(old)?;
    // New fields are added in the order of their names, as a server does.
    let in_order: BTreeMap<_, _> = changes.iter().map(|(path, modifier)| (path, modifier)).collect();
    for (path, modifier) in in_order {
        modifier.apply(&mut document, path, inserts)?;
    }
    document.to_raw()
}

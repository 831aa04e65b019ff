//! Updates of one document: a replacement, modifiers like `$set`, or a pipeline.
//!
//! The caller that stores the resulting document compares it with the old one byte by byte, so that an update without
//! effect counts as matched and not as modified.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::{fields, shown, type_name, values};
use super::edited::Edited;
use super::failure::{CommandFailure, code};
use super::filter::Filter;
use super::history::Manner;
use super::meter::Stored;
use super::modifier::Modifier;
use super::path::Path;
use super::pipeline::{self, Pipeline, Stage};
use super::positional::{self, ArrayFilters};
use super::unsupported::Place;
use super::work::{self, Work, weight};

/// A way to make a new document of an old one.
#[derive(Clone, Debug)]
pub(super) enum Update {
    /// This takes its place, under the old `_id`.
    Replace(RawDocumentBuf),
    /// These are applied in turn, to those elements of arrays that the filters match.
    Modify { changes: Vec<(Path, Modifier)>, array_filters: ArrayFilters },
    /// The document goes through these stages.
    Pipeline(Vec<Stage>),
}

impl Update {
    /// Reads an update.
    pub(super) fn parse(update: RawBsonRef<'_>, array_filters: Option<&RawArray>) -> Result<Self, CommandFailure> {
        if let Some(stages) = update.as_array() {
            if array_filters.is_some() {
                return Err(CommandFailure::failed_to_parse("Cannot specify arrayFilters for a pipeline update"));
            }
            let stages: Option<Vec<_>> = values(stages).map(RawBsonRef::as_document).collect();
            let message = "Each element of the 'pipeline' array must be an object";
            let stages = stages.ok_or_else(|| CommandFailure::new(code::TYPE_MISMATCH, message))?;
            return Ok(Self::Pipeline(Pipeline::of_update(&stages)?));
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
                return Err(Place::Modifier.unknown(operator));
            }
            let Some(arguments) = arguments.as_document() else {
                let (found, shown) = (type_name(arguments.element_type()), shown(arguments));
                return Err(CommandFailure::failed_to_parse(format!(
                    "Modifiers operate on fields but we found type {found} instead. For example: {{$mod: {{<field>: ...}}}} \
                     not {{{operator}: {shown}}}"
                )));
            };
            for (name, argument) in fields(arguments) {
                changes.push((target(name)?, Modifier::parse(operator, name, argument)?));
            }
        }
        check_conflicts(&changes)?;
        let array_filters = ArrayFilters::parse(array_filters)?;
        array_filters.check_used(changes.iter().map(|(path, _)| path))?;
        Ok(Self::Modify { changes, array_filters })
    }

    /// How documents come to be others by it.
    pub(super) fn manner(&self) -> Manner {
        if self.replaces() { Manner::Replaced } else { Manner::Updated }
    }

    /// Whether it replaces the document by a given one.
    pub(super) fn replaces(&self) -> bool {
        matches!(self, Self::Replace(_))
    }

    /// The document that `old` becomes.
    pub(super) fn apply(&self, old: &RawDocument, work: &Work) -> Result<RawDocumentBuf, CommandFailure> {
        let id = old.get("_id").ok().flatten();
        match self {
            Self::Replace(new) => {
                work.step(weight(RawBsonRef::Document(new)));
                replaced(id, new)
            }
            Self::Pipeline(stages) => replaced(id, &piped(old.to_owned(), stages, work)?),
            Self::Modify { changes, array_filters } => {
                let new = modified(old, changes, array_filters, false, work)?;
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

    /// The document that is inserted if no document matches; it may have no `_id` yet.
    pub(super) fn insertion(&self, filter: &Filter, work: &Work) -> Result<RawDocumentBuf, CommandFailure> {
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
            Self::Modify { changes, array_filters } => {
                modified(&equal(equalities, work)?, changes, array_filters, true, work)
            }
            Self::Pipeline(stages) => piped(equal(equalities, work)?, stages, work),
        }
    }
}

/// The document that has these values and no others.
fn equal(equalities: Vec<(&Path, &RawBson)>, work: &Work) -> Result<RawDocumentBuf, CommandFailure> {
    let mut document = Edited::default();
    for (path, value) in equalities {
        let value = document.owned(value, work)?;
        document.set(path, value)?;
    }
    document.to_raw(work)
}

/// `new` under the `_id` of the document that it replaces.
fn replaced(id: Option<RawBsonRef<'_>>, new: &RawDocument) -> Result<RawDocumentBuf, CommandFailure> {
    if let (Some(id), Some(new_id)) = (id, new.get("_id").ok().flatten())
        && super::order::compare(id, new_id).is_ne()
    {
        return Err(altered_id(new_id));
    }
    Ok(with_id(id, new))
}

fn piped(document: RawDocumentBuf, stages: &[Stage], work: &Work) -> Result<RawDocumentBuf, CommandFailure> {
    // The stages of an update make one document of one.
    let piped = pipeline::run(stages, vec![Arc::new(Stored::computed(document))], work)?.pop();
    Ok(piped.map_or_else(RawDocumentBuf::new, |document| RawDocument::to_owned(&document)))
}

/// A path without positional operators.
pub(super) fn field(name: &str) -> Result<Path, CommandFailure> {
    let path = target(name)?;
    match path.parts().iter().any(|part| positional::name(part).is_some()) {
        true => Err(CommandFailure::bad_value(format!("The field '{name}' may not be dynamic"))),
        false => Ok(path),
    }
}

/// The path that a modifier names.
fn target(name: &str) -> Result<Path, CommandFailure> {
    let path = Path::parse(name)?;
    if path.parts().iter().any(String::is_empty) {
        let message = format!("The update path '{name}' contains an empty field name, which is not allowed.");
        return Err(CommandFailure::new(code::EMPTY_FIELD_NAME, message));
    }
    if path.parts().iter().any(|part| part == "$") {
        return Err(CommandFailure::not_supported("the positional operator $ in an update"));
    }
    match path.parts().iter().find(|part| part.starts_with('$') && positional::name(part).is_none()) {
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
    // In this order, a path comes before all paths that it begins.
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

fn modified(
    old: &RawDocument,
    changes: &[(Path, Modifier)],
    array_filters: &ArrayFilters,
    inserts: bool,
    work: &Work,
) -> Result<RawDocumentBuf, CommandFailure> {
    let mut document = Edited::read(old, work)?;
    work.step(changes.len() as u64 * work::depth(changes.len()));
    // New fields are added in the order of their names, as a server does.
    let in_order: BTreeMap<_, _> = changes.iter().map(|(path, modifier)| (path, modifier)).collect();
    for (path, modifier) in in_order {
        for path in array_filters.expand(&mut document, path, work)? {
            modifier.apply(&mut document, &path, inserts, work)?;
        }
    }
    document.to_raw(work)
}

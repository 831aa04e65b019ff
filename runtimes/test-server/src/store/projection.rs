//! Projections: which fields of a document a reply has.
//!
//! A projection lists either the fields to keep, or those to leave out; `_id` is kept by default.

use std::collections::BTreeMap;

use bson::{RawArray, RawArrayBuf, RawDocument, RawDocumentBuf};

use super::arguments::{fields, truth};
use super::failure::{CommandFailure, code};
use super::path::Path;
use super::work::Work;

/// A projection.
#[derive(Clone, Debug)]
pub(super) struct Projection {
    keeps: bool,
    listed: Fields,
}

/// The listed fields; a field with fields of its own here keeps or loses only those.
#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<String, Fields>);

impl Projection {
    /// Reads a projection; `None` if it changes nothing.
    pub(super) fn parse(projection: &RawDocument) -> Result<Option<Self>, CommandFailure> {
        let mut keeps = None;
        let mut id = None;
        let mut listed = Fields::default();
        for (name, value) in fields(projection) {
            let Some(keep) = truth(value) else {
                return Err(CommandFailure::not_supported(&format!("a computed field ({name}) in a projection")));
            };
            if name == "_id" {
                id = Some(keep);
                continue;
            }
            match keeps {
                Some(true) if !keep => {
                    let message = format!(
                        "Invalid projection :: caused by :: Cannot do exclusion on field {name} in inclusion projection"
                    );
                    return Err(CommandFailure::new(code::EXCLUSION_IN_INCLUSION, message));
                }
                Some(false) if keep => {
                    let message = format!(
                        "Invalid projection :: caused by :: Cannot do inclusion on field {name} in exclusion projection"
                    );
                    return Err(CommandFailure::new(code::INCLUSION_IN_EXCLUSION, message));
                }
                Some(_) | None => keeps = Some(keep),
            }
            listed.add(&Path::parse(name)?)?;
        }
        let keeps = match (keeps, id) {
            (None, None) => return Ok(None),
            (None, Some(keep)) => keep,
            (Some(keeps), _) => keeps,
        };
        if id.unwrap_or(true) == keeps {
            listed.0.entry("_id".to_owned()).or_default();
        }
        Ok(Some(Self { keeps, listed }))
    }

    /// A projection that leaves these fields out.
    pub(super) fn without(names: &[&str]) -> Result<Self, CommandFailure> {
        Ok(Self { keeps: false, listed: Fields::of(names)? })
    }

    /// A projection that keeps these fields, and `_id` only if it is among them.
    pub(super) fn only(names: &[&str]) -> Result<Self, CommandFailure> {
        Ok(Self { keeps: true, listed: Fields::of(names)? })
    }

    /// The projected `document`; after too much work, a part of it.
    pub(super) fn apply(&self, document: &RawDocument, work: &Work) -> RawDocumentBuf {
        self.listed.project(document, self.keeps, work)
    }
}

impl Fields {
    fn of(names: &[&str]) -> Result<Self, CommandFailure> {
        let mut listed = Self::default();
        names.iter().try_for_each(|name| listed.add(&Path::parse(name)?))?;
        Ok(listed)
    }

    fn add(&mut self, path: &Path) -> Result<(), CommandFailure> {
        let mut fields = self;
        let mut is_new = false;
        for (index, part) in path.parts().iter().enumerate() {
            if part.is_empty() || part.starts_with('$') {
                return Err(CommandFailure::not_supported("such a field path in a projection"));
            }
            let ends_here = index > 0 && !is_new && fields.0.is_empty();
            if ends_here {
                return Err(collision(path));
            }
            is_new = !fields.0.contains_key(part);
            fields = fields.0.entry(part.clone()).or_default();
        }
        if is_new { Ok(()) } else { Err(collision(path)) }
    }

    fn project(&self, document: &RawDocument, keeps: bool, work: &Work) -> RawDocumentBuf {
        let mut projected = RawDocumentBuf::new();
        for (name, value) in document.iter().filter_map(Result::ok).take_while(|_| !work.is_over()) {
            work.step(1);
            match self.0.get(name.as_str()) {
                None if keeps => {}
                None => projected.append(name, value),
                Some(inner) if inner.0.is_empty() => {
                    if keeps {
                        projected.append(name, value);
                    }
                }
                Some(inner) => match (value.as_document(), value.as_array()) {
                    (Some(document), _) => projected.append(name, inner.project(document, keeps, work)),
                    (None, Some(array)) => projected.append(name, inner.project_elements(array, keeps, work)),
                    (None, None) if keeps => {}
                    (None, None) => projected.append(name, value),
                },
            }
        }
        work.copy(projected.as_bytes().len());
        projected
    }

    fn project_elements(&self, array: &RawArray, keeps: bool, work: &Work) -> RawArrayBuf {
        let mut projected = RawArrayBuf::new();
        for value in work.values(array).take_while(|_| !work.is_over()) {
            match (value.as_document(), value.as_array()) {
                (Some(document), _) => projected.push(self.project(document, keeps, work)),
                (None, Some(array)) => projected.push(self.project_elements(array, keeps, work)),
                (None, None) if keeps => {}
                (None, None) => projected.push(value),
            }
        }
        work.copy(projected.as_bytes().len());
        projected
    }
}

fn collision(path: &Path) -> CommandFailure {
    let message = format!("Invalid projection :: caused by :: Path collision at {}", path.parts().join("."));
    CommandFailure::new(code::PATH_COLLISION, message)
}

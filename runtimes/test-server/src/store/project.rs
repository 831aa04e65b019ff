//! The stage `$project`: fields that stay or go, and fields that get values.

use std::collections::BTreeMap;

use bson::raw::CString;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::{fields, truth};
use super::expression::MAX_INTERMEDIATE;
use super::failure::{CommandFailure, code};
use super::path::Path;
use super::projection::Projection;
use super::set::Settings;
use super::work::Work;

/// What becomes of a document.
#[derive(Clone, Debug)]
pub(super) struct Project {
    /// The fields that stay, or those that go; `None` if all stay.
    projection: Option<Projection>,
    /// The fields that get values.
    computed: Option<Settings>,
}

/// The parts of a specification: the paths that say whether a field stays, and the values of others.
#[derive(Debug, Default)]
struct Parts<'a> {
    kept: RawDocumentBuf,
    computed: Tree<'a>,
}

/// Values at the ends of paths.
#[derive(Debug, Default)]
struct Tree<'a> {
    nodes: Vec<(String, Node<'a>)>,
    /// Their places by their names.
    places: BTreeMap<String, usize>,
}

#[derive(Debug)]
enum Node<'a> {
    Value(RawBsonRef<'a>),
    Inner(Tree<'a>),
}

impl Project {
    /// Reads the argument of the stage.
    pub(super) fn parse(specification: &RawDocument) -> Result<Self, CommandFailure> {
        if fields(specification).all(|(_, value)| truth(value).is_some()) {
            return Ok(Self { projection: Projection::parse(specification)?, computed: None });
        }
        let mut parts = Parts::default();
        parts.read("", specification)?;
        if parts.computed.nodes.is_empty() {
            return Ok(Self { projection: Projection::parse(&parts.kept)?, computed: None });
        }
        if fields(&parts.kept).any(|(name, keep)| name != "_id" && truth(keep) == Some(false)) {
            let message = "Invalid $project :: caused by :: Cannot do exclusion in a projection that computes fields";
            return Err(CommandFailure::new(code::EXCLUSION_IN_INCLUSION, message));
        }
        let projection = match fields(&parts.kept).any(|(_, keep)| truth(keep) == Some(true)) {
            true => Projection::parse(&parts.kept)?,
            // Of the others, only the `_id` stays, unless that is to go.
            false if parts.kept.is_empty() => Some(Projection::only(&["_id"])?),
            false => Some(Projection::only(&[])?),
        };
        Ok(Self { projection, computed: Some(Settings::parse(&parts.computed.to_document())?) })
    }

    /// Whether it changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.projection.is_none() && self.computed.is_none()
    }

    /// A stage that leaves these fields out.
    pub(super) fn without(names: &[&str]) -> Result<Self, CommandFailure> {
        Ok(Self { projection: Some(Projection::without(names)?), computed: None })
    }

    /// What `document` becomes.
    pub(super) fn apply(&self, document: &RawDocument, work: &Work) -> Result<RawDocumentBuf, CommandFailure> {
        let projected = match &self.projection {
            Some(projection) => projection.apply(document, work),
            None => document.to_owned(),
        };
        match &self.computed {
            Some(computed) => computed.set_in(&projected, document, work, MAX_INTERMEDIATE),
            None => Ok(projected),
        }
    }
}

impl<'a> Parts<'a> {
    /// Adds what a document within the specification asks for the fields at `path`.
    fn read(&mut self, path: &str, specification: &'a RawDocument) -> Result<(), CommandFailure> {
        for (name, value) in fields(specification) {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let inner = value.as_document().filter(|inner| !is_expression(inner));
            match (inner, truth(value)) {
                (Some(inner), _) if inner.is_empty() => {
                    let message = format!("An empty sub-projection is not a valid value. Found at path {path}");
                    return Err(CommandFailure::new(code::EMPTY_SUB_PROJECTION, message));
                }
                (Some(inner), _) => self.read(&path, inner)?,
                (None, Some(_)) => append(&mut self.kept, &path, value),
                (None, None) => {
                    // A path is not too long.
                    Path::parse(&path)?;
                    self.computed.add(&path, value)?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> Tree<'a> {
    fn add(&mut self, path: &str, value: RawBsonRef<'a>) -> Result<(), CommandFailure> {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let new = self.nodes.len();
        let place = *self.places.entry(first.to_owned()).or_insert(new);
        if place == new {
            let node = rest.map_or(Node::Value(value), |_| Node::Inner(Tree::default()));
            self.nodes.push((first.to_owned(), node));
        }
        match (self.nodes.get_mut(place), rest) {
            (Some((_, Node::Inner(inner))), Some(rest)) => inner.add(rest, value),
            (Some((_, Node::Value(_))), None) if place == new => Ok(()),
            _ => {
                let message = format!("Invalid $project :: caused by :: Path collision at {path}");
                Err(CommandFailure::new(code::PATH_COLLISION, message))
            }
        }
    }

    fn to_document(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        for (name, node) in &self.nodes {
            match node {
                Node::Value(value) => append(&mut document, name, *value),
                Node::Inner(inner) => append(&mut document, name, RawBsonRef::Document(&inner.to_document())),
            }
        }
        document
    }
}

/// Appends a field. The names of a document have no NULs.
fn append(document: &mut RawDocumentBuf, name: &str, value: RawBsonRef<'_>) {
    if let Ok(name) = CString::try_from(name) {
        document.append(&name, value);
    }
}

fn is_expression(document: &RawDocument) -> bool {
    fields(document).next().is_some_and(|(name, _)| name.starts_with('$'))
}

//! What bulk writes of a collection and of a whole client have in common: the models of a driver's interface become statements of
//! commands, and the client's result becomes what the test expects.

use alloc::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use cmap_sim::WriteResult;

use super::data::with_id;

/// A write, as a driver's interface has it: `{ updateOne: { filter, update, .. } }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// What it does.
    pub kind: Kind,
    /// Its arguments.
    pub arguments: Document,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It inserts a document.
    Insert,
    /// It updates one document, or several.
    Update {
        /// Several.
        multi: bool,
    },
    /// It replaces a document.
    Replace,
    /// It deletes one document, or several.
    Delete {
        /// Several.
        multi: bool,
    },
}

/// Why there are no such writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The test has something that is not known here.
    Unknown(String),
    /// A driver refuses it.
    Refused(&'static str),
}

impl Model {
    /// Reads all models. A document to insert gets an `_id` from `next_id` if it has none.
    ///
    /// # Errors
    /// One of them is unknown, or refused.
    pub fn read_all(models: &[Document], mut next_id: impl FnMut() -> ObjectId) -> Result<Vec<Self>, Problem> {
        models.iter().map(|model| Self::read(model, &mut next_id)).collect()
    }

    fn read(model: &Document, next_id: &mut impl FnMut() -> ObjectId) -> Result<Self, Problem> {
        let unknown = |text: String| Problem::Unknown(text);
        let (name, arguments) = model.iter().next().ok_or_else(|| unknown("an empty request".into()))?;
        let arguments = arguments.as_document().ok_or_else(|| unknown("a request without arguments".into()))?;
        let kind = match name.as_str() {
            "insertOne" => Kind::Insert,
            "updateOne" => Kind::Update { multi: false },
            "updateMany" => Kind::Update { multi: true },
            "replaceOne" => Kind::Replace,
            "deleteOne" => Kind::Delete { multi: false },
            "deleteMany" => Kind::Delete { multi: true },
            other => return Err(unknown(format!("unknown request `{other}`"))),
        };
        let mut arguments = arguments.clone();
        let first = |name: &str| arguments.get_document(name).ok().map(|own| own.keys().next().cloned());
        match kind {
            Kind::Insert => {
                let document = arguments.get_document("document").map_err(|error| unknown(error.to_string()))?;
                let document = with_id(document, next_id);
                arguments.insert("document", document);
            }
            Kind::Update { .. }
                if first("update").is_some_and(|first| first.is_none_or(|key| !key.starts_with('$'))) =>
            {
                return Err(Problem::Refused("an update consists of operators"));
            }
            Kind::Replace if first("replacement").flatten().is_some_and(|key| key.starts_with('$')) => {
                return Err(Problem::Refused("a replacement has no operators"));
            }
            Kind::Update { .. } | Kind::Replace | Kind::Delete { .. } => {}
        }
        Ok(Self { kind, arguments })
    }

    /// The argument, or null.
    pub fn argument(&self, name: &str) -> Bson {
        self.arguments.get(name).cloned().unwrap_or(Bson::Null)
    }

    /// What it changes a document to.
    pub fn change(&self) -> Bson {
        self.argument(if self.kind == Kind::Replace { "replacement" } else { "update" })
    }

    /// The arguments that have the names of fields of its statement.
    pub fn options(&self) -> Document {
        let names: &[&str] = match self.kind {
            Kind::Insert => &[],
            Kind::Update { .. } | Kind::Replace => &["upsert", "arrayFilters", "hint", "collation", "sort"],
            Kind::Delete { .. } => &["hint", "collation"],
        };
        let given = names.iter().filter_map(|name| Some(((*name).to_owned(), self.arguments.get(*name)?.clone())));
        given.collect()
    }

    /// Whether it concerns several documents.
    pub fn is_multi(&self) -> bool {
        matches!(self.kind, Kind::Update { multi: true } | Kind::Delete { multi: true })
    }

    /// The `_id` of the document that it inserts.
    pub fn inserted_id(&self) -> Option<Bson> {
        let document = self.arguments.get_document("document").ok().filter(|_| self.kind == Kind::Insert)?;
        document.get("_id").cloned()
    }
}

/// Whether the server has said of the write at this place that it was carried out.
pub fn is_confirmed(result: &WriteResult, ordered: bool, place: usize) -> bool {
    let mut failed = result.errors.iter().filter_map(|error| usize::try_from(error.index?).ok());
    if ordered { failed.min().is_none_or(|first| place < first) } else { !failed.any(|index| index == place) }
}

/// The counts of a result.
pub fn counts(result: &WriteResult) -> Document {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    doc! {
        "insertedCount": count(result.inserted), "matchedCount": count(result.matched),
        "modifiedCount": count(result.modified), "deletedCount": count(result.deleted),
        "upsertedCount": count(result.upserts),
    }
}

/// The errors of single writes, by their places, as tests expect them.
pub fn write_errors(result: &WriteResult) -> BTreeMap<String, Bson> {
    let errors = result.errors.iter().filter_map(|error| {
        let mut document = doc! { "code": error.code, "message": error.message.as_str() };
        let details = error.details.as_ref().and_then(|details| Document::try_from(&**details).ok());
        document.extend(details.map(|details| ("details".to_owned(), details.into())));
        Some((error.index?.to_string(), document.into()))
    });
    errors.collect()
}

/// The errors of write concerns, as tests expect them.
pub fn concern_errors(result: &WriteResult) -> Vec<Bson> {
    let errors = result.concern_errors.iter().map(|concern| {
        let mut document = doc! { "code": concern.error.code, "message": concern.error.message.as_str() };
        let details = concern.details.as_ref().and_then(|details| Document::try_from(&**details).ok());
        document.extend(details.map(|details| ("details".to_owned(), details.into())));
        document.into()
    });
    errors.collect()
}

//! A command while it is carried out: its arguments, its work, and whose it is.

use bson::RawDocument;
use bson::spec::ElementType;

use super::arguments::{self, Arguments};
use super::failure::CommandFailure;
use super::namespace::Namespace;
use super::owner::Owner;
use super::work::Work;

/// A command that is being carried out.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    pub(super) database: &'a str,
    pub(super) body: &'a RawDocument,
    pub(super) work: Work,
    pub(super) owner: Owner,
    pub(super) connection: Option<u64>,
}

impl<'a> Call<'a> {
    pub(super) fn arguments(&self) -> Arguments<'a> {
        Arguments::new(self.name, self.body)
    }

    /// The collection that the command names.
    pub(super) fn namespace(&self) -> Result<Namespace<'a>, CommandFailure> {
        namespace(self.name, self.database, self.body)
    }
}

/// The collection that a command of this name is about.
pub(super) fn namespace<'a>(
    name: &str,
    database: &'a str,
    body: &'a RawDocument,
) -> Result<Namespace<'a>, CommandFailure> {
    let name = body.get(name).ok().flatten().filter(|name| name.element_type() != ElementType::Null);
    let collection = name.and_then(|name| name.as_str()).ok_or_else(|| {
        let found = arguments::type_name(name.map_or(ElementType::Null, |name| name.element_type()));
        CommandFailure::invalid_namespace(format!("collection name has invalid type {found}"))
    })?;
    Namespace::new(database, collection)
}

//! The test server's store: databases and collections in memory, and the commands on them.
//!
//! It is a test server, not a database: small, exact where drivers look, and nothing is kept when it ends. A feature of
//! MongoDB that this store lacks is an error that says so, never another answer. The commands are in `commands`, one
//! file each; everything else here is their parts.
//!
//! A command's body is checked as a whole before it is read, so that no bytes make a command panic or recurse without
//! bound.
//!
//! ```
//! use bson::rawdoc;
//! use cmap_test_server::store::{Store, StoreCommand};
//!
//! let mut store = Store::default();
//! let insert = rawdoc! { "insert": "pets", "documents": [{ "_id": 1, "name": "Ada" }] };
//! let reply = store.run(&StoreCommand { name: "insert", database: "test", body: &insert }).unwrap()?;
//! assert_eq!(reply, rawdoc! { "n": 1 });
//!
//! let unknown = rawdoc! { "makeCoffee": 1 };
//! assert!(store.run(&StoreCommand { name: "makeCoffee", database: "test", body: &unknown }).is_none());
//! # Ok::<(), cmap_test_server::store::CommandFailure>(())
//! ```

mod arguments;
mod catalog;
mod collection;
mod commands;
mod cursor;
mod edited;
mod expression;
mod failure;
mod filter;
mod index;
mod modifier;
mod number;
mod order;
mod path;
mod pattern;
mod pipeline;
mod positional;
mod projection;
mod sort;
mod update;
mod write_error;

use bson::spec::ElementType;
use bson::{RawDocument, RawDocumentBuf};

pub use self::failure::{CommandFailure, code, code_name};
use arguments::Arguments;
use catalog::{Catalog, Namespace};
use cmap_core::wire;
use cursor::Cursors;

/// All databases, and the open cursors.
#[derive(Debug, Default)]
pub struct Store {
    catalog: Catalog,
    cursors: Cursors,
}

/// A command to the store.
#[derive(Clone, Copy, Debug)]
pub struct StoreCommand<'a> {
    /// Its name: the first field of the body.
    pub name: &'a str,
    /// The database it is for.
    pub database: &'a str,
    /// Its arguments. The documents of an OP_MSG's sequences are among them, as arrays.
    pub body: &'a RawDocument,
}

impl Store {
    /// The same documents, and no cursors.
    #[must_use]
    pub fn without_cursors(self) -> Self {
        Self { catalog: self.catalog, cursors: Cursors::default() }
    }

    /// Whether `name` is a command on data.
    pub fn knows(name: &str) -> bool {
        commands::named(name).is_some()
    }

    /// Carries out a command.
    ///
    /// `None` if it is not a command on data. The reply has no `ok` yet.
    ///
    /// # Errors
    /// Why the command failed; the reply to it has `ok: 0`. If single writes of a command failed, that is not an error
    /// but a reply with `writeErrors`.
    pub fn run(&mut self, command: &StoreCommand<'_>) -> Option<Result<RawDocumentBuf, CommandFailure>> {
        let run = commands::named(command.name)?;
        Some(check(command.body).and_then(|()| run(self, command)))
    }
}

impl<'a> StoreCommand<'a> {
    fn arguments(&self) -> Arguments<'a> {
        Arguments::new(self.name, self.body)
    }

    /// The collection that the command names.
    fn namespace(&self) -> Result<Namespace<'a>, CommandFailure> {
        let name = self.arguments().get(self.name);
        let collection = name.and_then(|name| name.as_str()).ok_or_else(|| {
            let found = arguments::type_name(name.map_or(ElementType::Null, |name| name.element_type()));
            CommandFailure::invalid_namespace(format!("collection name has invalid type {found}"))
        })?;
        Namespace::new(self.database, collection)
    }
}

/// Whether a body can be read: well-formed, not too deep, its texts UTF-8.
fn check(body: &RawDocument) -> Result<(), CommandFailure> {
    let invalid = |error: &dyn std::fmt::Display| CommandFailure::invalid_bson(format!("{error}"));
    wire::document::validate(body.as_bytes()).map_err(|error| invalid(&error))?;
    check_texts(body).map_err(|error| invalid(&error))
}

fn check_texts(document: &RawDocument) -> Result<(), bson::error::Error> {
    for field in document.iter() {
        let (_, value) = field?;
        if let Some(document) = value.as_document() {
            check_texts(document)?;
        } else if let Some(array) = value.as_array() {
            check_texts(RawDocument::from_bytes(array.as_bytes())?)?;
        } else if let Some(code) = value.as_javascript_with_scope() {
            check_texts(code.scope)?;
        }
    }
    Ok(())
}

//! The names of collections.

use super::failure::CommandFailure;

/// The longest `database.collection`.
const MAX_NAMESPACE: usize = 255;
/// The longest name of a database.
const MAX_DATABASE: usize = 63;

/// The name of a collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Namespace<'a> {
    pub(super) database: &'a str,
    pub(super) collection: &'a str,
}

impl<'a> Namespace<'a> {
    /// A valid name of a collection.
    pub(super) fn new(database: &'a str, collection: &'a str) -> Result<Self, CommandFailure> {
        let forbidden = |character| matches!(character, '/' | '\\' | '.' | ' ' | '"' | '$' | '\0');
        if database.is_empty() || database.len() > MAX_DATABASE || database.contains(forbidden) {
            return Err(CommandFailure::invalid_namespace(format!("Invalid database name: '{database}'")));
        }
        if collection.is_empty() || collection.starts_with('.') || collection.contains(['$', '\0']) {
            let message = format!("Invalid namespace specified '{database}.{collection}'");
            return Err(CommandFailure::invalid_namespace(message));
        }
        if database.len() + 1 + collection.len() > MAX_NAMESPACE {
            let message = format!("Fully qualified namespace is too long. Namespace: {database}.{collection} Max: 255");
            return Err(CommandFailure::invalid_namespace(message));
        }
        Ok(Self { database, collection })
    }

    /// `database.collection`.
    pub(super) fn full(&self) -> String {
        format!("{}.{}", self.database, self.collection)
    }
}

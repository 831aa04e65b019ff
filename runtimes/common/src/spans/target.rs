//! What an operation or a command is about, as its span names it.

use bson::{RawBsonRef, RawDocument};

/// A command, its database, and its collection if it is about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target<'c> {
    /// The command's name.
    pub(super) command: &'c str,
    pub(super) database: &'c str,
    /// None on `admin` (OTEL-3).
    pub(super) collection: Option<&'c str>,
}

impl<'c> Target<'c> {
    pub(super) fn of(body: &'c RawDocument, database: &'c str) -> Self {
        let (command, value) = body
            .iter()
            .next()
            .and_then(Result::ok)
            .map_or(("", RawBsonRef::Null), |(name, value)| (name.as_str(), value));
        // The value of a getMore is its cursor, that of some others the name of a user or a role.
        let is_of_user = ["User", "Role", "usersInfo", "rolesInfo"].iter().any(|end| command.ends_with(end));
        let collection = value.as_str().or_else(|| body.get_str("collection").ok());
        Self { command, database, collection: collection.filter(|_| database != "admin" && !is_of_user) }
    }

    /// The operation that the command carries out (OTEL-4).
    pub(super) fn operation(&self) -> &'c str {
        match self.command {
            "create" => "createCollection",
            "drop" => "dropCollection",
            command => command,
        }
    }

    /// `name shop.orders`, or `name shop`.
    pub(super) fn summary(&self, name: &str) -> String {
        let Self { database, collection, .. } = self;
        match collection {
            Some(collection) => format!("{name} {database}.{collection}"),
            None => format!("{name} {database}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn summary(body: &RawDocument, database: &str) -> String {
        let target = Target::of(body, database);
        target.summary(target.operation())
    }

    #[test]
    fn an_operation_is_named_after_its_command_and_its_collection_otel_2() {
        assert_eq!(summary(&rawdoc! { "find": "orders" }, "shop"), "find shop.orders");
        assert_eq!(summary(&rawdoc! { "getMore": 5_i64, "collection": "orders" }, "shop"), "getMore shop.orders");
        assert_eq!(summary(&rawdoc! { "aggregate": 1, "pipeline": [] }, "shop"), "aggregate shop");
        assert_eq!(summary(&rawdoc! { "commitTransaction": 1 }, "admin"), "commitTransaction admin");
        assert_eq!(summary(&rawdoc! { "find": "system.users" }, "admin"), "find admin");
        assert_eq!(summary(&rawdoc! { "createUser": "app" }, "shop"), "createUser shop");
        assert_eq!(summary(&rawdoc! { "usersInfo": "app" }, "shop"), "usersInfo shop");
        assert_eq!(summary(&rawdoc! {}, "shop"), " shop");
    }

    #[test]
    fn collections_are_created_and_dropped_by_names_of_their_own_otel_4() {
        assert_eq!(summary(&rawdoc! { "create": "orders" }, "shop"), "createCollection shop.orders");
        assert_eq!(summary(&rawdoc! { "drop": "orders" }, "shop"), "dropCollection shop.orders");
    }
}

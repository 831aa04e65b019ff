//! The argument of `$changeStream`: whose changes a stream shows, from where on, and with which documents.

use bson::{RawBsonRef, Timestamp};

use super::token::Token;
use crate::store::arguments::Arguments;
use crate::store::call::Call;
use crate::store::failure::{CommandFailure, code};
use crate::store::history::{Change, Event};
use crate::store::number::Number;
use crate::store::pipeline;

const FIELDS: &[&str] = &[
    "fullDocument",
    "fullDocumentBeforeChange",
    "resumeAfter",
    "startAfter",
    "startAtOperationTime",
    "allChangesForCluster",
    "showExpandedEvents",
];

/// What a stream shows.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) scope: Scope,
    pub(super) start: Start,
    pub(super) full_document: FullDocument,
    pub(super) before_change: BeforeChange,
    pub(super) shows_expanded: bool,
}

/// The collections whose changes it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Collection {
        database: String,
        collection: String,
    },
    Database(String),
    /// All but MongoDB's own.
    Cluster,
}

/// Where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Now,
    At(Timestamp),
    After(Token),
}

/// The document that an update shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullDocument {
    Default,
    /// As it is when the event is read.
    UpdateLookup,
    /// As it was after the update, or null.
    WhenAvailable,
    /// As it was after the update, or an error.
    Required,
}

/// The document before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BeforeChange {
    Off,
    WhenAvailable,
    Required,
}

impl Options {
    pub(super) fn read(call: &Call<'_>, arguments: &Arguments<'_>) -> Result<Self, CommandFailure> {
        arguments.check_known(FIELDS)?;
        let full_document = match arguments.string("fullDocument")? {
            None | Some("default") => FullDocument::Default,
            Some("updateLookup") => FullDocument::UpdateLookup,
            Some("whenAvailable") => FullDocument::WhenAvailable,
            Some("required") => FullDocument::Required,
            Some(other) => return Err(invalid("fullDocument", other)),
        };
        let before_change = match arguments.string("fullDocumentBeforeChange")? {
            None | Some("off") => BeforeChange::Off,
            Some("whenAvailable") => BeforeChange::WhenAvailable,
            Some("required") => BeforeChange::Required,
            Some(other) => return Err(invalid("fullDocumentBeforeChange", other)),
        };
        Ok(Self {
            scope: Scope::read(call, arguments)?,
            start: Start::read(arguments)?,
            full_document,
            before_change,
            shows_expanded: arguments.boolean("showExpandedEvents")?,
        })
    }

    /// Whether the stream shows an event.
    pub(super) fn shows(&self, event: &Event) -> bool {
        self.scope.covers(event) && (self.shows_expanded || !is_expanded(&event.change))
    }
}

/// Whether a change is shown to those alone who ask for more events.
fn is_expanded(change: &Change) -> bool {
    match change {
        Change::Create { .. }
        | Change::CreateIndexes { .. }
        | Change::DropIndexes { .. }
        | Change::Modify { .. }
        | Change::ShardCollection { .. } => true,
        Change::Insert(_)
        | Change::Update { .. }
        | Change::Replace { .. }
        | Change::Delete { .. }
        | Change::Drop
        | Change::Rename { .. }
        | Change::DropDatabase => false,
    }
}

impl Scope {
    fn read(call: &Call<'_>, arguments: &Arguments<'_>) -> Result<Self, CommandFailure> {
        let is_of_database = call.arguments().get("aggregate").and_then(Number::read).is_some();
        let is_of_all = arguments.boolean("allChangesForCluster")?;
        let is_internal = matches!(call.database, "admin" | "config" | "local");
        match (is_of_all, is_of_database) {
            (true, true) if call.database == "admin" => Ok(Self::Cluster),
            (true, _) => {
                let message = "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' \
                               database, and with no collection name";
                Err(CommandFailure::new(code::INVALID_OPTIONS, message))
            }
            (false, _) if is_internal => {
                let message = format!("$changeStream may not be opened on the internal {} database", call.database);
                Err(CommandFailure::invalid_namespace(message))
            }
            (false, true) => {
                // What is no name of a database has no collections.
                Ok(Self::Database(call.database.to_owned()))
            }
            (false, false) => {
                let namespace = call.namespace()?;
                if namespace.collection.starts_with("system.") {
                    let message = format!("$changeStream may not be opened on the internal {}", namespace.full());
                    return Err(CommandFailure::invalid_namespace(message));
                }
                let (database, collection) = (namespace.database.to_owned(), namespace.collection.to_owned());
                Ok(Self::Collection { database, collection })
            }
        }
    }

    /// `database.collection`, as the cursor has it.
    pub(super) fn namespace(&self) -> String {
        match self {
            Self::Collection { database, collection } => format!("{database}.{collection}"),
            Self::Database(database) => pipeline::database_namespace(database),
            Self::Cluster => pipeline::database_namespace("admin"),
        }
    }

    fn covers(&self, event: &Event) -> bool {
        let is_own = |database: &str, collection: &str| match self {
            Self::Collection { database: own, collection: name } => own == database && name == collection,
            Self::Database(own) => own == database,
            Self::Cluster => !matches!(database, "admin" | "config" | "local"),
        };
        let is_target =
            matches!(&event.change, Change::Rename { to: (database, collection), .. } if is_own(database, collection));
        is_target || is_own(&event.database, &event.collection)
    }

    /// Whether nothing can follow an event: what the stream is of is gone, or another.
    pub(super) fn is_ended_by(&self, event: &Event) -> bool {
        match (self, &event.change) {
            (Self::Collection { .. }, Change::Drop | Change::Rename { .. })
            | (Self::Database(_), Change::DropDatabase) => self.covers(event),
            _ => false,
        }
    }
}

impl Start {
    fn read(arguments: &Arguments<'_>) -> Result<Self, CommandFailure> {
        let (after, resumed) = (arguments.document("startAfter")?, arguments.document("resumeAfter")?);
        let time = match arguments.get("startAtOperationTime") {
            None => None,
            Some(RawBsonRef::Timestamp(time)) => Some(time),
            Some(other) => return Err(arguments.wrong_type("startAtOperationTime", other, "timestamp")),
        };
        match (after, resumed, time) {
            (None, None, None) => Ok(Self::Now),
            (None, None, Some(time)) => Ok(Self::At(time)),
            (Some(token), None, None) => Token::read(token).map(Self::After),
            (None, Some(token), None) => {
                let token = Token::read(token)?;
                if token.is_of_end {
                    let message = "Attempting to resume a change stream using 'resumeAfter' is not allowed from an \
                                   invalidate notification.";
                    return Err(CommandFailure::new(code::INVALID_RESUME_TOKEN, message));
                }
                Ok(Self::After(token))
            }
            _ => {
                let message = "Only one type of resume option is allowed, but multiple were found.";
                Err(CommandFailure::new(code::SEVERAL_RESUME_OPTIONS, message))
            }
        }
    }
}

fn invalid(field: &str, value: &str) -> CommandFailure {
    let message = format!("Enumeration value '{value}' for field '$changeStream.{field}' is not a valid value.");
    CommandFailure::bad_value(message)
}

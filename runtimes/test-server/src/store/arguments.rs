//! The arguments of a command, read from its body as a server reads them.
//!
//! Every number may be any numeric type. A null field counts as missing. If a command lists its fields, an unknown one
//! is an error; the fields that every command may have are always known.

use bson::spec::ElementType;
use bson::{RawArray, RawBsonRef, RawDocument};

use super::collation;
use super::failure::{CommandFailure, code};
use super::number::Number;

/// Fields that every command may have, and that this server ignores.
const GENERIC: &[&str] = &[
    "$audit",
    "$client",
    "$clusterTime",
    "$configServerState",
    "$configTime",
    "$db",
    "$queryOptions",
    "$readPreference",
    "$topologyTime",
    "allowImplicitCollectionCreation",
    "apiDeprecationErrors",
    "apiStrict",
    "apiVersion",
    "autocommit",
    "comment",
    "databaseVersion",
    "help",
    "lsid",
    "maxTimeMS",
    "maxTimeMSOpOnly",
    "mayBypassWriteBlocking",
    "readConcern",
    "shardVersion",
    "startTransaction",
    "stmtId",
    "stmtIds",
    "txnNumber",
    "writeConcern",
];

/// A document of arguments, and its name in errors.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    of: &'a str,
    body: &'a RawDocument,
}

/// The fields of a document that is known to be well-formed.
pub(super) fn fields(document: &RawDocument) -> impl Iterator<Item = (&str, RawBsonRef<'_>)> {
    document.iter().filter_map(Result::ok).map(|(name, value)| (name.as_str(), value))
}

/// The values of an array that is known to be well-formed.
pub(super) fn values(array: &RawArray) -> impl Iterator<Item = RawBsonRef<'_>> {
    array.into_iter().filter_map(Result::ok)
}

impl<'a> Arguments<'a> {
    /// The arguments in `body`, of a command or of a part of it called `of`.
    pub(super) fn new(of: &'a str, body: &'a RawDocument) -> Self {
        Self { of, body }
    }

    /// Refuses fields that are neither in `known` nor common to all commands, and collations that would matter.
    pub(super) fn check_known(&self, known: &[&str]) -> Result<(), CommandFailure> {
        if known.contains(&"collation") {
            collation::check(self.document("collation")?)?;
        }
        match fields(self.body).find(|(name, _)| *name != self.of && !known.contains(name) && !GENERIC.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(CommandFailure::new(
                code::UNKNOWN_FIELD,
                format!("BSON field '{}.{name}' is an unknown field.", self.of),
            )),
        }
    }

    /// The field, of any type.
    pub(super) fn get(&self, name: &str) -> Option<RawBsonRef<'a>> {
        self.body.get(name).ok().flatten().filter(|value| value.element_type() != ElementType::Null)
    }

    /// A required field.
    pub(super) fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, CommandFailure> {
        value.ok_or_else(|| {
            let message = format!("BSON field '{}.{name}' is missing but a required field", self.of);
            CommandFailure::new(code::FIELD_MISSING, message)
        })
    }

    pub(super) fn document(&self, name: &str) -> Result<Option<&'a RawDocument>, CommandFailure> {
        self.typed(name, "object", RawBsonRef::as_document)
    }

    pub(super) fn array(&self, name: &str) -> Result<Option<&'a RawArray>, CommandFailure> {
        self.typed(name, "array", RawBsonRef::as_array)
    }

    pub(super) fn string(&self, name: &str) -> Result<Option<&'a str>, CommandFailure> {
        self.typed(name, "string", RawBsonRef::as_str)
    }

    /// An array of documents.
    pub(super) fn documents(&self, name: &str) -> Result<Vec<&'a RawDocument>, CommandFailure> {
        let array = self.required(name, self.array(name)?)?;
        values(array)
            .enumerate()
            .map(|(index, value)| {
                value.as_document().ok_or_else(|| self.wrong_type(&format!("{name}.{index}"), value, "object"))
            })
            .collect()
    }

    /// A boolean, false if it is missing; a number is true unless it is zero.
    pub(super) fn boolean(&self, name: &str) -> Result<bool, CommandFailure> {
        Ok(self.typed(name, "bool", truth)?.unwrap_or(false))
    }

    /// An integer; a fraction is cut off.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, CommandFailure> {
        self.typed(name, "long", |value| Number::read(value).and_then(Number::to_integer))
    }

    /// An integer that is not negative.
    pub(super) fn natural(&self, name: &str) -> Result<Option<usize>, CommandFailure> {
        let Some(value) = self.integer(name)? else { return Ok(None) };
        if value < 0 {
            let message = format!("BSON field '{name}' value must be >= 0, actual value '{value}'");
            return Err(CommandFailure::new(code::NEGATIVE_NUMBER, message));
        }
        Ok(Some(usize::try_from(value).unwrap_or(usize::MAX)))
    }

    fn typed<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(RawBsonRef<'a>) -> Option<T>,
    ) -> Result<Option<T>, CommandFailure> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong_type(name, value, expected)),
        }
    }

    /// The failure of a field with a wrong type.
    pub(super) fn wrong_type(&self, name: &str, value: RawBsonRef<'_>, expected: &str) -> CommandFailure {
        let (of, found) = (self.of, type_name(value.element_type()));
        let message = format!("BSON field '{of}.{name}' is the wrong type '{found}', expected type '{expected}'");
        CommandFailure::new(code::TYPE_MISMATCH, message)
    }
}

/// The values that count as a boolean: one, or a number.
pub(super) fn truth(value: RawBsonRef<'_>) -> Option<bool> {
    value.as_bool().or_else(|| Some(!Number::read(value)?.is_zero()))
}

/// The types by MongoDB's names and numbers.
pub(super) const TYPES: [(ElementType, &str, i32); 21] = [
    (ElementType::Double, "double", 1),
    (ElementType::String, "string", 2),
    (ElementType::EmbeddedDocument, "object", 3),
    (ElementType::Array, "array", 4),
    (ElementType::Binary, "binData", 5),
    (ElementType::Undefined, "undefined", 6),
    (ElementType::ObjectId, "objectId", 7),
    (ElementType::Boolean, "bool", 8),
    (ElementType::DateTime, "date", 9),
    (ElementType::Null, "null", 10),
    (ElementType::RegularExpression, "regex", 11),
    (ElementType::DbPointer, "dbPointer", 12),
    (ElementType::JavaScriptCode, "javascript", 13),
    (ElementType::Symbol, "symbol", 14),
    (ElementType::JavaScriptCodeWithScope, "javascriptWithScope", 15),
    (ElementType::Int32, "int", 16),
    (ElementType::Timestamp, "timestamp", 17),
    (ElementType::Int64, "long", 18),
    (ElementType::Decimal128, "decimal", 19),
    (ElementType::MinKey, "minKey", -1),
    (ElementType::MaxKey, "maxKey", 127),
];

/// MongoDB's name of a type.
pub(super) fn type_name(element_type: ElementType) -> &'static str {
    TYPES.iter().find(|(of, ..)| *of == element_type).map_or("unknown", |(_, name, _)| name)
}

/// A value in a sentence.
pub(super) fn shown(value: RawBsonRef<'_>) -> String {
    bson::Bson::try_from(value).map_or_else(|_| String::new(), |value| format!("{value}"))
}

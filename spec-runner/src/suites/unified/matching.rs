//! The unified format's matching rules: does an actual value have what an expected one asks for?
//!
//! An expected value is a [`Pattern`]: a value, in which a document with one key that begins with `$$` stands for a rule
//! of its own, such as `{ "$$exists": true }`. Documents on the top level (a command, a reply, the result of an
//! operation) may have more keys than expected, all others may not. Arrays are of one length; those on the top level hold
//! documents of the top level. Numbers are compared by value, across their types.

use core::fmt;

use bson::spec::BinarySubtype;
use bson::{Bson, Document};
use serde::Deserialize;
use serde_json::Value;

use crate::suites::extended_json;
use crate::suites::mismatch::Mismatch;
use crate::suites::place::Place;

/// An expected value, all of whose rules are in `RULES`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Pattern(Bson);

/// The values that `$$matchesEntity` refers to: those that a test has saved.
pub type Saved<'a> = &'a dyn Fn(&str) -> Option<Bson>;

/// The rules that can be checked.
const RULES: [&str; 9] = [
    "$$exists",
    "$$type",
    "$$unsetOrMatches",
    "$$matchesEntity",
    "$$matchesHexBytes",
    "$$sessionLsid",
    "$$matchAsDocument",
    "$$matchAsRoot",
    "$$lte",
];

impl Pattern {
    /// Whether `actual` matches; `None` stands for a missing key.
    pub fn compare(&self, actual: Option<&Bson>, saved: Saved<'_>) -> Result<(), Mismatch> {
        Comparison { saved }.compare(&Place::top(), &self.0, actual, Level::Top)
    }

    /// As [`compare`](Self::compare), for a value inside another, where documents have no more keys than expected.
    pub fn compare_nested(&self, actual: Option<&Bson>, saved: Saved<'_>) -> Result<(), Mismatch> {
        Comparison { saved }.compare(&Place::top(), &self.0, actual, Level::Nested)
    }

    /// The pattern as a value.
    pub fn value(&self) -> &Bson {
        &self.0
    }
}

impl TryFrom<Value> for Pattern {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let value = extended_json::bson(value)?;
        check_rules(&value)?;
        Ok(Self(value))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", text(&self.0))
    }
}

/// A value as the files write it.
pub fn text(value: &Bson) -> String {
    value.clone().into_relaxed_extjson().to_string()
}

/// A rule that is not known must not be taken for a document.
fn check_rules(value: &Bson) -> Result<(), String> {
    if let Some(items) = value.as_array() {
        return items.iter().try_for_each(check_rules);
    }
    let Some(document) = value.as_document() else { return Ok(()) };
    document.iter().try_for_each(|(key, value)| {
        if key.starts_with("$$") && !RULES.contains(&key.as_str()) {
            return Err(format!("unknown rule `{key}`"));
        }
        if key.starts_with("$$") && document.len() > 1 {
            return Err(format!("beside the rule `{key}` stand other keys"));
        }
        check_rules(value)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Top,
    Nested,
}

struct Comparison<'a> {
    saved: Saved<'a>,
}

impl Comparison<'_> {
    fn compare(&self, place: &Place, expected: &Bson, actual: Option<&Bson>, level: Level) -> Result<(), Mismatch> {
        if let Some((rule, argument)) = rule(expected) {
            return self.apply(place, rule, argument, actual, level);
        }
        match (expected, actual) {
            (Bson::Document(expected), Some(Bson::Document(actual))) => self.documents(place, expected, actual, level),
            (Bson::Array(expected), Some(Bson::Array(found))) => {
                if expected.len() != found.len() {
                    return Err(mismatch(place, &format!("{} items", expected.len()), actual));
                }
                let mut pairs = expected.iter().zip(found).enumerate();
                pairs.try_for_each(|(index, (expected, actual))| {
                    self.compare(&place.index(index), expected, Some(actual), level)
                })
            }
            (expected, Some(actual)) if are_equal(expected, actual) => Ok(()),
            (expected, actual) => Err(mismatch(place, &text(expected), actual)),
        }
    }

    fn documents(&self, place: &Place, expected: &Document, actual: &Document, level: Level) -> Result<(), Mismatch> {
        for (key, value) in expected {
            self.compare(&place.key(key), value, actual.get(key), Level::Nested)?;
        }
        match actual.iter().find(|(key, _)| level == Level::Nested && !expected.contains_key(key)) {
            Some((key, value)) => Err(mismatch(&place.key(key), "nothing", Some(value))),
            None => Ok(()),
        }
    }

    fn apply(
        &self,
        place: &Place,
        rule: &str,
        argument: &Bson,
        actual: Option<&Bson>,
        level: Level,
    ) -> Result<(), Mismatch> {
        let require = |holds: bool, expected: &str| if holds { Ok(()) } else { Err(mismatch(place, expected, actual)) };
        match rule {
            "$$exists" if argument.as_bool() == Some(false) => require(actual.is_none(), "nothing"),
            "$$exists" => require(actual.is_some(), "anything"),
            "$$type" => {
                let names = type_names(argument);
                let is_one = actual.is_some_and(|actual| names.iter().any(|name| is_of_type(actual, name)));
                require(is_one, &format!("a value of type {}", names.join(" or ")))
            }
            "$$unsetOrMatches" if actual.is_none() => Ok(()),
            "$$unsetOrMatches" => self.compare(place, argument, actual, level),
            // The value of a session is its id.
            "$$matchesEntity" | "$$sessionLsid" => {
                let name = argument.as_str().unwrap_or_default();
                match (self.saved)(name) {
                    Some(saved) => self.compare(place, &saved, actual, level),
                    None => Err(mismatch(place, &format!("the saved value \"{name}\", which does not exist"), actual)),
                }
            }
            "$$matchesHexBytes" => {
                let hex = argument.as_str().unwrap_or_default();
                require(actual.is_some_and(|actual| is_bytes(actual, hex)), &format!("the bytes {hex}"))
            }
            "$$matchAsDocument" => match actual.and_then(Bson::as_str).and_then(parse) {
                Some(document) => self.compare(place, argument, Some(&document), Level::Nested),
                None => Err(mismatch(place, "a text that is a document", actual)),
            },
            "$$matchAsRoot" => self.compare(place, argument, actual, Level::Top),
            "$$lte" => {
                let is_less = number(argument).zip(actual.and_then(number)).is_some_and(|(most, found)| found <= most);
                require(is_less, &format!("at most {}", text(argument)))
            }
            // Patterns are checked when they are read.
            unknown => Err(mismatch(place, &format!("the unknown rule {unknown}"), actual)),
        }
    }
}

/// The rule of an expected value, if it is one, and the rule's argument.
fn rule(expected: &Bson) -> Option<(&str, &Bson)> {
    let (key, argument) = expected.as_document().filter(|document| document.len() == 1)?.iter().next()?;
    key.starts_with("$$").then_some((key, argument))
}

fn mismatch(place: &Place, expected: &str, actual: Option<&Bson>) -> Mismatch {
    Mismatch::new(place, expected, actual.map(text))
}

/// Integers are compared as such, for a float cannot tell all of them apart.
fn are_equal(expected: &Bson, actual: &Bson) -> bool {
    match (integer(expected), integer(actual)) {
        (Some(expected), Some(actual)) => expected == actual,
        _ => match (number(expected), number(actual)) {
            (Some(expected), Some(actual)) => expected == actual,
            _ => expected == actual,
        },
    }
}

fn integer(value: &Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}

#[expect(clippy::cast_precision_loss, reason = "only compared with floats")]
fn number(value: &Bson) -> Option<f64> {
    value.as_f64().or_else(|| integer(value).map(|integer| integer as f64))
}

fn type_names(argument: &Bson) -> Vec<&str> {
    let names = argument.as_array().map_or(core::slice::from_ref(argument), Vec::as_slice);
    names.iter().filter_map(Bson::as_str).collect()
}

/// The names of BSON types, as queries have them.
#[expect(clippy::wildcard_enum_match_arm, reason = "types that no test of the format can name")]
fn is_of_type(value: &Bson, name: &str) -> bool {
    if name == "number" {
        return matches!(value, Bson::Double(_) | Bson::Int32(_) | Bson::Int64(_) | Bson::Decimal128(_));
    }
    let own = match value {
        Bson::Double(_) => "double",
        Bson::String(_) => "string",
        Bson::Document(_) => "object",
        Bson::Array(_) => "array",
        Bson::Binary(_) => "binData",
        Bson::ObjectId(_) => "objectId",
        Bson::Boolean(_) => "bool",
        Bson::DateTime(_) => "date",
        Bson::Null => "null",
        Bson::RegularExpression(_) => "regex",
        Bson::Int32(_) => "int",
        Bson::Int64(_) => "long",
        Bson::Timestamp(_) => "timestamp",
        Bson::Decimal128(_) => "decimal",
        Bson::MinKey => "minKey",
        Bson::MaxKey => "maxKey",
        _ => return false,
    };
    own == name
}

fn is_bytes(value: &Bson, hex: &str) -> bool {
    let Bson::Binary(binary) = value else { return false };
    let digits: String = binary.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    binary.subtype == BinarySubtype::Generic && digits.eq_ignore_ascii_case(hex)
}

fn parse(text: &str) -> Option<Bson> {
    let value: Value = serde_json::from_str(text).ok()?;
    Bson::try_from(value).ok().filter(|value| value.as_document().is_some())
}

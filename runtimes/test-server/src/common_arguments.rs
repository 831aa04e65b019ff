//! Arguments that every command may have: a time limit, a write concern, a read preference. What makes no sense is refused, even
//! where it would have no effect here.

use bson::RawBsonRef;
use bson::spec::ElementType;
use cmap_core::wire::integer;

use super::failure::fail;
use super::request::{Arguments, Request};
use crate::store::{CommandFailure, code};

/// The most members that a write can wait for.
const MOST_MEMBERS: i64 = 50;

/// The least staleness that can be asked for, in seconds.
const LEAST_STALENESS: i64 = 90;

const MODES: [&str; 5] = ["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"];

/// Refuses values that the arguments cannot have. `takes_write_concern` tells whether the command can have one.
pub(super) fn check(request: &Request<'_>, takes_write_concern: bool) -> Result<(), CommandFailure> {
    check_max_time(request.arguments)?;
    if let Some(preference) = request.arguments.document("$readPreference")? {
        check_read_preference(preference)?;
    }
    let Some(concern) = request.arguments.document("writeConcern")? else { return Ok(()) };
    if !takes_write_concern {
        let message = format!("Command {} does not support writeConcern", request.name);
        return Err(fail(code::INVALID_OPTIONS, message));
    }
    check_write_concern(concern)
}

fn check_max_time(arguments: Arguments<'_>) -> Result<(), CommandFailure> {
    let Some(value) = arguments.get("maxTimeMS") else { return Ok(()) };
    match integer(value).or_else(|| value.as_f64().map(|_| -1)) {
        None => Err(fail(code::BAD_VALUE, "maxTimeMS must be a number")),
        Some(limit) if (0..=i64::from(i32::MAX)).contains(&limit) => Ok(()),
        Some(_) => {
            let shown =
                value.as_f64().map_or_else(|| integer(value).unwrap_or_default().to_string(), |it| it.to_string());
            Err(fail(code::BAD_VALUE, format!("{shown} value for maxTimeMS is out of range [0, {}]", i32::MAX)))
        }
    }
}

fn check_read_preference(preference: Arguments<'_>) -> Result<(), CommandFailure> {
    let mode = preference.text("mode")?.ok_or_else(|| {
        fail(code::FIELD_MISSING, "BSON field '$readPreference.mode' is missing but a required field")
    })?;
    if !MODES.contains(&mode) {
        return Err(fail(
            code::BAD_VALUE,
            format!("Enumeration value '{mode}' for field '$readPreference.mode' is not valid"),
        ));
    }
    if let Some(name) = unknown(preference, &["mode", "tags", "maxStalenessSeconds", "hedge"]) {
        return Err(unknown_field("$readPreference", &name));
    }
    let tags = preference.array("tags")?;
    let has_tags = tags.is_some_and(|tags| {
        tags.into_iter().filter_map(Result::ok).any(|set| set.as_document().is_some_and(|set| !set.is_empty()))
    });
    let staleness = preference.integer("maxStalenessSeconds")?.filter(|seconds| *seconds != -1 && *seconds != 0);
    if mode == "primary" && (has_tags || staleness.is_some()) {
        return Err(fail(
            code::BAD_VALUE,
            "the read preference mode primary takes neither tags nor maxStalenessSeconds",
        ));
    }
    match staleness {
        Some(seconds) if seconds < LEAST_STALENESS => {
            let message = format!("maxStalenessSeconds must be at least {LEAST_STALENESS}, but is {seconds}");
            Err(fail(code::MAX_STALENESS_OUT_OF_RANGE, message))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_write_concern(concern: Arguments<'_>) -> Result<(), CommandFailure> {
    if let Some(name) = unknown(concern, &["w", "j", "fsync", "wtimeout", "provenance"]) {
        return Err(unknown_field("writeConcern", &name));
    }
    match concern.get("w") {
        None | Some(RawBsonRef::String(_) | RawBsonRef::Document(_)) => {}
        Some(w) => match integer(w) {
            Some(members) if (0..=MOST_MEMBERS).contains(&members) => {}
            Some(members) => {
                let message =
                    format!("w has to be a non-negative number and not greater than {MOST_MEMBERS}; found: {members}");
                return Err(fail(code::FAILED_TO_PARSE, message));
            }
            None => {
                let found = w.element_type();
                let message = format!("w has to be a number, string, or object; found: {found:?}");
                return Err(fail(code::FAILED_TO_PARSE, message));
            }
        },
    }
    for name in ["j", "fsync"] {
        let is_flag = |value: RawBsonRef<'_>| value.element_type() == ElementType::Boolean || is_number(value);
        check_type(concern, name, "bool", is_flag)?;
    }
    check_type(concern, "wtimeout", "number", is_number)
}

fn check_type(
    arguments: Arguments<'_>,
    name: &str,
    expected: &str,
    is_valid: impl Fn(RawBsonRef<'_>) -> bool,
) -> Result<(), CommandFailure> {
    match arguments.get(name).filter(|value| !is_valid(*value)) {
        None => Ok(()),
        Some(value) => {
            let found = value.element_type();
            let message =
                format!("BSON field 'writeConcern.{name}' is the wrong type '{found:?}', expected type '{expected}'");
            Err(fail(code::TYPE_MISMATCH, message))
        }
    }
}

fn is_number(value: RawBsonRef<'_>) -> bool {
    integer(value).is_some() || value.as_f64().is_some()
}

fn unknown(arguments: Arguments<'_>, known: &[&str]) -> Option<String> {
    arguments.names().find(|name| !known.contains(&name.as_str()))
}

fn unknown_field(of: &str, name: &str) -> CommandFailure {
    fail(code::UNKNOWN_FIELD, format!("BSON field '{of}.{name}' is an unknown field."))
}

//! Write concerns: the outcome of a write that waits for more members than the replica set has, which is one.

use bson::{RawBsonRef, RawDocumentBuf};
use cmap_core::wire::integer;

use super::document::document;
use super::failure::fail;
use super::request::Request;
use crate::store::{CommandFailure, code, code_name};

/// Refuses a write that waits for other members where there are none.
pub(super) fn check_alone(request: &Request<'_>) -> Result<(), CommandFailure> {
    match acknowledging(request)?.and_then(integer) {
        Some(members) if members > 1 => Err(fail(2, "cannot use 'w' > 1 when a host is not replicated")),
        Some(_) | None => Ok(()),
    }
}

/// The `writeConcernError` of a write that was carried out.
pub(super) fn error(request: &Request<'_>) -> Result<Option<RawDocumentBuf>, CommandFailure> {
    let Some(wanted) = acknowledging(request)? else { return Ok(None) };
    let (code, message) = match (wanted.as_str(), integer(wanted)) {
        (Some("majority"), _) | (None, Some(..=1)) => return Ok(None),
        (Some(mode), _) => {
            let message = format!("No write concern mode named '{mode}' found in replica set configuration");
            (code::UNKNOWN_REPL_WRITE_CONCERN, message)
        }
        (None, _) => (code::UNSATISFIABLE_WRITE_CONCERN, String::from("Not enough data-bearing nodes")),
    };
    let asked = request.arguments.document("writeConcern")?.map(|concern| concern.0.to_owned()).unwrap_or_default();
    Ok(Some(document! {
        "code": code, "codeName": code_name(code), "errmsg": message,
        "errInfo": document! { "writeConcern": asked },
    }))
}

/// The members that have to acknowledge the write.
fn acknowledging<'a>(request: &Request<'a>) -> Result<Option<RawBsonRef<'a>>, CommandFailure> {
    Ok(request.arguments.document("writeConcern")?.and_then(|concern| concern.get("w")))
}

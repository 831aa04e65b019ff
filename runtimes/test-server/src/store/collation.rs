//! Collations: this store compares texts by their bytes, which is the collation `simple`, and refuses any other.

use bson::RawDocument;

use super::failure::CommandFailure;

/// Refuses a collation that would give another result.
pub(super) fn check(collation: Option<&RawDocument>) -> Result<(), CommandFailure> {
    let Some(collation) = collation.filter(|collation| !collation.is_empty()) else { return Ok(()) };
    match collation.get_str("locale") {
        Ok("simple") => Ok(()),
        Ok(_) => Err(CommandFailure::not_supported("a collation other than { locale: \"simple\" }")),
        Err(_) => Err(CommandFailure::new(
            super::code::FIELD_MISSING,
            "BSON field 'collation.locale' is missing but a required field",
        )),
    }
}

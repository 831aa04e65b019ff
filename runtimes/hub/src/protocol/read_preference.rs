//! `$readPreference` of a command, by which the hub selects a server. What of it cannot be read is an error: less of it would suit more
//! servers.

use core::time::Duration;

use bson::RawBsonRef;
use bson::raw::CStr;
use cmap_core::options::{MaxStaleness, ReadMode, ReadPreference, TagSet};
use cmap_core::wire::integer;

const BAD_TAGS: &str = "the tags of $readPreference are no array of documents with strings";
const TAGS_AT_PRIMARY: &str = "$readPreference has tags beside the mode primary";
const BAD_STALENESS: &str = "maxStalenessSeconds of $readPreference is no whole number";

/// The tag sets; `None` if one of them cannot be read: with a tag less it would suit more servers.
fn tag_sets(value: RawBsonRef<'_>) -> Option<Vec<TagSet>> {
    let tag = |field: bson::error::Result<(&CStr, RawBsonRef<'_>)>| {
        let (key, tag) = field.ok()?;
        Some((key.as_str().into(), tag.as_str()?.into()))
    };
    let set = |set: bson::error::Result<RawBsonRef<'_>>| set.ok()?.as_document()?.iter().map(tag).collect();
    value.as_array()?.into_iter().map(set).collect()
}

/// The read preference that the value says.
///
/// # Errors
/// Why it says none.
pub(super) fn read_preference(value: RawBsonRef<'_>) -> Result<Option<ReadPreference>, &'static str> {
    let document = value.as_document().ok_or("$readPreference is no document")?;
    let mode = match document.get_str("mode") {
        Ok("primary") => ReadMode::Primary,
        Ok("primaryPreferred") => ReadMode::PrimaryPreferred,
        Ok("secondary") => ReadMode::Secondary,
        Ok("secondaryPreferred") => ReadMode::SecondaryPreferred,
        Ok("nearest") => ReadMode::Nearest,
        Ok(_) | Err(_) => return Err("$readPreference has no mode that is known"),
    };
    let mut preference = ReadPreference::new(mode);
    if let Some(sets) = document.get("tags").map_err(|_| BAD_TAGS)? {
        preference = preference.with_tag_sets(tag_sets(sets).ok_or(BAD_TAGS)?).map_err(|_| TAGS_AT_PRIMARY)?;
    }
    let staleness = document.get("maxStalenessSeconds").map_err(|_| BAD_STALENESS)?;
    let staleness = staleness.map(|seconds| integer(seconds).ok_or(BAD_STALENESS)).transpose()?;
    // Minus one stands for no limit.
    if let Some(seconds) = staleness.and_then(|seconds| u64::try_from(seconds).ok()) {
        let limit = MaxStaleness::AtMost(Duration::from_secs(seconds));
        preference = preference
            .with_max_staleness(limit)
            .map_err(|_| "$readPreference has maxStalenessSeconds beside the mode primary")?;
    }
    Ok(Some(preference))
}

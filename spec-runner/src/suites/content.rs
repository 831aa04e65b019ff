//! Detecting the format of a test file, and reading it.
//!
//! MongoDB's specifications hold tests of several formats. The format of a file is detected by its content, not by its
//! folder, so that any file or folder can be named on the command line. The formats are those of CMAP, of
//! connection strings, of server discovery and monitoring (SDAM), of round-trip times, of server selection, of seed lists in DNS, and the unified
//! one.
//! Tests in other known formats are skipped by name; a file in no known format is a mistake.

use std::path::Path;

use serde_json::Value;

use super::cmap::format::Case;
use super::files;
use super::problem::Problem;
use super::sdam::{RttFile, SdamFile};
use super::seed_list::SeedListFile;
use super::selection::{SelectionFile, WindowFile};
use super::unified::format::UnifiedFile;
use super::uri::UriFile;

/// The content of a test file.
#[derive(Clone, Debug)]
pub enum Content {
    /// A test in the CMAP format.
    Case(Box<Case>),
    /// Tests in the format of connection strings.
    Uris(UriFile),
    /// A test in the format of server discovery and monitoring.
    Sdam(SdamFile),
    /// A test in the format of round-trip times; its name is that of its file.
    Rtt(String, RttFile),
    /// A test of a seed list in DNS; its name is that of its file.
    SeedList(String, Box<SeedListFile>),
    /// A test of the servers that are selected; its name is that of its file.
    Selection(String, Box<SelectionFile>),
    /// A test of how often servers are chosen.
    Window(WindowFile),
    /// Tests in the unified format.
    Unified(UnifiedFile),
    /// An official test in a format that is not supported yet.
    Unsupported {
        /// Its description, if the file has one.
        description: String,
        /// Which format it is.
        reason: String,
    },
}

impl Content {
    /// The test in the CMAP format, if it is one.
    pub fn case(&self) -> Option<&Case> {
        match self {
            Self::Case(case) => Some(case),
            Self::Uris(_)
            | Self::Sdam(_)
            | Self::Rtt(..)
            | Self::SeedList(..)
            | Self::Selection(..)
            | Self::Window(_)
            | Self::Unified(_)
            | Self::Unsupported { .. } => None,
        }
    }
}

/// Reads the test file at `path`.
pub fn load(path: &Path) -> Result<Content, Problem> {
    let value = files::read(path)?;
    if is_cmap(&value) {
        return Ok(Content::Case(Box::new(Case::from_json(value)?)));
    }
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let format = match other_format(&value) {
        Some(Format::Uris) => return UriFile::from_json(value).map(Content::Uris),
        Some(Format::Sdam) => return SdamFile::from_json(value).map(Content::Sdam),
        Some(Format::Rtt) => return RttFile::from_json(value).map(|file| Content::Rtt(stem(), file)),
        Some(Format::SeedList) => {
            return SeedListFile::from_json(value).map(|file| Content::SeedList(stem(), Box::new(file)));
        }
        Some(Format::Selection) => {
            return SelectionFile::from_json(value).map(|file| Content::Selection(stem(), Box::new(file)));
        }
        Some(Format::Window) => return WindowFile::from_json(value).map(Content::Window),
        Some(Format::Unified) => return UnifiedFile::from_json(value).map(Content::Unified),
        Some(Format::Unsupported(format)) => format,
        None => {
            return Err(Problem::of_file(
                "neither a test in the CMAP format (\"version\", \"style\", \"operations\") nor in any other known one",
            ));
        }
    };
    let description = value.get("description").and_then(Value::as_str).map(str::to_owned);
    Ok(Content::Unsupported {
        description: description.unwrap_or_else(stem),
        reason: format!("{format} is not supported yet"),
    })
}

/// Lenient, so that a mistake in a CMAP file is reported as that mistake.
fn is_cmap(value: &Value) -> bool {
    let has = |key| value.get(key).is_some();
    has("style") || (has("operations") && has("version"))
}

/// An official format that is not CMAP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// That of connection strings.
    Uris,
    /// That of server discovery and monitoring.
    Sdam,
    /// That of round-trip times.
    Rtt,
    /// That of seed lists in DNS.
    SeedList,
    /// That of server selection.
    Selection,
    /// That of choices within the latency window.
    Window,
    /// The unified one.
    Unified,
    /// A format that is not supported yet.
    Unsupported(&'static str),
}

/// The official format of `value`, detected by a key that no other has. Lenient, too.
fn other_format(value: &Value) -> Option<Format> {
    let has = |key| value.get(key).is_some();
    let tests_have = |key| {
        let tests = value.get("tests").and_then(Value::as_array);
        tests.is_some_and(|tests| tests.iter().any(|test| test.get(key).is_some()))
    };
    let unsupported = if has("schemaVersion") {
        return Some(Format::Unified);
    } else if has("phases") {
        return Some(Format::Sdam);
    } else if has("topology_description") {
        return Some(if has("iterations") { Format::Window } else { Format::Selection });
    } else if has("uri") {
        return Some(Format::SeedList);
    } else if has("avg_rtt_ms") {
        return Some(Format::Rtt);
    } else if tests_have("readConcern") || tests_have("writeConcern") {
        "the format of read and write concerns"
    } else if tests_have("uri") {
        return Some(Format::Uris);
    } else {
        return None;
    };
    Some(Format::Unsupported(unsupported))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Format::{Rtt, Sdam, SeedList, Selection, Unified, Unsupported, Uris, Window};
    use super::{is_cmap, other_format};

    #[test]
    fn formats_are_told_by_their_keys() {
        assert!(is_cmap(&json!({ "style": "unit" })));
        assert!(is_cmap(&json!({ "version": 1, "operations": [] })));
        assert!(!is_cmap(&json!({ "schemaVersion": "1.3", "tests": [{ "operations": [] }] })));
        let other = [
            (json!({ "schemaVersion": "1.3", "tests": [] }), Some(Unified)),
            (json!({ "uri": "", "phases": [] }), Some(Sdam)),
            (json!({ "uri": "", "seeds": [] }), Some(SeedList)),
            (json!({ "topology_description": {} }), Some(Selection)),
            (json!({ "topology_description": {}, "iterations": 5 }), Some(Window)),
            (json!({ "avg_rtt_ms": "NULL", "new_rtt_ms": 1 }), Some(Rtt)),
            (
                json!({ "tests": [{ "uri": "mongodb://a", "readConcern": {} }] }),
                Some(Unsupported("the format of read and write concerns")),
            ),
            (json!({ "tests": [{ "uri": "mongodb://a" }] }), Some(Uris)),
            (json!({ "tests": [{ "url": "mongodb://a" }, { "uri": 5 }] }), Some(Uris)),
            (json!({ "tests": [] }), None),
            (json!([1]), None),
        ];
        for (value, format) in other {
            assert_eq!(other_format(&value), format, "{value}");
        }
    }
}

//! Detecting the format of a test file, and reading it.
//!
//! MongoDB's specifications hold tests of several formats. The format of a file is detected by its content, not by its
//! folder, so that any file or folder can be named on the command line. The formats are those of CMAP, of
//! connection strings and what they give away, of read and write concerns, of server discovery and monitoring (SDAM), of round-trip
//! times, of server selection, of seed lists in DNS, and the unified one. A file in no known format is a mistake.

use std::path::Path;

use serde_json::Value;

use super::cmap::format::Case;
use super::files;
use super::problem::Problem;
use super::sdam::{RttFile, SdamFile};
use super::seed_list::SeedListFile;
use super::selection::{SelectionFile, WindowFile};
use super::unified::format::UnifiedFile;
use super::uri::{ConcernFile, DisclosureFile, UriFile};

/// The content of a test file.
#[derive(Clone, Debug)]
pub enum Content {
    /// A test in the CMAP format.
    Case(Box<Case>),
    /// Tests in the format of connection strings.
    Uris(UriFile),
    /// Tests of what connection strings give away.
    Disclosures(DisclosureFile),
    /// Tests of read and write concerns as documents.
    Concerns(ConcernFile),
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
}

impl Content {
    /// The test in the CMAP format, if it is one.
    pub fn case(&self) -> Option<&Case> {
        match self {
            Self::Case(case) => Some(case),
            Self::Uris(_)
            | Self::Disclosures(_)
            | Self::Concerns(_)
            | Self::Sdam(_)
            | Self::Rtt(..)
            | Self::SeedList(..)
            | Self::Selection(..)
            | Self::Window(_)
            | Self::Unified(_) => None,
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
    match other_format(&value) {
        Some(Format::Uris) => UriFile::from_json(value).map(Content::Uris),
        Some(Format::Disclosures) => DisclosureFile::from_json(value).map(Content::Disclosures),
        Some(Format::Concerns) => ConcernFile::from_json(value).map(Content::Concerns),
        Some(Format::Sdam) => SdamFile::from_json(value).map(Content::Sdam),
        Some(Format::Rtt) => RttFile::from_json(value).map(|file| Content::Rtt(stem(), file)),
        Some(Format::SeedList) => SeedListFile::from_json(value).map(|file| Content::SeedList(stem(), Box::new(file))),
        Some(Format::Selection) => {
            SelectionFile::from_json(value).map(|file| Content::Selection(stem(), Box::new(file)))
        }
        Some(Format::Window) => WindowFile::from_json(value).map(Content::Window),
        Some(Format::Unified) => UnifiedFile::from_json(value).map(Content::Unified),
        None => Err(Problem::of_file(
            "neither a test in the CMAP format (\"version\", \"style\", \"operations\") nor in any other known one",
        )),
    }
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
    /// That of what connection strings give away.
    Disclosures,
    /// That of read and write concerns.
    Concerns,
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
}

/// The official format of `value`, detected by a key that no other has. Lenient, too.
fn other_format(value: &Value) -> Option<Format> {
    let has = |key| value.get(key).is_some();
    let tests_have = |key| {
        let tests = value.get("tests").and_then(Value::as_array);
        tests.is_some_and(|tests| tests.iter().any(|test| test.get(key).is_some()))
    };
    if has("schemaVersion") {
        Some(Format::Unified)
    } else if has("phases") {
        Some(Format::Sdam)
    } else if has("topology_description") {
        Some(if has("iterations") { Format::Window } else { Format::Selection })
    } else if has("uri") {
        Some(Format::SeedList)
    } else if has("avg_rtt_ms") {
        Some(Format::Rtt)
    } else if tests_have("readConcernDocument") || tests_have("writeConcernDocument") {
        Some(Format::Concerns)
    } else if tests_have("uri") {
        Some(if tests_have("valid") { Format::Uris } else { Format::Disclosures })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Format::{Concerns, Disclosures, Rtt, Sdam, SeedList, Selection, Unified, Uris, Window};
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
            (json!({ "tests": [{ "readConcern": {}, "readConcernDocument": {} }] }), Some(Concerns)),
            (json!({ "tests": [{ "uri": "mongodb://a", "valid": true, "readConcern": {} }] }), Some(Uris)),
            (json!({ "tests": [{ "url": "mongodb://a" }, { "uri": 5, "valid": 5 }] }), Some(Uris)),
            (json!({ "tests": [{ "uri": "mongodb://a" }] }), Some(Disclosures)),
            (json!({ "tests": [] }), None),
            (json!([1]), None),
        ];
        for (value, format) in other {
            assert_eq!(other_format(&value), format, "{value}");
        }
    }
}

//! Finding test files, and telling what kind of test each is.
//!
//! MongoDB's specifications hold tests of several formats. Each file is told by what is in it, not by where it lies, so
//! that any file or folder can be named on the command line. Five formats are run: those of CMAP, of connection strings, of
//! server discovery and monitoring (SDAM), of round-trip times, and the unified one. Other known ones are skipped by name,
//! and what is in no known format is a mistake.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::format::{Case, Problem, json};
use crate::sdam_suite::{RttFile, SdamFile};
use crate::unified::format::UnifiedFile;
use crate::uri_suite::UriFile;

/// Files that are run, and counted, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Its name in the table of results.
    pub name: String,
    /// A file, or a folder of files.
    pub path: PathBuf,
}

/// What a test file holds.
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
    /// Tests in the unified format.
    Unified(UnifiedFile),
    /// An official test in a format that is not supported yet.
    Unsupported {
        /// Its description, where the file has one.
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
            Self::Uris(_) | Self::Sdam(_) | Self::Rtt(..) | Self::Unified(_) | Self::Unsupported { .. } => None,
        }
    }
}

/// The command that gets the official test files.
pub const GET_SPECS: &str = "git clone --depth 1 https://github.com/mongodb/specifications";

/// What makes a folder one of official specifications.
const CMAP_TESTS: &str = "connection-monitoring-and-pooling/tests";

/// The suites beside the pool's: their names in the table of results, and their folders.
const OTHER_SUITES: [(&str, &str); 8] = [
    ("connection-string", "connection-string/tests"),
    ("uri-options", "uri-options/tests"),
    ("auth", "auth/tests/legacy"),
    ("sdam-errors", "server-discovery-and-monitoring/tests/errors"),
    ("sdam-monitoring", "server-discovery-and-monitoring/tests/monitoring"),
    ("sdam-single", "server-discovery-and-monitoring/tests/single"),
    ("sdam-load-balanced", "server-discovery-and-monitoring/tests/load-balanced"),
    ("rtt", "server-selection/tests/rtt"),
];

/// The suites in the unified format that concern pools and monitors: their names in the table of results, and their
/// folders. That of CMAP's log messages lies among CMAP's own.
const UNIFIED_SUITES: [(&str, &str); 5] = [
    ("load-balancers", "load-balancers/tests"),
    ("sdam-unified", "server-discovery-and-monitoring/tests/unified"),
    ("handshake", "mongodb-handshake/tests/unified"),
    ("operation-timeouts", "client-side-operations-timeout/tests"),
    ("backpressure", "client-backpressure/tests"),
];

/// The folder of MongoDB's specifications: the named one, or else the first of the usual ones that exists.
///
/// `named` was given by the user, with where it was given; it must exist then.
pub fn find_specs(named: Option<(&str, &Path)>) -> Result<Option<PathBuf>, Problem> {
    let holds_tests = |folder: &Path| folder.join(CMAP_TESTS).join("cmap-format").is_dir();
    match named {
        Some((_, folder)) if holds_tests(folder) => Ok(Some(folder.to_owned())),
        Some((origin, _)) => {
            Err(Problem::of_file(format!("named by {origin}, but it does not hold {CMAP_TESTS}/cmap-format")))
        }
        None => {
            let usual = ["specifications/source", "../shared/specs"];
            Ok(usual.into_iter().map(PathBuf::from).find(|folder| holds_tests(folder)))
        }
    }
}

/// The official suites in `specs`: those of the pool, sorted by name, then the others that are there.
pub fn official(specs: &Path) -> Result<Vec<Suite>, Problem> {
    let folder = specs.join(CMAP_TESTS);
    let mut suites = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| unreadable(&error))? {
        let path = entry.map_err(|error| unreadable(&error))?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_dir()) {
            suites.push(Suite { name: name.to_string_lossy().into_owned(), path });
        }
    }
    suites.sort_by(|left, right| left.path.cmp(&right.path));
    let others = UNIFIED_SUITES.iter().chain(&OTHER_SUITES);
    let others = others.map(|(name, folder)| Suite { name: (*name).into(), path: specs.join(folder) });
    suites.extend(others.filter(|suite| suite.path.is_dir()));
    Ok(suites)
}

/// This project's scenarios, if they are where they were when this program was built, or below the current folder.
pub fn scenarios() -> Option<Suite> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let path = [built, PathBuf::from("spec-runner/scenarios")].into_iter().find(|folder| folder.is_dir())?;
    // Shorter to read, and to type again.
    let here = std::env::current_dir().ok();
    let path = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned)).unwrap_or(path);
    Some(Suite { name: "scenarios".into(), path })
}

/// All JSON files at or below `path`, sorted; `path` itself if it is a file.
pub fn collect(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(&error))?;
    if metadata.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if !metadata.is_dir() {
        return Err(Problem::of_file("is neither a file nor a folder"));
    }
    let mut files = Vec::new();
    collect_into(path, &mut files)?;
    if files.is_empty() {
        return Err(Problem::of_file("holds no JSON file"));
    }
    files.sort();
    Ok(files)
}

/// Links to folders are not followed: they could lead back here.
fn collect_into(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Problem> {
    let in_folder = |error: &std::io::Error| Problem::of_file(format!("{} cannot be read: {error}", folder.display()));
    for entry in fs::read_dir(folder).map_err(|error| in_folder(&error))? {
        let entry = entry.map_err(|error| in_folder(&error))?;
        let path = entry.path();
        if entry.file_type().map_err(|error| in_folder(&error))?.is_dir() {
            collect_into(&path, files)?;
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads the test file at `path`.
pub fn load(path: &Path) -> Result<Content, Problem> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    let value = json::parse(&text)?;
    if is_cmap(&value) {
        return Ok(Content::Case(Box::new(Case::from_json(value)?)));
    }
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let format = match other_format(&value) {
        Some(Format::Uris) => return UriFile::from_json(value).map(Content::Uris),
        Some(Format::Sdam) => return SdamFile::from_json(value).map(Content::Sdam),
        Some(Format::Rtt) => return RttFile::from_json(value).map(|file| Content::Rtt(stem(), file)),
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
    /// The unified one.
    Unified,
    /// One that is not supported yet.
    Unsupported(&'static str),
}

/// The official format of `value`, told by a key that no other has. Lenient, too.
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
        "the format of server selection"
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

fn unreadable(error: &std::io::Error) -> Problem {
    Problem::of_file(format!("cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Format::{Rtt, Sdam, Unified, Unsupported, Uris};
    use super::{is_cmap, other_format};

    #[test]
    fn formats_are_told_by_their_keys() {
        assert!(is_cmap(&json!({ "style": "unit" })));
        assert!(is_cmap(&json!({ "version": 1, "operations": [] })));
        assert!(!is_cmap(&json!({ "schemaVersion": "1.3", "tests": [{ "operations": [] }] })));
        let other = [
            (json!({ "schemaVersion": "1.3", "tests": [] }), Some(Unified)),
            (json!({ "uri": "", "phases": [] }), Some(Sdam)),
            (json!({ "topology_description": {} }), Some(Unsupported("the format of server selection"))),
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

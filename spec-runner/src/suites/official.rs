//! The suites of the default run: the official ones in MongoDB's specifications, and this project's scenarios.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::unreadable;
use super::problem::Problem;

/// Files that are run, and counted, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Its name in the table of results.
    pub name: String,
    /// A file, or a folder of files.
    pub path: PathBuf,
}

/// The command that gets the official test files.
pub const GET_SPECS: &str = "git clone --depth 1 https://github.com/mongodb/specifications";

/// The file or folder that marks a folder of official specifications.
const CMAP_TESTS: &str = "connection-monitoring-and-pooling/tests";

/// The suites beside the pool's: their names in the table of results, and their folders.
const OTHER_SUITES: [(&str, &str); 14] = [
    ("connection-string", "connection-string/tests"),
    ("uri-options", "uri-options/tests"),
    ("auth", "auth/tests/legacy"),
    ("sdam-errors", "server-discovery-and-monitoring/tests/errors"),
    ("sdam-monitoring", "server-discovery-and-monitoring/tests/monitoring"),
    ("sdam-rs", "server-discovery-and-monitoring/tests/rs"),
    ("sdam-sharded", "server-discovery-and-monitoring/tests/sharded"),
    ("sdam-single", "server-discovery-and-monitoring/tests/single"),
    ("sdam-load-balanced", "server-discovery-and-monitoring/tests/load-balanced"),
    ("rtt", "server-selection/tests/rtt"),
    ("server-selection", "server-selection/tests/server_selection"),
    ("in-window", "server-selection/tests/in_window"),
    ("max-staleness", "max-staleness/tests"),
    ("dns-seed-lists", "initial-dns-seedlist-discovery/tests"),
];

/// The suites in the unified format that concern connections and operations: their names in the table of results, and their
/// folders. The suite of CMAP's log messages is among CMAP's own.
const UNIFIED_SUITES: [(&str, &str); 14] = [
    ("load-balancers", "load-balancers/tests"),
    ("sdam-unified", "server-discovery-and-monitoring/tests/unified"),
    ("selection-logs", "server-selection/tests/logging"),
    ("handshake", "mongodb-handshake/tests/unified"),
    ("operation-timeouts", "client-side-operations-timeout/tests"),
    ("backpressure", "client-backpressure/tests"),
    ("retryable-reads", "retryable-reads/tests/unified"),
    ("retryable-writes", "retryable-writes/tests/unified"),
    ("sessions", "sessions/tests"),
    ("transactions", "transactions/tests/unified"),
    ("with-transaction", "transactions-convenient-api/tests/unified"),
    ("run-command", "run-command/tests/unified"),
    ("command-events", "command-logging-and-monitoring/tests/monitoring"),
    ("command-logs", "command-logging-and-monitoring/tests/logging"),
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

/// The official suites in `specs`: those of the pool, sorted by name, then the others that exist.
pub fn suites(specs: &Path) -> Result<Vec<Suite>, Problem> {
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

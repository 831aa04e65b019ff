//! The suites of the default run: the official ones in MongoDB's specifications, and this project's scenarios.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::files::unreadable;
use super::problem::Problem;

/// Files that are run, and counted, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Its name in the table of results.
    pub name: String,
    /// Files, or folders of files. A file of a later folder replaces the one at the same place in an earlier folder.
    pub paths: Vec<PathBuf>,
}

/// The folders of specifications that the user has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Where they were named.
    pub origin: &'static str,
    /// The folders; a later one wins over an earlier one.
    pub folders: Vec<PathBuf>,
}

/// The command that gets the official test files.
pub const GET_SPECS: &str = "git clone --depth 1 https://github.com/mongodb/specifications";

/// The file or folder that marks a folder of official specifications.
const CMAP_TESTS: &str = "connection-monitoring-and-pooling/tests";

/// The suites beside the pool's: their names in the table of results, and their folders.
const OTHER_SUITES: [(&str, &str); 15] = [
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
    ("read-write-concern", "read-write-concern/tests"),
];

/// The suites in the unified format that concern connections and operations: their names in the table of results, and their
/// folders. The suite of CMAP's log messages is among CMAP's own.
const UNIFIED_SUITES: [(&str, &str); 20] = [
    ("load-balancers", "load-balancers/tests"),
    ("sdam-unified", "server-discovery-and-monitoring/tests/unified"),
    ("selection-logs", "server-selection/tests/logging"),
    ("handshake", "mongodb-handshake/tests/unified"),
    ("operation-timeouts", "client-side-operations-timeout/tests"),
    ("backpressure", "client-backpressure/tests"),
    ("crud", "crud/tests/unified"),
    ("retryable-reads", "retryable-reads/tests/unified"),
    ("retryable-writes", "retryable-writes/tests/unified"),
    ("change-streams", "change-streams/tests/unified"),
    ("sessions", "sessions/tests"),
    ("transactions", "transactions/tests/unified"),
    ("with-transaction", "transactions-convenient-api/tests/unified"),
    ("run-command", "run-command/tests/unified"),
    ("command-events", "command-logging-and-monitoring/tests/monitoring"),
    ("command-logs", "command-logging-and-monitoring/tests/logging"),
    ("causal-consistency", "causal-consistency/tests"),
    ("versioned-api", "versioned-api/tests"),
    ("auth-unified", "auth/tests/unified"),
    ("open-telemetry", "open-telemetry/tests"),
];

/// The folder with files of what is being built, and the suites that have all of it. It holds files of others as well.
const LATER: &str = "specs-later";
const OF_LATER: [&str; 5] = ["crud", "change-streams", "auth-unified", "operation-timeouts", "open-telemetry"];

/// What is said where files of that folder are left out.
pub const LEFT_OUT: &str = "of specs-later only crud, change-streams, auth-unified, operation-timeouts and open-telemetry run: the rest asks for what is not built; --specs runs all of it";

/// Whether files of that folder are left out of a run in which no folder is named.
pub fn leaves_out(specs: &[PathBuf]) -> bool {
    specs.iter().any(|specs| specs.ends_with(LATER))
}

/// The folders of MongoDB's specifications: the named ones, or else the usual ones that exist. A later one wins over an earlier
/// one.
///
/// # Errors
/// A named folder, which comes first, holds no official test.
pub fn find_specs(named: Option<&Named>) -> Result<Vec<PathBuf>, (PathBuf, Problem)> {
    let holds_tests = |folder: &Path| all_suites().any(|(_, tests)| folder.join(tests).is_dir());
    let Some(Named { origin, folders }) = named else {
        let shared = ["../shared/specs", "../shared/specs-next", "../shared/specs-later"];
        let usual: [&[&str]; 2] = [&["specifications/source"], &shared];
        let mut existing = usual.into_iter().map(|folders| {
            let folders = folders.iter().map(PathBuf::from);
            folders.filter(|folder| holds_tests(folder)).collect::<Vec<_>>()
        });
        return Ok(existing.find(|folders| !folders.is_empty()).unwrap_or_default());
    };
    match folders.iter().find(|folder| !holds_tests(folder)) {
        Some(folder) => {
            let problem = format!("named by {origin}, but it does not hold {CMAP_TESTS}, nor another official suite");
            Err((folder.clone(), Problem::of_file(problem)))
        }
        None => Ok(folders.clone()),
    }
}

/// The official suites in `specs`: those of the pool, sorted by name, then the others that exist. Of what is being built, those that have all
/// of it, unless the folders are `named`.
pub fn suites(specs: &[PathBuf], named: bool) -> Result<Vec<Suite>, (PathBuf, Problem)> {
    let mut of_pool = BTreeMap::<_, Vec<PathBuf>>::new();
    for folder in specs.iter().map(|specs| specs.join(CMAP_TESTS)).filter(|folder| folder.is_dir()) {
        let unreadable = |error: io::Error| (folder.clone(), unreadable(&error));
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if let Some(name) = path.file_name().filter(|_| path.is_dir()) {
                of_pool.entry(name.to_string_lossy().into_owned()).or_default().push(path);
            }
        }
    }
    let others = UNIFIED_SUITES.iter().chain(&OTHER_SUITES).map(|(name, tests)| {
        let is_whole = |specs: &&PathBuf| named || !specs.ends_with(LATER) || OF_LATER.contains(name);
        let folders = specs.iter().filter(is_whole).map(|specs| specs.join(tests));
        ((*name).to_owned(), folders.filter(|folder| folder.is_dir()).collect())
    });
    let suites = of_pool.into_iter().chain(others).map(|(name, paths): (String, Vec<PathBuf>)| Suite { name, paths });
    Ok(suites.filter(|suite| !suite.paths.is_empty()).collect())
}

/// Every suite's name and folder; that of the pool has no name of its own.
fn all_suites() -> impl Iterator<Item = (&'static str, &'static str)> {
    UNIFIED_SUITES.into_iter().chain(OTHER_SUITES).chain([("", CMAP_TESTS)])
}

/// This project's scenarios, if they are where they were when this program was built, or below the current folder.
pub fn scenarios() -> Option<Suite> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let path = [built, PathBuf::from("spec-runner/scenarios")].into_iter().find(|folder| folder.is_dir())?;
    // Shorter to read, and to type again.
    let here = std::env::current_dir().ok();
    let path = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned)).unwrap_or(path);
    Some(Suite { name: "scenarios".into(), paths: vec![path] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_has_the_folders_of_all_roots_in_their_order() {
        let root = std::env::temp_dir().join(format!("cmap-roots-{}", std::process::id()));
        let [first, second, third] = ["specs", "specs-next", "specs-later"].map(|name| root.join(name));
        for folder in [
            first.join(CMAP_TESTS).join("cmap-format"),
            first.join("uri-options/tests"),
            second.join(CMAP_TESTS).join("logging"),
            second.join("uri-options/tests"),
            third.join("uri-options/tests"),
        ] {
            fs::create_dir_all(folder).unwrap();
        }

        let found = suites(&[first.clone(), second.clone(), third.clone()], true).unwrap();
        let unknown = find_specs(Some(&Named { origin: "--specs", folders: vec![first.clone(), root.clone()] }));
        fs::remove_dir_all(&root).unwrap();

        let suite = |name: &str, paths: Vec<PathBuf>| Suite { name: name.into(), paths };
        let expected = [
            suite("cmap-format", vec![first.join(CMAP_TESTS).join("cmap-format")]),
            suite("logging", vec![second.join(CMAP_TESTS).join("logging")]),
            suite("uri-options", [&first, &second, &third].map(|root| root.join("uri-options/tests")).into()),
        ];
        assert_eq!(found, expected);
        assert_eq!(unknown.unwrap_err().0, root);
    }
}

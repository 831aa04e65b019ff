//! Rule ids and the pages that define them: every id that the repository cites has one row, an official rule's in `docs/rules.md`, a decision's
//! (X) in `docs/decisions.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The prefixes of ids. Some name no rule yet, so that the first citation of such an id asks for its row.
const PREFIXES: &[&str] = &[
    "AUTH", "BP", "BW", "CMAP", "COMP", "CS", "CSOT", "DNS", "FMT", "FORK", "HS", "LB", "LOG", "MAN", "MON", "MSG",
    "OIDC", "OTEL", "PIN", "RTY", "SDAM", "SEL", "SES", "SOCKS", "SRV", "TLS", "TOP", "TXN", "URI", "X",
];

const RULES: &str = "docs/rules.md";
const DECISIONS: &str = "docs/decisions.md";

/// The levels that the page of rules explains.
const LEVELS: &[&str] = &["MUST", "MUST NOT", "SHOULD", "MAY", "implied", "test only", "observed", "ours"];

/// Folders without text of the project's own.
const SKIPPED: &[&str] = &["target", ".git", ".tools", ".venv", "node_modules", "fuzz/corpus"];

#[test]
fn every_cited_id_is_defined() {
    let pages = pages();
    let defined = BTreeSet::from_iter(defined_ids(&pages));
    let mut missing = BTreeMap::<String, Vec<String>>::new();
    for citation in citations() {
        if !defined.contains(citation.id.as_str()) {
            missing.entry(citation.id).or_default().push(format!("{}:{}", shown(&citation.file), citation.line));
        }
    }
    let missing: Vec<_> = missing.iter().map(|(id, places)| format!("{id}: cited in {}", places.join(", "))).collect();
    assert!(missing.is_empty(), "ids without a row in {RULES} or {DECISIONS}:\n{}", missing.join("\n"));
}

#[test]
fn every_rule_that_a_scenario_names_is_defined() {
    let pages = pages();
    let defined = BTreeSet::from_iter(defined_ids(&pages));
    let scenarios: Vec<_> = citing_files().into_iter().filter(|file| has_extension(file, "json")).collect();
    let mut missing = Vec::new();
    for file in &scenarios {
        let scenario: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        for rule in scenario["rules"].as_array().unwrap() {
            let rule = rule.as_str().unwrap();
            if !defined.contains(rule) {
                missing.push(format!("{rule}: named by {}", shown(file)));
            }
        }
    }
    assert!(!scenarios.is_empty(), "no scenario was found");
    assert!(missing.is_empty(), "rules without a row in {RULES} or {DECISIONS}:\n{}", missing.join("\n"));
}

#[test]
fn no_id_is_defined_twice() {
    let pages = pages();
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = defined_ids(&pages).into_iter().filter(|id| !seen.insert(*id)).collect();
    assert!(twice.is_empty(), "ids with more than one row in {RULES} and {DECISIONS}: {}", twice.join(", "));
}

#[test]
fn every_rule_has_a_level_a_sentence_and_a_source() {
    let page = page(RULES);
    for row in rows(&page) {
        let [id, level, rule, source] = cells(row)[..] else { panic!("a row of {RULES} has four cells: {row}") };
        assert!(!id.starts_with("X-"), "{DECISIONS} has the decisions: {row}");
        assert!(LEVELS.contains(&level), "{RULES} does not explain the level of: {row}");
        assert!(!rule.is_empty() && !source.is_empty(), "an empty cell in {RULES}: {row}");
    }
}

#[test]
fn every_decision_has_a_question_a_choice_a_reason_and_a_source() {
    let page = page(DECISIONS);
    for row in rows(&page) {
        let [id, question, choice, reason, source] = cells(row)[..] else {
            panic!("a row of {DECISIONS} has five cells: {row}")
        };
        assert!(id.starts_with("X-"), "{RULES} has the official rules: {row}");
        assert!(question.ends_with('?'), "no question in {DECISIONS}: {row}");
        assert!(![choice, reason, source].contains(&""), "an empty cell in {DECISIONS}: {row}");
    }
}

#[test]
fn citations_are_found_in_code_manifests_pages_and_scenarios() {
    let citations = citations();
    for extension in ["rs", "toml", "md", "json"] {
        let found = citations.iter().any(|citation| has_extension(&citation.file, extension));
        assert!(found, "no file *.{extension} cites a rule");
    }
}

#[test]
fn ids_are_told_from_other_words_with_hyphens() {
    let text =
        "SHA-1, SCRAM-SHA-256, UTF-8 and OP_MSG-1 name no rules; CMAP-26, (LB-9) and X-15's do, also pre-CMAP-1.";
    assert_eq!(ids_in(text), ["CMAP-26", "LB-9", "X-15", "CMAP-1"]);
}

/// One mention of an id.
struct Citation {
    id: String,
    file: PathBuf,
    /// Counted from 1.
    line: usize,
}

fn citations() -> Vec<Citation> {
    let mut citations = Vec::new();
    for file in citing_files() {
        for (index, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let of_line = ids_in(line).into_iter().map(|id| Citation { id, file: file.clone(), line: index + 1 });
            citations.extend(of_line);
        }
    }
    citations
}

/// The ids in a text, such as "CMAP-26": a prefix and a number, with no letter or digit before or after.
fn ids_in(text: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-') {
        let parts: Vec<_> = word.split('-').collect();
        for pair in parts.windows(2) {
            let [prefix, number] = pair else { continue };
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            if is_number && PREFIXES.contains(prefix) {
                ids.push(format!("{prefix}-{number}"));
            }
        }
    }
    ids
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

fn pages() -> String {
    page(RULES) + &page(DECISIONS)
}

fn defined_ids(page: &str) -> Vec<&str> {
    page.lines().filter_map(defined_id).collect()
}

/// The rows that define ids.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter(|line| defined_id(line).is_some())
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// The id that a line of the page defines: the first cell of a table's row.
fn defined_id(line: &str) -> Option<&str> {
    let (cell, _) = line.strip_prefix("| ")?.split_once(" |")?;
    (ids_in(cell) == [cell]).then_some(cell)
}

/// The files whose citations count: code, manifests, pages and scenarios.
fn citing_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() && !SKIPPED.iter().any(|skipped| path.ends_with(skipped)) {
                folders.push(path);
            } else if kind.is_file() && may_cite(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn may_cite(file: &Path) -> bool {
    let is_scenario = has_extension(file, "json") && file.starts_with(root().join("spec-runner/scenarios"));
    is_scenario || ["rs", "toml", "md"].iter().any(|extension| has_extension(file, extension))
}

fn has_extension(file: &Path, extension: &str) -> bool {
    file.extension().and_then(OsStr::to_str) == Some(extension)
}

/// A file's path from the repository's root.
fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

/// The repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

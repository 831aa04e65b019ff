//! The official tests of read and write concerns as documents: what a client sends for the concern of a case.
//!
//! A connection string stands for the concern of a case: it is how a concern reaches a client's options. An invalid value is an
//! error there, or is ignored with a warning.

use bson::rawdoc;
use cmap_core::connection::{Command, Outline};
use cmap_core::options::{ClientOptions, W};
use cmap_core::server::{CommandDefaults, write_concern_document};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::suites::outcome::Outcome;
use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// A file of cases.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct ConcernFile {
    /// `tests`.
    pub tests: Vec<ConcernCase>,
}

/// A concern, and the document that is sent for it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
pub struct ConcernCase {
    /// `description`: the name of the case.
    pub description: String,
    /// `valid`: whether there is such a concern. If not, nothing else is compared.
    valid: bool,
    read_concern: Option<ReadConcern>,
    write_concern: Option<WriteConcern>,
    read_concern_document: Option<Map<String, Value>>,
    write_concern_document: Option<Map<String, Value>>,
    is_server_default: Option<bool>,
    is_acknowledged: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct ReadConcern {
    level: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct WriteConcern {
    w: Option<Value>,
    #[serde(rename = "wtimeoutMS")]
    timeout: Option<i64>,
    journal: Option<bool>,
}

impl ConcernFile {
    /// Reads a file.
    pub fn from_json(file: Value) -> Result<Self, Problem> {
        read(&Place::top(), file)
    }
}

/// Runs each case of `file`, in its order.
pub fn run_concerns(file: &ConcernFile) -> impl Iterator<Item = (&ConcernCase, Outcome)> {
    file.tests.iter().map(|case| (case, run_case(case)))
}

fn run_case(case: &ConcernCase) -> Outcome {
    Outcome::of(match (ClientOptions::parse(&uri(case)), case.valid) {
        (Err(_), false) => Vec::new(),
        (Ok((_, warnings)), false) if !warnings.is_empty() => Vec::new(),
        (Ok(_), false) => vec!["expected no such concern, got one".into()],
        (Err(error), true) => vec![format!("expected a concern, got the error: {error}")],
        (Ok((options, _)), true) => compare(case, &options),
    })
}

/// The connection string that sets the concern.
fn uri(case: &ConcernCase) -> String {
    let mut pairs = Vec::new();
    if let Some(level) = case.read_concern.as_ref().and_then(|concern| concern.level.as_ref()) {
        pairs.push(format!("readConcernLevel={level}"));
    }
    if let Some(WriteConcern { w, timeout, journal }) = &case.write_concern {
        pairs.extend(w.as_ref().map(|w| format!("w={}", w.as_str().map_or_else(|| w.to_string(), str::to_owned))));
        pairs.extend(timeout.map(|timeout| format!("wTimeoutMS={timeout}")));
        pairs.extend(journal.map(|journal| format!("journal={journal}")));
    }
    format!("mongodb://h/?{}", pairs.join("&"))
}

fn compare(case: &ConcernCase, options: &ClientOptions) -> Vec<String> {
    let defaults = CommandDefaults::of_client(options);
    let body = rawdoc! { "find": "collection" };
    let find = Command::new("db", &body);
    let find = Outline::of(&find);
    let read = defaults.as_ref().and_then(|defaults| defaults.read_concern(&find)).map(ToOwned::to_owned);
    let write = write_concern_document(&options.write_concern, true);
    let is_default = read.is_none() && write.is_none();
    let is_acknowledged = options.write_concern.w != Some(W::Members(0));
    let document = |document: Option<bson::RawDocumentBuf>| {
        let document = document.and_then(|document| bson::Document::try_from(document).ok()).unwrap_or_default();
        bson::Bson::Document(document).into_relaxed_extjson()
    };
    let expected = |document: &Option<Map<String, Value>>| document.clone().map(Value::Object);
    let compared = [
        ("readConcernDocument", expected(&case.read_concern_document), document(read)),
        ("writeConcernDocument", expected(&case.write_concern_document), document(write)),
        ("isServerDefault", case.is_server_default.map(Value::from), is_default.into()),
        ("isAcknowledged", case.is_acknowledged.map(Value::from), is_acknowledged.into()),
    ];
    let differs = |(name, expected, actual): (&str, Option<Value>, Value)| {
        let expected = expected.filter(|expected| *expected != actual)?;
        Some(format!("{name}: expected {expected}, got {actual}"))
    };
    compared.into_iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ConcernFile, Outcome, run_concerns};

    fn play(case: &Value) -> Outcome {
        let mut all = json!({ "description": "d", "valid": true });
        all.as_object_mut().unwrap().extend(case.as_object().unwrap().clone());
        let file = ConcernFile::from_json(json!({ "tests": [all] })).unwrap();
        run_concerns(&file).next().unwrap().1
    }

    #[test]
    fn the_document_of_a_concern_is_compared() {
        let concern = json!({ "w": "majority", "wtimeoutMS": 5, "journal": true });
        let right = json!({ "w": "majority", "wtimeout": 5, "j": true });

        let right = json!({ "writeConcern": concern, "writeConcernDocument": right, "isServerDefault": false });
        assert_eq!(play(&right), Outcome::Passed);
        let wrong = json!({ "writeConcern": concern, "writeConcernDocument": {}, "isAcknowledged": false });
        let Outcome::Failed { reasons, .. } = play(&wrong) else { panic!("the document is not empty") };
        assert_eq!(reasons[1], "isAcknowledged: expected false, got true");
        let level = json!({ "readConcern": { "level": "local" }, "readConcernDocument": { "level": "local" } });
        assert_eq!(play(&level), Outcome::Passed);
    }

    #[test]
    fn an_invalid_concern_is_refused_or_ignored_with_a_warning_x_170() {
        for concern in [json!({ "w": -3 }), json!({ "wtimeoutMS": -1 }), json!({ "w": 0, "journal": true })] {
            assert_eq!(play(&json!({ "valid": false, "writeConcern": concern })), Outcome::Passed, "{concern}");
        }
        let valid = json!({ "valid": false, "writeConcern": { "w": 1 } });
        assert_eq!(play(&valid), Outcome::of(vec!["expected no such concern, got one".into()]));
    }
}

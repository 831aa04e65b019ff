//! The official tests of what a connection string gives away: no error and no warning about it shows its secret (URI-16).

use std::error::Error;

use cmap_core::options::ClientOptions;
use serde::Deserialize;
use serde_json::Value;

use crate::suites::outcome::Outcome;
use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// The secret in the connection string of each case, in lower case as hosts are shown, and how it begins when it is encoded.
const SECRET: [&str; 2] = ["sentinel", "%53%45"];

/// A file of cases.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct DisclosureFile {
    /// `tests`.
    pub tests: Vec<DisclosureCase>,
}

/// A connection string with a secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct DisclosureCase {
    /// `description`: the name of the case.
    pub description: String,
    /// `uri`: the connection string.
    uri: String,
}

impl DisclosureFile {
    /// Reads a file.
    pub fn from_json(file: Value) -> Result<Self, Problem> {
        read(&Place::top(), file)
    }
}

/// Runs each case of `file`, in its order.
pub fn run_disclosures(file: &DisclosureFile) -> impl Iterator<Item = (&DisclosureCase, Outcome)> {
    file.tests.iter().map(|case| (case, run_case(case)))
}

/// The failure names what shows the secret, and does not show it again.
fn run_case(case: &DisclosureCase) -> Outcome {
    let shows_secret = |(_, text): &(&str, String)| {
        let text = text.to_lowercase();
        SECRET.iter().any(|secret| text.contains(secret))
    };
    let shown = texts(&case.uri).into_iter().filter(shows_secret);
    Outcome::of(shown.map(|(what, _)| format!("{what} shows the secret")).collect())
}

/// All that is said about a connection string.
fn texts(uri: &str) -> Vec<(&'static str, String)> {
    match ClientOptions::parse(uri) {
        Ok((options, warnings)) => {
            let warnings =
                warnings.iter().chain(&options.advice()).map(|warning| format!("{warning} {warning:?}")).collect();
            let check = options.check().err().map(|error| format!("{error} {error:?}"));
            vec![("a warning", warnings), ("the error of a check", check.unwrap_or_default())]
        }
        Err(error) => {
            let causes = std::iter::successors(Some(&error as &(dyn Error + 'static)), |error| (*error).source());
            vec![("the error", causes.map(|error| format!("{error} {error:?}")).collect())]
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DisclosureFile, run_disclosures, texts};
    use crate::suites::outcome::Outcome;

    #[test]
    fn a_warning_and_an_error_are_looked_at() {
        for (uri, what) in [("mongodb://h/?SENTINEL=1", "a warning"), ("mongodb://sentinel%00/", "the error")] {
            let file = json!({ "tests": [{ "description": "d", "uri": uri }] });
            let file = DisclosureFile::from_json(file).unwrap();

            let outcomes: Vec<_> = run_disclosures(&file).map(|(_, outcome)| outcome).collect();

            assert_eq!(outcomes, [Outcome::of(vec![format!("{what} shows the secret")])], "{:?}", texts(uri));
        }
    }
}

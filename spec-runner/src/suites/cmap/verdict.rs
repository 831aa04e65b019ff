//! Whether a run meets its test's expectations, and if not, an explanation that shows both next to each other.

use core::fmt;

use serde_json::{Map, Value};

use crate::suites::cmap::engine::{ActualError, Chance, Run};
use crate::suites::cmap::format::{Case, ExpectedError, ExpectedEvent, describe};
use crate::suites::matching::{self, is_anything, mismatch};
use crate::suites::mismatch::Mismatch;
use crate::suites::place::Place;

/// Why a run does not meet its test's expectations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One line each; at least one.
    pub reasons: Vec<String>,
    /// Expected and actual events next to each other.
    pub comparison: Vec<Row>,
}

/// An expected event next to the actual one in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whether the two are the first that differ.
    pub differs: bool,
    /// The expected event; `None` after the last one.
    pub expected: Option<String>,
    /// The actual event; `None` after the last one.
    pub actual: Option<String>,
}

/// Compares `run` with the expectations of `case`. In real time nothing takes exactly as long as expected, but nothing
/// takes less.
pub fn judge(case: &Case, run: &Run, chance: Chance) -> Result<(), Failure> {
    let mut reasons = run.violations.clone();
    reasons.extend(main_thread_error(case.error.as_ref(), run.error.as_ref()));
    let actual: Vec<&Value> =
        run.events.iter().filter(|event| !case.ignore.iter().any(|event_type| event_type.is_of(event))).collect();
    let difference = first_difference(case, &actual, chance);
    if let Some((index, why)) = &difference {
        reasons.push(format!("event {}: {why}", index + 1));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Failure { reasons, comparison: side_by_side(case, &actual, difference.map(|(index, _)| index)) })
}

/// Where an actual error differs from the expected one, for engines to check the errors of single check-outs.
pub fn error_mismatch(expected: &ExpectedError, actual: &ActualError) -> Option<String> {
    let name = expected.name();
    if expected.error_type.is_some() && name != actual.type_name {
        return Some(format!("expected the error {name}, got {}: {}", actual.type_name, actual.message));
    }
    let fields = [("message", &expected.message, &actual.message), ("address", &expected.address, &actual.address)];
    fields.into_iter().find_map(|(field, expected, actual)| {
        let expected = expected.as_ref()?;
        let mismatch = matching::compare(expected, &Value::from(actual.as_str())).err()?;
        Some(format!("{field} of the error {name}: {mismatch}"))
    })
}

fn main_thread_error(expected: Option<&ExpectedError>, actual: Option<&ActualError>) -> Option<String> {
    match (expected, actual) {
        (None, None) => None,
        (Some(expected), Some(actual)) => error_mismatch(expected, actual),
        (Some(expected), None) => Some(format!("expected the error {}, got none", expected.name())),
        (None, Some(actual)) => Some(format!("expected no error, got {}: {}", actual.type_name, actual.message)),
    }
}

/// The index of the first expected or actual event that has no match, and why.
fn first_difference(case: &Case, actual: &[&Value], chance: Chance) -> Option<(usize, String)> {
    for (index, expected) in case.events.iter().enumerate() {
        let Some(&actual) = actual.get(index) else {
            return Some((index, format!("expected {}, got no more events", describe(expected.fields()))));
        };
        if let Err(difference) = compare_event(expected, actual, chance) {
            return Some((index, difference.to_string()));
        }
    }
    let extra = actual.get(case.events.len()).filter(|_| case.exact)?;
    Some((case.events.len(), format!("expected no more events, got {}", describe_value(extra))))
}

/// Types first: when they differ, the rest means nothing. The text of an error need only contain the expected one.
fn compare_event(expected: &ExpectedEvent, actual: &Value, chance: Chance) -> Result<(), Mismatch> {
    let name = expected.event_type().name();
    if !expected.event_type().is_of(actual) {
        return Err(mismatch(&Place::top().key("type"), &format!("\"{name}\""), actual.get("type")));
    }
    let mut pattern = expected.fields().clone();
    let text = pattern.remove("error");
    if chance == Chance::Real
        && let Some(least) = pattern.get("duration").filter(|it| !is_anything(it)).and_then(Value::as_f64)
    {
        let duration = actual.get("duration");
        if duration.and_then(Value::as_f64).is_none_or(|duration| duration < least) {
            return Err(mismatch(&Place::top().key("duration"), &format!("at least {least}"), duration));
        }
        pattern.remove("duration");
    }
    matching::compare(&Value::Object(pattern), actual)?;
    let Some(text) = text else { return Ok(()) };
    let error = actual.get("error");
    if is_anything(&text) && error.is_some_and(|error| !error.is_null()) {
        return Ok(());
    }
    match (text.as_str(), error.and_then(Value::as_str)) {
        (Some(part), Some(whole)) if whole.contains(part) => Ok(()),
        _ => Err(mismatch(&Place::top().key("error"), &format!("a text with {text}"), error)),
    }
}

fn side_by_side(case: &Case, actual: &[&Value], differs: Option<usize>) -> Vec<Row> {
    let row = |index| Row {
        differs: differs == Some(index),
        expected: case.events.get(index).map(|event| describe(event.fields())),
        actual: actual.get(index).map(|event| describe_value(event)),
    };
    (0..case.events.len().max(actual.len())).map(row).collect()
}

/// One line on an actual event.
pub fn describe_value(event: &Value) -> String {
    event.as_object().map_or_else(|| event.to_string(), |event: &Map<String, Value>| describe(event))
}

impl Failure {
    /// The lines that [`Display`](fmt::Display) writes.
    pub fn lines(&self) -> Vec<String> {
        self.to_string().lines().map(str::to_owned).collect()
    }
}

impl fmt::Display for Failure {
    /// The reasons, then two columns; ">" marks the first line that differs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for reason in &self.reasons {
            writeln!(f, "{reason}")?;
        }
        if self.comparison.is_empty() {
            return Ok(());
        }
        let heading = Row { differs: false, expected: Some("expected".into()), actual: Some("actual".into()) };
        let rows = || core::iter::once(&heading).chain(&self.comparison);
        let width = rows().map(|row| column(row.expected.as_ref()).chars().count()).max().unwrap_or_default();
        for row in rows() {
            let mark = if row.differs { '>' } else { ' ' };
            writeln!(f, "{mark} {:width$} | {}", column(row.expected.as_ref()), column(row.actual.as_ref()))?;
        }
        Ok(())
    }
}

fn column(event: Option<&String>) -> &str {
    event.map_or("-", String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::suites::cmap::engine::{ActualError, Chance, Run};
    use crate::suites::cmap::format::Case;

    fn judge(case: &Case, run: &Run) -> Result<(), super::Failure> {
        super::judge(case, run, Chance::Seeded)
    }

    fn case(mut file: Value) -> Case {
        file["version"] = json!(1);
        file["description"] = json!("a test");
        file["operations"] = json!([]);
        Case::from_json(file).unwrap()
    }

    fn run(events: Value) -> Run {
        Run { events: events.as_array().unwrap().clone(), ..Run::default() }
    }

    fn text(case: &Case, run: &Run) -> String {
        judge(case, run).unwrap_err().to_string()
    }

    #[test]
    fn official_styles_compare_a_prefix_without_ignored_types() {
        let case = case(json!({
            "style": "unit",
            "events": [{ "type": "ConnectionCreated", "connectionId": 42 }],
            "ignore": ["ConnectionPoolReady"],
        }));
        let good = json!([
            { "type": "ConnectionPoolReady" },
            { "type": "ConnectionCreated", "connectionId": 1 },
            { "type": "ConnectionClosed" },
        ]);
        assert_eq!(judge(&case, &run(good)), Ok(()));
        assert_eq!(
            text(&case, &run(json!([{ "type": "ConnectionClosed", "connectionId": 1 }]))),
            "event 1: type: expected \"ConnectionCreated\", got \"ConnectionClosed\"\n  \
             expected                          | actual\n\
             > ConnectionCreated connectionId=42 | ConnectionClosed connectionId=1\n"
        );
    }

    #[test]
    fn an_exact_scenario_allows_nothing_more() {
        let file = json!({ "style": "scenario", "rules": ["CMAP-1"], "events": [{ "type": "ConnectionCreated" }] });
        let more = run(json!([{ "type": "ConnectionCreated" }, { "type": "ConnectionReady" }]));
        assert_eq!(
            text(&case(file.clone()), &more),
            "event 2: expected no more events, got ConnectionReady\n  \
             expected          | actual\n  \
             ConnectionCreated | ConnectionCreated\n\
             > -                 | ConnectionReady\n"
        );
        let mut inexact = file;
        inexact["exact"] = json!(false);
        assert_eq!(judge(&case(inexact), &more), Ok(()));
    }

    #[test]
    fn errors_must_be_expected_and_match() {
        let closed = |message: &str| Run {
            error: Some(ActualError {
                type_name: "PoolClosedError".into(),
                message: message.into(),
                address: "db:27017".into(),
            }),
            ..Run::default()
        };
        let none = case(json!({ "style": "unit" }));
        let some =
            case(json!({ "style": "unit", "error": { "type": "PoolClosedError", "message": "m", "address": 42 } }));
        assert_eq!(judge(&some, &closed("m")), Ok(()));
        assert_eq!(text(&none, &closed("m")), "expected no error, got PoolClosedError: m\n");
        assert_eq!(text(&some, &Run::default()), "expected the error PoolClosedError, got none\n");
        assert_eq!(text(&some, &closed("n")), "message of the error PoolClosedError: expected \"m\", got \"n\"\n");
    }

    #[test]
    fn an_events_error_contains_the_expected_text() {
        let case = case(json!({
            "style": "scenario",
            "rules": ["CMAP-1"],
            "events": [{ "type": "ConnectionClosed", "error": "refused" }],
        }));
        let closed = |error: &str| run(json!([{ "type": "ConnectionClosed", "error": error }]));
        assert_eq!(judge(&case, &closed("connection refused by the server")), Ok(()));
        assert!(text(&case, &closed("reset")).starts_with("event 1: error: expected a text with \"refused\""));
    }

    #[test]
    fn in_real_time_a_duration_is_the_least() {
        let events = json!([{ "type": "ConnectionCheckedOut", "duration": 20 }]);
        let case = case(json!({ "style": "scenario", "rules": ["CMAP-1"], "events": events }));
        let took = |duration: f64| run(json!([{ "type": "ConnectionCheckedOut", "duration": duration }]));
        let real = |duration| super::judge(&case, &took(duration), Chance::Real);

        assert_eq!((real(20.0), real(25.5)), (Ok(()), Ok(())));
        assert!(real(19.9).unwrap_err().to_string().starts_with("event 1: duration: expected at least 20, got 19.9"));
        assert!(judge(&case, &took(25.5)).is_err());
    }

    #[test]
    fn a_violation_fails_whatever_the_events_are() {
        let bad = Run { violations: vec!["more connections than maxPoolSize".into()], ..Run::default() };
        assert_eq!(text(&case(json!({ "style": "unit" })), &bad), "more connections than maxPoolSize\n");
    }
}

//! One test file, whole.

use serde::Deserialize;
use serde_json::Value;

use super::{
    ErrorType, EventType, ExpectedError, ExpectedEvent, FailPoint, PoolOptions, RunOn, ServerOptions, Step, extension,
    operation, sense,
};
use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// A test: operations on a pool, and the events that it must report meanwhile.
#[derive(Clone, Debug)]
pub struct Case {
    /// One sentence on the subject of the test.
    pub description: String,
    /// Which rules the file follows.
    pub style: Style,
    /// The options of the pool; the others keep their defaults.
    pub pool_options: PoolOptions,
    /// What to do, in order.
    pub operations: Vec<Step>,
    /// The error that ends the main thread.
    pub error: Option<ExpectedError>,
    /// The events that the pool must report, in order, without those of a type in `ignore`.
    pub events: Vec<ExpectedEvent>,
    /// Event types that the final comparison leaves out; `waitForEvent` counts them (FMT-2).
    pub ignore: Vec<EventType>,
    /// The servers that the test is for; none means all.
    pub run_on: Vec<RunOn>,
    /// The fail point that the server has from the start (FMT-6).
    pub fail_point: Option<FailPoint>,
    /// The rules that the test is about, such as "CMAP-14"; only a scenario has any.
    pub rules: Vec<String>,
    /// Whether an event after the last expected one is a failure, too.
    pub exact: bool,
    /// The server that the pool connects to.
    pub server: ServerOptions,
    /// Whether the test bounds times from above, which only virtual time keeps.
    pub virtual_time: bool,
}

/// Which rules a file follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Style {
    /// Official; needs no particular server.
    Unit,
    /// Official; needs a server with fail points.
    Integration,
    /// This project's superset of both.
    Scenario,
}

/// A file as it is written, before its parts are checked against each other.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    version: u32,
    style: Style,
    description: String,
    #[serde(default)]
    pool_options: PoolOptions,
    operations: Vec<Value>,
    error: Option<ExpectedError>,
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    ignore: Vec<EventType>,
    #[serde(default)]
    run_on: Vec<RunOn>,
    fail_point: Option<FailPoint>,
    rules: Option<Vec<String>>,
    exact: Option<bool>,
    server: Option<ServerOptions>,
    virtual_time: Option<bool>,
}

/// The most connections that a test may ask for; each is kept in memory.
const MOST_CONNECTIONS: u32 = 100_000;

impl Case {
    /// Reads a file's JSON.
    pub fn from_json(value: Value) -> Result<Self, Problem> {
        let top = Place::top();
        refuse_nulls(&top, &value)?;
        // A file of another version may differ in everything; report that before anything else.
        if let Some(version) = value.get("version").filter(|&version| *version != 1) {
            return Err(Problem::at(&top.key("version"), format!("only version 1 is known, not {version}")));
        }
        let document: Document = read(&top, value)?;
        if document.style == Style::Scenario {
            check_rules(document.rules.as_deref())?;
        } else {
            refuse_extensions(&document)?;
        }
        debug_assert_eq!(document.version, 1, "checked above");
        let operations = read_all(document.operations, &top.key("operations"), Step::read)?;
        let events = read_all(document.events, &top.key("events"), ExpectedEvent::read)?;
        let case = Self {
            description: document.description,
            style: document.style,
            pool_options: document.pool_options,
            operations,
            error: document.error,
            events,
            ignore: document.ignore,
            run_on: document.run_on,
            fail_point: document.fail_point,
            rules: document.rules.unwrap_or_default(),
            exact: document.exact.unwrap_or(document.style == Style::Scenario),
            server: document.server.unwrap_or_default(),
            virtual_time: document.virtual_time.unwrap_or_default(),
        };
        case.check_words()?;
        let place = top.key("poolOptions");
        if case.pool_options.min_pool_size.is_some_and(|size| size > MOST_CONNECTIONS) {
            let text = format!("at most {MOST_CONNECTIONS} connections can be simulated");
            return Err(Problem::at(&place.key("minPoolSize"), text));
        }
        case.pool_options.to_core().validate().map_err(|error| Problem::at(&place, error.to_string()))?;
        sense::check(&case)?;
        Ok(case)
    }

    /// Whether the final comparison leaves out events of this type.
    pub fn ignores(&self, event_type: EventType) -> bool {
        self.ignore.contains(&event_type)
    }

    /// Refuses the scenario style's words within operations and events of an official style.
    fn check_words(&self) -> Result<(), Problem> {
        if self.style == Style::Scenario {
            return Ok(());
        }
        for (index, step) in self.operations.iter().enumerate() {
            let place = Place::top().key("operations").index(index);
            match step.operation.extension() {
                Some(operation::Extension::Operation) => return Err(extension(&place.key("name"))),
                Some(operation::Extension::Field(field)) => return Err(extension(&place.key(field))),
                None => {}
            }
        }
        for (index, event) in self.events.iter().enumerate() {
            if let Some(field) = event.extension() {
                return Err(extension(&Place::top().key("events").index(index).key(field)));
            }
        }
        Ok(())
    }
}

fn read_all<T>(
    values: Vec<Value>,
    place: &Place,
    read: impl Fn(&Place, Value) -> Result<T, Problem>,
) -> Result<Vec<T>, Problem> {
    values.into_iter().enumerate().map(|(index, value)| read(&place.index(index), value)).collect()
}

/// `null` has no meaning anywhere in the format; read as "not given" it would hide a mistake.
fn refuse_nulls(place: &Place, value: &Value) -> Result<(), Problem> {
    match value {
        Value::Null => Err(Problem::at(place, "null has no meaning here; leave the key out instead")),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(index, item)| refuse_nulls(&place.index(index), item))
        }
        Value::Object(entries) => entries.iter().try_for_each(|(key, value)| refuse_nulls(&place.key(key), value)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// A scenario names its rules, so that the tests of a rule can be found, and rules without tests.
fn check_rules(rules: Option<&[String]>) -> Result<(), Problem> {
    let place = Place::top().key("rules");
    let rules = rules
        .filter(|rules| !rules.is_empty())
        .ok_or_else(|| Problem::at(&place, "a scenario names the rules that it is about, such as [\"CMAP-14\"]"))?;
    let is_id = |rule: &str| {
        rule.split_once('-').is_some_and(|(document, number)| {
            !document.is_empty()
                && document.bytes().all(|byte| byte.is_ascii_uppercase())
                && number.parse::<u32>().is_ok()
        })
    };
    match rules.iter().enumerate().find(|(_, rule)| !is_id(rule)) {
        Some((index, rule)) => {
            Err(Problem::at(&place.index(index), format!("\"{rule}\" is not a rule's id, such as \"CMAP-14\"")))
        }
        None => Ok(()),
    }
}

/// Refuses the scenario style's words at the top of an official file.
fn refuse_extensions(document: &Document) -> Result<(), Problem> {
    let top = Place::top();
    let words = [
        ("rules", document.rules.is_some()),
        ("exact", document.exact.is_some()),
        ("server", document.server.is_some()),
        ("virtualTime", document.virtual_time.is_some()),
    ];
    if let Some((key, _)) = words.into_iter().find(|(_, used)| *used) {
        return Err(extension(&top.key(key)));
    }
    if let Some(option) = document.pool_options.extension() {
        return Err(extension(&top.key("poolOptions").key(option)));
    }
    match &document.error {
        Some(error) if error.error_type.is_some_and(ErrorType::is_extension) => {
            Err(extension(&top.key("error").key("type")))
        }
        Some(_) | None => Ok(()),
    }
}

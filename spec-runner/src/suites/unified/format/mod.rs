//! The unified test format as types: the words of it that can be carried out, and nothing else.
//!
//! A file holds many tests, and the format has many more words than a pool needs. So a file is read loosely and each of
//! its tests strictly: a test that uses a word that is not known here is skipped by name, with that word as the reason.
//! It is never run without what the word says. Only a file whose outline is broken cannot be used at all.

mod entity;
mod event;
mod expectation;
mod method;
mod operation;
mod requirement;

use bson::Bson;
use serde::Deserialize;
use serde_json::Value;

pub use self::entity::{
    BucketEntity, ClientEntity, CollectionEntity, DatabaseEntity, Entity, Named, PlaceOptions, ServerApiEntity,
    SessionEntity, SessionOptions, TracingEntity,
};
pub use self::event::{EventKind, EventName, ExpectedEvent};
pub use self::expectation::{
    CollectionData, ExpectedError, ExpectedEvents, ExpectedLogMessages, ExpectedMessage, ExpectedSpan, ExpectedSpans,
    Severity,
};
pub use self::method::{CHANGE_STREAM, FIND, MAX_TIME, Method};
pub use self::operation::{
    Action, ClientBulkWrite, CollectionName, CursorCommand, CursorType, Data, DriverInfo, Expectation, IndexName,
    Occurrences, Operation, ReadPreferenceDocument, Special, TimeoutMode, TransactionArguments,
    WithTransactionArguments,
};
pub use self::requirement::{Deployment, Requirement, Serverless};

use crate::suites::extended_json;
use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// A file of tests.
#[derive(Clone, Debug)]
pub struct UnifiedFile {
    /// `description`: the name of the file.
    pub description: String,
    /// `runOnRequirements`: the servers that all its tests are for; none means all.
    pub run_on: Vec<Requirement>,
    /// `tests`, in their order.
    pub tests: Vec<UnifiedTest>,
    /// `createEntities`, `initialData`, and what else each test begins with.
    setup: Result<Setup, String>,
}

/// What every test of a file begins with.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// `createEntities`.
    pub entities: Vec<Entity>,
    /// `initialData`: the collections that there are, and what is in them.
    pub initial_data: Vec<CollectionData>,
}

/// One of `tests`, by name.
#[derive(Clone, Debug)]
pub struct UnifiedTest {
    /// `description`: the name of the test.
    pub description: String,
    test: Result<Test, String>,
}

/// One of `tests`, in words that are all known.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Test {
    /// `description`: the name of the test.
    pub description: String,
    /// `runOnRequirements`: the servers that it is for; none means all.
    #[serde(default, rename = "runOnRequirements")]
    pub run_on: Vec<Requirement>,
    /// `skipReason`: why no driver can run it.
    pub skip_reason: Option<String>,
    /// `operations`, in their order.
    pub operations: Vec<Operation>,
    /// `expectEvents`.
    #[serde(default)]
    pub expect_events: Vec<ExpectedEvents>,
    /// `expectLogMessages`.
    #[serde(default)]
    pub expect_log_messages: Vec<ExpectedLogMessages>,
    /// `expectTracingMessages`.
    #[serde(default)]
    pub expect_tracing_messages: Vec<ExpectedSpans>,
    /// `outcome`: the collections afterwards.
    #[serde(default)]
    pub outcome: Vec<CollectionData>,
}

/// A file as it is written. The parts of single tests are read later.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
struct Outline {
    description: String,
    schema_version: String,
    #[serde(default)]
    run_on_requirements: Vec<Requirement>,
    #[serde(default)]
    create_entities: Vec<Value>,
    #[serde(default)]
    initial_data: Vec<Value>,
    tests: Vec<Value>,
    /// Definitions that the YAML of the file refers to; already in place in its JSON.
    #[serde(default, rename = "_yamlAnchors")]
    _yaml_anchors: Value,
}

#[derive(Deserialize)]
struct Name {
    description: String,
}

impl UnifiedFile {
    /// Reads a file.
    ///
    /// # Errors
    /// Its outline is not that of such a file. Unknown words in a test make only that test unusable.
    pub fn from_json(file: Value) -> Result<Self, Problem> {
        let Outline { description, schema_version, run_on_requirements, create_entities, initial_data, tests, .. } =
            read(&Place::top(), file)?;
        if schema_version.split('.').next() != Some("1") {
            let text = format!("only versions 1.x of the format are known, not {schema_version}");
            return Err(Problem::at(&Place::top().key("schemaVersion"), text));
        }
        let top = Place::top().key("tests");
        let tests = tests.into_iter().enumerate().map(|(index, test)| UnifiedTest::read(&top.index(index), test));
        Ok(Self {
            description,
            run_on: run_on_requirements,
            tests: tests.collect::<Result<_, _>>()?,
            setup: Setup::read(create_entities, initial_data).map_err(|problem| unknown(&problem)),
        })
    }

    /// What every test begins with.
    ///
    /// # Errors
    /// Why no test of the file can be run.
    pub fn setup(&self) -> Result<&Setup, &str> {
        self.setup.as_ref().map_err(String::as_str)
    }
}

impl Setup {
    /// The clients that there are from the beginning.
    pub fn clients(&self) -> impl Iterator<Item = &ClientEntity> {
        self.entities.iter().filter_map(|entity| if let Entity::Client(client) = entity { Some(client) } else { None })
    }

    fn read(entities: Vec<Value>, initial_data: Vec<Value>) -> Result<Self, Problem> {
        Ok(Self {
            entities: read(&Place::top().key("createEntities"), Value::Array(entities))?,
            initial_data: read(&Place::top().key("initialData"), Value::Array(initial_data))?,
        })
    }
}

impl UnifiedTest {
    fn read(place: &Place, value: Value) -> Result<Self, Problem> {
        let description =
            value.get("description").cloned().map_or(Value::Null, |text| serde_json::json!({ "description": text }));
        let Name { description } = read(place, description)?;
        let test = match operation::lack(&value) {
            Some(lack) => Err(lack),
            None => read(place, value).map_err(|problem| unknown(&problem)),
        };
        Ok(Self { description, test })
    }

    /// The test itself.
    ///
    /// # Errors
    /// Why it cannot be run.
    pub fn content(&self) -> Result<&Test, &str> {
        self.test.as_ref().map_err(String::as_str)
    }
}

fn unknown(problem: &Problem) -> String {
    format!("has something that is not known here: {problem}")
}

/// A value of any BSON type, written as Extended JSON.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Any(pub Bson);

/// A document, written as Extended JSON.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Document(pub bson::Document);

impl TryFrom<Value> for Any {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        extended_json::bson(value).map(Self)
    }
}

impl TryFrom<Value> for Document {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        extended_json::document(value).map(Self)
    }
}

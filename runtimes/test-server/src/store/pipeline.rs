//! Aggregation pipelines of the simple stages: read as a whole, then run over documents, stage by stage.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use bson::raw::{CStr, CString};
use bson::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::{fields, type_name, values};
use super::collection::check_size;
use super::expression::{Expression, check_length};
use super::failure::{CommandFailure, code};
use super::filter::Filter;
use super::meter::{Stored, value_size};
use super::number::Number;
use super::order::{Ordered, compare};
use super::output::Output;
use super::project::Project;
use super::set::Settings;
use super::sort::Sort;
use super::unsupported::Place;
use super::unwind::Unwind;
use super::work::{self, Work, weight};

/// A step from documents to documents.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    Match(Filter),
    Limit(usize),
    Skip(usize),
    Sort(Sort),
    Project(Project),
    /// Fields to set.
    Set(Settings),
    /// The document's replacement.
    ReplaceRoot(Expression),
    Count(CString),
    Unwind(Unwind),
    Group {
        id: Expression,
        fields: Vec<(CString, Accumulator, Expression)>,
    },
}

/// How the values of a group are combined.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accumulator {
    Sum,
    Least,
    Greatest,
    First,
    Last,
    Push,
}

/// The source of a pipeline's documents, if it is not a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// The sessions of this server.
    Sessions,
    /// The operations that are running.
    Operations,
}

/// A pipeline.
#[derive(Clone, Debug)]
pub(super) struct Pipeline<'a> {
    pub(super) beginning: Option<Beginning>,
    stages: Vec<Stage>,
    pub(super) output: Option<Output<'a>>,
}

/// The most stages of a pipeline.
const MAX_STAGES: usize = 1000;

/// The steps for each document that is made, besides its values.
const STEPS_PER_DOCUMENT: u64 = 16;

type Documents = Vec<Arc<Stored>>;

/// The documents that a stage makes; their bytes, and with them their number, are limited.
struct Made<'a> {
    documents: Documents,
    bytes: usize,
    stage: &'static str,
    work: &'a Work,
}

/// The stage of a change stream that cuts large events.
const SPLIT: &str = "$changeStreamSplitLargeEvent";

/// Stages that are read apart from the others.
const APART: [&str; 7] =
    ["$changeStream", SPLIT, "$currentOp", "$listLocalSessions", "$listSearchIndexes", "$merge", "$out"];

impl<'a> Pipeline<'a> {
    /// Reads the stages.
    pub(super) fn parse(stages: &[&'a RawDocument]) -> Result<Self, CommandFailure> {
        if stages.len() > MAX_STAGES {
            let message = format!("Pipeline length must be no longer than {MAX_STAGES} stages.");
            return Err(CommandFailure::new(code::TOO_MANY_STAGES, message));
        }
        let mut pipeline = Self { beginning: None, stages: Vec::new(), output: None };
        for (index, stage) in stages.iter().enumerate() {
            let mut fields_of_stage = fields(stage);
            let (Some((name, argument)), None) = (fields_of_stage.next(), fields_of_stage.next()) else {
                let message = "A pipeline stage specification object must contain exactly one field.";
                return Err(CommandFailure::new(code::INVALID_STAGE, message));
            };
            match name {
                "$listSearchIndexes" => return Err(CommandFailure::search_not_enabled()),
                "$listLocalSessions" | "$currentOp" | "$changeStream" if index > 0 => {
                    let message = format!("{name} is only valid as the first stage in a pipeline.");
                    return Err(CommandFailure::new(code::FIRST_STAGE_ONLY, message));
                }
                SPLIT => {
                    let message = format!("{SPLIT} can only be used in a $changeStream pipeline");
                    return Err(CommandFailure::new(code::ILLEGAL_OPERATION, message));
                }
                "$listLocalSessions" => pipeline.beginning = Some(Beginning::Sessions),
                "$currentOp" => pipeline.beginning = Some(Beginning::Operations),
                name if Output::STAGES.contains(&name) && index + 1 < stages.len() => {
                    let message = format!("{name} can only be the final stage in the pipeline");
                    return Err(CommandFailure::new(code::OUT_MUST_BE_LAST, message));
                }
                name if Output::STAGES.contains(&name) => pipeline.output = Some(Output::parse(name, argument)?),
                name => pipeline.stages.push(Stage::parse(name, argument)?),
            }
        }
        Ok(pipeline)
    }

    /// Reads the stages behind `$changeStream`, and whether the last of them splits large events.
    pub(super) fn of_change_stream(stages: &[&'a RawDocument]) -> Result<(Vec<Stage>, bool), CommandFailure> {
        const ALLOWED: [&str; 8] =
            ["$addFields", "$match", "$project", "$replaceRoot", "$replaceWith", "$set", "$unset", SPLIT];
        let is_split = |stage: &&RawDocument| fields(stage).next().is_some_and(|(name, _)| name == SPLIT);
        let (stages, splits) = match stages.split_last() {
            Some((last, others)) if is_split(last) => (others, true),
            _ => (stages, false),
        };
        if stages.iter().any(is_split) {
            let message = format!("{SPLIT} must be the last stage in the pipeline");
            return Err(CommandFailure::new(code::SPLIT_MUST_BE_LAST, message));
        }
        if stages.iter().any(|stage| fields(stage).any(|(name, _)| name == "$changeStream")) {
            let message = "$changeStream is only valid as the first stage in a pipeline.";
            return Err(CommandFailure::new(code::FIRST_STAGE_ONLY, message));
        }
        let pipeline = Self::parse(stages)?;
        match stages.iter().flat_map(|stage| fields(stage)).find(|(name, _)| !ALLOWED.contains(name)) {
            Some((name, _)) => {
                let message = format!("{name} is not permitted in a $changeStream pipeline");
                Err(CommandFailure::new(code::ILLEGAL_OPERATION, message))
            }
            None => Ok((pipeline.stages, splits)),
        }
    }

    /// Reads the stages of an update.
    pub(super) fn of_update(stages: &[&'a RawDocument]) -> Result<Vec<Stage>, CommandFailure> {
        const ALLOWED: [&str; 6] = ["$addFields", "$project", "$replaceRoot", "$replaceWith", "$set", "$unset"];
        for (name, _) in stages.iter().flat_map(|stage| fields(stage)) {
            if !ALLOWED.contains(&name) {
                let message = format!("{name} is not allowed to be used within an update");
                return Err(CommandFailure::new(code::INVALID_OPTIONS, message));
            }
        }
        Ok(Self::parse(stages)?.stages)
    }

    /// Fails if an array names a stage that MongoDB does not have: a command with such an update is refused as a whole.
    pub(super) fn check_names(stages: &RawArray) -> Result<(), CommandFailure> {
        let documents = values(stages).filter_map(RawBsonRef::as_document);
        for (name, argument) in documents.flat_map(fields).filter(|(name, _)| !APART.contains(name)) {
            match Stage::parse(name, argument) {
                Err(failure) if failure.code == code::UNKNOWN_STAGE => return Err(failure),
                Err(_) | Ok(_) => {}
            }
        }
        Ok(())
    }

    /// The result of the pipeline for `documents`.
    pub(super) fn run(&self, documents: Documents, work: &Work) -> Result<Documents, CommandFailure> {
        run(&self.stages, documents, work)
    }
}

/// The result of the stages for `documents`.
pub(super) fn run(stages: &[Stage], documents: Documents, work: &Work) -> Result<Documents, CommandFailure> {
    stages.iter().try_fold(documents, |documents, stage| {
        work.step(documents.len() as u64);
        let documents = stage.run(documents, work)?;
        work.check()?;
        Ok(documents)
    })
}

impl<'a> Made<'a> {
    fn by(stage: &'static str, work: &'a Work) -> Self {
        Self { documents: Vec::new(), bytes: 0, stage, work }
    }

    fn push(&mut self, document: RawDocumentBuf) -> Result<(), CommandFailure> {
        self.work.copy(document.as_bytes().len());
        self.work.step(STEPS_PER_DOCUMENT);
        self.work.check()?;
        self.bytes += Stored::size(&document);
        self.work.check_bytes(self.stage, self.bytes)?;
        self.documents.push(Arc::new(Stored::computed(document)));
        Ok(())
    }
}

impl Stage {
    fn parse(name: &str, argument: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        let document = || {
            argument.as_document().ok_or_else(|| {
                CommandFailure::new(code::INVALID_FIELD_PATH, format!("the {name} stage needs an object"))
            })
        };
        let whole = |code| {
            let number = Number::read(argument).and_then(Number::to_integer);
            match number.map(usize::try_from) {
                Some(Ok(number)) => Ok(number),
                _ => Err(CommandFailure::new(
                    code,
                    format!("invalid argument to {name} stage: a whole number is needed"),
                )),
            }
        };
        Ok(match name {
            "$match" => Self::Match(Filter::parse(document()?)?),
            "$limit" => match whole(code::INVALID_LIMIT)? {
                0 => return Err(CommandFailure::new(code::INVALID_LIMIT, "the limit must be positive")),
                limit => Self::Limit(limit),
            },
            "$skip" => Self::Skip(whole(code::INVALID_SKIP)?),
            "$sort" => Self::Sort(Sort::parse(document()?)?),
            "$project" => Self::Project(Project::parse(document()?)?),
            "$unset" => {
                let names: Option<Vec<&str>> = match argument.as_array() {
                    None => argument.as_str().map(|name| vec![name]),
                    Some(array) => values(array).map(RawBsonRef::as_str).collect(),
                };
                let names = names.ok_or_else(|| {
                    CommandFailure::failed_to_parse("$unset specification must be a string or an array".to_owned())
                })?;
                Self::Project(Project::without(&names)?)
            }
            "$set" | "$addFields" => Self::Set(Settings::parse(document()?)?),
            "$replaceWith" => Self::ReplaceRoot(Expression::parse(argument)?),
            "$replaceRoot" => match document()?.get("newRoot").ok().flatten() {
                Some(root) => Self::ReplaceRoot(Expression::parse(root)?),
                None => {
                    let message = "no newRoot specified for the $replaceRoot stage";
                    return Err(CommandFailure::new(code::NEW_ROOT_MISSING, message));
                }
            },
            "$count" => {
                let name = argument.as_str().filter(|name| !name.is_empty() && !name.contains(['.', '$', '\0']));
                let name = name.and_then(|name| CString::try_from(name).ok()).ok_or_else(|| {
                    CommandFailure::new(
                        code::INVALID_COUNT,
                        "the count field must be a non-empty string without . and $",
                    )
                })?;
                Self::Count(name)
            }
            "$group" => Self::group(document()?)?,
            "$unwind" => Self::Unwind(Unwind::parse(argument)?),
            name => return Err(Place::Stage.unknown(name)),
        })
    }

    fn group(specification: &RawDocument) -> Result<Self, CommandFailure> {
        let mut id = None;
        let mut grouped = Vec::new();
        for (name, value) in specification.iter().filter_map(Result::ok) {
            if name.as_str() == "_id" {
                id = Some(Expression::parse(value)?);
                continue;
            }
            let accumulator = value.as_document().and_then(|document| fields(document).next());
            let Some((operator, argument)) = accumulator else {
                let message = format!("The field '{name}' must be an accumulator object");
                return Err(CommandFailure::new(code::ACCUMULATOR_EXPECTED, message));
            };
            let accumulator = match operator {
                "$sum" => Accumulator::Sum,
                "$min" => Accumulator::Least,
                "$max" => Accumulator::Greatest,
                "$first" => Accumulator::First,
                "$last" => Accumulator::Last,
                "$push" => Accumulator::Push,
                operator => return Err(Place::Accumulator.unknown(operator)),
            };
            grouped.push((CString::from(name), accumulator, Expression::parse(argument)?));
        }
        match id {
            Some(id) => Ok(Self::Group { id, fields: grouped }),
            None => Err(CommandFailure::new(code::GROUP_WITHOUT_ID, "a group specification must include an _id")),
        }
    }

    fn run(&self, mut documents: Documents, work: &Work) -> Result<Documents, CommandFailure> {
        let made = |stage, make: &dyn Fn(&RawDocument) -> Result<RawDocumentBuf, CommandFailure>| {
            let mut made = Made::by(stage, work);
            documents.iter().try_for_each(|document| made.push(make(document)?))?;
            Ok(made.documents)
        };
        match self {
            Self::Project(project) if project.is_empty() => {}
            Self::Project(project) => return made("$project", &|document| project.apply(document, work)),
            Self::Set(settings) => {
                return made("$addFields", &|document| {
                    let result = settings.apply(document, work)?;
                    check_size(&result, work)?;
                    Ok(result)
                });
            }
            Self::ReplaceRoot(root) => return made("$replaceRoot", &|document| new_root(document, root, work)),
            Self::Unwind(unwind) => {
                let mut made = Made::by("$unwind", work);
                documents.iter().try_for_each(|document| unwind.run(document, work, |unwound| made.push(unwound)))?;
                return Ok(made.documents);
            }
            Self::Group { id, fields } => return group(&documents, id, fields, work),
            Self::Count(_) if documents.is_empty() => {}
            Self::Count(name) => {
                let mut counted = RawDocumentBuf::new();
                counted.append(name, count(documents.len()));
                return Ok(vec![Arc::new(Stored::computed(counted))]);
            }
            Self::Match(filter) => documents.retain(|document| filter.matches(document, work)),
            Self::Limit(limit) => documents.truncate(*limit),
            Self::Skip(skip) => _ = documents.drain(..(*skip).min(documents.len())),
            Self::Sort(sort) => sort.apply(&mut documents, work)?,
        }
        Ok(documents)
    }
}

/// A number of documents, as a server gives it: of 32 bits if that suffices.
pub(super) fn count(count: usize) -> RawBson {
    let wide = || RawBson::Int64(i64::try_from(count).unwrap_or(i64::MAX));
    i32::try_from(count).map_or_else(|_| wide(), RawBson::Int32)
}

/// The replacement of `document`.
fn new_root(document: &RawDocument, root: &Expression, work: &Work) -> Result<RawDocumentBuf, CommandFailure> {
    let value = root.evaluate(document, work)?.unwrap_or(RawBson::Null);
    let found = type_name(value.element_type());
    let RawBson::Document(root) = value else {
        let message = format!("'newRoot' expression must evaluate to an object, but it is of type {found}");
        return Err(CommandFailure::new(code::NEW_ROOT_IS_NO_OBJECT, message));
    };
    Ok(root)
}

fn append(document: &mut RawDocumentBuf, name: &CStr, value: Option<RawBson>) -> Result<(), CommandFailure> {
    if let Some(value) = value {
        document.append(name, value);
    }
    check_length(document.as_bytes())
}

/// One document for each value of `id`, in the order in which they were met.
fn group(
    documents: &Documents,
    id: &Expression,
    fields: &[(CString, Accumulator, Expression)],
    work: &Work,
) -> Result<Documents, CommandFailure> {
    let mut positions = BTreeMap::new();
    let mut groups: Vec<(RawBson, Vec<Accumulated>)> = Vec::new();
    let mut gathered = 0;
    for document in documents {
        let id = id.evaluate(document, work)?.unwrap_or(RawBson::Null);
        work.step(weight(id.as_raw_bson_ref()) * (2 * work::depth(groups.len())));
        let position = *positions.entry(Ordered(id.clone())).or_insert(groups.len());
        if position == groups.len() {
            // The value is kept twice.
            gathered += 2 * value_size(&id) + fields.len() * size_of::<Accumulated>();
            work.check_bytes("$group", gathered)?;
            groups.push((id, fields.iter().map(|(_, accumulator, _)| accumulator.start()).collect()));
        }
        let Some((_, accumulated)) = groups.get_mut(position) else { continue };
        for (accumulated, (_, accumulator, expression)) in accumulated.iter_mut().zip(fields) {
            let before = accumulated.size();
            accumulator.add(accumulated, expression.evaluate(document, work)?, work)?;
            gathered = gathered + accumulated.size() - before;
            work.check_bytes("$group", gathered)?;
        }
    }
    let mut made = Made::by("$group", work);
    for (id, accumulated) in groups {
        let mut document = RawDocumentBuf::new();
        append(&mut document, bson::cstr!("_id"), Some(id))?;
        for (accumulated, (name, ..)) in accumulated.into_iter().zip(fields) {
            let value = match accumulated {
                Accumulated::One(value) => value.unwrap_or(RawBson::Null),
                Accumulated::All(all) => RawBson::Array(all),
            };
            append(&mut document, name, Some(value))?;
        }
        check_size(&document, work)?;
        made.push(document)?;
    }
    Ok(made.documents)
}

/// The state of a group.
#[derive(Debug)]
enum Accumulated {
    One(Option<RawBson>),
    All(RawArrayBuf),
}

impl Accumulated {
    fn size(&self) -> usize {
        match self {
            Self::One(value) => value.as_ref().map_or(0, value_size),
            Self::All(all) => all.as_bytes().len(),
        }
    }
}

impl Accumulator {
    fn start(self) -> Accumulated {
        match self {
            Self::Sum => Accumulated::One(Some(RawBson::Int32(0))),
            Self::Push => Accumulated::All(RawArrayBuf::new()),
            Self::Least | Self::Greatest | Self::First | Self::Last => Accumulated::One(None),
        }
    }

    fn add(self, accumulated: &mut Accumulated, value: Option<RawBson>, work: &Work) -> Result<(), CommandFailure> {
        work.step(value.as_ref().map_or(1, |value| weight(value.as_raw_bson_ref())));
        let so_far = match accumulated {
            Accumulated::One(so_far) => so_far,
            Accumulated::All(all) => {
                value.into_iter().for_each(|value| all.push(value));
                return Ok(());
            }
        };
        let is_nothing = matches!(value, None | Some(RawBson::Null | RawBson::Undefined));
        let better = |wanted| match (&value, &*so_far) {
            (Some(value), Some(best)) => compare(value.as_raw_bson_ref(), best.as_raw_bson_ref()) == wanted,
            (value, _) => value.is_some(),
        };
        match self {
            Self::Sum => {
                let number = |value: &Option<RawBson>| Number::read(value.as_ref()?.as_raw_bson_ref());
                if let (Some(sum), Some(number)) = (number(so_far), number(&value)) {
                    let decimal = || CommandFailure::not_supported("the $sum of a decimal");
                    *so_far = Some(sum.sum(number).ok_or_else(decimal)?);
                }
            }
            // Neither counts what is null.
            Self::Least | Self::Greatest if is_nothing => {}
            Self::Least if better(Ordering::Less) => *so_far = value,
            Self::Greatest if better(Ordering::Greater) => *so_far = value,
            Self::First if so_far.is_none() => *so_far = Some(value.unwrap_or(RawBson::Null)),
            Self::Last => *so_far = value,
            Self::Least | Self::Greatest | Self::First | Self::Push => {}
        }
        Ok(())
    }
}

/// The name of a pipeline's stages in a namespace that is no collection's.
pub(super) fn database_namespace(database: &str) -> String {
    format!("{database}.$cmd.aggregate")
}

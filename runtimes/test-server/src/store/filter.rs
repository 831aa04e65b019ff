//! Queries: which documents they match.
//!
//! A filter is read once, into a tree whose errors are MongoDB's, and then applied to each document. A feature of
//! MongoDB that this server lacks is an error, never a filter that matches the wrong documents.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bson::spec::ElementType;
use bson::{RawBson, RawBsonRef, RawDocument};

use super::arguments::{TYPES, fields, truth, values};
use super::expression::Expression;
use super::failure::CommandFailure;
use super::number::Number;
use super::order::{Ordered, are_comparable, compare};
use super::path::Path;
use super::pattern::Pattern;
use super::sleep::Sleep;
use super::unsupported::Place;
use super::work::{self, Work, weight};

/// A query.
#[derive(Clone, Debug)]
pub(super) enum Filter {
    /// Every one matches; with none, every document does.
    All(Vec<Filter>),
    /// At least one matches.
    Any(Vec<Filter>),
    /// None matches.
    None(Vec<Filter>),
    /// The value of an expression is true.
    Expression(Expression),
    /// Takes time.
    Sleep(Sleep),
    /// The values at a path pass a test.
    Field { path: Path, test: Test },
}

/// A test of the values at the end of a path.
#[derive(Clone, Debug)]
pub(super) enum Test {
    /// A value equals this one; null equals a missing value.
    Equal(RawBson),
    /// A comparison of a value with this one has this result.
    Compare { value: RawBson, accepts: fn(Ordering) -> bool },
    /// A value is equal to one of these, or matches one of the patterns.
    In { equal: BTreeSet<Ordered>, patterns: Vec<Pattern> },
    /// The tests all pass.
    All(Vec<Test>),
    /// The test does not pass.
    Not(Box<Test>),
    /// There is a value, or not.
    Exists(bool),
    /// A value has one of these types.
    Type(Vec<ElementType>),
    /// The value is an array of that length.
    Size(usize),
    /// The value is an array, and one of its documents matches.
    ElementMatches(Box<Filter>),
    /// The value is an array, and one of its elements passes.
    ElementPasses(Box<Test>),
    /// The remainder of a value.
    Remainder { divisor: i64, remainder: i64 },
    /// A text matches.
    Pattern(Pattern),
}

impl Filter {
    /// Reads a query.
    pub(super) fn parse(query: &RawDocument) -> Result<Self, CommandFailure> {
        let mut all = Vec::new();
        for (name, value) in fields(query) {
            match name {
                "$and" => all.push(Self::All(branches(name, value)?)),
                "$or" => all.push(Self::Any(branches(name, value)?)),
                "$nor" => all.push(Self::None(branches(name, value)?)),
                "$comment" => {}
                "$expr" => all.push(Self::Expression(Expression::parse(value)?)),
                "$where" => all.push(Self::Sleep(Sleep::parse(value)?)),
                name if name.starts_with('$') => return Err(Place::Query.unknown(name)),
                name => all.push(Self::Field { path: Path::parse(name)?, test: Test::parse(value)? }),
            }
        }
        Ok(Self::All(all))
    }

    /// Whether `document` matches; after too much work, anything.
    pub(super) fn matches(&self, document: &RawDocument, work: &Work) -> bool {
        work.step(1);
        if work.is_over() {
            return false;
        }
        match self {
            Self::All(all) => all.iter().all(|filter| filter.matches(document, work)),
            Self::Any(any) => any.iter().any(|filter| filter.matches(document, work)),
            Self::None(none) => !none.iter().any(|filter| filter.matches(document, work)),
            Self::Field { path, test } => test.passes_at(path, document, work),
            // A value that cannot be computed is none.
            Self::Expression(expression) => {
                let value = expression.evaluate(document, work);
                value.is_ok_and(|value| value.is_some_and(|value| holds(value.as_raw_bson_ref())))
            }
            Self::Sleep(Sleep { time, matches }) => {
                work.sleep(*time);
                *matches
            }
        }
    }

    /// The value that `_id` has to equal, if there is no other condition.
    pub(super) fn only_id(&self) -> Option<&RawBson> {
        let Self::All(all) = self else { return None };
        let [Self::Field { path, test: Test::Equal(value) }] = &all[..] else { return None };
        (path.is("_id") && value.element_type() != ElementType::Null).then_some(value)
    }

    /// Whether MongoDB takes it as the filter of a partial index: equality, comparisons, `$in`, `$type`, `$exists: true`, and
    /// these under `$and` and `$or`.
    pub(super) fn suits_partial_index(&self) -> bool {
        match self {
            Self::All(filters) | Self::Any(filters) => filters.iter().all(Self::suits_partial_index),
            Self::None(_) | Self::Expression(_) | Self::Sleep(_) => false,
            Self::Field { test, .. } => test.suits_partial_index(),
        }
    }

    /// The paths that must equal a value, with that value: the initial fields of an upsert.
    pub(super) fn equalities<'a>(&'a self, found: &mut Vec<(&'a Path, &'a RawBson)>) {
        match self {
            Self::All(all) => all.iter().for_each(|filter| filter.equalities(found)),
            Self::Any(any) => {
                if let [only] = &any[..] {
                    only.equalities(found);
                }
            }
            Self::None(_) | Self::Expression(_) | Self::Sleep(_) => {}
            Self::Field { path, test } => found.extend(test.equality().map(|value| (path, value))),
        }
    }
}

/// Whether the value of an expression counts as true: every value but null, false and zero.
fn holds(value: RawBsonRef<'_>) -> bool {
    value.element_type() != ElementType::Null && truth(value).unwrap_or(true)
}

/// The queries in the array of a logical operator.
fn branches(name: &str, value: RawBsonRef<'_>) -> Result<Vec<Filter>, CommandFailure> {
    let array = value.as_array().ok_or_else(|| CommandFailure::bad_value(format!("{name} must be an array")))?;
    if array.is_empty() {
        return Err(CommandFailure::bad_value(format!("{name} must be a nonempty array")));
    }
    values(array)
        .map(|value| {
            let query = value
                .as_document()
                .ok_or_else(|| CommandFailure::bad_value("$or/$and/$nor entries need to be full objects"))?;
            Filter::parse(query)
        })
        .collect()
}

impl Test {
    /// Reads the condition of a query for a path: operators, or the value to equal.
    fn parse(value: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        if let Some(document) = value.as_document()
            && is_operators(document)
        {
            return Self::operators(document);
        }
        Self::literal(value)
    }

    fn literal(value: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        match value.as_regex() {
            Some(regex) => Ok(Self::Pattern(Pattern::parse(regex.pattern.as_str(), regex.options.as_str())?)),
            None => Ok(Self::Equal(RawBson::from(value))),
        }
    }

    fn operators(document: &RawDocument) -> Result<Self, CommandFailure> {
        let mut all = Vec::new();
        for (name, value) in fields(document) {
            if name == "$options" {
                if document.get("$regex").ok().flatten().is_none() {
                    return Err(CommandFailure::bad_value("$options needs a $regex"));
                }
                continue;
            }
            all.push(Self::operator(name, value, document)?);
        }
        Ok(Self::All(all))
    }

    fn operator(name: &str, value: RawBsonRef<'_>, around: &RawDocument) -> Result<Self, CommandFailure> {
        let compared = |accepts| Self::Compare { value: RawBson::from(value), accepts };
        let negated = |test| Self::Not(Box::new(test));
        let bad = |message: &str| CommandFailure::bad_value(message);
        Ok(match name {
            "$eq" => Self::Equal(RawBson::from(value)),
            "$ne" if value.as_regex().is_some() => return Err(bad("Can't have regex as arg to $ne.")),
            "$ne" => negated(Self::Equal(RawBson::from(value))),
            "$gt" => compared(Ordering::is_gt),
            "$gte" => compared(Ordering::is_ge),
            "$lt" => compared(Ordering::is_lt),
            "$lte" => compared(Ordering::is_le),
            "$in" => Self::one_of(name, value)?,
            "$nin" => negated(Self::one_of(name, value)?),
            "$exists" => Self::Exists(truth(value).unwrap_or(value.element_type() != ElementType::Null)),
            "$not" => match (value.as_document(), value.as_regex()) {
                (Some(document), _) if is_operators(document) => negated(Self::operators(document)?),
                (None, Some(_)) => negated(Self::literal(value)?),
                (_, _) => return Err(bad("$not needs a regex or a document")),
            },
            "$type" => Self::Type(types(value)?),
            "$size" => match Number::read(value).and_then(Number::to_integer).map(usize::try_from) {
                Some(Ok(size)) => Self::Size(size),
                Some(Err(_)) => return Err(bad("$size may not be negative")),
                None => return Err(bad("$size must be a whole number")),
            },
            "$all" => {
                let array = value.as_array().ok_or_else(|| bad("$all needs an array"))?;
                let all = values(array).map(Self::parse).collect::<Result<Vec<_>, _>>()?;
                if all.is_empty() { Self::In { equal: BTreeSet::new(), patterns: Vec::new() } } else { Self::All(all) }
            }
            "$elemMatch" => {
                let document = value.as_document().ok_or_else(|| bad("$elemMatch needs an Object"))?;
                match is_operators(document) {
                    true => Self::ElementPasses(Box::new(Self::operators(document)?)),
                    false => Self::ElementMatches(Box::new(Filter::parse(document)?)),
                }
            }
            "$mod" => {
                let array = value.as_array().ok_or_else(|| bad("malformed mod, needs to be an array"))?;
                let numbers: Vec<_> =
                    values(array).take(3).map(|value| Number::read(value).and_then(Number::to_integer)).collect();
                match numbers[..] {
                    [Some(0), Some(_)] => return Err(bad("divisor cannot be 0")),
                    [Some(divisor), Some(remainder)] => Self::Remainder { divisor, remainder },
                    _ => return Err(bad("malformed mod, needs two numbers")),
                }
            }
            "$regex" => {
                let options = around.get("$options").ok().flatten().and_then(RawBsonRef::as_str);
                match (value.as_str(), value.as_regex()) {
                    (Some(pattern), _) => Self::Pattern(Pattern::parse(pattern, options.unwrap_or_default())?),
                    (None, Some(regex)) => {
                        let options = options.unwrap_or(regex.options.as_str());
                        Self::Pattern(Pattern::parse(regex.pattern.as_str(), options)?)
                    }
                    (None, None) => return Err(bad("$regex has to be a string")),
                }
            }
            name => return Err(Place::Condition.unknown(name)),
        })
    }

    fn one_of(name: &str, value: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        let array = value.as_array().ok_or_else(|| CommandFailure::bad_value(format!("{name} needs an array")))?;
        if values(array).any(|value| value.as_document().is_some_and(is_operators)) {
            return Err(CommandFailure::bad_value(format!("cannot nest $ under {name}")));
        }
        let (mut equal, mut patterns) = (BTreeSet::new(), Vec::new());
        for value in values(array) {
            match value.as_regex() {
                Some(regex) => patterns.push(Pattern::parse(regex.pattern.as_str(), regex.options.as_str())?),
                None => _ = equal.insert(Ordered(RawBson::from(value))),
            }
        }
        Ok(Self::In { equal, patterns })
    }

    fn suits_partial_index(&self) -> bool {
        match self {
            Self::Equal(_) | Self::Compare { .. } | Self::In { .. } | Self::Exists(true) | Self::Type(_) => true,
            Self::All(tests) => tests.iter().all(Self::suits_partial_index),
            Self::Not(_)
            | Self::Exists(false)
            | Self::Size(_)
            | Self::ElementMatches(_)
            | Self::ElementPasses(_)
            | Self::Remainder { .. }
            | Self::Pattern(_) => false,
        }
    }

    fn equality(&self) -> Option<&RawBson> {
        match self {
            Self::Equal(value) => Some(value),
            Self::All(tests) => match &tests[..] {
                [only] => only.equality(),
                _ => None,
            },
            Self::In { equal, patterns } if patterns.is_empty() && equal.len() == 1 => {
                equal.first().map(|only| &only.0)
            }
            Self::In { .. }
            | Self::Compare { .. }
            | Self::Not(_)
            | Self::Exists(_)
            | Self::Type(_)
            | Self::Size(_)
            | Self::ElementMatches(_)
            | Self::ElementPasses(_)
            | Self::Remainder { .. }
            | Self::Pattern(_) => None,
        }
    }

    /// Whether the values at `path` pass.
    fn passes_at(&self, path: &Path, document: &RawDocument, work: &Work) -> bool {
        match self {
            Self::All(tests) => tests.iter().all(|test| test.passes_at(path, document, work)),
            Self::Not(test) => !test.passes_at(path, document, work),
            Self::Exists(false) => !Self::Exists(true).passes_at(path, document, work),
            Self::Equal(_)
            | Self::Compare { .. }
            | Self::In { .. }
            | Self::Exists(true)
            | Self::Type(_)
            | Self::Size(_)
            | Self::ElementMatches(_)
            | Self::ElementPasses(_)
            | Self::Remainder { .. }
            | Self::Pattern(_) => {
                let looks_at_elements =
                    !matches!(self, Self::Size(_) | Self::ElementMatches(_) | Self::ElementPasses(_));
                let visited = path.visit(document, work, &mut |found| {
                    let counts = looks_at_elements || !found.is_element;
                    if counts && self.passes(found.value, work) {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                });
                visited.is_break()
            }
        }
    }

    /// Whether this one value passes, or its absence.
    fn passes(&self, value: Option<RawBsonRef<'_>>, work: &Work) -> bool {
        work.step(1);
        if work.is_over() {
            return false;
        }
        let null_or = value.unwrap_or(RawBsonRef::Null);
        let elements = || value.and_then(RawBsonRef::as_array).into_iter().flat_map(|array| work.values(array));
        let matches = |pattern: &Pattern| value.and_then(text).is_some_and(|text| pattern.matches(text, work));
        match self {
            Self::Equal(wanted) => {
                let wanted = wanted.as_raw_bson_ref();
                work.step(weight(null_or).min(weight(wanted)));
                compare(null_or, wanted).is_eq()
            }
            Self::Compare { value: wanted, accepts } => {
                let wanted = wanted.as_raw_bson_ref();
                work.step(weight(null_or).min(weight(wanted)));
                compares(null_or, wanted, *accepts)
            }
            Self::In { equal, patterns } => {
                work.step(weight(null_or) * work::depth(equal.len()));
                equal.contains(&Ordered(RawBson::from(null_or))) || patterns.iter().any(matches)
            }
            Self::All(tests) => tests.iter().all(|test| test.passes(value, work)),
            Self::Not(test) => !test.passes(value, work),
            Self::Exists(exists) => value.is_some() == *exists,
            Self::Type(types) => {
                work.step(types.len() as u64 / 16);
                value.is_some_and(|value| types.contains(&value.element_type()))
            }
            Self::Size(size) => value.is_some_and(|value| value.as_array().is_some()) && elements().count() == *size,
            Self::ElementMatches(filter) => {
                elements().any(|element| element.as_document().is_some_and(|document| filter.matches(document, work)))
            }
            Self::ElementPasses(test) => elements().any(|element| test.passes(Some(element), work)),
            Self::Remainder { divisor, remainder } => value
                .and_then(Number::read)
                .and_then(Number::to_integer)
                .is_some_and(|value| value.checked_rem(*divisor).unwrap_or(0) == *remainder),
            Self::Pattern(pattern) => matches(pattern),
        }
    }
}

fn text(value: RawBsonRef<'_>) -> Option<&str> {
    value.as_str().or_else(|| value.as_symbol())
}

/// Whether the first field's name shows that the document has operators; a database reference has none.
fn is_operators(document: &RawDocument) -> bool {
    fields(document).next().is_some_and(|(name, _)| name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db"))
}

/// Compares with the value of a query: values of other kinds never compare, except with the ends of the order.
fn compares(value: RawBsonRef<'_>, wanted: RawBsonRef<'_>, accepts: fn(Ordering) -> bool) -> bool {
    let is_end = matches!(wanted.element_type(), ElementType::MinKey | ElementType::MaxKey);
    let nan = |value| Number::read(value).is_some_and(Number::is_nan);
    let both_or_neither_nan = nan(value) == nan(wanted);
    (is_end || are_comparable(value, wanted) && both_or_neither_nan) && accepts(compare(value, wanted))
}

/// The types that `$type` names.
fn types(value: RawBsonRef<'_>) -> Result<Vec<ElementType>, CommandFailure> {
    let one = |value: RawBsonRef<'_>| {
        let number = Number::read(value).and_then(Number::to_integer);
        if value.as_str() == Some("number") {
            return Ok(vec![ElementType::Double, ElementType::Int32, ElementType::Int64, ElementType::Decimal128]);
        }
        let named = |(_, name, code): &&(ElementType, &str, i32)| {
            value.as_str() == Some(*name) || number == Some(i64::from(*code))
        };
        match TYPES.iter().find(named) {
            Some((element_type, ..)) => Ok(vec![*element_type]),
            None => Err(CommandFailure::bad_value("Unknown type name alias or invalid numerical type code")),
        }
    };
    match value.as_array() {
        None => one(value),
        Some(array) => Ok(values(array).map(one).collect::<Result<Vec<_>, _>>()?.concat()),
    }
}

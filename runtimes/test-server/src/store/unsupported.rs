//! MongoDB's operators, stages and expressions that this store lacks. They are refused as *not supported here*; any other unknown
//! name is a mistake of the caller, and gets MongoDB's own error.

use super::failure::{CommandFailure, code};

/// Where a name with a dollar stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the top level of a query.
    Query,
    /// In the condition of a field.
    Condition,
    /// In an update.
    Modifier,
    /// A stage of a pipeline.
    Stage,
    /// In `$group`.
    Accumulator,
    /// Where a value is computed.
    Expression,
}

#[rustfmt::skip]
const QUERIES: &[&str] =
    &["$alwaysFalse", "$alwaysTrue", "$jsonSchema", "$sampleRate", "$text"];

#[rustfmt::skip]
const CONDITIONS: &[&str] = &[
    "$bitsAllClear", "$bitsAllSet", "$bitsAnyClear", "$bitsAnySet", "$box", "$center", "$centerSphere", "$expr",
    "$geoIntersects", "$geoWithin", "$geometry", "$jsonSchema", "$maxDistance", "$minDistance", "$near", "$nearSphere",
    "$polygon", "$rand", "$text", "$where", "$within",
];

const MODIFIERS: &[&str] = &["$bit", "$currentDate"];

#[rustfmt::skip]
const STAGES: &[&str] = &[
    "$bucket", "$bucketAuto", "$collStats", "$densify", "$documents",
    "$facet", "$fill", "$geoNear", "$graphLookup", "$indexStats", "$listClusterCatalog", "$listSampledQueries",
    "$listSessions", "$lookup", "$planCacheStats", "$queryStats", "$rankFusion", "$redact", "$sample",
    "$scoreFusion", "$search", "$searchMeta", "$setWindowFields", "$shardedDataDistribution", "$sortByCount",
    "$unionWith", "$vectorSearch",
];

#[rustfmt::skip]
const ACCUMULATORS: &[&str] = &[
    "$accumulator", "$addToSet", "$avg", "$bottom", "$bottomN", "$concatArrays", "$count", "$firstN", "$lastN", "$maxN",
    "$median", "$mergeObjects", "$minN", "$percentile", "$setUnion", "$stdDevPop", "$stdDevSamp", "$top", "$topN",
];

#[rustfmt::skip]
const EXPRESSIONS: &[&str] = &[
    "$abs", "$acos", "$acosh", "$add", "$allElementsTrue", "$and", "$anyElementTrue", "$arrayElemAt", "$arrayToObject",
    "$asin", "$asinh", "$atan", "$atan2", "$atanh", "$avg", "$binarySize", "$bitAnd", "$bitNot", "$bitOr", "$bitXor",
    "$bsonSize", "$ceil", "$cmp", "$concat", "$concatArrays", "$cond", "$convert", "$cos", "$cosh", "$dateAdd", "$dateDiff",
    "$dateFromParts", "$dateFromString", "$dateSubtract", "$dateToParts", "$dateToString", "$dateTrunc", "$dayOfMonth",
    "$dayOfWeek", "$dayOfYear", "$degreesToRadians", "$divide", "$exp", "$filter", "$first", "$firstN", "$floor",
    "$function", "$getField", "$gt", "$gte", "$hour", "$ifNull", "$in", "$indexOfArray", "$indexOfBytes", "$indexOfCP",
    "$isArray", "$isNumber", "$isoDayOfWeek", "$isoWeek", "$isoWeekYear", "$last", "$lastN", "$let", "$ln", "$log",
    "$log10", "$lt", "$lte", "$ltrim", "$map", "$max", "$maxN", "$median", "$mergeObjects", "$meta", "$millisecond",
    "$min", "$minN", "$minute", "$mod", "$month", "$multiply", "$ne", "$not", "$objectToArray", "$or", "$percentile",
    "$pow", "$radiansToDegrees", "$rand", "$range", "$reduce", "$regexFind", "$regexFindAll", "$regexMatch",
    "$replaceAll", "$replaceOne", "$reverseArray", "$round", "$rtrim", "$sampleRate", "$second", "$setDifference",
    "$setEquals", "$setIntersection", "$setIsSubset", "$setUnion", "$sigmoid", "$sin", "$sinh", "$size", "$slice",
    "$sortArray", "$split", "$sqrt", "$stdDevPop", "$stdDevSamp", "$strLenBytes", "$strLenCP", "$strcasecmp", "$substr",
    "$substrBytes", "$substrCP", "$subtract", "$sum", "$switch", "$tan", "$tanh", "$toBool", "$toDate", "$toDecimal",
    "$toDouble", "$toHashedIndexKey", "$toInt", "$toLong", "$toLower", "$toObjectId", "$toString", "$toUUID", "$toUpper",
    "$trim", "$trunc", "$tsIncrement", "$tsSecond", "$type", "$unsetField", "$week", "$year", "$zip",
];

impl Place {
    /// The failure of a command with a name that is not known here.
    pub(super) fn unknown(self, name: &str) -> CommandFailure {
        let lacking = match self {
            Self::Query => QUERIES,
            Self::Condition => CONDITIONS,
            Self::Modifier => MODIFIERS,
            Self::Stage => STAGES,
            Self::Accumulator => ACCUMULATORS,
            Self::Expression => EXPRESSIONS,
        };
        if lacking.contains(&name) {
            return CommandFailure::not_supported(&format!("{} {name}", self.noun()));
        }
        match self {
            Self::Query => CommandFailure::bad_value(format!(
                "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider using \
                 $getField or $setField."
            )),
            Self::Condition => CommandFailure::bad_value(format!("unknown operator: {name}")),
            Self::Modifier => CommandFailure::failed_to_parse(format!(
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an array"
            )),
            Self::Stage => {
                CommandFailure::new(code::UNKNOWN_STAGE, format!("Unrecognized pipeline stage name: '{name}'"))
            }
            Self::Accumulator => {
                CommandFailure::new(code::UNKNOWN_GROUP_OPERATOR, format!("unknown group operator '{name}'"))
            }
            Self::Expression => {
                CommandFailure::new(code::INVALID_EXPRESSION, format!("Unrecognized expression '{name}'"))
            }
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Query | Self::Condition => "the query operator",
            Self::Modifier => "the update operator",
            Self::Stage => "the pipeline stage",
            Self::Accumulator => "the accumulator",
            Self::Expression => "the expression",
        }
    }
}

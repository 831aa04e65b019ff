//! The collections that a command touches, as its document shows: those it names, and those that its pipelines join or write to.
//!
//! Rules for collections would be worth nothing if `$lookup` or `$out` went around them. So every document of the command is looked
//! at, and what only looks like such a stage counts as one.

use std::collections::BTreeSet;

use bson::{RawBsonRef, RawDocument};

use super::reading::{array, field, fields, text, values};
use super::refusal::Refusal;
use super::request::Request;

/// A collection that a command touches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The database.
    pub database: String,
    /// The collection; empty if the command concerns the whole database.
    pub collection: String,
    /// The command's name, or that of the stage which writes.
    pub action: String,
}

/// How many different targets a command may have. Each is compared with all rules, on the thread that serves others, too.
const MOST_TARGETS: usize = 1_000;

/// The targets of a command, at least one.
///
/// # Errors
/// It has more than a thousand, one of them has a name that can be taken for another one, or something in it cannot be read.
pub fn targets(request: &Request) -> Result<Vec<Target>, Refusal> {
    let sequences = request.sequences()?;
    let mut found = Found { database: &request.database, around: Vec::new(), targets: BTreeSet::new() };
    found.command(&request.name, request.body())?;
    for sequence in sequences.iter().filter(|sequence| sequence.identifier == "nsInfo") {
        sequence.documents().try_for_each(|entry| found.namespace_of(entry))?;
    }
    if found.targets.len() > MOST_TARGETS {
        let message = format!("the command touches more than {MOST_TARGETS} collections; send several commands");
        return Err(Refusal::new(72, "InvalidOptions", message));
    }
    if found.targets.iter().any(|(database, collection, _)| is_ambiguous(database, collection)) {
        let message = "the name of a database has no dot, and that of a collection no NUL; correct the name";
        return Err(Refusal::new(73, "InvalidNamespace", message));
    }
    let target = |(database, collection, action): &(&str, &str, &str)| Target {
        database: (*database).into(),
        collection: (*collection).into(),
        action: (*action).into(),
    };
    Ok(found.targets.iter().map(target).collect())
}

/// Whether a server could take the names for others: old ones join the two by a dot and part them at the first one, or end them at a NUL.
fn is_ambiguous(database: &str, collection: &str) -> bool {
    database.contains(['.', '\0']) || collection.contains('\0')
}

/// Stages that show what others do. They count as operators' commands.
const OF_THE_SERVER: [&str; 12] = [
    "$backupCursor",
    "$backupCursorExtend",
    "$currentOp",
    "$listCatalog",
    "$listClusterCatalog",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSessions",
    "$operationMetrics",
    "$querySettings",
    "$queryStats",
    "$shardedDataDistribution",
];

/// The name by which rules know a command that has several.
fn modern(name: &str) -> &str {
    match name {
        "$eval" => "eval",
        "buildinfo" => "buildInfo",
        "collstats" => "collStats",
        "dbstats" => "dbStats",
        "deleteIndexes" => "dropIndexes",
        "findandmodify" => "findAndModify",
        "mapreduce" => "mapReduce",
        other => other,
    }
}

/// Commands whose collection is named with its database, `shop.orders`, wherever they are run.
const WITH_DATABASE: [&str; 28] = [
    "abortMoveCollection",
    "abortReshardCollection",
    "abortUnshardCollection",
    "analyzeShardKey",
    "balancerCollectionStatus",
    "checkShardingIndex",
    "cleanupOrphaned",
    "cleanupReshardCollection",
    "clearJumboFlag",
    "commitReshardCollection",
    "configureCollectionBalancing",
    "configureQueryAnalyzer",
    "dataSize",
    "getShardVersion",
    "mergeAllChunksOnShard",
    "mergeChunks",
    "moveChunk",
    "moveCollection",
    "moveRange",
    "refineCollectionShardKey",
    "reshardCollection",
    "setAllowMigrations",
    "shardCollection",
    "split",
    "splitChunk",
    "splitVector",
    "unshardCollection",
    "updateZoneKeyRange",
];

fn names_its_database(command: &str) -> bool {
    WITH_DATABASE.iter().any(|name| name.eq_ignore_ascii_case(command))
}

fn is_of_all_databases(stage: RawBsonRef<'_>) -> Result<bool, Refusal> {
    // What is no document, or says no boolean, is refused by the server.
    let all = stage.as_document().map(|stage| field(stage, "allChangesForCluster")).transpose()?;
    Ok(all.flatten().is_some())
}

fn has_change_stream(body: &RawDocument) -> Result<bool, Refusal> {
    let stages = array(body, "pipeline")?.into_iter().flat_map(values);
    for stage in stages {
        let names = stage?.as_document().into_iter().flat_map(fields);
        for field in names {
            if field?.0 == "$changeStream" {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// What is found, by names that the command itself holds: one that is there a million times costs no copies.
struct Found<'a> {
    database: &'a str,
    /// The databases that the stages around the present one name: a name in their pipelines may be one of there, too.
    around: Vec<&'a str>,
    /// Database, collection, action.
    targets: BTreeSet<(&'a str, &'a str, &'a str)>,
}

impl<'a> Found<'a> {
    fn command(&mut self, name: &'a str, body: &'a RawDocument) -> Result<(), Refusal> {
        let first = field(body, name)?;
        let name = modern(name);
        match (name, first) {
            // What is explained is what counts, and the explanation itself.
            ("explain", Some(RawBsonRef::Document(inner))) => {
                self.add(self.database, "", name);
                return match fields(inner).next() {
                    Some(first) => self.command(first?.0, inner),
                    None => Ok(()),
                };
            }
            ("getMore", _) => self.add(self.database, text(body, "collection")?.unwrap_or_default(), name),
            ("renameCollection", Some(RawBsonRef::String(from))) => {
                self.full(from, name);
                self.full(text(body, "to")?.unwrap_or_default(), name);
            }
            ("bulkWrite", _) => {
                for entry in array(body, "nsInfo")?.into_iter().flat_map(values) {
                    if let RawBsonRef::Document(entry) = entry? {
                        self.namespace_of(entry)?;
                    }
                }
                self.add(self.database, "", name);
            }
            (_, Some(RawBsonRef::String(namespace))) if names_its_database(name) => self.full(namespace, name),
            (_, Some(RawBsonRef::String(collection))) => self.add(self.database, collection, name),
            _ => self.add(self.database, "", name),
        }
        if name == "mapReduce" {
            self.output(body)?;
        }
        if let Some(view_on) = text(body, "viewOn")? {
            self.add(self.database, view_on, "aggregate");
        }
        if let Some(copy) = text(body, "toCollection")? {
            self.add(self.database, copy, name);
        }
        self.document(body)?;
        // On a whole database, or all of them.
        if name == "aggregate" && !matches!(first, Some(RawBsonRef::String(_))) && has_change_stream(body)? {
            self.add(self.database, "", "$changeStream");
        }
        Ok(())
    }

    /// Where a `mapReduce` writes: a name, or a document that says how, whereto and, maybe, into which database.
    fn output(&mut self, body: &'a RawDocument) -> Result<(), Refusal> {
        match field(body, "out")? {
            Some(RawBsonRef::Document(out)) => {
                let database = text(out, "db")?.unwrap_or(self.database);
                for how in ["replace", "merge", "reduce"] {
                    if let Some(collection) = text(out, how)? {
                        self.add(database, collection, "$out");
                    }
                }
            }
            Some(out) => _ = self.named(out, "$out")?,
            None => {}
        }
        Ok(())
    }

    /// Looks for stages in a document, at every depth; core has bounded the depth.
    fn document(&mut self, document: &'a RawDocument) -> Result<(), Refusal> {
        fields(document).try_for_each(|field| field.and_then(|(key, value)| self.stage(key, value)))
    }

    /// A field that may be a stage, and what is in it.
    fn stage(&mut self, key: &'a str, value: RawBsonRef<'a>) -> Result<(), Refusal> {
        let mut database = None;
        match key {
            key if !key.starts_with('$') => {}
            "$lookup" | "$graphLookup" => database = self.source(value, "from")?,
            "$unionWith" => database = self.source(value, "coll")?,
            "$out" => _ = self.named(value, "$out")?,
            stage if OF_THE_SERVER.contains(&stage) => self.add(self.database, "", stage),
            "$changeStream" if is_of_all_databases(value)? => self.add("admin", "", "allChangesForCluster"),
            "$merge" => {
                let into = value.as_document().map_or(Ok(Some(value)), |stage| field(stage, "into"))?;
                into.map(|into| self.named(into, "$merge")).transpose()?;
            }
            _ => {}
        }
        let is_another = |database: &&str| *database != self.database && !self.around.contains(database);
        let Some(database) = database.filter(is_another) else { return self.value(value) };
        self.around.push(database);
        let found = self.value(value);
        self.around.pop();
        found
    }

    fn value(&mut self, value: RawBsonRef<'a>) -> Result<(), Refusal> {
        if let RawBsonRef::Array(array) = value {
            return values(array).try_for_each(|item| self.value(item?));
        }
        let scope = || value.as_javascript_with_scope().map(|code| code.scope);
        value.as_document().or_else(scope).map_or(Ok(()), |inner| self.document(inner))
    }

    /// A collection that a stage reads: a name, or a document whose `field` is a name or names database and collection. Returns the
    /// database that the stage names.
    fn source(&mut self, stage: RawBsonRef<'a>, name: &str) -> Result<Option<&'a str>, Refusal> {
        let Some(stage) = stage.as_document() else { return self.named(stage, "aggregate") };
        match (field(stage, name)?, text(stage, "db")?) {
            (Some(RawBsonRef::String(collection)), Some(database)) => {
                self.add(database, collection, "aggregate");
                Ok(Some(database))
            }
            (Some(named), _) => self.named(named, "aggregate"),
            (None, _) => Ok(None),
        }
    }

    /// A collection by its name, or by a document that names it and perhaps its database, which is returned.
    fn named(&mut self, named: RawBsonRef<'a>, action: &'a str) -> Result<Option<&'a str>, Refusal> {
        let (database, collection) = match (named.as_str(), named.as_document()) {
            (Some(collection), _) => (None, collection),
            (None, Some(named)) => (text(named, "db")?, text(named, "coll")?.unwrap_or_default()),
            (None, None) => return Ok(None),
        };
        match database {
            Some(database) => self.add(database, collection, action),
            None => {
                self.add(self.database, collection, action);
                (0..self.around.len()).for_each(|at| self.add(self.around[at], collection, action));
            }
        }
        Ok(database)
    }

    fn namespace_of(&mut self, entry: &'a RawDocument) -> Result<(), Refusal> {
        self.full(text(entry, "ns")?.unwrap_or_default(), "bulkWrite");
        Ok(())
    }

    fn full(&mut self, namespace: &'a str, action: &'a str) {
        let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        self.add(database, collection, action);
    }

    fn add(&mut self, database: &'a str, collection: &'a str, action: &'a str) {
        // One too many is enough to refuse the command.
        if self.targets.len() <= MOST_TARGETS {
            self.targets.insert((database, collection, action));
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use cmap_core::time::Instant;
    use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};

    use super::*;

    fn read(body: &RawDocument) -> Request {
        let mut out = Vec::new();
        MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, body, &[], &Limits::DEFAULT)
            .unwrap()
            .finish();
        Request::read(&out, &Limits::DEFAULT, Instant::ORIGIN).unwrap()
    }

    fn of(body: &RawDocument) -> Vec<String> {
        let request = read(body);
        targets(&request).unwrap().iter().map(|it| format!("{} {}.{}", it.action, it.database, it.collection)).collect()
    }

    #[test]
    fn a_command_touches_the_collection_it_names() {
        assert_eq!(of(&rawdoc! { "find": "c", "$db": "d" }), ["find d.c"]);
        assert_eq!(of(&rawdoc! { "getMore": 1_i64, "collection": "c", "$db": "d" }), ["getMore d.c"]);
        assert_eq!(of(&rawdoc! { "dropDatabase": 1, "$db": "d" }), ["dropDatabase d."]);
        assert_eq!(
            of(&rawdoc! { "renameCollection": "a.b", "to": "c.d.e", "$db": "admin" }),
            ["renameCollection a.b", "renameCollection c.d.e"]
        );
    }

    #[test]
    fn stages_that_join_and_write_touch_their_collections_too_x_133() {
        let pipeline = rawdoc! {
            "aggregate": "c", "$db": "d", "pipeline": [
                { "$lookup": { "from": "joined", "pipeline": [{ "$unionWith": "deep" }], "as": "x" } },
                { "$facet": { "a": [{ "$graphLookup": { "from": { "db": "other", "coll": "graph" } } }] } },
                { "$merge": { "into": { "db": "other", "coll": "target" } } },
            ],
        };

        assert_eq!(
            of(&pipeline),
            ["aggregate d.c", "aggregate d.deep", "aggregate d.joined", "aggregate other.graph", "$merge other.target"]
        );
        assert_eq!(
            of(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [{ "$out": "o" }] }),
            ["aggregate d.c", "$out d.o"]
        );
    }

    #[test]
    fn an_explained_command_and_a_view_touch_what_they_read() {
        assert_eq!(of(&rawdoc! { "explain": { "find": "c" }, "$db": "d" }), ["explain d.", "find d.c"]);
        assert_eq!(
            of(&rawdoc! { "create": "v", "viewOn": "secret", "$db": "d" }),
            ["aggregate d.secret", "create d.v"]
        );
    }

    #[test]
    fn stages_that_show_what_others_do_are_targets_of_their_own_x_133() {
        let of_stage = |stage: bson::RawDocumentBuf| of(&rawdoc! { "aggregate": 1, "$db": "d", "pipeline": [stage] });

        assert!(of_stage(rawdoc! { "$currentOp": { "allUsers": true } }).contains(&"$currentOp d.".into()));
        assert!(of_stage(rawdoc! { "$changeStream": {} }).contains(&"$changeStream d.".into()));
        let all = of_stage(rawdoc! { "$changeStream": { "allChangesForCluster": true } });
        assert!(all.contains(&"allChangesForCluster admin.".into()), "{all:?}");
    }

    #[test]
    fn a_command_has_a_thousand_targets_at_most_however_often_each_is_there_x_133() {
        let to_each = |names: &mut dyn Iterator<Item = String>| {
            let mut stages = bson::RawArrayBuf::new();
            names.for_each(|name| stages.push(rawdoc! { "$out": name }));
            targets(&read(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": stages })).map(|targets| targets.len())
        };

        assert_eq!(to_each(&mut (0..999).map(|number| number.to_string())), Ok(1_000));
        assert_eq!(to_each(&mut (0..1_000).map(|number| number.to_string())).unwrap_err().code, 72);
        assert_eq!(to_each(&mut (0..5_000).map(|_| "o".to_owned())), Ok(2));
    }

    #[test]
    fn an_old_name_of_a_command_is_checked_as_the_new_one_x_133() {
        assert_eq!(of(&rawdoc! { "findandmodify": "c", "$db": "d" }), ["findAndModify d.c"]);
        assert_eq!(of(&rawdoc! { "mapreduce": "c", "$db": "d" }), ["mapReduce d.c"]);
        assert_eq!(
            of(&rawdoc! { "cloneCollectionAsCapped": "c", "toCollection": "t", "$db": "d" }),
            ["cloneCollectionAsCapped d.c", "cloneCollectionAsCapped d.t"]
        );
    }

    #[test]
    fn a_collection_that_is_named_with_its_database_is_one_of_that_database_x_133() {
        assert_eq!(of(&rawdoc! { "dataSize": "shop.secret", "$db": "d" }), ["dataSize shop.secret"]);
        assert_eq!(of(&rawdoc! { "shardcollection": "shop.a.b", "$db": "admin" }), ["shardcollection shop.a.b"]);
        assert_eq!(of(&rawdoc! { "validate": "shop.secret", "$db": "d" }), ["validate d.shop.secret"]);
    }

    #[test]
    fn what_a_map_reduce_writes_is_a_target_x_133() {
        let with = |out: bson::RawBson| of(&rawdoc! { "mapReduce": "c", "out": out, "$db": "d" });

        assert_eq!(with(bson::RawBson::String("o".into())), ["mapReduce d.c", "$out d.o"]);
        let other = rawdoc! { "replace": "secret", "db": "other" };
        assert_eq!(with(bson::RawBson::Document(other)), ["mapReduce d.c", "$out other.secret"]);
        assert_eq!(with(bson::RawBson::Document(rawdoc! { "inline": 1 })), ["mapReduce d.c"]);
    }

    #[test]
    fn a_name_in_a_stage_of_another_database_may_be_one_of_there_x_133() {
        let inner = || rawdoc! { "$lookup": { "from": "deep", "as": "x" } };
        let from = rawdoc! { "from": { "db": "other", "coll": "c" }, "pipeline": [inner()] };

        let both = of(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [{ "$lookup": from }, inner()] });
        assert_eq!(both, ["aggregate d.c", "aggregate d.deep", "aggregate other.c", "aggregate other.deep"]);
        let union = rawdoc! { "db": "other", "coll": "c", "pipeline": [] };
        let after = of(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [{ "$unionWith": union }, inner()] });
        assert_eq!(after, ["aggregate d.c", "aggregate d.deep", "aggregate other.c"]);
    }

    #[test]
    fn a_field_that_is_there_twice_where_it_names_a_collection_is_refused_x_133() {
        let of_stage = |stage| rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [stage] };
        for twice in [
            of_stage(rawdoc! { "$lookup": { "from": "orders", "from": "secret" } }),
            of_stage(rawdoc! { "$unionWith": { "coll": "orders", "db": "d", "db": "other" } }),
            of_stage(rawdoc! { "$merge": { "into": { "coll": "orders", "coll": "secret" } } }),
            rawdoc! { "explain": { "find": "orders", "find": "secret" }, "$db": "d" },
            rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "d.orders", "ns": "d.secret" }], "$db": "admin" },
        ] {
            assert_eq!(targets(&read(&twice)).unwrap_err().code, 9, "{twice:?}");
        }
    }

    #[test]
    fn a_name_that_a_server_could_take_for_another_one_is_refused_x_133() {
        for (database, collection) in [("shop.a", "b"), ("shop\0", "b"), ("shop", "secret\0b")] {
            let out = rawdoc! { "$out": { "db": database, "coll": collection } };
            let refusal = targets(&read(&rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [out] })).unwrap_err();
            assert_eq!(refusal.code, 73, "{database:?} {collection:?}");
        }
    }

    #[test]
    fn a_bulk_write_touches_its_namespaces() {
        assert_eq!(
            of(&rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "a.b" }], "$db": "admin" }),
            ["bulkWrite a.b", "bulkWrite admin."]
        );
    }
}

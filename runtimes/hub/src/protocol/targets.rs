//! The collections that a command touches, as its document shows: those it names, and those that its pipelines join or write to.
//!
//! Rules for collections would be worth nothing if `$lookup` or `$out` went around them. So every document of the command is looked
//! at, and what only looks like such a stage counts as one.

use std::collections::BTreeSet;

use bson::{RawBsonRef, RawDocument};

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
/// It has more than a thousand.
pub fn targets(request: &Request) -> Result<Vec<Target>, Refusal> {
    let sequences = request.sequences();
    let mut found = Found { database: &request.database, targets: BTreeSet::new() };
    found.command(&request.name, request.body());
    for sequence in sequences.iter().filter(|sequence| sequence.identifier == "nsInfo") {
        sequence.documents().for_each(|entry| found.namespace_of(entry));
    }
    if found.targets.len() > MOST_TARGETS {
        let message = format!("the command touches more than {MOST_TARGETS} collections; send several commands");
        return Err(Refusal::new(72, "InvalidOptions", message));
    }
    let target = |(database, collection, action): &(&str, &str, &str)| Target {
        database: (*database).into(),
        collection: (*collection).into(),
        action: (*action).into(),
    };
    Ok(found.targets.iter().map(target).collect())
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

fn is_of_all_databases(stage: RawBsonRef<'_>) -> bool {
    // What is no document, or says no boolean, is refused by the server.
    stage.as_document().is_some_and(|stage| stage.get("allChangesForCluster").is_ok_and(|all| all.is_some()))
}

/// What is found, by names that the command itself holds: one that is there a million times costs no copies.
struct Found<'a> {
    database: &'a str,
    /// Database, collection, action.
    targets: BTreeSet<(&'a str, &'a str, &'a str)>,
}

impl<'a> Found<'a> {
    fn command(&mut self, name: &'a str, body: &'a RawDocument) {
        let first = body.get(name).ok().flatten();
        let name = modern(name);
        match (name, first) {
            // What is explained is what counts, and the explanation itself.
            ("explain", Some(RawBsonRef::Document(inner))) => {
                self.add(self.database, "", name);
                if let Some(Ok((inner_name, _))) = inner.iter().next() {
                    self.command(inner_name.as_str(), inner);
                }
                return;
            }
            ("getMore", _) => self.add(self.database, body.get_str("collection").unwrap_or_default(), name),
            ("renameCollection", Some(RawBsonRef::String(from))) => {
                self.full(from, name);
                self.full(body.get_str("to").unwrap_or_default(), name);
            }
            ("bulkWrite", _) => {
                let entries = body.get_array("nsInfo").ok().into_iter().flatten().map_while(Result::ok);
                entries.filter_map(RawBsonRef::as_document).for_each(|entry| self.namespace_of(entry));
                self.add(self.database, "", name);
            }
            (_, Some(RawBsonRef::String(namespace))) if names_its_database(name) => self.full(namespace, name),
            (_, Some(RawBsonRef::String(collection))) => self.add(self.database, collection, name),
            _ => self.add(self.database, "", name),
        }
        if name == "mapReduce" {
            self.output(body);
        }
        if let Ok(view_on) = body.get_str("viewOn") {
            self.add(self.database, view_on, "aggregate");
        }
        if let Ok(copy) = body.get_str("toCollection") {
            self.add(self.database, copy, name);
        }
        self.document(body);
        // On a whole database, or all of them.
        if name == "aggregate" && !matches!(first, Some(RawBsonRef::String(_))) && self.has_change_stream(body) {
            self.add(self.database, "", "$changeStream");
        }
    }

    /// Where a `mapReduce` writes: a name, or a document that says how, whereto and, maybe, into which database.
    fn output(&mut self, body: &'a RawDocument) {
        match body.get("out").ok().flatten() {
            Some(RawBsonRef::Document(out)) => {
                let database = out.get_str("db").unwrap_or(self.database);
                for how in ["replace", "merge", "reduce"] {
                    if let Ok(collection) = out.get_str(how) {
                        self.add(database, collection, "$out");
                    }
                }
            }
            Some(out) => self.sink(out, "$out"),
            None => {}
        }
    }

    fn has_change_stream(&self, body: &RawDocument) -> bool {
        let stages = body.get_array("pipeline").ok().into_iter().flatten().map_while(Result::ok);
        let mut names = stages.filter_map(|stage| stage.as_document()?.iter().next()?.ok());
        names.any(|(name, _)| name.as_str() == "$changeStream")
    }

    /// Looks for stages in a document, at every depth; core has bounded the depth.
    fn document(&mut self, document: &'a RawDocument) {
        for (key, value) in document.iter().map_while(Result::ok) {
            match key.as_str() {
                key if !key.starts_with('$') => {}
                "$lookup" | "$graphLookup" => self.source(value, "from"),
                "$unionWith" => self.source(value, "coll"),
                "$out" => self.sink(value, "$out"),
                stage if OF_THE_SERVER.contains(&stage) => self.add(self.database, "", stage),
                "$changeStream" if is_of_all_databases(value) => self.add("admin", "", "allChangesForCluster"),
                "$merge" => match value.as_document() {
                    Some(stage) => {
                        if let Ok(Some(into)) = stage.get("into") {
                            self.sink(into, "$merge");
                        }
                    }
                    None => self.sink(value, "$merge"),
                },
                _ => {}
            }
            self.value(value);
        }
    }

    fn value(&mut self, value: RawBsonRef<'a>) {
        if let RawBsonRef::Document(inner) = value {
            self.document(inner);
        } else if let RawBsonRef::Array(array) = value {
            array.into_iter().map_while(Result::ok).for_each(|item| self.value(item));
        }
    }

    /// A collection that a stage reads: a name, or a document whose `field` is a name or names database and collection.
    fn source(&mut self, stage: RawBsonRef<'a>, field: &str) {
        let (database, named) = match stage.as_document() {
            Some(stage) => (stage.get_str("db").unwrap_or(self.database), stage.get(field).ok().flatten()),
            None => (self.database, Some(stage)),
        };
        match named {
            Some(RawBsonRef::String(collection)) => self.add(database, collection, "aggregate"),
            Some(other) => self.sink(other, "aggregate"),
            None => {}
        }
    }

    fn sink(&mut self, named: RawBsonRef<'a>, action: &'a str) {
        if let RawBsonRef::String(collection) = named {
            self.add(self.database, collection, action);
        } else if let RawBsonRef::Document(named) = named {
            let database = named.get_str("db").unwrap_or(self.database);
            self.add(database, named.get_str("coll").unwrap_or_default(), action);
        }
    }

    fn namespace_of(&mut self, entry: &'a RawDocument) {
        self.full(entry.get_str("ns").unwrap_or_default(), "bulkWrite");
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
    fn a_bulk_write_touches_its_namespaces() {
        assert_eq!(
            of(&rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "a.b" }], "$db": "admin" }),
            ["bulkWrite a.b", "bulkWrite admin."]
        );
    }
}

//! What the commands of each name do, and which fields they take from their client: one table for all who send commands.
//!
//! | commands | do | take besides the session and `maxTimeMS` |
//! |---|---|---|
//! | find, count, distinct, aggregate | read | read concern, afterClusterTime, read preference |
//! | aggregate with `$out` or `$merge` | write their result | read concern, afterClusterTime, write concern |
//! | mapReduce inline | read, once | afterClusterTime, read preference |
//! | mapReduce | write its result | write concern |
//! | listCollections, listDatabases, listIndexes | read | read preference |
//! | getMore | goes on reading, once | nothing, and no `maxTimeMS` |
//! | insert, update, delete, findAndModify, bulkWrite | write, with a number | afterClusterTime, write concern |
//! | create, createIndexes, drop, dropDatabase, dropIndexes | write | afterClusterTime, write concern |
//! | collMod, convertToCapped, renameCollection | write | write concern |
//! | createSearchIndexes | writes | |
//! | createUser, updateUser, dropUser, createRole | | write concern |
//! | collStats, dbStats, explain | | read preference |
//! | hello, parallelCollectionScan | | nothing, and no session |
//! | any other | | |
//!
//! A write takes a time from a causally consistent session and no level of a read concern (SES-15).

use bson::{RawBsonRef, RawDocument};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It reads (RTY-2).
    Reads,
    /// It reads, and is not repeated.
    ReadsOnce,
    /// It reads, and writes its result to a collection.
    WritesResult,
    /// It writes single documents (RTY-4), or several if an item of its array says so.
    WritesDocuments(Option<Items>),
    /// It writes, and has no transaction number.
    Writes,
    /// The client does not know.
    Unknown,
}

/// The items of a write: the field that holds them, and how one of them says that it concerns several documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Items {
    pub(crate) field: &'static str,
    pub(crate) several: Several,
}

/// How an item of a write says that it concerns several documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Several {
    IfTrue(&'static str),
    UnlessOne(&'static str),
}

/// What a client adds to commands that take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Addition {
    /// A session (SES-10).
    Session,
    /// A read concern.
    ReadConcern,
    /// The time of what a causally consistent session has seen, in a read concern (SES-15).
    AfterClusterTime,
    /// A read preference: a member that is not the primary may serve the command.
    ReadPreference,
    /// A write concern.
    WriteConcern,
    /// `maxTimeMS`.
    MaxTime,
}

/// What the commands of a name do and take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandTraits {
    pub(crate) effect: Effect,
    /// A bit for each [`Addition`].
    takes: u8,
}

const MAX_TIME: u8 = Addition::MaxTime.bit();
const SESSION: u8 = Addition::Session.bit();
const ANY: u8 = SESSION | MAX_TIME;
const LEVEL: u8 = Addition::ReadConcern.bit();
const TIME: u8 = Addition::AfterClusterTime.bit();
const PREFERENCE: u8 = Addition::ReadPreference.bit();
const CONCERN: u8 = Addition::WriteConcern.bit();

impl CommandTraits {
    /// Those of the command `name`, which `body` is.
    pub(crate) fn of(name: &str, body: &RawDocument) -> Self {
        let (effect, takes) = match name {
            "find" | "count" | "distinct" => (Effect::Reads, ANY | LEVEL | TIME | PREFERENCE),
            "aggregate" if has_output_stage(body) => (Effect::WritesResult, ANY | LEVEL | TIME | CONCERN),
            "aggregate" => (Effect::Reads, ANY | LEVEL | TIME | PREFERENCE),
            "mapReduce" if is_inline(body) => (Effect::ReadsOnce, ANY | TIME | PREFERENCE),
            "mapReduce" => (Effect::WritesResult, ANY | CONCERN),
            "listCollections" | "listDatabases" | "listIndexes" => (Effect::Reads, ANY | PREFERENCE),
            "getMore" => (Effect::ReadsOnce, SESSION),
            "insert" | "findAndModify" | "findandmodify" => (Effect::WritesDocuments(None), ANY | TIME | CONCERN),
            "update" => (items("updates", Several::IfTrue("multi")), ANY | TIME | CONCERN),
            "delete" => (items("deletes", Several::UnlessOne("limit")), ANY | TIME | CONCERN),
            "bulkWrite" => (items("ops", Several::IfTrue("multi")), ANY | TIME | CONCERN),
            "create" | "createIndexes" | "drop" | "dropDatabase" | "dropIndexes" => {
                (Effect::Writes, ANY | TIME | CONCERN)
            }
            "collMod" | "convertToCapped" | "renameCollection" => (Effect::Writes, ANY | CONCERN),
            "createSearchIndexes" => (Effect::Writes, ANY),
            "createUser" | "updateUser" | "dropUser" | "createRole" => (Effect::Unknown, ANY | CONCERN),
            "collStats" | "dbStats" | "explain" => (Effect::Unknown, ANY | PREFERENCE),
            "hello" | "isMaster" | "ismaster" | "parallelCollectionScan" => (Effect::Unknown, MAX_TIME),
            _ => (Effect::Unknown, ANY),
        };
        Self { effect, takes }
    }

    pub(crate) fn takes(self, addition: Addition) -> bool {
        self.takes & addition.bit() != 0
    }
}

impl Addition {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Several {
    /// Whether this item does. One that cannot be read may.
    pub(crate) fn is_said_by(self, item: &RawDocument) -> bool {
        match self {
            Self::IfTrue(field) => !matches!(item.get(field), Ok(None | Some(RawBsonRef::Boolean(false)))),
            Self::UnlessOne(field) => item.get(field).ok().flatten().and_then(crate::wire::integer) != Some(1),
        }
    }
}

const fn items(field: &'static str, several: Several) -> Effect {
    Effect::WritesDocuments(Some(Items { field, several }))
}

/// Whether the last stage of an aggregation writes. One that cannot be read may.
fn has_output_stage(body: &RawDocument) -> bool {
    let pipeline = match body.get("pipeline") {
        Ok(pipeline) => pipeline.and_then(RawBsonRef::as_array),
        Err(_) => return true,
    };
    let mut last = None;
    for stage in pipeline.into_iter().flatten() {
        let Ok(stage) = stage else { return true };
        last = stage.as_document();
    }
    match last.and_then(|stage| stage.iter().next()) {
        None => false,
        Some(Err(_)) => true,
        Some(Ok((name, _))) => matches!(name.as_str(), "$out" | "$merge"),
    }
}

/// Whether a mapReduce returns its result instead of writing it.
fn is_inline(body: &RawDocument) -> bool {
    body.get_document("out").is_ok_and(|out| out.get("inline").is_ok_and(|inline| inline.is_some()))
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use bson::{RawDocumentBuf, rawdoc};

    use super::*;

    fn traits(body: &RawDocument) -> CommandTraits {
        CommandTraits::of(body.iter().next().unwrap().unwrap().0.as_str(), body)
    }

    /// The commands that take `addition`, of one each that the table tells from others.
    fn that_take(addition: Addition) -> Vec<&'static str> {
        let commands = [
            "find",
            "count",
            "distinct",
            "aggregate",
            "listCollections",
            "getMore",
            "insert",
            "update",
            "delete",
            "findAndModify",
            "findandmodify",
            "bulkWrite",
            "create",
            "createIndexes",
            "drop",
            "dropDatabase",
            "dropIndexes",
            "collMod",
            "renameCollection",
            "createUser",
            "explain",
            "hello",
            "ping",
        ];
        let takes = |name: &&str| CommandTraits::of(name, &rawdoc! {}).takes(addition);
        commands.into_iter().filter(takes).collect()
    }

    #[test]
    fn reads_and_writes_take_the_time_of_what_their_session_has_seen_ses_15() {
        let expected = [
            "find",
            "count",
            "distinct",
            "aggregate",
            "insert",
            "update",
            "delete",
            "findAndModify",
            "findandmodify",
            "bulkWrite",
            "create",
            "createIndexes",
            "drop",
            "dropDatabase",
            "dropIndexes",
        ];

        assert_eq!(that_take(Addition::AfterClusterTime), expected);
        assert_eq!(that_take(Addition::ReadConcern), expected[..4], "a level is for reads");
    }

    #[test]
    fn a_command_takes_what_it_can_use() {
        assert_eq!(
            that_take(Addition::ReadPreference),
            ["find", "count", "distinct", "aggregate", "listCollections", "explain"]
        );
        let writes = that_take(Addition::WriteConcern);
        assert_eq!((writes.first(), writes.last(), writes.len()), (Some(&"insert"), Some(&"createUser"), 14));
        assert!(!that_take(Addition::Session).contains(&"hello"));
        assert!(!that_take(Addition::MaxTime).contains(&"getMore"));
    }

    #[test]
    fn a_read_that_writes_its_result_takes_a_write_concern_and_no_preference() {
        for (body, writes) in [
            (rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, { "$merge": "d" }] }, true),
            (rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }, { "$match": {} }] }, false),
            (rawdoc! { "aggregate": "c", "pipeline": [] }, false),
            (rawdoc! { "mapReduce": "c", "out": "d" }, true),
            (rawdoc! { "mapReduce": "c", "out": { "inline": 1 } }, false),
        ] {
            let traits = traits(&body);

            assert_eq!(traits.effect == Effect::WritesResult, writes, "{body:?}");
            assert_eq!(traits.takes(Addition::WriteConcern), writes, "{body:?}");
            assert_eq!(traits.takes(Addition::ReadPreference), !writes, "{body:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_may_write() {
        let text = rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "text" }] };
        let bytes: Vec<u8> = text.as_bytes().iter().map(|&byte| if byte == b'x' { 0xff } else { byte }).collect();
        let not_utf_8 = RawDocumentBuf::from_bytes(bytes).unwrap();
        let multi = Several::IfTrue("multi");

        assert_eq!(traits(&not_utf_8).effect, Effect::WritesResult);
        assert!(multi.is_said_by(&rawdoc! { "multi": true }) && multi.is_said_by(&rawdoc! { "multi": 1 }));
        assert!(!multi.is_said_by(&rawdoc! { "multi": false }) && !multi.is_said_by(&rawdoc! {}));
    }
}

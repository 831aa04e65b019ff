//! The client's read concern, write concern and read preference, for commands that take them.
//!
//! A command is never changed: what it lacks goes along behind its own fields, and a field that is there stays. The commands of
//! a transaction get nothing, because its first one has said it all.

use core::time::Duration;

use bson::raw::CStr;
use bson::{RawDocument, RawDocumentBuf, cstr};

use crate::connection::{ClientField, Command, Outline};
use crate::monitor::ServerType;
use crate::options::{ClientOptions, ReadMode, ReadPreference, W, WriteConcern};
use crate::wire::document::command_name;

/// Commands that take a read concern.
const TAKE_READ_CONCERN: [&str; 4] = ["aggregate", "count", "distinct", "find"];

/// Commands that may be served by a member that is not the primary, unless they write.
const TAKE_READ_PREFERENCE: [&str; 11] = [
    "aggregate",
    "collStats",
    "count",
    "dbStats",
    "distinct",
    "explain",
    "find",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "mapReduce",
];

/// Commands that always write and take a write concern. `aggregate` and `mapReduce` do if they have an output.
const TAKE_WRITE_CONCERN: [&str; 18] = [
    "insert",
    "update",
    "delete",
    "findAndModify",
    "findandmodify",
    "bulkWrite",
    "create",
    "createIndexes",
    "collMod",
    "convertToCapped",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "renameCollection",
    "createUser",
    "updateUser",
    "dropUser",
    "createRole",
];

/// What a client adds to the commands of its user.
#[derive(Clone, Debug)]
pub struct CommandDefaults {
    read_concern: Option<RawDocumentBuf>,
    write_concern: Option<RawDocumentBuf>,
    read_preference: Option<ReadPreference>,
    is_direct: bool,
}

/// Which read preference goes along with the reads on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadsBy<'a> {
    /// The client's.
    Client,
    /// The one that the connection's server was selected by.
    Preference(&'a ReadPreference),
    /// The client's, but the server was named, and serves reads whatever it is, as with a direct connection (SEL-36).
    NamedServer,
}

impl CommandDefaults {
    /// Those of a client whose options set none.
    pub const NONE: Self = Self { read_concern: None, write_concern: None, read_preference: None, is_direct: false };

    /// Those that `options` set; `None` if they set none.
    pub fn of_client(options: &ClientOptions) -> Option<Self> {
        let read_concern = options.read_concern_level.as_deref().map(|level| {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("level"), level);
            document
        });
        // CSOT-3: timeoutMS replaces wTimeoutMS.
        let write_concern = write_concern_document(&options.write_concern, options.timeout.is_none());
        let is_direct = options.direct_connection == Some(true);
        // Only a direct connection has to say that the primary is preferred (SEL-36).
        let is_sent = is_direct || options.read_preference.mode() != ReadMode::Primary;
        let read_preference = is_sent.then(|| options.read_preference.clone());
        let is_any = read_concern.is_some() || write_concern.is_some() || read_preference.is_some();
        is_any.then_some(Self { read_concern, write_concern, read_preference, is_direct })
    }

    /// Whether the client talks to one server, whatever that is.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The read concern that goes along with commands of this name, if any does.
    pub fn read_concern(&self, name: &str) -> Option<&RawDocument> {
        self.read_concern.as_deref().filter(|_| takes_read_concern(name))
    }

    /// The write concern that goes along with this command, if any does.
    pub fn write_concern(&self, body: &RawDocument) -> Option<&RawDocument> {
        self.write_concern.as_deref().filter(|_| takes_write_concern(body))
    }

    /// The fields to send along with `command` to a server of this type, those that it has already included; `None` if there
    /// is nothing to add.
    pub fn fields(&self, command: &Command<'_>, server: ServerType, reads: ReadsBy<'_>) -> Option<RawDocumentBuf> {
        let outline = Outline::of(command);
        if outline.has(ClientField::Autocommit) {
            return None;
        }
        let read_concern = self.read_concern(outline.name);
        // One that wants no reply says so in a write concern of its own.
        let write_concern = self.write_concern(command.body).filter(|_| command.acknowledged);
        let primary = ReadPreference::default();
        let (read_preference, is_direct) = match reads {
            ReadsBy::Client => (self.read_preference.as_ref(), self.is_direct),
            ReadsBy::Preference(preference) => (Some(preference), self.is_direct),
            ReadsBy::NamedServer => (Some(self.read_preference.as_ref().unwrap_or(&primary)), true),
        };
        let read_preference = read_preference.filter(|_| takes_read_preference(command.body));
        let read_preference =
            read_preference.and_then(|preference| sent_read_preference(preference, server, is_direct));
        if read_concern.is_none() && write_concern.is_none() && read_preference.is_none() {
            return None;
        }

        let mut fields = RawDocumentBuf::new();
        command.fields.iter().for_each(|field| field.append_to(&mut fields));
        let mut adds = false;
        let mut add = |field, name: &CStr, value: Option<&RawDocument>| {
            if let Some(value) = value.filter(|_| !outline.has(field)) {
                fields.append(name, value);
                adds = true;
            }
        };
        add(ClientField::ReadConcern, cstr!("readConcern"), read_concern);
        add(ClientField::WriteConcern, cstr!("writeConcern"), write_concern);
        add(ClientField::ReadPreference, cstr!("$readPreference"), read_preference.as_deref());
        adds.then_some(fields)
    }
}

/// Whether commands of this name take a read concern.
pub fn takes_read_concern(name: &str) -> bool {
    TAKE_READ_CONCERN.contains(&name)
}

/// Whether a member that is not the primary may serve the command.
pub fn takes_read_preference(body: &RawDocument) -> bool {
    TAKE_READ_PREFERENCE.contains(&command_name(body).unwrap_or_default()) && !takes_write_concern(body)
}

/// Whether the command writes, and takes a write concern.
fn takes_write_concern(body: &RawDocument) -> bool {
    let name = command_name(body).unwrap_or_default();
    TAKE_WRITE_CONCERN.contains(&name) || has_output(name, body)
}

/// Whether a command that reads writes its result to a collection.
pub(crate) fn has_output(name: &str, body: &RawDocument) -> bool {
    match name {
        "aggregate" => {
            let stages = body.get_array("pipeline").ok().into_iter().flatten();
            // What cannot be read may write.
            let Some(last) = stages.last() else { return false };
            let stage = last.map(|stage| stage.as_document().and_then(|stage| stage.iter_elements().next()));
            let is_output = |name: &str| matches!(name, "$out" | "$merge");
            stage.map_or(true, |stage| stage.is_some_and(|stage| stage.map_or(true, |it| is_output(it.key().as_str()))))
        }
        "mapReduce" => {
            !body.get_document("out").is_ok_and(|out| out.get("inline").is_ok_and(|inline| inline.is_some()))
        }
        _ => false,
    }
}

/// A write concern as it is sent; `None` if it says nothing. Where it `has_timeout`, its `wtimeout` is sent, too.
pub fn write_concern_document(concern: &WriteConcern, has_timeout: bool) -> Option<RawDocumentBuf> {
    let mut document = RawDocumentBuf::new();
    match &concern.w {
        Some(W::Members(members)) => document.append(cstr!("w"), i32::try_from(*members).unwrap_or(i32::MAX)),
        Some(W::Named(name)) => document.append(cstr!("w"), name.as_str()),
        None => {}
    }
    if let Some(journal) = concern.journal {
        document.append(cstr!("j"), journal);
    }
    if let Some(timeout) = concern.timeout.filter(|timeout| has_timeout && *timeout > Duration::ZERO) {
        // Zero would be no limit.
        document.append(cstr!("wtimeout"), i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).max(1));
    }
    (!document.is_empty()).then_some(document)
}

/// `$readPreference` for a server of this type (SEL-34, SEL-35, SEL-36): a standalone has no members to choose from, a member
/// that is talked to directly serves reads whatever it is, and elsewhere the primary is what a server assumes.
pub fn sent_read_preference(
    preference: &ReadPreference,
    server: ServerType,
    is_direct: bool,
) -> Option<RawDocumentBuf> {
    let mode = match (server, preference.mode()) {
        (ServerType::Standalone | ServerType::Unknown, _) => return None,
        (ServerType::Mongos | ServerType::LoadBalancer, ReadMode::Primary) => return None,
        (_, ReadMode::Primary) if is_direct => ReadMode::PrimaryPreferred,
        (_, ReadMode::Primary) => return None,
        (_, mode) => mode,
    };
    Some(preference.document(mode))
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;
    use alloc::vec;

    use bson::rawdoc;

    use super::*;
    use crate::wire::Field;

    /// The fields that go along with `body` to a replica set's member.
    fn added(options: &str, body: &RawDocument) -> RawDocumentBuf {
        added_for(options, body, ServerType::RsSecondary)
    }

    fn added_for(options: &str, body: &RawDocument, server: ServerType) -> RawDocumentBuf {
        let (options, _) = ClientOptions::parse(&alloc::format!("mongodb://h/?{options}")).unwrap();
        let fields = CommandDefaults::of_client(&options)
            .and_then(|own| own.fields(&Command::new("db", body), server, ReadsBy::Client));
        fields.unwrap_or_default()
    }

    #[test]
    fn a_write_concern_goes_along_with_writes() {
        let options = "w=majority&journal=true&wTimeoutMS=50";
        let expected = rawdoc! { "writeConcern": { "w": "majority", "j": true, "wtimeout": 50_i64 } };
        for write in [
            rawdoc! { "insert": "c" },
            rawdoc! { "findAndModify": "c" },
            rawdoc! { "drop": "c" },
            rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, { "$out": "d" }] },
            rawdoc! { "mapReduce": "c", "out": "d" },
        ] {
            assert_eq!(added(options, &write), expected, "{write:?}");
        }
        for other in [
            rawdoc! { "find": "c" },
            rawdoc! { "ping": 1 },
            rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }, { "$match": {} }] },
            rawdoc! { "mapReduce": "c", "out": { "inline": 1 } },
        ] {
            assert!(added(options, &other).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn a_write_concern_has_a_limit_of_a_millisecond_at_least() {
        let concern = WriteConcern { timeout: Some(Duration::from_micros(500)), ..WriteConcern::default() };

        assert_eq!(write_concern_document(&concern, true), Some(rawdoc! { "wtimeout": 1_i64 }));
        assert_eq!(write_concern_document(&concern, false), None);
    }

    #[test]
    fn timeout_ms_replaces_w_timeout_ms_csot_3() {
        let insert = rawdoc! { "insert": "c" };

        assert_eq!(added("w=5&wTimeoutMS=50&timeoutMS=9", &insert), rawdoc! { "writeConcern": { "w": 5 } });
        assert_eq!(added("wTimeoutMS=50&timeoutMS=9", &insert), rawdoc! {});
    }

    #[test]
    fn a_read_concern_and_a_preference_go_along_with_reads() {
        let options = "readConcernLevel=majority&readPreference=secondary&readPreferenceTags=dc:a,rack:1\
                       &readPreferenceTags=&maxStalenessSeconds=120";
        let preference = rawdoc! {
            "mode": "secondary", "tags": [{ "dc": "a", "rack": "1" }, {}], "maxStalenessSeconds": 120_i64,
        };
        let read_concern = rawdoc! { "level": "majority" };

        let both = rawdoc! { "readConcern": read_concern, "$readPreference": preference.clone() };
        assert_eq!(added(options, &rawdoc! { "find": "c" }), both);
        assert_eq!(added(options, &rawdoc! { "listIndexes": "c" }), rawdoc! { "$readPreference": preference });
        assert_eq!(added(options, &rawdoc! { "insert": "c" }), rawdoc! {});
    }

    #[test]
    fn what_a_command_says_itself_stays() {
        let options = "w=majority&readConcernLevel=majority&readPreference=nearest";
        let insert = rawdoc! { "insert": "c", "writeConcern": { "w": 1 } };
        let find = rawdoc! { "find": "c", "readConcern": {} };
        let nearest = rawdoc! { "$readPreference": { "mode": "nearest" } };

        assert_eq!((added(options, &insert), added(options, &find)), (rawdoc! {}, nearest));
        // A transaction's commands.
        assert_eq!(added(options, &rawdoc! { "insert": "c", "autocommit": false }), rawdoc! {});
    }

    #[test]
    fn further_fields_of_a_command_stay() {
        let (options, _) = ClientOptions::parse("mongodb://h/?w=2").unwrap();
        let (insert, lsid) = (rawdoc! { "insert": "c" }, rawdoc! { "lsid": { "id": 1 } });
        let mut command = Command::new("db", &insert);
        let further = [Field::All(&lsid)];
        command.fields = &further;

        let defaults = CommandDefaults::of_client(&options).unwrap();

        let expected = rawdoc! { "lsid": { "id": 1 }, "writeConcern": { "w": 2 } };
        assert_eq!(defaults.fields(&command, ServerType::RsPrimary, ReadsBy::Client), Some(expected));
        command.acknowledged = false;
        assert_eq!(defaults.fields(&command, ServerType::RsPrimary, ReadsBy::Client), None);
    }

    #[test]
    fn a_preference_is_told_as_the_server_needs_it() {
        let find = rawdoc! { "find": "c" };
        let mode = |options: &str, server| {
            let fields = added_for(options, &find, server);
            fields.get_document("$readPreference").ok().map(|sent| sent.get_str("mode").unwrap().to_owned())
        };
        use ServerType::{LoadBalancer, Mongos, RsPrimary, RsSecondary, Standalone};

        for (options, server, expected) in [
            ("readPreference=primary", Mongos, None),
            ("readPreference=secondaryPreferred", Mongos, Some("secondaryPreferred")),
            ("readPreference=nearest", LoadBalancer, Some("nearest")),
            ("readPreference=nearest", Standalone, None),
            ("readPreference=primary", RsPrimary, None),
            ("readPreference=secondary", RsSecondary, Some("secondary")),
            ("readPreference=primary&directConnection=true", RsSecondary, Some("primaryPreferred")),
            ("directConnection=true", RsSecondary, Some("primaryPreferred")),
            ("directConnection=true", Standalone, None),
            ("directConnection=true", Mongos, None),
            ("readPreference=secondary&directConnection=true", RsPrimary, Some("secondary")),
        ] {
            assert_eq!(mode(options, server).as_deref(), expected, "{options}, {server:?}");
        }
    }

    #[test]
    fn options_that_say_nothing_of_this_cost_nothing() {
        let (options, _) = ClientOptions::parse("mongodb://h/?maxPoolSize=5").unwrap();

        assert!(CommandDefaults::of_client(&options).is_none());
    }
}

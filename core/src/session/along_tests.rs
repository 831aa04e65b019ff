//! What goes along with which command, by the client's options, the session, and what the connection's hello said.

use alloc::vec;
use alloc::vec::Vec;

use bson::rawdoc;

use super::*;
use crate::options::{ClientOptions, ReadMode};

const SEEN: Timestamp = Timestamp { time: 7, increment: 1 };

fn server(role: Role) -> Peer {
    Peer { role, has_sessions: true, max_wire_version: 25, ..Peer::default() }
}

fn load_balancer() -> Peer {
    Peer { is_load_balanced: true, ..server(Role::Mongos) }
}

fn defaults(options: &str) -> Option<CommandDefaults> {
    let (options, _) = ClientOptions::parse(&alloc::format!("mongodb://h/?{options}")).unwrap();
    CommandDefaults::of_client(&options)
}

/// The command as it is sent to `server`.
fn sent(command: &Command<'_>, server: Peer, along: &Along<'_>) -> RawDocumentBuf {
    let composed = compose(command, &Outline::of(command), server, along);
    let mut document = composed.body.as_deref().unwrap_or(command.body).to_owned();
    let mut places = PLACES;
    composed.fields(&mut places).iter().for_each(|field| field.append_to(&mut document));
    document
}

/// What goes along with `body`.
fn added(body: &RawDocument, server: Peer, along: &Along<'_>) -> RawDocumentBuf {
    let whole = sent(&Command::new("db", body), server, along);
    let mut added = RawDocumentBuf::new();
    for (name, value) in whole.iter().map(Result::unwrap).skip(body.iter().count()) {
        added.append(name, value);
    }
    added
}

/// What the options of a client add to `body` on a connection to a member of a set.
fn added_by(options: &str, body: &RawDocument) -> RawDocumentBuf {
    added(body, server(Role::Member), &Along { defaults: defaults(options).as_ref(), ..Along::default() })
}

fn causal() -> Causality {
    let mut causality = Causality::new(true);
    causality.advance_operation_time(SEEN);
    causality
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
        assert_eq!(added_by(options, &write), expected, "{write:?}");
    }
    for other in [rawdoc! { "find": "c" }, rawdoc! { "ping": 1 }, rawdoc! { "mapReduce": "c", "out": { "inline": 1 } }]
    {
        assert_eq!(added_by(options, &other), rawdoc! {}, "{other:?}");
    }
}

#[test]
fn a_command_that_wants_no_reply_takes_no_concern_that_asks_for_one() {
    let insert = rawdoc! { "insert": "c" };
    let unacknowledged = Command { acknowledged: false, ..Command::new("db", &insert) };
    let by = |options: &str| {
        let defaults = defaults(options);
        sent(&unacknowledged, server(Role::Member), &Along { defaults: defaults.as_ref(), ..Along::default() })
    };

    assert_eq!(by("w=2"), insert);
    assert_eq!(by("w=0"), rawdoc! { "insert": "c", "writeConcern": { "w": 0 } });
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
    assert_eq!(added_by(options, &rawdoc! { "find": "c" }), both);
    assert_eq!(added_by(options, &rawdoc! { "listIndexes": "c" }), rawdoc! { "$readPreference": preference });
    assert_eq!(added_by(options, &rawdoc! { "insert": "c" }), rawdoc! {});
}

#[test]
fn what_a_command_says_itself_stays() {
    let options = "w=majority&readConcernLevel=majority&readPreference=nearest";
    let insert = rawdoc! { "insert": "c", "writeConcern": { "w": 1 } };
    let find = rawdoc! { "find": "c", "readConcern": {} };
    let nearest = rawdoc! { "$readPreference": { "mode": "nearest" } };

    assert_eq!((added_by(options, &insert), added_by(options, &find)), (rawdoc! {}, nearest));
    // A transaction's commands.
    assert_eq!(added_by(options, &rawdoc! { "insert": "c", "autocommit": false }), rawdoc! {});
}

#[test]
fn further_fields_of_a_command_stay() {
    let (insert, lsid) = (rawdoc! { "insert": "c" }, rawdoc! { "lsid": { "id": 1 } });
    let further = [Field::All(&lsid)];
    let command = Command { fields: &further, ..Command::new("db", &insert) };
    let defaults = defaults("w=2");
    let along = Along { defaults: defaults.as_ref(), ..Along::default() };

    let expected = rawdoc! { "insert": "c", "lsid": { "id": 1 }, "writeConcern": { "w": 2 } };
    assert_eq!(sent(&command, server(Role::Member), &along), expected);
}

#[test]
fn a_preference_is_said_as_the_server_of_the_connection_needs_it_sel_34() {
    use Role::{Member, Mongos, Standalone};
    let find = rawdoc! { "find": "c" };

    for (options, server, expected) in [
        ("readPreference=primary", server(Mongos), None),
        ("readPreference=secondaryPreferred", server(Mongos), Some("secondaryPreferred")),
        ("readPreference=nearest", load_balancer(), Some("nearest")),
        ("readPreference=nearest", server(Standalone), None),
        ("readPreference=primary", server(Member), None),
        ("readPreference=secondary", server(Member), Some("secondary")),
        ("readPreference=primary&directConnection=true", server(Member), Some("primaryPreferred")),
        ("directConnection=true", server(Member), Some("primaryPreferred")),
        ("directConnection=true", server(Standalone), None),
        ("directConnection=true", server(Mongos), None),
        ("directConnection=true", load_balancer(), None),
        ("readPreference=secondary&directConnection=true", server(Member), Some("secondary")),
    ] {
        let defaults = defaults(options);
        let fields = added(&find, server, &Along { defaults: defaults.as_ref(), ..Along::default() });

        let mode = fields.get_document("$readPreference").ok().map(|sent| sent.get_str("mode").unwrap().to_owned());
        assert_eq!(mode.as_deref(), expected, "{options}, {server:?}");
    }
}

#[test]
fn who_asks_decides_which_commands_have_a_preference_sel_33() {
    let (ping, find) = (rawdoc! { "ping": 1 }, rawdoc! { "find": "c" });
    let secondary = ReadPreference::new(ReadMode::Secondary);
    let mode = |body: &RawDocument, reads| {
        let fields = added(body, server(Role::Member), &Along { reads, ..Along::default() });
        fields.get_document("$readPreference").ok().map(|sent| sent.get_str("mode").unwrap().to_owned())
    };

    let with_reads = ReadsBy::Connection(&secondary);
    assert_eq!((mode(&ping, with_reads), mode(&find, with_reads).as_deref()), (None, Some("secondary")));
    assert_eq!(mode(&ping, ReadsBy::Command(&secondary)).as_deref(), Some("secondary"));
    assert_eq!(mode(&find, ReadsBy::NamedServer).as_deref(), Some("primaryPreferred"));
    assert_eq!((mode(&find, ReadsBy::Primary), mode(&find, ReadsBy::Client)), (None, None));
}

#[test]
fn a_causally_consistent_session_s_time_goes_along_with_reads_and_writes_ses_15() {
    let causality = causal();
    let along = Along { causality: Some(&causality), ..Along::default() };
    let after = rawdoc! { "readConcern": { "afterClusterTime": SEEN } };

    for command in [
        rawdoc! { "find": "c" },
        rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }] },
        rawdoc! { "mapReduce": "c", "out": { "inline": 1 } },
        rawdoc! { "insert": "c" },
        rawdoc! { "create": "c" },
        rawdoc! { "createIndexes": "c" },
        rawdoc! { "drop": "c" },
        rawdoc! { "dropDatabase": 1 },
        rawdoc! { "dropIndexes": "c" },
    ] {
        assert_eq!(added(&command, server(Role::Member), &along), after, "{command:?}");
        assert_eq!(added(&command, server(Role::Standalone), &along), rawdoc! {}, "it has no cluster's time");
    }
    assert_eq!(added(&rawdoc! { "ping": 1 }, server(Role::Member), &along), rawdoc! {});
}

#[test]
fn a_read_adds_the_time_to_its_level_and_a_write_has_none_ses_15() {
    let (causality, defaults) = (causal(), defaults("readConcernLevel=majority"));
    let along = Along { causality: Some(&causality), defaults: defaults.as_ref(), ..Along::default() };
    let concern =
        |body: &RawDocument| added(body, server(Role::Member), &along).get_document("readConcern").unwrap().to_owned();

    let time = rawdoc! { "afterClusterTime": SEEN };
    assert_eq!(concern(&rawdoc! { "find": "c" }), rawdoc! { "level": "majority", "afterClusterTime": SEEN });
    assert_eq!((concern(&rawdoc! { "insert": "c" }), concern(&rawdoc! { "drop": "c" })), (time.clone(), time));
}

#[test]
fn a_read_concern_of_the_command_s_own_gets_the_time_wherever_it_is() {
    let causality = causal();
    let along = Along { causality: Some(&causality), ..Along::default() };
    let (find, own, comment) = (rawdoc! { "find": "c" }, rawdoc! { "level": "local" }, rawdoc! { "comment": 1 });
    let within = rawdoc! { "find": "c", "readConcern": { "level": "local" }, "comment": 1 };
    let further = [Field::Document("readConcern", &own), Field::All(&comment)];
    let beside = Command { fields: &further, ..Command::new("db", &find) };

    let expected = rawdoc! { "find": "c", "comment": 1, "readConcern": { "level": "local", "afterClusterTime": SEEN } };
    for command in [Command::new("db", &within), beside] {
        assert_eq!(sent(&command, server(Role::Member), &along), expected);
    }
}

#[test]
fn a_read_concern_that_names_its_time_gets_no_other() {
    let causality = causal();
    let along = Along { causality: Some(&causality), ..Along::default() };
    let earlier = Timestamp { time: 5, increment: 1 };

    for own in [rawdoc! { "level": "snapshot", "atClusterTime": earlier }, rawdoc! { "afterClusterTime": earlier }] {
        let find = rawdoc! { "find": "c", "readConcern": own };
        assert_eq!(sent(&Command::new("db", &find), server(Role::Member), &along), find);
    }
}

#[test]
fn a_snapshot_replaces_a_read_concern_wherever_it_is_ses_17() {
    let snapshot = Snapshot::new(Some(SEEN));
    let along = Along { snapshot: Some(&snapshot), ..Along::default() };
    let (find, own) = (rawdoc! { "find": "c" }, rawdoc! { "level": "local" });
    let within = rawdoc! { "find": "c", "readConcern": { "level": "local" } };
    let beside = Command { fields: &[Field::Document("readConcern", &own)], ..Command::new("db", &find) };

    let expected = rawdoc! { "find": "c", "readConcern": { "level": "snapshot", "atClusterTime": SEEN } };
    for command in [Command::new("db", &within), beside] {
        assert_eq!(sent(&command, server(Role::Member), &along), expected);
    }
}

#[test]
fn a_text_that_is_not_utf_8_stays_as_it_is_where_the_read_concern_is_replaced() {
    let causality = causal();
    let along = Along { causality: Some(&causality), ..Along::default() };
    let text = rawdoc! { "find": "c", "comment": "xx", "readConcern": {}, "limit": 1 };
    let bytes: Vec<u8> = text.as_bytes().iter().map(|&byte| if byte == b'x' { 0xff } else { byte }).collect();
    let find = RawDocumentBuf::from_bytes(bytes).unwrap();

    let sent = sent(&Command::new("db", &find), server(Role::Member), &along);

    assert!(
        sent.as_bytes().windows(4).any(|bytes| bytes == [0xff, 0xff, 0, 0x10]),
        "the text, and the limit behind it"
    );
    assert!(sent.as_bytes().windows(16).any(|bytes| bytes == b"afterClusterTime"));
}

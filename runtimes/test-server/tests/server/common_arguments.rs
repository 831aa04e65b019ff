//! Arguments that every command may have, and the time that every reply of a cluster has.

use bson::{RawDocumentBuf, rawdoc};

use super::network::{Network, config};

#[track_caller]
fn code(command: &RawDocumentBuf) -> Option<i32> {
    let mut network = Network::new(config());
    let mut client = network.connect();
    network.fail(&mut client, "db", command).code
}

#[test]
fn a_time_limit_is_a_number_in_range() {
    for command in [bson::cstr!("ping"), bson::cstr!("find"), bson::cstr!("getMore")] {
        assert_eq!(code(&rawdoc! { command: "c", "maxTimeMS": -1 }), Some(2));
        assert_eq!(code(&rawdoc! { command: "c", "maxTimeMS": 1_i64 << 31 }), Some(2));
        assert_eq!(code(&rawdoc! { command: "c", "maxTimeMS": 1.5 }), Some(2));
        assert_eq!(code(&rawdoc! { command: "c", "maxTimeMS": "1" }), Some(2));
    }
}

#[test]
fn a_read_preference_has_a_mode_and_what_goes_with_it() {
    let find = |preference: RawDocumentBuf| rawdoc! { "find": "c", "$readPreference": preference };

    assert_eq!(code(&find(rawdoc! { "mode": "fastest" })), Some(2));
    assert_eq!(code(&find(rawdoc! {})), Some(40414));
    assert_eq!(code(&find(rawdoc! { "mode": "nearest", "best": true })), Some(40415));
    assert_eq!(code(&find(rawdoc! { "mode": "primary", "tags": [{ "dc": "ny" }] })), Some(2));
    assert_eq!(code(&find(rawdoc! { "mode": "secondary", "maxStalenessSeconds": 30 })), Some(160));
    assert_eq!(code(&rawdoc! { "find": "c", "$readPreference": "primary" }), Some(14));
}

#[test]
fn a_write_concern_has_known_fields_of_known_types() {
    let insert = |concern: RawDocumentBuf| rawdoc! { "insert": "c", "documents": [{}], "writeConcern": concern };

    assert_eq!(code(&insert(rawdoc! { "w": -1 })), Some(9));
    assert_eq!(code(&insert(rawdoc! { "w": 51 })), Some(9));
    assert_eq!(code(&insert(rawdoc! { "w": true })), Some(9));
    assert_eq!(code(&insert(rawdoc! { "j": "yes" })), Some(14));
    assert_eq!(code(&insert(rawdoc! { "wtimeout": "1" })), Some(14));
    assert_eq!(code(&insert(rawdoc! { "journal": true })), Some(40415));
    assert_eq!(code(&rawdoc! { "find": "c", "writeConcern": { "w": 1 } }), Some(72), "it writes nothing");
}

#[test]
fn what_makes_sense_is_accepted() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    let find = rawdoc! { "find": "c", "$readPreference": { "mode": "secondaryPreferred", "maxStalenessSeconds": 90 } };
    let concern = rawdoc! { "w": 1, "j": true, "wtimeout": 1000 };
    let insert = rawdoc! { "insert": "c", "documents": [{}], "writeConcern": concern, "maxTimeMS": 1000 };
    let aggregate = rawdoc! { "aggregate": "c", "pipeline": [], "cursor": {}, "writeConcern": { "w": 1 } };

    for command in [find, insert, aggregate] {
        assert_eq!(network.run(&mut client, "db", &command).get_f64("ok").unwrap(), 1.0, "{command:?}");
    }
}

#[test]
fn a_server_behind_a_load_balancer_tells_the_clusters_time() {
    let mut config = config();
    config.load_balanced = true;
    let mut network = Network::new(config);
    let mut client = network.connect();

    let before = network.admin(&mut client, &rawdoc! { "ping": 1 });
    network.run(&mut client, "db", &rawdoc! { "insert": "c", "documents": [{}] });
    let after = network.admin(&mut client, &rawdoc! { "ping": 1 });

    let time = |reply: &RawDocumentBuf| {
        let cluster = reply.get_document("$clusterTime").unwrap().get_timestamp("clusterTime").unwrap();
        assert_eq!(cluster, reply.get_timestamp("operationTime").unwrap());
        cluster
    };
    assert!(time(&after) > time(&before), "a write moves it on");
    let mut standalone = Network::new(super::network::config());
    let mut client = standalone.connect();
    assert!(standalone.admin(&mut client, &rawdoc! { "ping": 1 }).get("$clusterTime").unwrap().is_none());
}

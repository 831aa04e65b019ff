//! The versions of MongoDB that the server can be.

use bson::rawdoc;
use cmap_test_server::{ServerConfig, ServerVersion};

use super::network::{Network, config};

fn bulk_write() -> bson::RawDocumentBuf {
    rawdoc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 1 } }], "nsInfo": [{ "ns": "db.c" }] }
}

fn config_of(version: ServerVersion) -> ServerConfig {
    config().with_version(version)
}

#[test]
fn a_server_shows_its_version_wherever_it_is_asked() {
    for (version, number, newest) in [(ServerVersion::V7_0, "7.0.0", 21), (ServerVersion::V8_0, "8.0.0", 25)] {
        let mut network = Network::new(config_of(version));
        let mut client = network.connect();

        let build = network.admin(&mut client, &rawdoc! { "buildInfo": 1 });
        let status = network.admin(&mut client, &rawdoc! { "serverStatus": 1 });
        let hello = network.admin(&mut client, &rawdoc! { "hello": 1 });
        let parameter = rawdoc! { "getParameter": 1, "featureCompatibilityVersion": 1 };
        let parameter = network.admin(&mut client, &parameter);

        let shown = [&build, &status].map(|reply| reply.get_str("version").unwrap());
        assert_eq!(shown, [number; 2]);
        assert_eq!(hello.get_i32("maxWireVersion").unwrap(), newest);
        let compatible = parameter.get_document("featureCompatibilityVersion").unwrap();
        assert_eq!(compatible.get_str("version").unwrap(), version.name());
    }
}

#[test]
fn only_version_8_0_has_bulk_write() {
    let mut old = Network::new(config_of(ServerVersion::V7_0));
    let mut new = Network::new(config_of(ServerVersion::V8_0));
    let (mut old_client, mut new_client) = (old.connect(), new.connect());

    let refused = old.fail(&mut old_client, "admin", &bulk_write());
    let done = new.admin(&mut new_client, &bulk_write());

    assert_eq!(refused.code, Some(59));
    assert_eq!(done.get_i32("nInserted").unwrap(), 1);
}

#[test]
fn only_version_8_0_sorts_before_it_updates() {
    let statement = rawdoc! { "q": {}, "u": { "$set": { "x": 1 } }, "sort": { "_id": -1 } };
    let update = rawdoc! { "update": "c", "updates": [statement] };
    let mut old = Network::new(config_of(ServerVersion::V7_0));
    let mut new = Network::new(config_of(ServerVersion::V8_0));
    let (mut old_client, mut new_client) = (old.connect(), new.connect());

    let refused = old.fail(&mut old_client, "db", &update);
    let done = new.run(&mut new_client, "db", &update);

    assert_eq!(refused.code, Some(40415));
    assert_eq!(done.get_i32("n").unwrap(), 0);
}

#[test]
fn a_bulk_write_that_is_sent_again_is_done_once() {
    let mut config = config_of(ServerVersion::V8_0);
    config.replica_set = Some("rs0".into());
    let mut network = Network::new(config);
    let mut client = network.connect();
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let mut command = bulk_write();
    command.append(bson::cstr!("lsid"), rawdoc! { "id": session });
    command.append(bson::cstr!("txnNumber"), 1_i64);

    let replies = [(); 2].map(|()| network.admin(&mut client, &command));

    let counts = replies.map(|reply| ["nInserted", "nErrors"].map(|name| reply.get_i32(name).unwrap()));
    assert_eq!(counts, [[1, 0]; 2]);
}

#[test]
fn a_bulk_write_is_part_of_a_transaction() {
    let mut config = config_of(ServerVersion::V8_0);
    config.replica_set = Some("rs0".into());
    let mut network = Network::new(config);
    let (mut client, mut other) = (network.connect(), network.connect());
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let part = |command: &bson::RawDocument| {
        let mut command = command.to_owned();
        command.append(bson::cstr!("lsid"), rawdoc! { "id": session.clone() });
        command.append(bson::cstr!("txnNumber"), 1_i64);
        command.append(bson::cstr!("autocommit"), false);
        command
    };
    let mut first = part(&bulk_write());
    first.append(bson::cstr!("startTransaction"), true);
    let count = rawdoc! { "count": "c" };

    network.admin(&mut client, &first);
    let before = network.run(&mut other, "db", &count);
    network.admin(&mut client, &part(&rawdoc! { "commitTransaction": 1 }));
    let after = network.run(&mut other, "db", &count);

    assert_eq!([before, after].map(|reply| reply.get_i32("n").unwrap()), [0, 1]);
}

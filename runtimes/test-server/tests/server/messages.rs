//! Messages: their forms, compression, errors about commands, and clients that do not read.

use bson::{RawDocumentBuf, rawdoc};
use cmap_core::connection::Command;
use cmap_core::wire::{
    Compression, CompressorId, Content, Decoder, Field, Flags, Limits, MessageIds, MessageWriter, ZlibLevel,
};
use cmap_test_server::ServerOutput;

use super::network::{Network, anonymous, config, message};

#[test]
fn a_reply_is_compressed_as_its_request_was_comp_4() {
    for compression in
        [Compression::Snappy, Compression::Zlib(ZlibLevel::DEFAULT), Compression::Zstd, Compression::Noop]
    {
        let mut network = Network::new(config());
        let mut options = anonymous();
        options.compressors = vec![compression];
        let mut client = network.establish(&options).unwrap();
        let is_offered = compression != Compression::Noop;

        let mut out = Vec::new();
        client.connection.send(&mut out, &Command::new("admin", &rawdoc! { "serverStatus": 1 })).unwrap();
        network.send(client.id, &out);
        let bytes = network.receive(client.id);

        let reply = Decoder::new().decode(&bytes, &Limits::DEFAULT).unwrap().compressor;
        assert_eq!(reply, is_offered.then(|| compression.id()));
        let status = client.connection.read(&mut &bytes[..]).unwrap().unwrap().body.to_owned();
        if is_offered {
            let network = status.get_document("network").unwrap().get_document("compression").unwrap();
            let flows = network.get_document(compression.id().name()).unwrap();
            assert!(flows.get_document("decompressor").unwrap().get_i64("bytesIn").unwrap() > 0);
        }
    }
}

#[test]
fn compressors_that_are_not_offered_are_not_agreed_on() {
    let mut config = config();
    config.compressors = vec![CompressorId::Zlib];
    let mut network = Network::new(config);
    let mut options = anonymous();
    options.compressors = vec![Compression::Snappy, Compression::Zlib(ZlibLevel::DEFAULT)];

    let client = network.establish(&options).unwrap();

    assert_eq!(client.connection.description().compressors, [CompressorId::Zlib]);
}

#[test]
fn a_request_with_a_checksum_gets_a_reply_with_one_msg_6() {
    let mut network = Network::new(config());
    let client = network.accept();

    network.send(client, &message(1, Flags::CHECKSUM_PRESENT, "admin", &rawdoc! { "ping": 1 }));

    assert!(network.receive_messages(client)[0].flags.contains(Flags::CHECKSUM_PRESENT));
}

#[test]
fn an_unacknowledged_write_is_done_without_a_reply_srv_4() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    let body = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": { "w": 0 } };
    let mut command = Command::new("db", &body);
    command.acknowledged = false;
    let mut out = Vec::new();
    client.connection.send(&mut out, &command).unwrap();
    let unknown = message(7, Flags::MORE_TO_COME, "db", &rawdoc! { "nonsense": 1 });

    network.send(client.id, &out);
    network.send(client.id, &unknown);

    assert!(network.receive(client.id).is_empty(), "not even for an error");
    let found = network.run(&mut client, "db", &rawdoc! { "find": "c" });
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.into_iter().count(), 1);
}

#[test]
fn a_document_sequence_is_an_array_of_the_command_msg_2() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    let documents = [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }];
    let mut out = Vec::new();
    let body = rawdoc! { "insert": "c" };
    let sequence = [("documents", documents.iter().map(|document| &**document))];
    client.connection.send_with_sequences(&mut out, &Command::new("db", &body), sequence).unwrap();

    network.send(client.id, &out);

    assert_eq!(network.finish(&mut client).unwrap().get_i32("n").unwrap(), 2);
}

#[test]
fn a_field_that_is_in_the_body_and_a_sequence_is_an_error() {
    let mut network = Network::new(config());
    let client = network.accept();
    let (mut out, document) = (Vec::new(), rawdoc! { "_id": 1 });
    let body = rawdoc! { "insert": "c", "documents": [] };
    let fields = [Field::String("$db", "db")];
    let ids = MessageIds::request(1);
    let mut writer = MessageWriter::begin(&mut out, ids, Flags::NONE, &body, &fields, &Limits::DEFAULT).unwrap();
    writer.sequence("documents", [&*document]).unwrap();
    writer.finish();

    network.send(client, &out);

    assert_eq!(network.receive_messages(client)[0].body.get_i32("code").unwrap(), 40433);
}

#[test]
fn commands_that_are_none_get_the_servers_errors() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    for (database, command, code, name) in [
        ("admin", rawdoc! { "nonsense": 1 }, 59, "CommandNotFound"),
        ("admin", rawdoc! { "isdbgrid": 1 }, 59, "CommandNotFound"),
        ("db", rawdoc! { "compact": "c" }, 115, "CommandNotSupported"),
        ("a.b", rawdoc! { "ping": 1 }, 73, "InvalidNamespace"),
        ("", rawdoc! { "ping": 1 }, 73, "InvalidNamespace"),
        ("db", rawdoc! { "getParameter": "*" }, 13, "Unauthorized"),
        ("db", rawdoc! { "ping": 1, "apiVersion": "2" }, 322, "APIVersionError"),
        (
            "db",
            rawdoc! { "testDeprecationInVersion2": 1, "apiVersion": "2", "apiDeprecationErrors": true },
            324,
            "APIDeprecationError",
        ),
        (
            "db",
            rawdoc! { "insert": "c", "documents": [], "txnNumber": 1_i64 , "lsid": { "id": uuid() } },
            20,
            "IllegalOperation",
        ),
    ] {
        let error = network.fail(&mut client, database, &command);
        assert_eq!((error.code, error.code_name.as_deref()), (Some(code), Some(name)), "{command:?}");
    }
    assert_eq!(network.fail(&mut client, "db", &rawdoc! { "x": 1 }).message, "no such command: 'x'");
    network.run(&mut client, "db", &rawdoc! { "ping": 1, "apiVersion": "1", "apiStrict": true });
}

#[test]
fn a_command_without_a_database_is_an_error_and_the_connection_lives() {
    let mut network = Network::new(config());
    let client = network.accept();
    let mut out = Vec::new();
    for body in [rawdoc! { "ping": 1 }, RawDocumentBuf::new()] {
        let ids = MessageIds::request(1);
        MessageWriter::begin(&mut out, ids, Flags::NONE, &body, &[], &Limits::DEFAULT).unwrap().finish();
    }

    network.send(client, &out);

    let codes: Vec<_> =
        network.receive_messages(client).iter().map(|reply| reply.body.get_i32("code").unwrap()).collect();
    assert_eq!(codes, [40571, 59]);
    assert!(!network.has_hung_up_on(client));
}

#[test]
fn harnesses_find_what_they_ask_for_first_srv_2() {
    let mut network = Network::new(config());
    let mut client = network.connect();

    let build = network.admin(&mut client, &rawdoc! { "buildinfo": 1 });
    assert_eq!(build.get_str("version").unwrap(), "7.0.0");
    let parameters = network.admin(&mut client, &rawdoc! { "getParameter": "*" });
    assert!(parameters.get_bool("enableTestCommands").unwrap());
    assert_eq!(parameters.get_array("authenticationMechanisms").unwrap().into_iter().count(), 5);
    let line = network.admin(&mut client, &rawdoc! { "getCmdLineOpts": 1 });
    assert!(line.get_array("argv").unwrap().into_iter().count() > 1);
    for command in [
        rawdoc! { "hostInfo": 1 },
        rawdoc! { "getLog": "global" },
        rawdoc! { "whatsmyuri": 1 },
        rawdoc! { "startSession": 1 },
        rawdoc! { "endSessions": [{ "id": uuid() }] },
        rawdoc! { "killAllSessions": [] },
        rawdoc! { "setParameter": 1, "quiet": true },
    ] {
        network.admin(&mut client, &command);
    }
}

#[test]
fn a_client_that_does_not_read_gets_no_more_than_fits() {
    let mut network = Network::new(config());
    let mut filler = network.connect();
    let text = "x".repeat(100_000);
    for id in 0..10 {
        network.run(&mut filler, "db", &rawdoc! { "insert": "c", "documents": [{ "_id": id, "text": text.as_str() }] });
    }
    let lazy = network.accept();
    let find = message(1, Flags::NONE, "db", &rawdoc! { "find": "c", "batchSize": 1000 }).repeat(50);
    network.server.handle_bytes(network.now, lazy, &find);

    // A driver that holds a client after its first two replies.
    let mut replies = 0;
    while let Some(output) = network.server.poll_output() {
        assert!(matches!(output, ServerOutput::Send { .. }));
        replies += 1;
        if replies == 2 {
            network.server.hold(network.now, lazy);
        }
    }
    assert!((2..=4).contains(&replies), "{replies}");
    assert_eq!(network.server.poll_timeout(), None);

    network.server.release(network.now, lazy);
    assert!(network.server.poll_timeout().is_some());
    let rest = core::iter::from_fn(|| network.server.poll_output()).count();
    assert_eq!(replies + rest, 50, "nothing is lost");
}

#[test]
fn bytes_may_come_in_any_pieces() {
    for piece in [1, 3, 17, 1000] {
        let mut network = Network::new(config());
        let client = network.accept();
        let request = message(1, Flags::NONE, "admin", &rawdoc! { "ping": 1 }).repeat(3);

        for bytes in request.chunks(piece) {
            network.send(client, bytes);
        }

        assert_eq!(network.receive_messages(client).len(), 3, "{piece}");
    }
}

#[test]
fn an_answer_is_no_request() {
    let mut network = Network::new(config());
    let client = network.accept();
    let mut out = Vec::new();
    cmap_core::wire::encode_reply(&mut out, MessageIds::reply(1, 1), &rawdoc! {}, &Limits::DEFAULT).unwrap();
    assert!(matches!(Decoder::new().decode(&out, &Limits::DEFAULT).unwrap().content, Content::Reply(_)));

    network.send(client, &out);

    assert!(network.has_hung_up_on(client));
}

fn uuid() -> bson::Binary {
    bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![3; 16] }
}

#[test]
fn a_cursor_is_read_to_its_end_by_one_getmore_where_the_client_allows_that_msg_9() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    let documents = bson::RawArrayBuf::from_iter((0..5).map(|id| rawdoc! { "_id": id }));
    network.run(&mut client, "db", &rawdoc! { "insert": "c", "documents": documents });
    let opened = network.run(&mut client, "db", &rawdoc! { "find": "c", "batchSize": 1 });
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let get_more = rawdoc! { "getMore": id, "collection": "c", "batchSize": 2 };

    network.send(client.id, &message(50, Flags::EXHAUST_ALLOWED, "db", &get_more));

    let received = network.receive_messages(client.id);
    let more = received.iter().map(|reply| reply.flags.contains(Flags::MORE_TO_COME));
    assert_eq!(more.collect::<Vec<_>>(), [true, true, false], "SRV-5: the last batch is empty");
    assert_eq!(received[0].ids.response_to, 50);
    assert_eq!(received[1].ids.response_to, received[0].ids.request_id, "MSG-8");
    let last = received[2].body.get_document("cursor").unwrap();
    assert_eq!(last.get_i64("id").unwrap(), 0);
}

#[test]
fn what_the_versioned_api_has_not_is_refused_to_who_is_strict_about_it() {
    let mut network = Network::new(config());
    let mut client = network.connect();
    let distinct = |strict: bool| rawdoc! { "distinct": "c", "key": "x", "apiVersion": "1", "apiStrict": strict };
    let sessions = rawdoc! {
        "aggregate": 1, "pipeline": [{ "$listLocalSessions": {} }], "cursor": {}, "apiVersion": "1", "apiStrict": true,
    };

    network.run(&mut client, "db", &distinct(false));
    assert_eq!(network.fail(&mut client, "db", &distinct(true)).code, Some(323));
    assert_eq!(network.fail(&mut client, "db", &sessions).code, Some(323));
    network.run(&mut client, "db", &rawdoc! { "find": "c", "apiVersion": "1", "apiStrict": true });
}

#[test]
fn a_version_of_the_api_can_be_required_of_every_command() {
    let mut network = Network::new(config());
    let mut client = network.connect();

    network.admin(&mut client, &rawdoc! { "setParameter": 1, "requireApiVersion": true });

    assert_eq!(network.fail(&mut client, "db", &rawdoc! { "find": "c" }).code, Some(498_870));
    assert_eq!(network.fail(&mut client, "admin", &rawdoc! { "hello": 1 }).code, Some(498_870));
    network.admin(&mut client, &rawdoc! { "ping": 1, "apiVersion": "1" });
    network.admin(&mut client, &rawdoc! { "setParameter": 1, "requireApiVersion": 0, "apiVersion": "1" });
    network.admin(&mut client, &rawdoc! { "ping": 1 });
}

#[test]
fn parameters_that_would_change_nothing_are_not_set() {
    let mut network = Network::new(config());
    let mut client = network.connect();

    for (command, code) in [
        (rawdoc! { "setParameter": 1, "enableTestCommands": false }, 20),
        (rawdoc! { "setParameter": 1, "authenticationMechanisms": ["PLAIN"] }, 20),
        (rawdoc! { "setParameter": 1, "featureCompatibilityVersion": "6.0" }, 20),
        (rawdoc! { "setParameter": 1, "scramIterationCount": 5000 }, 115),
    ] {
        assert_eq!(network.fail(&mut client, "admin", &command).code, Some(code), "{command:?}");
    }
}

//! A connection becomes usable: hello, compression and authentication, against a server in the same thread.

#![cfg(all(feature = "wire", feature = "auth"))]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::connection::auth::{Nonce, PlainLogin, ScramHash, ScramLogin, ScramVerifier, StoredCredential};
use cmap_core::connection::{
    ClientMetadata, Command, CommandError, Connection, ConnectionOptions, Establish, EstablishError, Fault, Phase,
    Progress, ProtocolError, SYSTEM_OVERLOADED_ERROR,
};
use cmap_core::options::{Credential, Mechanism, Secret, ServerApi, ServerApiVersion};
use cmap_core::wire::{
    CommandReply, Compression, Compressor, CompressorId, Content, Decoder, EncodeError, Flags, FrameReader, HEADER_LEN,
    Header, Limits, MessageIds, MessageWriter, OpCode,
};

/// A server that knows one user, and keeps what it was asked.
#[derive(Default)]
struct TestServer {
    frames: FrameReader,
    decoder: Decoder,
    compressors: Vec<&'static str>,
    mechanisms: Vec<&'static str>,
    speculates: bool,
    hello_extra: RawDocumentBuf,
    answer_hello_with: Option<RawDocumentBuf>,
    verifier: Option<ScramVerifier>,
    asked: Vec<(String, RawDocumentBuf, Option<CompressorId>)>,
}

const USER: &str = "user";
const PASSWORD: &str = "pencil";

impl TestServer {
    /// Answers everything in `bytes`.
    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut input, mut out) = (bytes, Vec::new());
        let mut asked = Vec::new();
        while let Some(frame) = self.frames.read(&mut input, &Limits::DEFAULT).unwrap() {
            let incoming = self.decoder.decode(frame, &Limits::DEFAULT).unwrap();
            let Content::Message(message) = incoming.content else { panic!("everything is OP_MSG (HS-2)") };
            let name = message.body.iter().next().unwrap().unwrap().0.to_string();
            asked.push((name, message.body.to_owned(), incoming.compressor, message.header.ids.request_id));
        }
        for (name, body, compressor, request) in asked {
            let reply = self.reply(&name, &body);
            let (ids, start) = (MessageIds::reply(1000, request), out.len());
            MessageWriter::begin(&mut out, ids, Flags::NONE, &reply, &[], &Limits::DEFAULT).unwrap().finish();
            if compressor.is_some() {
                let mut zlib = Compressor::new(Compression::Snappy).unwrap();
                zlib.compress_reply(&mut out, start, &Limits::DEFAULT).unwrap();
            }
            self.asked.push((name, body, compressor));
        }
        out
    }

    fn reply(&mut self, name: &str, body: &RawDocument) -> RawDocumentBuf {
        match name {
            "hello" | "isMaster" => self.hello(body),
            "saslStart" => self.sasl_start(body),
            "saslContinue" => {
                let payload = body.get_binary("payload").unwrap().bytes;
                match self.verifier.take().unwrap().verify(payload) {
                    Ok(last) => sasl(last.as_bytes(), true),
                    Err(_) => failure(18, "AuthenticationFailed"),
                }
            }
            "authenticate" => rawdoc! { "ok": 1, "dbname": "$external" },
            "ping" => rawdoc! { "ok": 1 },
            _ => failure(59, "CommandNotFound"),
        }
    }

    fn hello(&mut self, body: &RawDocument) -> RawDocumentBuf {
        if let Some(answer) = &self.answer_hello_with {
            return answer.clone();
        }
        let mut reply =
            rawdoc! { "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25, "helloOk": true };
        reply.append(bson::cstr!("compression"), self.compressors.iter().copied().collect::<bson::RawArrayBuf>());
        if body.get("saslSupportedMechs").unwrap().is_some() {
            reply.append(
                bson::cstr!("saslSupportedMechs"),
                self.mechanisms.iter().copied().collect::<bson::RawArrayBuf>(),
            );
        }
        if let (true, Ok(first)) = (self.speculates, body.get_document("speculativeAuthenticate")) {
            let first = first.to_owned();
            let answer = self.sasl_start(&first);
            reply.append(bson::cstr!("speculativeAuthenticate"), answer);
        }
        for element in self.hello_extra.iter() {
            let (key, value) = element.unwrap();
            reply.append(key, value);
        }
        reply
    }

    fn sasl_start(&mut self, body: &RawDocument) -> RawDocumentBuf {
        let payload = body.get_binary("payload").unwrap().bytes;
        let hash = match body.get_str("mechanism").unwrap() {
            "SCRAM-SHA-1" => ScramHash::Sha1,
            "SCRAM-SHA-256" => ScramHash::Sha256,
            _ => {
                let login = PlainLogin::parse(payload).unwrap();
                return match login.verify(&Secret::from(PASSWORD)) {
                    Ok(()) => sasl(&[], true),
                    Err(_) => failure(18, "AuthenticationFailed"),
                };
            }
        };
        let stored = StoredCredential::new(hash, USER, &Secret::from(PASSWORD), b"salt", 4096).unwrap();
        let login = ScramLogin::parse(payload).unwrap();
        let (verifier, first) = login.challenge(&Nonce::from_random([9; 24]), &stored);
        self.verifier = Some(verifier);
        sasl(first.as_bytes(), false)
    }

    fn names(&self) -> Vec<&str> {
        self.asked.iter().map(|(name, ..)| name.as_str()).collect()
    }
}

fn sasl(payload: &[u8], done: bool) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.to_vec() };
    rawdoc! { "conversationId": 7, "done": done, "payload": payload, "ok": 1 }
}

fn message(response_to: i32, body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    let ids = MessageIds::reply(1000, response_to);
    MessageWriter::begin(&mut out, ids, Flags::NONE, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}

/// The header alone of a reply of so many bytes to the request `response_to`.
fn header(response_to: i32, length: usize) -> [u8; HEADER_LEN] {
    Header { length, ids: MessageIds::reply(1000, response_to), op_code: OpCode::Msg }.encode()
}

/// A compressed reply that says how many bytes it has without a header, and has none.
fn compressed(response_to: i32, uncompressed_size: i32) -> Vec<u8> {
    let content = [&2013_i32.to_le_bytes()[..], &uncompressed_size.to_le_bytes(), &[CompressorId::Noop.id()]].concat();
    let ids = MessageIds::reply(1000, response_to);
    let header = Header { length: HEADER_LEN + content.len(), ids, op_code: OpCode::Compressed };
    [&header.encode()[..], &content].concat()
}

/// A connection whose hello was sent and is not answered yet.
fn greeting(credential: Option<Credential>) -> (Establish, Vec<u8>) {
    let mut establish = Establish::new(Arc::new(options(credential)), [5; 24]).unwrap();
    let mut request = Vec::new();
    establish.write_to(&mut request);
    (establish, request)
}

fn failure(code: i32, name: &str) -> RawDocumentBuf {
    rawdoc! { "ok": 0, "code": code, "codeName": name, "errmsg": "refused" }
}

fn options(credential: Option<Credential>) -> ConnectionOptions {
    let mut options = ConnectionOptions::new(ClientMetadata::new("Linux"));
    options.credential = credential.map(Arc::new);
    options
}

fn credential(password: &str, mechanism: Option<Mechanism>) -> Credential {
    let mut credential = Credential::new(USER, Secret::from(password), "admin");
    credential.mechanism = mechanism;
    credential
}

/// Establishes a connection; bytes travel in pieces of `piece`.
fn establish_in(
    server: &mut TestServer,
    options: ConnectionOptions,
    piece: usize,
) -> Result<Connection, EstablishError> {
    let mut establish = Establish::new(Arc::new(options), [5; 24])?;
    let mut progress = Progress::Exchange;
    loop {
        progress = match progress {
            Progress::Established => return Ok(establish.finish().unwrap()),
            Progress::Derive(request) => establish.handle_keys(&request.run())?,
            Progress::Exchange => {
                let mut request = Vec::new();
                establish.write_to(&mut request);
                let reply = server.answer(&request);
                let mut last = Progress::Exchange;
                for bytes in reply.chunks(piece) {
                    last = establish.handle_bytes(bytes)?;
                }
                last
            }
        };
    }
}

fn establish(server: &mut TestServer, options: ConnectionOptions) -> Result<Connection, EstablishError> {
    establish_in(server, options, usize::MAX)
}

fn ping(server: &mut TestServer, connection: &mut Connection) -> RawDocumentBuf {
    let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());
    connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
    let reply = server.answer(&out);
    connection.read(&mut &reply[..]).unwrap().unwrap().body.to_owned()
}

#[test]
fn a_connection_without_credentials_needs_one_round_trip() {
    let mut server = TestServer::default();

    let mut connection = establish(&mut server, options(None)).unwrap();

    assert_eq!(server.names(), ["isMaster"]);
    let hello = &server.asked[0].1;
    assert!(hello.get_bool("helloOk").unwrap(), "HS-3");
    assert_eq!(hello.get_str("backpressure").unwrap(), "2", "X-1");
    assert_eq!(hello.get_str("$db").unwrap(), "admin");
    assert_eq!(ping(&mut server, &mut connection), rawdoc! { "ok": 1 });
}

#[test]
fn a_server_api_is_declared_with_every_command_and_asks_by_hello_hs_3() {
    let mut api = ServerApi::new(ServerApiVersion::V1);
    api.strict = Some(true);
    let mut options = options(Some(credential(PASSWORD, None)));
    options.server_api = Some(api);
    let mut server = TestServer { mechanisms: vec!["SCRAM-SHA-256"], ..TestServer::default() };

    let mut connection = establish(&mut server, options).unwrap();
    ping(&mut server, &mut connection);

    assert_eq!(server.names(), ["hello", "saslStart", "saslContinue", "ping"]);
    for (name, body, _) in &server.asked {
        assert_eq!(body.get_str("apiVersion").unwrap(), "1", "{name}");
        assert!(body.get_bool("apiStrict").unwrap() && body.get("apiDeprecationErrors").unwrap().is_none(), "{name}");
    }
}

#[test]
fn every_mechanism_logs_in() {
    for (mechanism, commands) in [
        (None, &["isMaster", "saslStart", "saslContinue"][..]),
        (Some(Mechanism::ScramSha1), &["isMaster", "saslStart", "saslContinue"]),
        (Some(Mechanism::ScramSha256), &["isMaster", "saslStart", "saslContinue"]),
        (Some(Mechanism::Plain), &["isMaster", "saslStart"]),
    ] {
        let mut server = TestServer { mechanisms: vec!["SCRAM-SHA-1", "SCRAM-SHA-256"], ..TestServer::default() };

        let mut connection = establish(&mut server, options(Some(credential(PASSWORD, mechanism)))).unwrap();

        assert_eq!(server.names(), commands, "{mechanism:?}");
        assert_eq!(ping(&mut server, &mut connection), rawdoc! { "ok": 1 });
    }
}

#[test]
fn an_accepted_speculation_saves_a_round_trip_auth_10() {
    let mut server = TestServer { mechanisms: vec!["SCRAM-SHA-256"], speculates: true, ..TestServer::default() };

    establish(&mut server, options(Some(credential(PASSWORD, None)))).unwrap();

    assert_eq!(server.names(), ["isMaster", "saslContinue"]);
    let speculative = server.asked[0].1.get_document("speculativeAuthenticate").unwrap();
    assert_eq!(
        (speculative.get_str("mechanism").unwrap(), speculative.get_str("db").unwrap()),
        ("SCRAM-SHA-256", "admin")
    );
}

#[test]
fn a_wrong_password_is_the_servers_error_without_labels_cmap_51() {
    let mut server = TestServer { mechanisms: vec!["SCRAM-SHA-256"], ..TestServer::default() };

    let error = establish(&mut server, options(Some(credential("wrong", None)))).unwrap_err();

    assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Server { code: Some(18) }));
    assert!(!error.has_label(SYSTEM_OVERLOADED_ERROR));
    assert!(!error.to_string().contains("wrong"), "{error}");
}

#[test]
fn the_first_shared_compressor_of_the_client_is_used_comp_4() {
    let mut server = TestServer { compressors: vec!["zlib", "snappy"], ..TestServer::default() };
    let mut options = options(None);
    options.compressors = vec![Compression::Zstd, Compression::Snappy, Compression::Zlib(Default::default())];

    let mut connection = establish(&mut server, options).unwrap();
    ping(&mut server, &mut connection);

    assert_eq!(connection.description().compressors, [CompressorId::Snappy, CompressorId::Zlib]);
    let compressors: Vec<_> = server.asked.iter().map(|(name, _, compressor)| (name.as_str(), *compressor)).collect();
    assert_eq!(compressors, [("isMaster", None), ("ping", Some(CompressorId::Snappy))], "COMP-7");
}

#[test]
fn nothing_that_is_sent_or_received_is_shown() {
    let mut server = TestServer::default();
    let options = options(Some(credential(PASSWORD, Some(Mechanism::Plain))));
    let mut establish = Establish::new(Arc::new(options), [5; 24]).unwrap();
    let mut request = Vec::new();
    establish.write_to(&mut request);
    let reply = server.answer(&request);
    let _ = establish.handle_bytes(&reply).unwrap();

    // PLAIN's password waits to be sent now, in plain text.
    let shown = format!("{establish:?}");

    let bytes = format!("{:?}", PASSWORD.as_bytes());
    assert!(!shown.contains(PASSWORD) && !shown.contains(bytes.trim_matches(['[', ']'])), "{shown}");
}

#[test]
fn bytes_may_come_in_any_pieces() {
    for piece in [1, 2, 3, 7, 64] {
        let mut server = TestServer { mechanisms: vec!["SCRAM-SHA-256"], ..TestServer::default() };
        assert!(establish_in(&mut server, options(Some(credential(PASSWORD, None))), piece).is_ok(), "{piece}");
    }
}

#[test]
fn behind_a_load_balancer_the_hello_names_the_service_lb_5_lb_6() {
    let id = bson::oid::ObjectId::from_bytes([7; 12]);
    let mut balanced = options(None);
    balanced.load_balanced = true;
    let mut server = TestServer { hello_extra: rawdoc! { "serviceId": id }, ..TestServer::default() };

    let connection = establish(&mut server, balanced.clone()).unwrap();
    let error = establish(&mut TestServer::default(), balanced).unwrap_err();

    assert_eq!(server.names(), ["hello"]);
    assert!(server.asked[0].1.get_bool("loadBalanced").unwrap());
    assert_eq!(connection.description().service_id.unwrap().to_string(), "07".repeat(12));
    assert!(error.to_string().contains("the server does not support this mode"), "{error}");
}

#[test]
fn a_hello_that_fails_says_why() {
    for (answer, fault, text) in [
        (failure(91, "ShutdownInProgress"), Fault::Server { code: Some(91) }, "refused (91, ShutdownInProgress)"),
        (rawdoc! { "ok": 1 }, Fault::Other, "it is no MongoDB, or too old"),
        (rawdoc! { "ok": 1, "maxWireVersion": 6 }, Fault::Other, "update the server"),
        (rawdoc! { "ok": 1, "minWireVersion": 999, "maxWireVersion": 999 }, Fault::Other, "update the client"),
    ] {
        let mut server = TestServer { answer_hello_with: Some(answer), ..TestServer::default() };

        let error = establish(&mut server, options(None)).unwrap_err();

        assert_eq!((error.phase, error.fault), (Phase::Hello, fault));
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_hello_of_more_than_a_megabyte_is_refused_by_its_header() {
    const MEGABYTE: i32 = 1024 * 1024;
    let refused = |reply: &[u8]| greeting(None).0.handle_bytes(reply).unwrap_err().to_string();

    let plain = refused(&header(1, 1024 * 1024 + 1));
    assert_eq!(
        plain,
        "the hello failed: the server sent what is no message: a message announces 1048577 bytes; at most 1048576 are allowed"
    );
    let unpacked = refused(&compressed(1, MEGABYTE - 15));
    assert!(
        unpacked.contains("a compressed message announces 1048561 bytes; at most 1048560 are allowed"),
        "{unpacked}"
    );
    assert!(matches!(greeting(None).0.handle_bytes(&header(1, 1024 * 1024)), Ok(Progress::Exchange)));
}

#[test]
fn a_message_of_an_authentication_has_a_megabyte_at_most() {
    for reply in [header(2, 1024 * 1024 + 1).to_vec(), compressed(2, 2 * 1024 * 1024)] {
        let mut server = TestServer { mechanisms: vec!["SCRAM-SHA-256"], ..TestServer::default() };
        let (mut establish, hello) = greeting(Some(credential(PASSWORD, None)));
        assert!(matches!(establish.handle_bytes(&server.answer(&hello)), Ok(Progress::Exchange)));

        let error = establish.handle_bytes(&reply).unwrap_err();

        assert_eq!(error.phase, Phase::Authenticate);
        assert!(error.to_string().contains("announces"), "{error}");
    }
}

#[test]
fn a_reply_on_an_established_connection_may_have_more_than_a_megabyte() {
    let mut connection = establish(&mut TestServer::default(), options(None)).unwrap();
    connection.send(&mut Vec::new(), &Command::new("db", &rawdoc! { "find": "c" })).unwrap();
    let large = message(2, &rawdoc! { "ok": 1, "large": "x".repeat(2 * 1024 * 1024) });

    let reply = connection.read(&mut &large[..]).unwrap().unwrap();

    assert!(CommandReply::read(reply.body).ok);
}

#[test]
fn a_reply_with_document_sequences_breaks_the_connection() {
    let mut connection = establish(&mut TestServer::default(), options(None)).unwrap();
    connection.send(&mut Vec::new(), &Command::new("db", &rawdoc! { "find": "c" })).unwrap();
    let (ok, mut reply) = (rawdoc! { "ok": 1 }, Vec::new());
    let ids = MessageIds::reply(1000, 2);
    let mut writer = MessageWriter::begin(&mut reply, ids, Flags::NONE, &ok, &[], &Limits::DEFAULT).unwrap();
    writer.sequence("documents", [&*ok]).unwrap();
    writer.finish();

    assert_eq!(connection.read(&mut &reply[..]).unwrap_err(), ProtocolError::Sequences);

    assert!(!connection.is_idle());
}

#[test]
fn what_follows_a_reply_unasked_breaks_the_connection() {
    let mut connection = establish(&mut TestServer::default(), options(None)).unwrap();
    connection.send(&mut Vec::new(), &Command::new("admin", &rawdoc! { "ping": 1 })).unwrap();
    let (ok, ahead) = (rawdoc! { "ok": 1 }, rawdoc! { "ok": 1, "ahead": true });
    let sent = [message(2, &ok), message(3, &ahead)].concat();
    let mut unread = sent.as_slice();
    assert_eq!(connection.read(&mut unread).unwrap().unwrap().body, &*ok, "what was asked for is good");

    assert_eq!(connection.read(&mut unread).unwrap_err(), ProtocolError::Unasked);

    let refused = connection.send(&mut Vec::new(), &Command::new("admin", &rawdoc! { "ping": 1 }));
    assert_eq!(refused, Err(CommandError::Broken));
}

#[test]
fn a_database_with_a_nul_is_refused_before_anything_is_sent() {
    let mut connection = establish(&mut TestServer::default(), options(None)).unwrap();
    let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());

    let refused = connection.send(&mut out, &Command::new("admin\0x", &ping));

    let name = "admin\0x".into();
    assert_eq!(refused, Err(CommandError::Encode(EncodeError::NulInName { name })));
    assert!(out.is_empty() && connection.is_idle(), "the connection is as good as before");
}

#[test]
fn a_ping_allocates_nothing_once_warm() {
    for piece in [7, usize::MAX] {
        let mut server = TestServer::default();
        let mut connection = establish(&mut server, options(None)).unwrap();
        let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());
        let pings = (0..1000).map(|number| message(2 + number, &rawdoc! { "ok": 1.0 }));
        let mut replies = pings.collect::<Vec<_>>().into_iter();
        let mut round_trip = |reply: &[u8]| {
            out.clear();
            connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
            let mut ok = false;
            for mut bytes in reply.chunks(piece) {
                let reply = connection.read(&mut bytes).unwrap();
                ok = reply.is_some_and(|reply| CommandReply::read(reply.body).ok);
            }
            assert!(ok);
        };
        round_trip(&replies.next().unwrap());

        let allocations = allocation_counter::measure(|| replies.as_slice().iter().for_each(|reply| round_trip(reply)));

        assert_eq!(allocations.count_total, 0, "in pieces of {piece}");
    }
}

#[test]
fn an_answer_to_another_request_breaks_the_connection() {
    let mut server = TestServer::default();
    let mut connection = establish(&mut server, options(None)).unwrap();
    let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());
    connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
    let mut reply = server.answer(&out);
    reply[8] ^= 1;

    assert!(connection.read(&mut &reply[..]).is_err());

    assert!(!connection.is_idle());
    assert!(connection.send(&mut Vec::new(), &Command::new("admin", &ping)).is_err());
}

#[test]
fn a_connection_takes_one_command_at_a_time_cmap_8() {
    let mut server = TestServer::default();
    let mut connection = establish(&mut server, options(None)).unwrap();
    let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());
    connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
    let length = out.len();

    assert!(connection.send(&mut out, &Command::new("admin", &ping)).is_err());

    assert_eq!(out.len(), length, "nothing is appended");
}

#[test]
fn an_unacknowledged_command_waits_for_nothing_msg_7() {
    let mut server = TestServer::default();
    let mut connection = establish(&mut server, options(None)).unwrap();
    let body = rawdoc! { "insert": "c", "writeConcern": { "w": 0 } };
    let mut command = Command::new("db", &body);
    command.acknowledged = false;

    connection.send(&mut Vec::new(), &command).unwrap();

    assert!(connection.is_idle());
}

#[test]
fn the_server_is_told_how_long_it_may_work_csot_9() {
    let body = rawdoc! { "find": "c" };
    for (limit, told) in [
        (Duration::from_millis(1500), 1500),
        (Duration::from_micros(10), 1),
        (Duration::from_micros(2_900), 2),
        (Duration::MAX, i64::from(i32::MAX)),
    ] {
        let mut server = TestServer::default();
        let mut connection = establish(&mut server, options(None)).unwrap();
        let mut command = Command::new("db", &body);
        command.max_time = Some(limit);
        let mut out = Vec::new();

        connection.send(&mut out, &command).unwrap();
        server.answer(&out);

        let (_, received, _) = server.asked.last().unwrap();
        assert_eq!(*received, rawdoc! { "find": "c", "$db": "db", "maxTimeMS": told });
    }
}

#[test]
fn no_truncation_or_flipped_byte_of_a_reply_panics() {
    let mut server = TestServer { mechanisms: vec!["SCRAM-SHA-256"], ..TestServer::default() };
    let mut establish = Establish::new(Arc::new(options(Some(credential(PASSWORD, None)))), [5; 24]).unwrap();
    let mut request = Vec::new();
    establish.write_to(&mut request);
    let reply = server.answer(&request);
    for place in 0..reply.len() {
        let mut flipped = reply.clone();
        flipped[place] ^= 0x55;
        for bytes in [&flipped[..], &reply[..place]] {
            let mut establish = Establish::new(Arc::new(options(Some(credential(PASSWORD, None)))), [5; 24]).unwrap();
            let _ = establish.handle_bytes(bytes);
        }
    }
}

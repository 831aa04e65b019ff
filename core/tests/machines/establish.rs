//! A connection becomes usable: hello, compression and authentication, against a server in the same thread.

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::connection::{
    ClientMetadata, Command, Connection, ConnectionOptions, Establish, EstablishError, Fault, Phase, Progress,
    SYSTEM_OVERLOADED_ERROR,
};
use cmap_core::options::{Credential, Mechanism, Secret, ServerApi, ServerApiVersion};
use cmap_core::wire::{
    Compression, Compressor, CompressorId, Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter,
};

mod exchange;
mod greeting_limits;

/// A server that knows one user, and records its requests.
#[derive(Default)]
struct ScriptedServer {
    frames: FrameReader,
    decoder: Decoder,
    compressors: Vec<&'static str>,
    mechanisms: Vec<&'static str>,
    speculates: bool,
    hello_extra: RawDocumentBuf,
    answer_hello_with: Option<RawDocumentBuf>,
    login: Option<Login>,
    asked: Vec<(String, RawDocumentBuf, Option<CompressorId>)>,
}

const USER: &str = "user";
const PASSWORD: &str = "pencil";

/// The first messages of `USER`, whose nonce is that of `establish_in`, and of the server.
const CLIENT_FIRST: &str = "n,,n=user,r=BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUF";
const SERVER_FIRST: &str = "r=BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFserver,s=c2FsdA==,i=4096";

/// The last messages of a login by SCRAM with the right password, computed by Python's hashlib.
struct Login {
    client_final: &'static str,
    server_final: &'static str,
}

const SCRAM_SHA_1: Login = Login {
    client_final: "c=biws,r=BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFserver,p=D7Nv9Web+sdZ2W/wES2R06nkyy4=",
    server_final: "v=1EPTPb5Vvnhr0Xo6kFFHpCujPPQ=",
};
const SCRAM_SHA_256: Login = Login {
    client_final: "c=biws,r=BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFserver,p=5PlU+JPJRWMP3pPZNDklctn0s1RJTiSK45lS9lRy/Go=",
    server_final: "v=yEIdmtX30y6DyKHboH4hcikIfVZv/RDb9L+cvwZI4tY=",
};

impl ScriptedServer {
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
                match self.login.take().unwrap() {
                    Login { client_final, server_final, .. } if payload == client_final.as_bytes() => {
                        sasl(server_final.as_bytes(), true)
                    }
                    _ => failure(18, "AuthenticationFailed"),
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
        let login = match body.get_str("mechanism").unwrap() {
            "SCRAM-SHA-1" => SCRAM_SHA_1,
            "SCRAM-SHA-256" => SCRAM_SHA_256,
            _ if payload == b"\0user\0pencil" => return sasl(&[], true),
            _ => return failure(18, "AuthenticationFailed"),
        };
        assert_eq!(payload, CLIENT_FIRST.as_bytes());
        self.login = Some(login);
        sasl(SERVER_FIRST.as_bytes(), false)
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

/// The same message, which announces another one.
fn with_more_to_come(mut message: Vec<u8>) -> Vec<u8> {
    // The second bit of the flags, which follow the header.
    message[16] |= 2;
    message
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
    server: &mut ScriptedServer,
    options: ConnectionOptions,
    piece: usize,
) -> Result<Connection, EstablishError> {
    let mut establish = Establish::new(Arc::new(options), [5; 24])?;
    let mut progress = Progress::Exchange;
    loop {
        progress = match progress {
            Progress::Established => return Ok(establish.finish().unwrap()),
            Progress::Derive(request) => establish.handle_keys(&request.run())?,
            Progress::Token => panic!("no login here takes a token"),
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

fn establish(server: &mut ScriptedServer, options: ConnectionOptions) -> Result<Connection, EstablishError> {
    establish_in(server, options, usize::MAX)
}

fn ping(server: &mut ScriptedServer, connection: &mut Connection) -> RawDocumentBuf {
    let (ping, mut out) = (rawdoc! { "ping": 1 }, Vec::new());
    connection.send(&mut out, &Command::new("admin", &ping)).unwrap();
    let reply = server.answer(&out);
    connection.read(&mut &reply[..]).unwrap().unwrap().body.to_owned()
}

#[test]
fn a_connection_without_credentials_needs_one_round_trip() {
    let mut server = ScriptedServer::default();

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
    let mut server = ScriptedServer { mechanisms: vec!["SCRAM-SHA-256"], ..ScriptedServer::default() };

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
        let mut server =
            ScriptedServer { mechanisms: vec!["SCRAM-SHA-1", "SCRAM-SHA-256"], ..ScriptedServer::default() };

        let mut connection = establish(&mut server, options(Some(credential(PASSWORD, mechanism)))).unwrap();

        assert_eq!(server.names(), commands, "{mechanism:?}");
        assert_eq!(ping(&mut server, &mut connection), rawdoc! { "ok": 1 });
    }
}

#[test]
fn an_accepted_speculation_saves_a_round_trip_auth_10() {
    let mut server =
        ScriptedServer { mechanisms: vec!["SCRAM-SHA-256"], speculates: true, ..ScriptedServer::default() };

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
    let mut server = ScriptedServer { mechanisms: vec!["SCRAM-SHA-256"], ..ScriptedServer::default() };

    let error = establish(&mut server, options(Some(credential("wrong", None)))).unwrap_err();

    assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Server { code: Some(18) }));
    assert!(!error.has_label(SYSTEM_OVERLOADED_ERROR));
    assert!(!error.to_string().contains("wrong"), "{error}");
}

#[test]
fn the_first_shared_compressor_of_the_client_is_used_comp_4() {
    let mut server = ScriptedServer { compressors: vec!["zlib", "snappy"], ..ScriptedServer::default() };
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
    let mut server = ScriptedServer::default();
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
        let mut server = ScriptedServer { mechanisms: vec!["SCRAM-SHA-256"], ..ScriptedServer::default() };
        assert!(establish_in(&mut server, options(Some(credential(PASSWORD, None))), piece).is_ok(), "{piece}");
    }
}

#[test]
fn behind_a_load_balancer_the_hello_names_the_service_lb_5_lb_6() {
    let id = bson::oid::ObjectId::from_bytes([7; 12]);
    let mut balanced = options(None);
    balanced.load_balanced = true;
    let mut server = ScriptedServer { hello_extra: rawdoc! { "serviceId": id }, ..ScriptedServer::default() };

    let connection = establish(&mut server, balanced.clone()).unwrap();
    let error = establish(&mut ScriptedServer::default(), balanced).unwrap_err();

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
        let mut server = ScriptedServer { answer_hello_with: Some(answer), ..ScriptedServer::default() };

        let error = establish(&mut server, options(None)).unwrap_err();

        assert_eq!((error.phase, error.fault), (Phase::Hello, fault));
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn an_establishment_ends_at_a_reply_that_announces_more_msg_9() {
    let mut server = ScriptedServer { mechanisms: vec!["SCRAM-SHA-256"], ..ScriptedServer::default() };
    for phase in [Phase::Hello, Phase::Authenticate] {
        let mut establish = Establish::new(Arc::new(options(Some(credential(PASSWORD, None)))), [5; 24]).unwrap();
        let mut request = Vec::new();
        establish.write_to(&mut request);
        let mut reply = server.answer(&request);
        if phase == Phase::Authenticate {
            assert!(matches!(establish.handle_bytes(&reply).unwrap(), Progress::Exchange));
            request.clear();
            establish.write_to(&mut request);
            reply = server.answer(&request);
        }

        let error = establish.handle_bytes(&with_more_to_come(reply)).unwrap_err();

        assert_eq!((error.phase, error.fault), (phase, Fault::Other));
        assert!(error.message.contains("moreToCome"), "{error}");
    }
}

#[test]
fn no_truncation_or_flipped_byte_of_a_reply_panics() {
    let mut server = ScriptedServer { mechanisms: vec!["SCRAM-SHA-256"], ..ScriptedServer::default() };
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

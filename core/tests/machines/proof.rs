//! No field of a hello leads to a connection whose server has not proven itself (AUTH-16, X-62): a server that does not
//! know the password says yes to everything, and answers its hello with every odd value in every field.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::connection::auth::{DeriveKey, DerivedKeys};
use cmap_core::connection::{ClientMetadata, ConnectionOptions, Establish, EstablishError, Fault, Phase, Progress};
use cmap_core::options::{Credential, Mechanism, Secret, ServerApi, ServerApiVersion};
use cmap_core::wire::{
    Compression, Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter, ZlibLevel,
};
use proptest::prelude::*;

/// The mechanisms whose server has to prove that it knows the password; none is the negotiated one.
const SCRAM: [Option<Mechanism>; 3] = [None, Some(Mechanism::ScramSha1), Some(Mechanism::ScramSha256)];

/// The fields of a hello that a client might look at.
const FIELDS: [&str; 33] = [
    "arbiterOnly",
    "authenticated",
    "compression",
    "connectionId",
    "conversationId",
    "done",
    "helloOk",
    "hidden",
    "hosts",
    "iscryptd",
    "ismaster",
    "isreplicaset",
    "isWritablePrimary",
    "logicalSessionTimeoutMinutes",
    "maxBsonObjectSize",
    "maxMessageSizeBytes",
    "maxWireVersion",
    "maxWriteBatchSize",
    "me",
    "minWireVersion",
    "msg",
    "ok",
    "passive",
    "payload",
    "primary",
    "readOnly",
    "saslSupportedMechs",
    "secondary",
    "serviceId",
    "setName",
    "speculativeAuthenticate",
    "tags",
    "topologyVersion",
];

/// A server that does not know the password. It remembers the names of the commands.
struct Rogue {
    hello: RawDocumentBuf,
    sasl: Sasl,
    frames: FrameReader,
    decoder: Decoder,
    asked: Vec<String>,
    /// The nonce of the client, as soon as it has sent it.
    nonce: String,
}

/// How it answers the conversation's commands, counted from 0; the text is the client's nonce.
type Sasl = fn(usize, &str) -> RawDocumentBuf;

/// An establishment's end, and the server's requests.
struct Outcome {
    end: Result<(), EstablishError>,
    asked: Vec<String>,
}

impl Rogue {
    fn new(hello: RawDocumentBuf, sasl: Sasl) -> Self {
        let (frames, decoder) = (FrameReader::default(), Decoder::default());
        Self { hello, sasl, frames, decoder, asked: Vec::new(), nonce: String::new() }
    }

    /// Answers everything in `bytes`.
    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut input, mut out) = (bytes, Vec::new());
        let mut heard = Vec::new();
        while let Some(frame) = self.frames.read(&mut input, &Limits::DEFAULT).unwrap() {
            let incoming = self.decoder.decode(frame, &Limits::DEFAULT).unwrap();
            let Content::Message(message) = incoming.content else { panic!("everything is OP_MSG (HS-2)") };
            heard.push((message.header.ids.request_id, message.body.to_owned()));
        }
        for (request, body) in heard {
            let reply = self.reply(&body);
            let ids = MessageIds::reply(1000, request);
            MessageWriter::begin(&mut out, ids, Flags::NONE, &reply, &[], &Limits::DEFAULT).unwrap().finish();
        }
        out
    }

    fn reply(&mut self, body: &RawDocument) -> RawDocumentBuf {
        let name = body.iter().next().unwrap().unwrap().0.to_string();
        let first = body.get_document("speculativeAuthenticate").unwrap_or(body);
        if let Ok(payload) = first.get_binary("payload")
            && let Ok(login) = std::str::from_utf8(payload.bytes)
            && let Some((_, nonce)) = login.split_once("r=")
        {
            self.nonce = nonce.split(',').next().unwrap().to_owned();
        }
        self.asked.push(name.clone());
        match &*name {
            "hello" | "isMaster" => with_nonce(&self.hello, &self.nonce),
            _ => (self.sasl)(self.asked.len() - 2, &self.nonce),
        }
    }
}

/// The keys that `request` asks for; each are derived once.
fn derive(request: DeriveKey) -> DerivedKeys {
    static DERIVED: Mutex<Vec<DerivedKeys>> = Mutex::new(Vec::new());
    let mut derived = DERIVED.lock().unwrap();
    if let Some(known) = derived.iter().find(|keys| keys.id() == request.id()) {
        return known.clone();
    }
    let keys = request.run();
    derived.push(keys.clone());
    keys
}

/// Establishes a connection to `rogue`.
fn establish(rogue: &mut Rogue, options: ConnectionOptions) -> Outcome {
    let mut establish = Establish::new(Arc::new(options), [5; 24]).unwrap();
    let end = run(&mut establish, rogue);
    if end.is_err() {
        // Bytes after an error change nothing.
        let more = establish.handle_bytes(&message(2, &yes(1, "")));
        assert!(more.is_err() && establish.finish().is_none(), "an establishment went on after {end:?}");
    } else {
        assert!(establish.finish().is_some());
    }
    Outcome { end, asked: std::mem::take(&mut rogue.asked) }
}

fn run(establish: &mut Establish, rogue: &mut Rogue) -> Result<(), EstablishError> {
    let mut progress = Progress::Exchange;
    loop {
        progress = match progress {
            Progress::Established => return Ok(()),
            Progress::Derive(request) => establish.handle_keys(&derive(request))?,
            Progress::Token => panic!("no login here takes a token"),
            Progress::Exchange => {
                let mut request = Vec::new();
                establish.write_to(&mut request);
                establish.handle_bytes(&rogue.answer(&request))?
            }
        };
    }
}

fn options(mechanism: Option<Mechanism>) -> ConnectionOptions {
    let mut options = ConnectionOptions::new(ClientMetadata::new("Linux"));
    let mut credential = Credential::new("user", Secret::from("pencil"), "admin");
    credential.mechanism = mechanism;
    if mechanism == Some(Mechanism::MongoDbX509) {
        credential = Credential::x509(None);
    }
    options.credential = Some(Arc::new(credential));
    options.compressors = vec![Compression::Snappy, Compression::Zlib(ZlibLevel::default())];
    options
}

/// The options of clients that send different hellos.
fn clients(mechanism: Option<Mechanism>) -> [ConnectionOptions; 3] {
    let mut balanced = options(mechanism);
    balanced.load_balanced = true;
    let mut declared = options(mechanism);
    declared.server_api = Some(ServerApi::new(ServerApiVersion::V1));
    [options(mechanism), balanced, declared]
}

/// The hello of a primary, with each of `odd` in the place of its own field.
fn hello(odd: &[(&str, RawBson)]) -> RawDocumentBuf {
    let usual = rawdoc! {
        "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25,
        "serviceId": ObjectId::from_bytes([7; 12]),
        "saslSupportedMechs": ["SCRAM-SHA-1", "SCRAM-SHA-256"],
    };
    let mut hello = RawDocumentBuf::new();
    for (name, value) in usual.iter().map(Result::unwrap) {
        if !odd.iter().any(|(odd, _)| *odd == name.as_str()) {
            hello.append(name, value);
        }
    }
    for (name, value) in odd {
        hello.append(key(name), value.clone());
    }
    hello
}

fn key(name: &str) -> &bson::raw::CStr {
    name.try_into().unwrap()
}

/// A placeholder for the client's nonce in a hello, which is made before the client sends it.
const NONCE: &str = "%nonce%";

/// `hello` with the client's nonce where it belongs.
fn with_nonce(hello: &RawDocument, nonce: &str) -> RawDocumentBuf {
    let mut filled = RawDocumentBuf::new();
    for (name, value) in hello.iter().map(Result::unwrap) {
        if let RawBsonRef::Document(inner) = value
            && name == "speculativeAuthenticate"
        {
            filled.append(name, with_nonce(inner, nonce));
        } else if let RawBsonRef::Binary(payload) = value {
            let text = String::from_utf8_lossy(payload.bytes).replace(NONCE, nonce);
            filled.append(name, binary(&text));
        } else {
            filled.append(name, value);
        }
    }
    filled
}

/// Odd values, whatever the field.
fn odd_values() -> Vec<RawBson> {
    vec![
        true.into(),
        false.into(),
        RawBson::Int32(0),
        RawBson::Int32(1),
        RawBson::Int32(-1),
        RawBson::Int32(i32::MAX),
        RawBson::Int64(i64::MIN),
        RawBson::Int64(17),
        RawBson::Double(1.0),
        RawBson::Double(0.5),
        RawBson::Double(f64::NAN),
        RawBson::Null,
        RawBson::Undefined,
        RawBson::MaxKey,
        "".into(),
        "true".into(),
        "PLAIN".into(),
        "isdbgrid".into(),
        RawBson::Document(rawdoc! {}),
        RawBson::Document(rawdoc! { "ok": 1, "done": true }),
        RawBson::Document(rawdoc! { "processId": ObjectId::from_bytes([1; 12]), "counter": i64::MAX }),
        RawBson::Array(bson::RawArrayBuf::new()),
        RawBson::Array(["PLAIN"].into_iter().collect()),
        RawBson::Array(["MONGODB-X509", "SCRAM-SHA-512", "", "\u{0}"].into_iter().collect()),
        RawBson::Array(["SCRAM-SHA-1"].into_iter().collect()),
        RawBson::Array([RawBson::Null, RawBson::Int32(1), RawBson::Document(rawdoc! {})].into_iter().collect()),
        RawBson::Array(["snappy", "zlib", "zstd", "noop"].into_iter().collect()),
        binary("").into(),
        RawBson::ObjectId(ObjectId::from_bytes([0; 12])),
        RawBson::DateTime(DateTime::from_millis(0)),
    ]
}

/// Odd values of `field`: those of all fields, and everything that a conversation could begin with.
fn odd(field: &str) -> Vec<RawBson> {
    let mut values = odd_values();
    if field == "speculativeAuthenticate" {
        values.extend(SASL.iter().map(|sasl| RawBson::Document(sasl(0, NONCE))));
        values.extend(SASL.iter().map(|sasl| RawBson::Document(sasl(1, NONCE))));
    }
    values
}

/// Answers to the conversation's commands, of a server that does not know the password.
const SASL: [Sasl; 12] = [
    yes,
    // With payloads of all kinds.
    |_, _| rawdoc! { "ok": 1, "conversationId": 1, "done": true, "payload": binary("") },
    |_, _| rawdoc! { "ok": true, "conversationId": [], "done": true, "payload": "text" },
    |_, _| rawdoc! { "ok": 1.0, "conversationId": {}, "done": true, "payload": binary("e=") },
    |_, nonce| said(true, &format!("r={nonce}x,s=c2FsdA==,i=4096")),
    |_, nonce| said(true, &format!("r={nonce}x,s=c2FsdA==,i=4096,v=AAAA")),
    |_, _| said(true, "v=rmF9pqV8S7suAoZWja4dJRkFsKQ="),
    // Without an end.
    |_, _| rawdoc! { "ok": 1 },
    |_, _| rawdoc! { "ok": 1, "done": 1, "payload": 1 },
    // As the protocol goes, up to the message that only the password's owner can send.
    |step, nonce| if step == 0 { server_first(nonce) } else { yes(step, nonce) },
    |step, nonce| if step == 0 { server_first(nonce) } else { said(true, "v=") },
    |step, nonce| match step {
        0 => server_first(nonce),
        1 => said(true, "v=rmF9pqV8S7suAoZWja4dJRkFsKQ="),
        _ => said(true, ""),
    },
];

fn yes(_step: usize, _nonce: &str) -> RawDocumentBuf {
    rawdoc! { "ok": 1, "done": true }
}

fn said(done: bool, payload: &str) -> RawDocumentBuf {
    rawdoc! { "conversationId": 1, "done": done, "payload": binary(payload), "ok": 1 }
}

fn server_first(nonce: &str) -> RawDocumentBuf {
    said(false, &format!("r={nonce}x,s=c2FsdA==,i=4096"))
}

fn binary(text: &str) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() }
}

fn message(response_to: i32, body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    let ids = MessageIds::reply(1000, response_to);
    MessageWriter::begin(&mut out, ids, Flags::NONE, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}

#[test]
fn no_field_of_a_hello_stands_in_for_a_proof() {
    let mut failures = BTreeMap::new();
    for (field, value) in FIELDS.iter().flat_map(|field| odd(field).into_iter().map(move |value| (*field, value))) {
        for options in SCRAM.iter().flat_map(|mechanism| clients(*mechanism)) {
            for sasl in SASL {
                let mut rogue = Rogue::new(hello(&[(field, value.clone())]), sasl);

                let outcome = establish(&mut rogue, options.clone());

                let error = outcome.end.expect_err(&format!("{field}: {value:?} made a connection of {options:?}"));
                assert!(matches!(error.phase, Phase::Hello | Phase::Authenticate), "{field}: {value:?}: {error}");
                *failures.entry((error.phase, outcome.asked.len())).or_insert(0) += 1;
            }
        }
    }
    println!("failures, by phase and by the number of commands that were sent: {failures:?}");
    // Most hellos are those of any server: the conversation begins, and some reach the proof.
    assert!(failures[&(Phase::Authenticate, 2)] > 10_000 && failures[&(Phase::Authenticate, 3)] > 1_000);
}

#[test]
fn an_arbiter_gets_no_credential_x_62() {
    for mechanism in SCRAM.into_iter().chain([Some(Mechanism::Plain), Some(Mechanism::MongoDbX509)]) {
        for options in clients(mechanism) {
            let mut rogue = Rogue::new(hello(&[("arbiterOnly", true.into()), ("setName", "rs".into())]), yes);

            let outcome = establish(&mut rogue, options);

            let error = outcome.end.unwrap_err();
            assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Other));
            assert_eq!(error.message, "an arbiter has no users; connect without credentials");
            assert_eq!(outcome.asked.len(), 1, "nothing is sent behind the hello");
        }
    }
}

#[test]
fn an_arbiter_is_connected_to_without_a_credential_auth_2() {
    let mut rogue = Rogue::new(hello(&[("arbiterOnly", true.into())]), yes);
    let options = ConnectionOptions::new(ClientMetadata::new("Linux"));

    let outcome = establish(&mut rogue, options);

    assert_eq!((outcome.end, outcome.asked.len()), (Ok(()), 1));
}

#[test]
fn plain_is_asked_for_and_answered_to_the_end() {
    let mut established = 0;
    for (field, value) in FIELDS.iter().flat_map(|field| odd(field).into_iter().map(move |value| (*field, value))) {
        for (sasl, options) in SASL.iter().flat_map(|sasl| clients(Some(Mechanism::Plain)).map(|own| (sasl, own))) {
            let mut rogue = Rogue::new(hello(&[(field, value.clone())]), *sasl);

            let outcome = establish(&mut rogue, options);

            // PLAIN's only proof is TLS: the server has the password, and says so.
            let is_done = sasl(0, "").get_bool("done").unwrap_or_default();
            let asked = outcome.asked.get(1).is_some_and(|command| command == "saslStart");
            assert!(outcome.end.is_err() || asked && is_done, "{field}: {value:?}");
            established += usize::from(outcome.end.is_ok());
        }
    }
    // Most hellos are those of any server.
    assert!(established > 10_000, "{established}");
}

#[test]
fn a_certificate_is_shown_and_answered() {
    let mut established = 0;
    for (field, value) in FIELDS.iter().flat_map(|field| odd(field).into_iter().map(move |value| (*field, value))) {
        for options in clients(Some(Mechanism::MongoDbX509)) {
            let mut rogue = Rogue::new(hello(&[(field, value.clone())]), yes);

            let outcome = establish(&mut rogue, options);

            // TLS proves this server. It answers the hello's `authenticate`, or one of its own.
            let answered = field == "speculativeAuthenticate" && matches!(value, RawBson::Document(_));
            let asked = outcome.asked.get(1).is_some_and(|command| command == "authenticate");
            assert!(outcome.end.is_err() || asked || answered, "{field}: {value:?}");
            established += usize::from(outcome.end.is_ok());
        }
    }
    assert!(established > 1_000, "{established}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_fields_of_a_hello_together_stand_in_for_a_proof(
        fields in proptest::collection::vec((0..FIELDS.len(), 0_usize..1000), 0..8),
        mechanism in 0..SCRAM.len(),
        client in 0_usize..3,
        sasl in 0..SASL.len(),
    ) {
        let odd: Vec<_> = fields.into_iter().map(|(field, value)| {
            let values = odd(FIELDS[field]);
            (FIELDS[field], values[value % values.len()].clone())
        }).collect();
        let mut rogue = Rogue::new(hello(&odd), SASL[sasl]);

        let outcome = establish(&mut rogue, clients(SCRAM[mechanism])[client].clone());

        prop_assert!(outcome.end.is_err(), "{odd:?}");
    }
}

//! The fuzz target `hub_rules`: what a hub's rules let pass opens nothing that they forbid.
//!
//! The input decides on rules and on a few commands, each of which goes the way of a client's bytes through the hub's [`Line`]. What
//! the line would run upstream runs on a test server, which says which collections it opens, or MongoDB would. The oracle knows the
//! rules as pairs of patterns, and nothing of how the hub finds out what a command touches. What is the server's own (`system.*`, `local`,
//! `config`) is forbidden unless a pair names it in full, and the documents of a time series are that time series.

mod commands;

use std::sync::{Arc, Mutex};

use bson::{Document, RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::pool::ServiceId;
use cmap_core::time::Instant;
use cmap_core::wire::{
    CommandReply, CompressorId, Field as Appended, Flags, Limits, Message, MessageIds, MessageWriter,
};
use cmap_hub::protocol::{
    Begins, Common, DoorLimits, Doors, Facts, Forward, Line, LineOutput, Operation, OperationId, Operations, Sessions,
    Surroundings, Whose,
};
use cmap_hub::users::{Pattern, Rule, Rules, Users};
use cmap_test_server::{ClientId, Peer, ServerConfig, ServerOutput, TestServer};

use commands::{Commands, Input, op_msg};

/// The first of them have the collections.
const DATABASES: [&str; 5] = ["shop", "other", "crm", "local", "config"];
const FILLED: usize = 3;
const COLLECTIONS: [&str; 4] = ["orders", "secret", "secrets", "view"];

/// Patterns of rules: a star is at the end.
const OF_DATABASES: [&str; 6] = ["shop", "other", "crm", "o*", "*", "local"];
const OF_COLLECTIONS: [&str; 7] = ["orders", "secret", "secrets", "view", "sec*", "*", "system.views"];

/// Fields that a server believes only from another one.
const BETWEEN_SERVERS: [&str; 3] = ["$audit", "$client", "mayBypassWriteBlocking"];

/// Most commands of an input: the first may make a view or a cursor that the next ones use.
const COMMANDS: usize = 4;

/// Runs one input.
///
/// # Panics
/// If a command passes the rules and opens what they forbid, or cannot be read by who receives it.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let policy = Policy::read(&mut input);
    let mut hub = Hub::with(policy.rules());
    let mut server = Server::new();
    let mut cursor = 0;
    for number in 1..=COMMANDS {
        if input.0.is_empty() {
            return;
        }
        let message = Commands { input: &mut input, cursor }.message(i32::try_from(number).unwrap_or_default());
        let mut next = hub.pass(&message);
        while let Some(forward) = next {
            let Some(reply) = server.run(&forward) else { return };
            for opened in server.machine.take_opened() {
                let request = &forward.request;
                assert!(!policy.forbids(&opened), "{:?} opens {opened}: {policy:?}", request.body());
            }
            cursor = reply.get_document("cursor").and_then(|cursor| cursor.get_i64("id")).unwrap_or(cursor);
            next = hub.answer(&reply);
        }
    }
}

/// What a user may do, as pairs of patterns: of databases and of collections.
#[derive(Debug)]
struct Policy {
    allow: Option<Vec<(&'static str, &'static str)>>,
    deny: Vec<(&'static str, &'static str)>,
}

impl Policy {
    fn read(input: &mut Input<'_>) -> Self {
        let mut pairs = |most: usize| {
            let count = input.below(most + 1);
            (0..count).map(|_| (input.pick(&OF_DATABASES), input.pick(&OF_COLLECTIONS))).collect::<Vec<_>>()
        };
        Self { allow: Some(pairs(3)).filter(|pairs| !pairs.is_empty()), deny: pairs(3) }
    }

    fn rules(&self) -> Rules {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(*text)).collect();
        // An operators' command has to be named.
        let rule = |commands: &[&str], (database, collection): &(&str, &str)| Rule {
            databases: patterns(&[database]),
            collections: patterns(&[collection]),
            commands: patterns(commands),
        };
        Rules {
            allow: self.allow.as_ref().map(|pairs| pairs.iter().map(|pair| rule(&["*", "mapReduce"], pair)).collect()),
            deny: self.deny.iter().map(|pair| rule(&["*"], pair)).collect(),
        }
    }

    fn forbids(&self, namespace: &str) -> bool {
        let (database, mut collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        while let Some(series) = collection.strip_prefix("system.buckets.") {
            collection = series;
        }
        let fits = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
            Some(front) => name.starts_with(front),
            None => pattern == name,
        };
        let is_one =
            |pairs: &[(&str, &str)]| pairs.iter().any(|pair| fits(pair.0, database) && fits(pair.1, collection));
        let has_named = |pair: &(&str, &str)| {
            (!matches!(database, "local" | "config") || pair.0 == database)
                && (!collection.starts_with("system.") || pair.1 == collection)
                && fits(pair.0, database)
                && fits(pair.1, collection)
        };
        let is_allowed = match &self.allow {
            Some(allow) => allow.iter().any(has_named),
            None => has_named(&("*", "*")),
        };
        is_one(&self.deny) || !is_allowed
    }
}

/// A hub without sockets, and a client that has greeted it.
struct Hub {
    users: Users,
    common: Mutex<Common>,
    line: Line,
    server: Arc<ServerAddress>,
}

struct NoOthers;

impl Operations for NoOthers {
    fn list(&self, _: Instant, _: Whose<'_>) -> Vec<Operation> {
        Vec::new()
    }

    fn kill(&self, _: OperationId, _: Whose<'_>) -> bool {
        false
    }
}

impl Hub {
    fn with(rules: Rules) -> Self {
        let doors = Doors::new(DoorLimits {
            connections: 10,
            per_address: 10,
            per_user: 10,
            strangers: 10,
            strangers_per_address: 10,
        });
        let mut hub = Self {
            users: Users::open(rules),
            common: Mutex::new(Common { sessions: Sessions::new(100), doors }),
            line: Line::new(Instant::ORIGIN, 1),
            server: Arc::new(ServerAddress::tcp("db", 27017)),
        };
        let hello = rawdoc! { "hello": 1, "loadBalanced": true, "compression": ["snappy"], "$db": "admin" };
        let greeted = hub.pass(&op_msg(0, &[(None, vec![hello.into_bytes()])]));
        assert!(greeted.is_none(), "the hub answers a hello itself");
        hub
    }

    /// What a client's bytes make the hub run.
    fn pass(&mut self, bytes: &[u8]) -> Option<Forward> {
        self.call(|line, around| line.handle_bytes(Instant::ORIGIN, bytes, around))
    }

    fn answer(&mut self, reply: &RawDocument) -> Option<Forward> {
        let (server, ok) = (Arc::clone(&self.server), CommandReply::read(reply).ok);
        self.line.handle_sent(&server);
        self.call(|line, around| line.handle_reply(Instant::ORIGIN, Some(&server), reply, ok, around))
    }

    fn call(&mut self, call: impl FnOnce(&mut Line, &mut Surroundings<'_>)) -> Option<Forward> {
        let mut around = Surroundings {
            users: &self.users,
            common: &self.common,
            operations: &NoOthers,
            facts: Facts {
                service: ServiceId([1; 12]),
                max_wire_version: 21,
                has_users: false,
                begins: Begins::Everything,
            },
            compressors: &[CompressorId::Snappy],
            nonce: &mut || None,
        };
        call(&mut self.line, &mut around);
        let mut forward = None;
        while let Some(output) = self.line.poll_output() {
            if let LineOutput::Run(run) = output {
                forward = Some(*run);
            }
        }
        forward
    }
}

/// The server upstream, and the hub's connection to it.
struct Server {
    machine: TestServer,
    client: ClientId,
    requests: i32,
}

impl Server {
    /// One that has all collections, and notes from now on which of them are opened.
    fn new() -> Self {
        let mut config = ServerConfig::new("db:27017");
        config.replica_set = Some("set".into());
        let mut machine = TestServer::new(config, Instant::ORIGIN);
        let client = machine.accept(Instant::ORIGIN, Peer::default());
        let mut server = Self { machine, client, requests: 0 };
        for database in &DATABASES[..FILLED] {
            for collection in COLLECTIONS {
                let insert =
                    rawdoc! { "insert": collection, "documents": [{ "_id": 1 }, { "_id": 2 }], "$db": *database };
                server.exchange(&op_msg(1, &[(None, vec![insert.into_bytes()])]));
            }
        }
        server.machine.take_opened();
        server
    }

    /// Runs a command as the hub sends it. `None` if it cannot be sent, or its answer takes time.
    fn run(&mut self, forward: &Forward) -> Option<RawDocumentBuf> {
        let body = forward.body.clone().unwrap_or_else(|| forward.request.compose(None));
        assert_readable(&body);
        let fields = body.iter().filter_map(Result::ok).map(|(key, _)| key.as_str().to_owned());
        assert!(fields.skip(1).all(|key| !BETWEEN_SERVERS.contains(&key.as_str())), "the hub passes on {body:?}");
        let (mut out, fields) = (Vec::new(), [Appended::String("$db", &forward.request.database)]);
        self.requests += 1;
        let ids = MessageIds::request(self.requests);
        let mut message = MessageWriter::begin(&mut out, ids, Flags::NONE, &body, &fields, &Limits::DEFAULT).ok()?;
        for sequence in forward.request.sequences().ok()? {
            sequence.documents().for_each(assert_readable);
            message.pass_on(&sequence).ok()?;
        }
        message.finish();
        self.exchange(&out)
    }

    fn exchange(&mut self, message: &[u8]) -> Option<RawDocumentBuf> {
        self.machine.handle_bytes(Instant::ORIGIN, self.client, message);
        let mut reply = None;
        while let Some(output) = self.machine.poll_output() {
            if let ServerOutput::Send { bytes, .. } = output {
                reply = Message::decode(&bytes, &Limits::DEFAULT).ok().map(|message| message.body.to_owned());
            }
        }
        reply
    }
}

/// Who reads the document by other means meets no error either.
fn assert_readable(document: &RawDocument) {
    let read = Document::try_from(document);
    assert!(read.is_ok(), "the hub runs what cannot be read: {read:?}");
}

//! One client's connection without a socket, in virtual time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "line/ahead.rs"]
mod ahead;
#[path = "line/draining.rs"]
mod draining;
#[path = "line/logged_in.rs"]
mod logged_in;
#[path = "line/operations.rs"]
mod operations;
#[path = "line/slow.rs"]
mod slow;
#[path = "line/transactions.rs"]
mod transactions;
#[path = "line/unreadable.rs"]
mod unreadable;

mod hidden;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::pool::ServiceId;
use cmap_core::time::Instant;
use cmap_core::wire::{
    CommandReply, Compression, Compressor, CompressorId, Field, Flags, Limits, Message, MessageIds, MessageWriter,
};
use cmap_hub::protocol::{
    Begins, Class, Common, DoorLimits, Doors, Ending, Facts, Forward, Holdings, Line, LineOutput, Operation,
    OperationId, Operations, Route, Sessions, Surroundings, Whose,
};
use cmap_hub::users::{self, NewUser, Pattern, Rule, Rules, Users};

/// A hub without sockets.
struct Hub {
    users: Users,
    common: Mutex<Common>,
    operations: Listed,
    facts: Facts,
}

/// Operations of other connections.
#[derive(Default)]
struct Listed(Vec<Operation>);

impl Operations for Listed {
    fn list(&self, _: Instant, whose: Whose<'_>) -> Vec<Operation> {
        self.0.iter().filter(|operation| whose.includes(&operation.user)).cloned().collect()
    }

    fn kill(&self, id: OperationId, whose: Whose<'_>) -> bool {
        self.list(at(0), whose).iter().any(|operation| operation.id == id)
    }
}

/// A client of it.
struct Client {
    line: Line,
    requests: i32,
}

/// What a line did.
#[derive(Debug, Default)]
struct Done {
    replies: Vec<RawDocumentBuf>,
    /// By what some of them are to be compressed.
    compressed: Vec<CompressorId>,
    runs: Vec<Forward>,
    cleaned_up: Vec<Holdings>,
    ending: Option<Ending>,
}

const HELLO: Duration = Duration::from_secs(10);

impl Hub {
    fn open() -> Self {
        Self::of(Users::open(Rules::default()))
    }

    fn with_user() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        users::add(&path, &NewUser { name: "app".into(), password: "secret".into(), upstream: None }).unwrap();
        Self::of(Users::new(users::read(&path).unwrap(), [7; 32]))
    }

    fn of(users: Users) -> Self {
        let has_users = users.anonymous().is_none();
        Self {
            users,
            common: Mutex::new(Common {
                sessions: Sessions::new(100),
                doors: Doors::new(DoorLimits {
                    connections: 10,
                    per_address: 10,
                    per_user: 10,
                    strangers: 10,
                    strangers_per_address: 10,
                }),
            }),
            operations: Listed::default(),
            facts: Facts { service: ServiceId([1; 12]), max_wire_version: 21, has_users, begins: Begins::Everything },
        }
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut Surroundings<'_>) -> T) -> T {
        let Self { users, common, operations, facts } = self;
        call(&mut Surroundings {
            users,
            common,
            operations,
            facts: *facts,
            compressors: &[CompressorId::Zlib, CompressorId::Snappy],
            nonce: &mut || Some([9; 24]),
        })
    }
}

impl Client {
    fn new() -> Self {
        Self { line: Line::new(Instant::ORIGIN, 1), requests: 0 }
    }

    /// One that has greeted the hub.
    fn greeted(hub: &mut Hub) -> Self {
        let mut client = Self::new();
        let done = client.say(hub, at(0), "admin", &rawdoc! { "hello": 1, "loadBalanced": true });
        assert!(CommandReply::read(&done.replies[0]).ok, "{done:?}");
        client
    }

    fn message(&mut self, database: &str, body: &RawDocument) -> Vec<u8> {
        self.requests += 1;
        let (mut out, fields) = (Vec::new(), [Field::String("$db", database)]);
        MessageWriter::begin(
            &mut out,
            MessageIds::request(self.requests),
            Flags::NONE,
            body,
            &fields,
            &Limits::DEFAULT,
        )
        .unwrap()
        .finish();
        out
    }

    fn say(&mut self, hub: &mut Hub, now: Instant, database: &str, body: &RawDocument) -> Done {
        let bytes = self.message(database, body);
        self.send(hub, now, &bytes)
    }

    fn send(&mut self, hub: &mut Hub, now: Instant, bytes: &[u8]) -> Done {
        hub.with(|around| self.line.handle_bytes(now, bytes, around));
        self.finish(hub, now)
    }

    fn wait(&mut self, now: Instant) -> Done {
        self.line.handle_timeout(now);
        self.drain()
    }

    /// The same, compressed.
    fn compressed(&mut self, compression: Compression, body: &RawDocument) -> Vec<u8> {
        let mut message = self.message("d", body);
        let mut compressor = Compressor::new(compression).unwrap();
        assert_eq!(compressor.compress_reply(&mut message, 0, &Limits::DEFAULT), Ok(true));
        message
    }

    fn reply(&mut self, hub: &mut Hub, now: Instant, reply: &RawDocument) -> Done {
        let server = server();
        self.line.handle_sent(&server);
        hub.with(|around| self.line.handle_reply(now, Some(&server), reply, CommandReply::read(reply).ok, around));
        self.finish(hub, now)
    }

    fn reply_from(&mut self, hub: &mut Hub, server: &Arc<ServerAddress>, reply: &RawDocument) -> Done {
        let ok = CommandReply::read(reply).ok;
        hub.with(|around| self.line.handle_reply(at(0), Some(server), reply, ok, around));
        self.finish(hub, at(0))
    }

    /// Carries out all that there is to do, until a command runs or nothing is left.
    fn finish(&mut self, hub: &mut Hub, now: Instant) -> Done {
        let mut done = self.drain();
        while self.line.has_more() {
            hub.with(|around| self.line.go_on(now, around));
            self.drain_into(&mut done);
        }
        done
    }

    fn drain(&mut self) -> Done {
        let mut done = Done::default();
        self.drain_into(&mut done);
        done
    }

    fn drain_into(&mut self, done: &mut Done) {
        while let Some(output) = self.line.poll_output() {
            match output {
                LineOutput::SendCompressed(compressor, bytes) => {
                    done.compressed.push(compressor);
                    done.replies.push(Message::decode(&bytes, &Limits::DEFAULT).unwrap().body.to_owned());
                }
                LineOutput::Send(bytes) => {
                    done.replies.push(Message::decode(&bytes, &Limits::DEFAULT).unwrap().body.to_owned());
                }
                LineOutput::Run(forward) => done.runs.push(*forward),
                LineOutput::CleanUp(holdings) => done.cleaned_up.push(holdings),
                LineOutput::Refused(..) => {}
                LineOutput::HangUp(why) => done.ending = Some(why),
            }
        }
    }
}

fn server() -> Arc<ServerAddress> {
    server_named("db")
}

fn server_named(name: &str) -> Arc<ServerAddress> {
    Arc::new(ServerAddress::tcp(name, 1))
}

fn at(millis: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(millis)
}

fn code(done: &Done) -> Option<i32> {
    CommandReply::read(&done.replies[0]).failure()?.code
}

fn sasl_start(user: &str) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: format!("n,,n={user},r=nonce").into_bytes() };
    rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload }
}

fn wrong_proof() -> RawDocumentBuf {
    let bytes =
        b"c=biws,r=nonceCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJ,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_vec();
    rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": Binary { subtype: BinarySubtype::Generic, bytes } }
}

#[test]
fn a_hello_without_load_balanced_is_refused_with_what_to_do_x_130() {
    let (mut hub, mut client) = (Hub::open(), Client::new());

    let done = client.say(&mut hub, at(0), "admin", &rawdoc! { "hello": 1 });

    assert_eq!(code(&done), Some(369));
    assert!(done.replies[0].get_str("errmsg").unwrap().contains("add loadBalanced=true to the connection string"));
}

#[test]
fn nothing_runs_before_the_login() {
    let mut hub = Hub::with_user();
    let mut client = Client::greeted(&mut hub);

    let done = client.say(&mut hub, at(0), "test", &rawdoc! { "find": "c" });

    assert_eq!((code(&done), done.runs.len()), (Some(13), 0));
}

#[test]
fn a_user_that_does_not_exist_fails_as_a_wrong_password_does_and_three_failures_end_it() {
    let mut hub = Hub::with_user();
    let mut client = Client::greeted(&mut hub);

    for (user, ending) in [("app", None), ("nobody", None), ("app", Some(Ending::FailedLogins))] {
        let first = client.say(&mut hub, at(0), "admin", &sasl_start(user));
        let payload = first.replies[0].get_binary("payload").unwrap();
        assert!(payload.bytes.starts_with(b"r=nonceCQkJ") && payload.bytes.ends_with(b",i=15000"), "{first:?}");
        let last = client.say(&mut hub, at(0), "admin", &wrong_proof());
        assert_eq!((code(&last), last.ending), (Some(18), ending), "{user}");
    }
}

#[test]
fn a_cursor_goes_on_at_its_server_until_it_is_exhausted_x_131() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let more = rawdoc! { "getMore": 5_i64, "collection": "c" };
    assert_eq!(code(&client.say(&mut hub, at(0), "d", &more)), Some(43));
    client.say(&mut hub, at(0), "d", &rawdoc! { "find": "c" });
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1, "cursor": { "id": 5_i64, "ns": "d.c", "firstBatch": [] } });

    let done = client.say(&mut hub, at(0), "d", &more);
    assert_eq!(done.runs[0].route, Route::Server(server()));
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1, "cursor": { "id": 0_i64, "ns": "d.c", "nextBatch": [] } });

    assert_eq!(code(&client.say(&mut hub, at(0), "d", &more)), Some(43));
    assert!(client.line.is_idle());
}

#[test]
fn a_transaction_is_left_over_until_it_has_ended_x_137() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let part = |name: &str, starts: bool| {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
        let mut body = rawdoc! { "lsid": { "id": id }, "txnNumber": 3_i64, "autocommit": false };
        if starts {
            body.append(bson::cstr!("startTransaction"), true);
        }
        let mut command = RawDocumentBuf::new();
        command.append(<&bson::raw::CStr>::try_from(name).unwrap(), "c");
        body.iter().for_each(|field| {
            let (key, value) = field.unwrap();
            command.append(key, value);
        });
        command
    };
    assert_eq!(code(&client.say(&mut hub, at(0), "d", &part("insert", false))), Some(251), "it has not begun");

    client.say(&mut hub, at(0), "d", &part("insert", true));
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });
    assert!(!client.line.is_idle());
    let done = client.say(&mut hub, at(0), "admin", &part("commitTransaction", false));
    assert_eq!(done.runs[0].route, Route::Server(server()));
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });

    assert!(client.line.is_idle());
}

#[test]
fn a_connection_has_a_thousand_cursors_at_most() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    for id in 1..=1_000_i64 {
        client.say(&mut hub, at(0), "d", &rawdoc! { "find": "c" });
        client.reply(&mut hub, at(0), &rawdoc! { "ok": 1, "cursor": { "id": id, "ns": "d.c", "firstBatch": [] } });
    }

    for opening in [rawdoc! { "find": "c" }, rawdoc! { "listCollections": 1 }] {
        let done = client.say(&mut hub, at(0), "d", &opening);
        assert_eq!((code(&done), done.runs.len()), (Some(146), 0), "{opening:?}");
    }
    assert_eq!(client.say(&mut hub, at(0), "d", &rawdoc! { "count": "c" }).runs.len(), 1);
}

#[test]
fn a_connection_has_a_thousand_transactions_at_most_though_their_sessions_end() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let lsid = |number: u16| {
        let bytes = [&number.to_be_bytes()[..], &[0; 14]].concat();
        rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes } }
    };
    let start = |number: u16| {
        rawdoc! { "insert": "c", "lsid": lsid(number), "txnNumber": 1_i64, "autocommit": false, "startTransaction": true }
    };
    for number in 0..1_000 {
        assert_eq!(client.say(&mut hub, at(0), "d", &start(number)).runs.len(), 1, "{number}");
        client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });
        client.say(&mut hub, at(0), "admin", &rawdoc! { "endSessions": [lsid(number)] });
        client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });
    }

    let done = client.say(&mut hub, at(0), "d", &start(1_000));
    assert_eq!((code(&done), done.runs.len()), (Some(146), 0));

    let abort = rawdoc! { "abortTransaction": 1, "lsid": lsid(7), "txnNumber": 1_i64, "autocommit": false };
    client.say(&mut hub, at(0), "admin", &abort);
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });
    assert_eq!(client.say(&mut hub, at(0), "d", &start(1_000)).runs.len(), 1);
}

#[test]
fn what_lets_go_of_nothing_waits_as_others_do_x_135() {
    let mut hub = Hub::open();
    let lsid = || rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    for (command, class) in [
        (rawdoc! { "refreshSessions": [lsid()] }, Class::Ordinary),
        (rawdoc! { "endSessions": [lsid()] }, Class::LetsGo),
        (rawdoc! { "commitTransaction": 1, "lsid": lsid(), "txnNumber": 3_i64, "autocommit": false }, Class::Ordinary),
    ] {
        let done = Client::greeted(&mut hub).say(&mut hub, at(0), "admin", &command);
        assert_eq!(done.runs[0].class, class, "{command:?}");
    }
}

#[test]
fn a_command_in_a_session_that_is_being_killed_comes_after_that_x_137() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let find = rawdoc! { "find": "c", "lsid": { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } } };
    let done = client.say(&mut hub, at(0), "d", &find);
    assert!(!done.runs[0].session_ends);

    assert!(hub.common.get_mut().unwrap().sessions.begin_kill(&[7; 16], 1));

    let done = Client::greeted(&mut hub).say(&mut hub, at(0), "d", &find);
    assert!(done.runs[0].session_ends);
}

#[test]
fn a_logout_is_not_sent_upstream_where_others_share_the_connection() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);

    let done = client.say(&mut hub, at(0), "admin", &rawdoc! { "logout": 1 });

    assert_eq!((code(&done), done.runs.len()), (Some(115), 0));
}

#[test]
fn the_last_error_of_a_connection_that_others_share_is_not_asked_for_upstream_x_133() {
    let names = ["getLastError", "getlasterror", "getPrevError", "resetError", "reseterror", "forceerror"];
    // Not for operators either.
    let rule = Rule {
        databases: vec![Pattern::new("*")],
        collections: vec![Pattern::new("*")],
        commands: names.map(Pattern::new).into(),
    };
    let mut hub = Hub::of(Users::open(Rules { allow: Some(vec![rule]), deny: Vec::new() }));
    for name in names {
        let mut command = RawDocumentBuf::new();
        command.append(<&bson::raw::CStr>::try_from(name).unwrap(), 1);
        let done = Client::greeted(&mut hub).say(&mut hub, at(0), "shop", &command);
        assert_eq!((code(&done), done.runs.len()), (Some(115), 0), "{name}");
    }
}

#[test]
fn a_transaction_that_the_server_has_ended_is_not_left_over_x_137() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let lsid = || rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    let insert =
        rawdoc! { "insert": "c", "lsid": lsid(), "txnNumber": 3_i64, "autocommit": false, "startTransaction": true };
    client.say(&mut hub, at(0), "d", &insert);
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 0, "code": 112 });
    let abort = rawdoc! { "abortTransaction": 1, "lsid": lsid(), "txnNumber": 3_i64, "autocommit": false };
    client.say(&mut hub, at(0), "admin", &abort);

    client.reply(&mut hub, at(0), &rawdoc! { "ok": 0, "code": 251 });

    assert!(client.line.is_idle());
}

#[test]
fn cursors_at_two_servers_are_killed_at_both_with_one_reply_x_137() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let other = Arc::new(ServerAddress::tcp("other", 1));
    for (id, server) in [(5_i64, server()), (6, Arc::clone(&other))] {
        client.say(&mut hub, at(0), "d", &rawdoc! { "find": "c" });
        let reply = rawdoc! { "ok": 1, "cursor": { "id": id, "ns": "d.c", "firstBatch": [] } };
        client.reply_from(&mut hub, &server, &reply);
    }

    let mut done = client.say(&mut hub, at(0), "d", &rawdoc! { "killCursors": "c", "cursors": [5_i64, 6_i64, 7_i64] });
    for _ in 0..2 {
        let [forward] = done.runs.as_slice() else { panic!("{done:?}") };
        let Route::Server(server) = &forward.route else { panic!("{forward:?}") };
        let own = if *server == other { 6_i64 } else { 5_i64 };
        let body = forward.body.as_ref().unwrap();
        assert_eq!(body.get_array("cursors").unwrap().get_i64(0).unwrap(), own);
        let server = Arc::clone(server);
        done = client.reply_from(&mut hub, &server, &rawdoc! { "ok": 1, "cursorsKilled": [own] });
    }

    let list = |name: &str| {
        let list = done.replies[0].get_array(name).unwrap().into_iter();
        let mut list: Vec<_> = list.map(|id| id.unwrap().as_i64().unwrap()).collect();
        list.sort_unstable();
        list
    };
    assert_eq!((list("cursorsKilled"), list("cursorsNotFound")), (vec![5, 6], vec![7]));
    assert!(done.runs.is_empty() && client.line.is_idle());
}

#[test]
fn a_server_that_does_not_kill_its_cursors_keeps_them_and_the_client_is_told() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    client.say(&mut hub, at(0), "d", &rawdoc! { "find": "c" });
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1, "cursor": { "id": 5_i64, "ns": "d.c", "firstBatch": [] } });
    client.say(&mut hub, at(0), "d", &rawdoc! { "killCursors": "c", "cursors": [5_i64] });

    let done = client.reply(&mut hub, at(0), &rawdoc! { "ok": 0, "code": 13, "errmsg": "no" });

    assert_eq!((code(&done), client.line.take_holdings().take().0.len()), (Some(13), 1));
}

#[test]
fn replies_are_compressed_as_their_requests_were() {
    let mut hub = Hub::open();
    let mut client = Client::new();
    let hello = rawdoc! { "hello": 1, "loadBalanced": true, "compression": ["zstd", "snappy", "zlib"] };
    let done = client.say(&mut hub, at(0), "admin", &hello);
    let offered = done.replies[0].get_array("compression").unwrap().into_iter();
    let offered: Vec<_> = offered.map(|name| name.unwrap().as_str().unwrap().to_owned()).collect();
    assert_eq!(offered, ["snappy", "zlib"], "what both have, in the client's order");

    let find = client.compressed(Compression::Snappy, &rawdoc! { "find": "c" });
    assert_eq!(client.send(&mut hub, at(0), &find).runs[0].request.name, "find");
    let done = client.reply(&mut hub, at(0), &rawdoc! { "ok": 1, "n": 5 });
    assert_eq!((done.compressed, done.replies[0].get_i32("n").unwrap()), (vec![CompressorId::Snappy], 5));
    client.say(&mut hub, at(0), "d", &rawdoc! { "find": "c" });
    let done = client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });
    assert_eq!((done.compressed.len(), done.replies.len()), (0, 1), "a plain request has a plain reply");
    let hello = client.compressed(Compression::Snappy, &hello);
    let done = client.send(&mut hub, at(0), &hello);
    assert_eq!((code(&done), done.compressed.len()), (Some(9), 0), "a hello is never compressed (COMP-7)");
}

#[test]
fn what_was_not_agreed_on_ends_the_connection() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let find = client.compressed(Compression::Snappy, &rawdoc! { "find": "c" });
    let done = client.send(&mut hub, at(0), &find);
    assert!(matches!(done.ending, Some(Ending::Fault(_))), "nothing was agreed on: {done:?}");

    let (mut hub, mut stranger) = (Hub::with_user(), Client::new());
    let hello = rawdoc! { "hello": 1, "loadBalanced": true, "compression": ["snappy"] };
    stranger.say(&mut hub, at(0), "admin", &hello);
    let ping = stranger.compressed(Compression::Snappy, &rawdoc! { "ping": 1 });
    let done = stranger.send(&mut hub, at(0), &ping);
    assert!(matches!(done.ending, Some(Ending::Fault(_))), "it has not logged in: {done:?}");
}

#[test]
fn the_end_of_a_session_leaves_its_cursors_to_be_killed_x_137() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let lsid = || rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    client.say(&mut hub, at(0), "d", &rawdoc! { "find": "c", "lsid": lsid() });
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1, "cursor": { "id": 5_i64, "ns": "d.c", "firstBatch": [] } });

    client.say(&mut hub, at(0), "admin", &rawdoc! { "endSessions": [lsid()] });
    client.reply(&mut hub, at(0), &rawdoc! { "ok": 1 });

    assert_eq!(client.line.take_holdings().take().0.len(), 1);
}

#[test]
fn a_session_that_is_killed_at_one_server_leaves_what_it_has_at_others_to_be_ended_x_137() {
    let mut hub = Hub::open();
    let mut client = Client::greeted(&mut hub);
    let lsid = || rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    let [primary, secondary] = ["primary", "secondary"].map(server_named);
    for (id, server) in [(5_i64, &primary), (6, &secondary)] {
        client.say(&mut hub, at(0), "d", &rawdoc! { "find": "c", "lsid": lsid() });
        let reply = rawdoc! { "ok": 1, "cursor": { "id": id, "ns": "d.c", "firstBatch": [] } };
        client.reply_from(&mut hub, server, &reply);
    }

    let kill = rawdoc! { "killSessions": [lsid()] };
    client.say(&mut hub, at(0), "admin", &kill);
    client.reply_from(&mut hub, &primary, &rawdoc! { "ok": 0, "code": 13, "errmsg": "no" });
    client.say(&mut hub, at(0), "admin", &kill);
    client.reply_from(&mut hub, &primary, &rawdoc! { "ok": 1 });

    let left: Vec<_> = client.line.take_holdings().take().0.iter().map(|cursor| cursor.id).collect();
    assert_eq!(left, [6]);
}

//! A server for benchmarks, in a process of its own: as little work as possible between a command and its reply.
//!
//! A thread per connection blocks on its socket. Every message is answered from a few prepared replies; a ping, a find, an
//! insert and an update are recognised by their first bytes, and anything else is taken for a hello.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
#[cfg(unix)]
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use cmap_runtime::bson::oid::ObjectId;
use cmap_runtime::bson::spec::BinarySubtype;
use cmap_runtime::bson::{Binary, RawArrayBuf, RawDocument, RawDocumentBuf, Timestamp, cstr, rawdoc};
use cmap_runtime::cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter, encode_reply};
use cmap_runtime::runtime::Target;

/// The argument that makes a benchmark program the server, over TCP.
const SERVE: &str = "--serve";

/// The argument that makes a benchmark program the server, over a Unix socket.
#[cfg(unix)]
const SERVE_UNIX: &str = "--serve-unix";

/// The further argument that makes it a [`Kind::Primary`].
const PRIMARY: &str = "--primary";

/// The message's length, its id, the id it answers, and the kind of message.
const HEADER: usize = 16;

/// The kind of message in which old drivers say hello.
const OP_QUERY: [u8; 4] = 2004_u32.to_le_bytes();

/// Where in a modern message the first field begins: after flags, the kind of section, the document's length.
const FIRST_FIELD: usize = HEADER + 4 + 1 + 4;

/// The field `ping`, as a number of 32 bits.
const PING: &[u8] = b"\x10ping\0";

/// The field `find`, as a string.
const FIND: &[u8] = b"\x02find\0";

/// The field `update`, as a string.
const UPDATE: &[u8] = b"\x02update\0";

/// The field `insert`, as a string.
const INSERT: &[u8] = b"\x02insert\0";

/// The time of the replica set, which stands still.
const NOW: Timestamp = Timestamp { time: 1_700_000_000, increment: 1 };

/// The election of its primary.
const ELECTION: ObjectId = ObjectId::from_bytes([7; 12]);

/// What a server says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A server alone that knows no sessions, so that no driver sends fields that others leave out.
    Standalone,
    /// The only member of a replica set: drivers send sessions, the cluster's time, and the numbers of writes that may be
    /// repeated.
    Primary,
}

/// The server's process, which ends with this.
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts this program as the server, over TCP.
    pub fn start(kind: Kind) -> Self {
        Self::start_as(SERVE, kind)
    }

    /// Starts this program as the server, over a Unix socket.
    #[cfg(unix)]
    pub fn start_unix(kind: Kind) -> Self {
        Self::start_as(SERVE_UNIX, kind)
    }

    fn start_as(argument: &str, kind: Kind) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(argument);
        match kind {
            Kind::Standalone => {}
            Kind::Primary => {
                command.arg(PRIMARY);
            }
        }
        // It ends when its input does, in whatever way this process ends.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim_end().into() }
    }

    /// Its address.
    pub(crate) fn target(&self) -> Target {
        match self.address.parse() {
            Ok(address) => Target::Tcp(address),
            #[cfg(unix)]
            Err(_) => Target::Unix(self.address.clone().into()),
            #[cfg(not(unix))]
            Err(error) => panic!("{error}: {}", self.address),
        }
    }

    /// The connection string; `query` are its options.
    pub fn uri(&self, query: &str) -> String {
        format!("mongodb://{}/?{query}", self.address.replace('/', "%2F"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The server is gone, in whatever way it ended.
        let _ = self.child.wait();
    }
}

pub(crate) fn is_asked_for() -> bool {
    std::env::args().any(|argument| argument.starts_with(SERVE))
}

fn is_given(wanted: &str) -> bool {
    std::env::args().any(|argument| argument == wanted)
}

/// Serves until the input ends, after printing its address.
pub(crate) fn serve() {
    let kind = if is_given(PRIMARY) { Kind::Primary } else { Kind::Standalone };
    #[cfg(unix)]
    if is_given(SERVE_UNIX) {
        return serve_unix(kind);
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    println!("{address}");
    let replies = Replies::of(kind, &address);
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            socket.set_nodelay(true).unwrap();
            let replies = replies.clone();
            // It ends when either side hangs up, whatever the error.
            std::thread::spawn(move || replies.answer_all(&socket, &socket));
        }
    });
    wait_for_the_end();
}

#[cfg(unix)]
fn serve_unix(kind: Kind) {
    let path = std::env::temp_dir().join(format!("cmap-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let address = path.display().to_string();
    println!("{address}");
    let replies = Replies::of(kind, &address);
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let replies = replies.clone();
            std::thread::spawn(move || replies.answer_all(&socket, &socket));
        }
    });
    wait_for_the_end();
    // It may be gone already.
    let _ = std::fs::remove_file(path);
}

fn wait_for_the_end() {
    let _ = io::stdin().read(&mut [0]);
}

/// The messages that the server sends. The id of the message that each answers is still to be set.
#[derive(Clone)]
struct Replies {
    kind: Kind,
    done: Vec<u8>,
    found: Vec<u8>,
    updated: Vec<u8>,
    /// Made for each insert: the official driver repeats what was not counted.
    inserted: Vec<u8>,
    hello: Vec<u8>,
    old_hello: Vec<u8>,
}

impl Replies {
    fn of(kind: Kind, address: &str) -> Self {
        let hello = hello(kind, address);
        Self {
            kind,
            inserted: Vec::new(),
            done: message(&with_time(kind, rawdoc! { "ok": 1.0 })),
            found: message(&with_time(kind, found())),
            updated: message(&with_time(kind, updated(kind))),
            hello: message(&with_time(kind, hello.clone())),
            old_hello: old_message(&hello),
        }
    }

    fn answer_all(mut self, input: impl Read, mut output: impl Write) -> io::Result<()> {
        let mut input = BufReader::new(input);
        let mut request = vec![0; HEADER];
        loop {
            request.resize(HEADER, 0);
            input.read_exact(&mut request)?;
            let length = u32::from_le_bytes([request[0], request[1], request[2], request[3]]);
            request.resize(usize::try_from(length).unwrap_or_default().max(HEADER), 0);
            input.read_exact(&mut request[HEADER..])?;
            let reply = self.to(&request);
            reply[8..12].copy_from_slice(&request[4..8]);
            output.write_all(reply)?;
        }
    }

    fn to(&mut self, request: &[u8]) -> &mut [u8] {
        let fields = request.get(FIRST_FIELD..).unwrap_or_default();
        if request[12..HEADER] == OP_QUERY {
            &mut self.old_hello
        } else if fields.starts_with(PING) {
            &mut self.done
        } else if fields.starts_with(FIND) {
            &mut self.found
        } else if fields.starts_with(UPDATE) {
            &mut self.updated
        } else if fields.starts_with(INSERT) {
            self.inserted = message(&with_time(self.kind, rawdoc! { "n": documents(request), "ok": 1.0 }));
            &mut self.inserted
        } else {
            &mut self.hello
        }
    }
}

/// How many documents the sequences of a message have.
fn documents(request: &[u8]) -> i32 {
    let length = |at: usize| {
        let bytes = request.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        usize::try_from(bytes.map_or(0, u32::from_le_bytes)).unwrap_or_default().max(1)
    };
    let (mut count, mut section) = (0, HEADER + 4);
    while section < request.len() {
        let end = section + 1 + length(section + 1);
        if request[section] == 1 {
            let name = section + 5;
            let mut document = name + request[name..].iter().position(|&byte| byte == 0).unwrap_or_default() + 1;
            while document < end {
                document += length(document);
                count += 1;
            }
        }
        section = end;
    }
    count
}

fn hello(kind: Kind, address: &str) -> RawDocumentBuf {
    let mut hello = rawdoc! {
        "ok": 1.0, "helloOk": true, "isWritablePrimary": true, "ismaster": true, "minWireVersion": 0,
        "maxWireVersion": 21, "maxBsonObjectSize": 16 * 1024 * 1024, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
    };
    if kind == Kind::Primary {
        hello.append(cstr!("setName"), "set");
        hello.append(cstr!("hosts"), RawArrayBuf::from_iter([address]));
        hello.append(cstr!("me"), address);
        hello.append(cstr!("setVersion"), 1);
        hello.append(cstr!("electionId"), ELECTION);
        hello.append(cstr!("logicalSessionTimeoutMinutes"), 30);
    }
    hello
}

/// Of usual size: a name, a price, a number.
fn found() -> RawDocumentBuf {
    let fruit = rawdoc! { "_id": 1, "name": "apple", "price": 0.25, "stock": 40, "origin": "the orchard by the river" };
    rawdoc! { "cursor": { "firstBatch": [fruit], "id": 0_i64, "ns": "shop.fruit" }, "ok": 1.0 }
}

fn updated(kind: Kind) -> RawDocumentBuf {
    let mut updated = rawdoc! { "n": 1, "nModified": 1, "ok": 1.0 };
    if kind == Kind::Primary {
        updated.append(cstr!("electionId"), ELECTION);
        updated.append(cstr!("opTime"), rawdoc! { "ts": NOW, "t": 1_i64 });
    }
    updated
}

/// What a replica set adds to each reply.
fn with_time(kind: Kind, mut reply: RawDocumentBuf) -> RawDocumentBuf {
    if kind == Kind::Primary {
        let hash = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] };
        let signature = rawdoc! { "hash": hash, "keyId": 0_i64 };
        reply.append(cstr!("$clusterTime"), rawdoc! { "clusterTime": NOW, "signature": signature });
        reply.append(cstr!("operationTime"), NOW);
    }
    reply
}

fn message(body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    let ids = MessageIds::reply(1, 0);
    MessageWriter::begin(&mut out, ids, Flags::NONE, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}

fn old_message(body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    encode_reply(&mut out, MessageIds::reply(1, 0), body, &Limits::DEFAULT).unwrap();
    out
}

//! A server for benchmarks, in a process of its own: as little work as possible between a command and its reply.
//!
//! A thread per connection blocks on its socket. Every message is answered from one of three prepared replies; a ping
//! is recognised by its first bytes. The server claims to know no sessions, so that no driver sends fields that others
//! leave out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
#[cfg(unix)]
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use cmap_runtime::bson::{RawDocument, rawdoc};
use cmap_runtime::cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter, encode_reply};
use cmap_runtime::runtime::Target;

/// The argument that makes a benchmark program the server, over TCP.
const SERVE: &str = "--serve";

/// The argument that makes a benchmark program the server, over a Unix socket.
#[cfg(unix)]
const SERVE_UNIX: &str = "--serve-unix";

/// The message's length, its id, the id it answers, and the kind of message.
const HEADER: usize = 16;

/// The kind of message in which old drivers say hello.
const OP_QUERY: [u8; 4] = 2004_u32.to_le_bytes();

/// Where in a modern message the first field begins: after flags, the kind of section, the document's length.
const FIRST_FIELD: usize = HEADER + 4 + 1 + 4;

/// The field `ping`, as a number of 32 bits.
const PING: &[u8] = b"\x10ping\0";

/// The server's process, which ends with this.
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts this program as the server, over TCP.
    pub fn start() -> Self {
        Self::start_as(SERVE)
    }

    /// Starts this program as the server, over a Unix socket.
    #[cfg(unix)]
    pub fn start_unix() -> Self {
        Self::start_as(SERVE_UNIX)
    }

    fn start_as(argument: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        // It ends when its input does, in whatever way this process ends.
        let command = &mut Command::new(program);
        let mut child = command.arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
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

/// Serves until the input ends, after printing its address.
pub(crate) fn serve() {
    #[cfg(unix)]
    if std::env::args().any(|argument| argument == SERVE_UNIX) {
        return serve_unix();
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    println!("{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            socket.set_nodelay(true).unwrap();
            // It ends when either side hangs up, whatever the error.
            std::thread::spawn(move || answer_all(&socket, &socket));
        }
    });
    wait_for_the_end();
}

#[cfg(unix)]
fn serve_unix() {
    let path = std::env::temp_dir().join(format!("cmap-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    println!("{}", path.display());
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer_all(&socket, &socket));
        }
    });
    wait_for_the_end();
    // It may be gone already.
    let _ = std::fs::remove_file(path);
}

fn wait_for_the_end() {
    let _ = io::stdin().read(&mut [0]);
}

fn answer_all(input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut ping = message(&rawdoc! { "ok": 1.0 });
    let mut hello = message(&hello());
    let mut old_hello = old_message(&self::hello());
    let mut request = vec![0; HEADER];
    loop {
        request.resize(HEADER, 0);
        input.read_exact(&mut request)?;
        let length = u32::from_le_bytes([request[0], request[1], request[2], request[3]]);
        request.resize(usize::try_from(length).unwrap_or_default().max(HEADER), 0);
        input.read_exact(&mut request[HEADER..])?;
        let reply = if request[12..HEADER] == OP_QUERY {
            &mut old_hello
        } else if request.get(FIRST_FIELD..).is_some_and(|fields| fields.starts_with(PING)) {
            &mut ping
        } else {
            &mut hello
        };
        reply[8..12].copy_from_slice(&request[4..8]);
        output.write_all(reply)?;
    }
}

fn hello() -> cmap_runtime::bson::RawDocumentBuf {
    rawdoc! {
        "ok": 1.0, "helloOk": true, "isWritablePrimary": true, "ismaster": true, "minWireVersion": 0,
        "maxWireVersion": 21, "maxBsonObjectSize": 16 * 1024 * 1024, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
    }
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

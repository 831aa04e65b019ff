//! A server for the suite: threads over loopback, which answer every command and misbehave on demand.
//!
//! Commands say what is done to their own connection; [`Manners`] say how new connections are treated.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::wire::{Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter};
use socket2::{Domain, SockRef, Socket, Type};

/// How new connections are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manners {
    /// They are served.
    #[default]
    Serve,
    /// They are accepted and never answered.
    NeverAnswer,
    /// They get so many bytes of the first reply, and then the end.
    CutAfter(usize),
    /// They are answered in another protocol.
    SpeakHttp,
}

/// A server on a port of its own, until it is dropped.
pub struct TestServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    manners: Mutex<Manners>,
    sockets: Mutex<Vec<Weak<TcpStream>>>,
    stopped: AtomicBool,
    hanging: Arc<AtomicBool>,
}

impl TestServer {
    /// A server that serves.
    pub fn start() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::listen(listener(any, 1024).unwrap())
    }

    /// The connection string; `query` are its options.
    pub fn uri(&self, query: &str) -> String {
        format!("mongodb://{}/?{query}", self.address)
    }

    /// How connections are treated from now on.
    pub fn set_manners(&self, manners: Manners) {
        *self.shared.manners.lock().unwrap() = manners;
    }

    /// Whether it reads and never answers, on all connections.
    pub fn hang(&self, hang: bool) {
        self.shared.hanging.store(hang, Ordering::SeqCst);
    }

    /// Ends the server and all its connections, as if its process were killed.
    pub fn kill(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if let Some(acceptor) = self.acceptor.take() {
            // Wakes the acceptor, which then sees that it is over.
            drop(TcpStream::connect(self.address));
            acceptor.join().unwrap();
        }
        for socket in self.shared.sockets.lock().unwrap().drain(..).filter_map(|socket| socket.upgrade()) {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Starts it again on the same port.
    pub fn restart(&mut self) {
        self.kill();
        *self = Self::listen(listener(self.address, 1024).unwrap());
    }

    fn listen(listener: TcpListener) -> Self {
        let shared = Arc::new(Shared::default());
        let address = listener.local_addr().unwrap();
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, &shared))
        };
        Self { address, shared, acceptor: Some(acceptor) }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A listener whose port can be used again at once.
pub(super) fn listener(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        socket.set_nodelay(true).unwrap();
        let socket = Arc::new(socket);
        shared.sockets.lock().unwrap().push(Arc::downgrade(&socket));
        let manners = *shared.manners.lock().unwrap();
        // A connection ends when either side hangs up; whatever the error, the thread ends with it.
        let hanging = Arc::clone(&shared.hanging);
        std::thread::spawn(move || serve(&socket, manners, &hanging));
    }
}

fn serve(mut socket: &TcpStream, manners: Manners, hanging: &AtomicBool) -> io::Result<()> {
    let (mut frames, mut decoder) = (FrameReader::new(), Decoder::new());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = socket.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        if manners == Manners::SpeakHttp {
            socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
            return socket.shutdown(Shutdown::Both);
        }
        let mut bytes = &buffer[..count];
        while let Ok(Some(frame)) = frames.read(&mut bytes, &Limits::DEFAULT) {
            let Ok(incoming) = decoder.decode(frame, &Limits::DEFAULT) else { return Ok(()) };
            let Content::Message(message) = incoming.content else { return Ok(()) };
            let reply = encode(message.header.ids.request_id, &answer(message.body));
            match (manners, name(message.body)) {
                _ if hanging.load(Ordering::SeqCst) => {}
                (Manners::NeverAnswer, _) | (_, "neverAnswer") => {}
                (Manners::CutAfter(count), _) => {
                    socket.write_all(&reply[..count.min(reply.len())])?;
                    return socket.shutdown(Shutdown::Both);
                }
                (_, "hangUp") => return socket.shutdown(Shutdown::Both),
                (_, "reset") => {
                    SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
                    return Ok(());
                }
                (_, "halfThenEnd") => {
                    socket.write_all(&reply[..reply.len() / 2])?;
                    return socket.shutdown(Shutdown::Both);
                }
                (_, "halfThenSilence") => socket.write_all(&reply[..reply.len() / 2])?,
                (_, "answerThenEnd") => {
                    socket.write_all(&reply)?;
                    return socket.shutdown(Shutdown::Both);
                }
                _ if !message.more_to_come() => socket.write_all(&reply)?,
                _ => {}
            }
        }
    }
}

fn name(body: &RawDocument) -> &str {
    body.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str())
}

fn answer(body: &RawDocument) -> RawDocumentBuf {
    match name(body) {
        "isMaster" | "hello" => rawdoc! {
            "ok": 1.0, "helloOk": true, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 21,
            "maxBsonObjectSize": 16 * 1024 * 1024, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
        },
        "refuse" => rawdoc! { "ok": 0.0, "code": 59, "codeName": "CommandNotFound", "errmsg": "no such command" },
        "large" => rawdoc! { "ok": 1.0, "large": "x".repeat(5_000_000) },
        _ => rawdoc! { "ok": 1.0 },
    }
}

fn encode(request: i32, body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    let ids = MessageIds::reply(1, request);
    MessageWriter::begin(&mut out, ids, Flags::NONE, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}

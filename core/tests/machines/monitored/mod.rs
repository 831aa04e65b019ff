//! A monitor in virtual time, alone or beside its server, and the other side of its sockets: nothing sleeps.

#![allow(dead_code, reason = "each file of tests uses what it needs")]

pub(crate) mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{ClientMetadata, Fault};
use cmap_core::monitor::{Action, Finding, HeartbeatEvent, Monitor, MonitorOptions, Output, Role, Socket};
use cmap_core::pool::Cause;
use cmap_core::time::Instant;
use cmap_core::wire::{Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter};

/// The server's record of a socket that the monitor has not closed.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) connected: bool,
    /// The hello that waits for a reply, and the number that the reply must name.
    pub(crate) asked: Option<(RawDocumentBuf, i32)>,
    replies: i32,
}

/// A monitor under test.
pub(crate) struct Bench {
    pub(crate) monitor: Monitor,
    pub(crate) now: Instant,
    pub(crate) peers: BTreeMap<Socket, Peer>,
    pub(crate) closed: BTreeSet<Socket>,
    pub(crate) events: Vec<(Instant, HeartbeatEvent)>,
    pub(crate) findings: Vec<Finding>,
}

pub(crate) fn options(change: impl FnOnce(&mut MonitorOptions)) -> MonitorOptions {
    let mut options = MonitorOptions::new(ClientMetadata::new("Linux"));
    change(&mut options);
    options
}

/// A reply of a server that cannot stream.
pub(crate) fn hello() -> RawDocumentBuf {
    rawdoc! { "ok": 1, "helloOk": true, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 21, "connectionId": 77 }
}

/// A reply of a server that can.
pub(crate) fn streaming_hello(counter: i64) -> RawDocumentBuf {
    streaming_hello_of(1, counter)
}

/// A reply of such a server, from one of its processes.
pub(crate) fn streaming_hello_of(process: u8, counter: i64) -> RawDocumentBuf {
    let mut reply = hello();
    let version = rawdoc! { "processId": ObjectId::from_bytes([process; 12]), "counter": counter };
    reply.append(bson::cstr!("topologyVersion"), version);
    reply
}

impl Bench {
    pub(crate) fn new(options: MonitorOptions) -> Self {
        let now = Instant::from_millis(1);
        let address = Arc::new(ServerAddress::tcp("db.example", 27017));
        let mut bench = Self {
            monitor: Monitor::new(now, address, options),
            now,
            peers: BTreeMap::new(),
            closed: BTreeSet::new(),
            events: Vec::new(),
            findings: Vec::new(),
        };
        bench.drain();
        bench
    }

    /// The socket for `role` that is open or about to be.
    pub(crate) fn socket(&self, role: Role) -> Option<Socket> {
        self.peers.keys().find(|socket| socket.role == role).copied()
    }

    /// The names of the events since the last time, and when they happened.
    pub(crate) fn events(&mut self) -> Vec<&'static str> {
        self.events.drain(..).map(|(_, event)| event.name()).collect()
    }

    pub(crate) fn call(&mut self, call: impl FnOnce(&mut Monitor, Instant)) {
        call(&mut self.monitor, self.now);
        self.drain();
    }

    /// Opens the socket for `role`.
    pub(crate) fn connect(&mut self, role: Role) {
        let socket = self.socket(role).unwrap();
        self.peers.get_mut(&socket).unwrap().connected = true;
        self.call(|monitor, now| monitor.handle_connected(now, socket));
    }

    /// Answers the hello that waits on the socket for `role`.
    pub(crate) fn reply(&mut self, role: Role, reply: &RawDocument, more_to_come: bool) {
        let bytes = self.encode(role, reply, more_to_come);
        let socket = self.socket(role).unwrap();
        self.call(|monitor, now| monitor.handle_bytes(now, socket, &bytes));
    }

    /// The bytes of that answer.
    pub(crate) fn encode(&mut self, role: Role, reply: &RawDocument, more_to_come: bool) -> Vec<u8> {
        let socket = self.socket(role).unwrap();
        let peer = self.peers.get_mut(&socket).unwrap();
        let (hello, request) = peer.asked.take().expect("a hello waits");
        peer.replies += 1;
        let (id, flags) = (1000 + peer.replies, if more_to_come { Flags::MORE_TO_COME } else { Flags::NONE });
        if more_to_come {
            peer.asked = Some((hello, id));
        }
        let mut bytes = Vec::new();
        let ids = MessageIds::reply(id, request);
        MessageWriter::begin(&mut bytes, ids, flags, reply, &[], &Limits::DEFAULT).unwrap().finish();
        bytes
    }

    /// The socket for `role` breaks.
    pub(crate) fn fail(&mut self, role: Role, fault: Fault) {
        let socket = self.socket(role).unwrap();
        self.call(|monitor, now| monitor.handle_failed(now, socket, fault, Cause::new("broken")));
    }

    /// Opens the socket for `role` and answers its first hello.
    pub(crate) fn greet(&mut self, role: Role, reply: &RawDocument) {
        self.connect(role);
        self.reply(role, reply, false);
    }

    /// The hello that waits on the socket for `role`.
    pub(crate) fn asked(&self, role: Role) -> Option<&RawDocumentBuf> {
        self.peers.get(&self.socket(role)?)?.asked.as_ref().map(|(hello, _)| hello)
    }

    /// Lets time pass; everything due on the way happens when it is due.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while let Some(timeout) = self.monitor.poll_timeout().filter(|timeout| timeout.at <= end) {
            self.now = self.now.max(timeout.at);
            self.call(Monitor::handle_timeout);
            let next = self.monitor.poll_timeout();
            assert!(next.is_none_or(|next| next.at > self.now), "{next:?} does not lie after {:?}", self.now);
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(output) = self.monitor.poll_output() {
            match output {
                Output::Event(event) => self.events.push((self.now, event)),
                Output::Found(finding) => self.findings.push(finding),
                Output::Action(Action::Connect(socket)) => {
                    assert_eq!(self.socket(socket.role), None, "two sockets for one role");
                    assert!(self.peers.insert(socket, Peer::default()).is_none() && !self.closed.contains(&socket));
                }
                Output::Action(Action::Send(socket)) => self.receive(socket),
                Output::Action(Action::Close(socket)) => {
                    assert!(self.peers.remove(&socket).is_some(), "{socket:?} is not open");
                    self.closed.insert(socket);
                }
            }
        }
    }

    /// Reads the monitor's requests.
    fn receive(&mut self, socket: Socket) {
        let mut bytes = Vec::new();
        self.monitor.write_to(socket, &mut bytes);
        let (mut frames, mut decoder, mut input) = (FrameReader::new(), Decoder::new(), bytes.as_slice());
        let frame = frames.read(&mut input, &Limits::DEFAULT).unwrap().expect("a whole message");
        let Content::Message(message) = decoder.decode(frame, &Limits::DEFAULT).unwrap().content else {
            panic!("everything is OP_MSG (HS-2)")
        };
        let peer = self.peers.get_mut(&socket).expect("the socket is open");
        assert!(peer.connected && peer.asked.is_none(), "one hello at a time");
        peer.asked = Some((message.body.to_owned(), message.header.ids.request_id));
    }
}

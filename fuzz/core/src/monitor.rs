//! A script of what happens to a server's monitor, and of what the server answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocumentBuf, cstr, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{ClientMetadata, Fault};
use cmap_core::monitor::{Action, HeartbeatEvent, Monitor, MonitorOptions, Output, Role, Socket};
use cmap_core::pool::Cause;
use cmap_core::time::Instant;
use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};

/// A monitor, and the other side of its sockets.
struct Driver {
    monitor: Monitor,
    now: Instant,
    /// The open sockets, and how many requests each has sent.
    open: BTreeMap<Socket, u32>,
    closed: BTreeSet<Socket>,
    /// Whether a check is under way.
    checks: bool,
}

/// Most steps of a script.
const STEPS: usize = 400;

/// Runs one script. The first byte chooses the options, each three that follow are a step and its arguments.
///
/// # Panics
/// If a property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let Some((&choice, script)) = data.split_first() else { return };
    let mut options = MonitorOptions::new(ClientMetadata::new("Linux"));
    options.streams = choice.is_multiple_of(2);
    options.heartbeat_frequency = Duration::from_millis(u64::from(choice) * 100);
    options.connect_timeout = Duration::from_millis(u64::from(choice / 16) * 500);
    let now = Instant::from_millis(1);
    let address = Arc::new(ServerAddress::tcp("db.example", 27017));
    let mut driver = Driver {
        monitor: Monitor::new(now, address, options),
        now,
        open: BTreeMap::new(),
        closed: BTreeSet::new(),
        checks: false,
    };
    driver.drain();
    let (steps, rest) = script.as_chunks::<3>();
    for &[what, argument, more] in steps.iter().take(STEPS) {
        driver.step(what, argument, more, rest);
    }
    driver.finish();
}

impl Driver {
    fn step(&mut self, what: u8, argument: u8, more: u8, rest: &[u8]) {
        let role = if argument.is_multiple_of(2) { Role::Check } else { Role::RoundTrip };
        let socket = self.open.keys().find(|socket| socket.role == role).copied();
        match (what % 12, socket) {
            (0..=1, _) => self.pass(Duration::from_millis(u64::from(argument) << (more % 12))),
            (2..=3, Some(socket)) => self.call(|monitor, now| monitor.handle_connected(now, socket)),
            (4..=6, Some(socket)) => self.reply(socket, argument, more),
            (7, Some(socket)) => {
                let bytes = if rest.is_empty() { &[0xff; 40] } else { rest };
                self.call(|monitor, now| monitor.handle_bytes(now, socket, bytes));
            }
            (8, Some(socket)) => {
                let fault = if more.is_multiple_of(2) { Fault::Network } else { Fault::Timeout };
                self.call(|monitor, now| monitor.handle_failed(now, socket, fault, Cause::new("broken")));
            }
            (9, _) => self.call(|monitor, now| monitor.request_check(now)),
            (10, _) => self.call(|monitor, now| monitor.cancel_check(now)),
            (11, _) => self.call(|monitor, now| match more % 4 {
                0 => monitor.mark_unknown(),
                1 => monitor.reset_after_fork(now),
                _ => monitor.handle_timeout(now),
            }),
            _ => {}
        }
    }

    /// A reply to the last request of a socket, right or not.
    fn reply(&mut self, socket: Socket, argument: u8, more: u8) {
        let Some(&requests) = self.open.get(&socket) else { return };
        let mut reply = match argument / 2 % 8 {
            0 => rawdoc! { "ok": 0, "code": 11600, "errmsg": "shutting down" },
            1 => rawdoc! { "ok": 1, "isreplicaset": true },
            2 => {
                rawdoc! { "ok": 1, "setName": "rs", "secondary": true, "hosts": ["db.example:27017", "other:27017"], "me": "DB.example:27017" }
            }
            3 => rawdoc! { "ok": 1, "msg": "isdbgrid" },
            _ => rawdoc! { "ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["db.example:27017"] },
        };
        reply.append(cstr!("minWireVersion"), 0);
        reply.append(cstr!("maxWireVersion"), i32::from(more % 32));
        reply.append(cstr!("helloOk"), more.is_multiple_of(2));
        if argument >= 64 {
            let process = ObjectId::from_bytes([more / 64; 12]);
            let version: RawDocumentBuf = rawdoc! { "processId": process, "counter": i64::from(more % 16) };
            reply.append(cstr!("topologyVersion"), version);
        }
        let flags = if argument >= 192 { Flags::MORE_TO_COME } else { Flags::NONE };
        let ids = MessageIds::reply(1000, i32::try_from(requests).unwrap_or_default());
        let mut bytes = Vec::new();
        if let Ok(message) = MessageWriter::begin(&mut bytes, ids, flags, &reply, &[], &Limits::DEFAULT) {
            message.finish();
        }
        self.call(|monitor, now| monitor.handle_bytes(now, socket, &bytes));
    }

    fn call(&mut self, call: impl FnOnce(&mut Monitor, Instant)) {
        call(&mut self.monitor, self.now);
        self.drain();
    }

    /// Lets time pass; everything due on the way happens when it is due.
    fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        let mut calls = 0;
        while let Some(timeout) = self.monitor.poll_timeout().filter(|timeout| timeout.at <= end) {
            self.now = self.now.max(timeout.at);
            self.call(Monitor::handle_timeout);
            assert!(self.monitor.poll_timeout().is_none_or(|next| next.at > self.now), "a timer spins");
            calls += 1;
            // Nothing answers meanwhile, so that a time limit and the time until the next check are all that can be due.
            assert!(calls < 4_000_000 / 250, "the monitor is never at rest");
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(output) = self.monitor.poll_output() {
            match output {
                Output::Action(Action::Connect(socket)) => {
                    assert!(self.open.keys().all(|open| open.role != socket.role), "two sockets for one role");
                    assert!(!self.closed.contains(&socket), "a number is used twice");
                    self.open.insert(socket, 0);
                }
                Output::Action(Action::Send(socket)) => self.send(socket),
                Output::Action(Action::Close(socket)) => {
                    assert!(self.open.remove(&socket).is_some(), "a socket is closed twice");
                    self.closed.insert(socket);
                }
                Output::Event(event) => self.observe(&event),
                Output::Found(_) => {}
            }
        }
    }

    fn send(&mut self, socket: Socket) {
        let mut bytes = Vec::new();
        self.monitor.write_to(socket, &mut bytes);
        assert!(!bytes.is_empty(), "there is nothing to send");
        let id = bytes.get(4..8).and_then(|id| id.first_chunk()).map_or(0, |id| u32::from_le_bytes(*id));
        let last = self.open.get_mut(&socket);
        assert!(last.is_some(), "something is sent on a socket that is not open");
        last.into_iter().for_each(|last| *last = id);
    }

    /// Every start has one end before the next start (MON-13).
    fn observe(&mut self, event: &HeartbeatEvent) {
        if matches!(event, HeartbeatEvent::Started { .. }) {
            assert!(!self.checks, "two checks at once");
            self.checks = true;
        }
        if matches!(event, HeartbeatEvent::Succeeded { .. } | HeartbeatEvent::Failed { .. }) {
            assert!(self.checks, "a check ends that did not start");
            self.checks = false;
        }
    }

    /// In the end nothing is left.
    fn finish(&mut self) {
        self.call(|monitor, now| monitor.close(now));
        assert!(self.open.is_empty(), "a socket was lost");
        assert!(!self.checks, "a check has no end");
        assert_eq!(self.monitor.poll_timeout(), None, "a closed monitor waits for nothing");
    }
}

//! A server and its monitor side by side, and the driver between them.

use std::sync::Arc;
use std::time::Duration;

use bson::RawDocumentBuf;
use cmap_core::connection::{ClientMetadata, Fault};
use cmap_core::monitor::{self, Monitor, MonitorOptions, Role, Socket};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Cause, CheckOutId, CheckOutRequest, Handle};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, MonitorCall, Output, SelectionId};
use cmap_core::wire::{Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter};

use crate::one_server::OneServer;

/// A server under test with its monitor; their outputs, by name and in order.
pub(crate) struct Bench {
    pub(crate) server: OneServer<()>,
    /// None behind a load balancer (LB-3).
    pub(crate) monitor: Option<Monitor>,
    pub(crate) now: Instant,
    pub(crate) log: Vec<String>,
    pub(crate) check: Option<Socket>,
    request: Option<i32>,
    pub(crate) pending: Vec<Handle>,
    delivered: Vec<(CheckOutId, Handle)>,
    pub(crate) selected: Vec<(SelectionId, CheckOutId)>,
    pub(crate) failed: Vec<(SelectionId, String)>,
}

impl Bench {
    /// A server that is open, and whose first check has begun.
    pub(crate) fn new(options: PoolOptions) -> Self {
        let now = Instant::from_millis(1);
        let load_balanced = options.load_balanced;
        let server = OneServer::new(now, options, |_| {});
        let address = Arc::clone(&server.description().address);
        let options = MonitorOptions::new(ClientMetadata::new("Linux"));
        let mut bench = Self {
            server,
            monitor: (!load_balanced).then(|| Monitor::new(now, address, options)),
            now,
            log: Vec::new(),
            check: None,
            request: None,
            pending: Vec::new(),
            delivered: Vec::new(),
            selected: Vec::new(),
            failed: Vec::new(),
        };
        bench.drain();
        bench
    }

    // Calls, and their consequences.

    pub(crate) fn call<R>(&mut self, call: impl FnOnce(&mut OneServer<()>, Instant) -> R) -> R {
        let result = call(&mut self.server, self.now);
        self.drain();
        result
    }

    fn call_monitor(&mut self, call: impl FnOnce(&mut Monitor, Instant)) {
        call(self.monitor.as_mut().unwrap(), self.now);
        self.drain();
    }

    pub(crate) fn check_out(&mut self, request: CheckOutRequest) -> CheckOut {
        let (check_out, delivery) = self.call(|server, now| server.check_out(now, Criteria::WRITABLE, request));
        self.delivered.extend(delivery.map(|delivery| (delivery.check_out, delivery.connection)));
        check_out
    }

    pub(crate) fn selecting(&mut self, request: CheckOutRequest) -> SelectionId {
        let CheckOut::Selecting(selection) = self.check_out(request) else { panic!("the server is usable") };
        selection
    }

    /// A connection that is in use.
    pub(crate) fn in_use(&mut self) -> Handle {
        self.check_out(CheckOutRequest::default());
        let connection = self.pending.pop().unwrap();
        self.call(|server, now| server.handle_established(now, connection, ()).unwrap());
        self.delivered.last().unwrap().1
    }

    /// The server answers the check that is under way.
    pub(crate) fn answer(&mut self, reply: &RawDocumentBuf) {
        let (socket, request) = (self.check.unwrap(), self.request.take().expect("a hello waits"));
        let mut bytes = Vec::new();
        let ids = MessageIds::reply(7, request);
        MessageWriter::begin(&mut bytes, ids, Flags::NONE, reply, &[], &Limits::DEFAULT).unwrap().finish();
        self.call_monitor(|monitor, now| monitor.handle_bytes(now, socket, &bytes));
    }

    pub(crate) fn fail_check(&mut self, fault: Fault) {
        let socket = self.check.unwrap();
        self.call_monitor(|monitor, now| monitor.handle_failed(now, socket, fault, Cause::new("nobody there")));
    }

    /// Ends the monitor, then the server (MON-14).
    pub(crate) fn close(&mut self) {
        if let Some(monitor) = &mut self.monitor {
            monitor.close(self.now);
        }
        while let Some(output) = self.monitor.as_mut().and_then(Monitor::poll_output) {
            self.pass_on(output);
        }
        self.call(|server, now| server.close(now));
    }

    pub(crate) fn reset_after_fork(&mut self) {
        self.server.reset_after_fork(self.now);
        if let Some(monitor) = &mut self.monitor {
            monitor.reset_after_fork(self.now);
        }
        self.drain();
    }

    // Time.

    /// Lets time pass; everything due on the way happens when it is due.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while let Some(at) = self.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.server.handle_timeout(self.now);
            if let Some(monitor) = &mut self.monitor {
                monitor.handle_timeout(self.now);
            }
            self.drain();
            assert!(self.poll_timeout().is_none_or(|next| next > self.now));
        }
        self.now = end;
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let server = self.server.poll_timeout().map(|timeout| timeout.at);
        let monitor = self.monitor.as_ref().and_then(Monitor::poll_timeout).map(|timeout| timeout.at);
        server.into_iter().chain(monitor).min()
    }

    // Outputs.

    /// Drains the server, then takes one output of the monitor: the consequences of a check come before the next check.
    fn drain(&mut self) {
        loop {
            while let Some(output) = self.server.poll_output() {
                self.take(output);
            }
            let Some(output) = self.monitor.as_mut().and_then(Monitor::poll_output) else { break };
            self.pass_on(output);
        }
    }

    fn take(&mut self, output: Output<()>) {
        match output {
            Output::Topology(event) => self.log.push(event.name().into()),
            Output::Selection(event) => self.log.push(event.name().into()),
            Output::Server { event, .. } => self.log.push(event.name().into()),
            Output::Pool { output: pool::Output::Event(event), .. } => self.log.push(event.name().into()),
            Output::Pool { output: pool::Output::Action(action), .. } => match action {
                pool::Action::Connect { connection } => self.pending.push(connection),
                pool::Action::Deliver { check_out, connection, .. } => self.delivered.push((check_out, connection)),
                pool::Action::Interrupt { .. } => self.log.push("Interrupt".into()),
                pool::Action::Check { .. }
                | pool::Action::Refresh { .. }
                | pool::Action::Fail { .. }
                | pool::Action::Close { .. }
                | pool::Action::WarmedUp { .. } => {}
            },
            Output::Selected { selection, check_out } => {
                self.log.push("Selected".into());
                self.selected.push((selection, check_out));
            }
            Output::SelectionFailed { selection, error } => self.failed.push((selection, error.to_string())),
            Output::Monitor { call: MonitorCall::Call(call), .. } => {
                if let Some(monitor) = &mut self.monitor {
                    monitor.handle_call(self.now, call);
                }
            }
            Output::Reselecting { .. }
            | Output::Monitor { .. }
            | Output::WarmedUp { .. }
            | Output::ResolveSrv { .. } => {}
        }
    }

    /// The monitor's findings and events go to the server.
    fn pass_on(&mut self, output: monitor::Output) {
        match output {
            monitor::Output::Action(action) => self.act(action),
            monitor::Output::Event(event) => self.server.handle_heartbeat(self.now, event),
            monitor::Output::Found(finding) => self.server.handle_check(self.now, finding).unwrap(),
        }
    }

    fn act(&mut self, action: monitor::Action) {
        match action {
            monitor::Action::Connect(socket) if socket.role == Role::Check => {
                self.check = Some(socket);
                self.monitor.as_mut().unwrap().handle_connected(self.now, socket);
            }
            monitor::Action::Send(socket) if socket.role == Role::Check => {
                let mut bytes = Vec::new();
                self.monitor.as_mut().unwrap().write_to(socket, &mut bytes);
                let (mut frames, mut input) = (FrameReader::new(), bytes.as_slice());
                let frame = frames.read(&mut input, &Limits::DEFAULT).unwrap().unwrap();
                let mut decoder = Decoder::new();
                let Content::Message(message) = decoder.decode(frame, &Limits::DEFAULT).unwrap().content else {
                    panic!("everything is OP_MSG (HS-2)")
                };
                self.request = Some(message.header.ids.request_id);
            }
            monitor::Action::Close(socket) if Some(socket) == self.check => self.check = None,
            monitor::Action::Connect(_) | monitor::Action::Send(_) | monitor::Action::Close(_) => {}
        }
    }
}

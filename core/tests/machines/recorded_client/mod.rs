//! A client of three routers whose calls are recorded, and everything that its driver holds: what tests of recorders drive.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::wildcard_enum_match_arm, reason = "most outputs are for others")]

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::Finding;
use cmap_core::options::{Maintenance, PoolOptions, PoolSizes};
use cmap_core::pool::{Action, Cause, CheckOutId, CheckOutRequest, Condition, Delivery, Handle, Output as PoolOutput};
use cmap_core::server::{OperationError, ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Answer, CheckOut, Criteria, Input, Output, ServerSelector, Topology, TopologyOptions};
use cmap_core::trace::{Header, Recorded, RecorderOptions};

/// A client of three routers, recorded, and everything that its driver holds.
pub(crate) struct Driver {
    pub(crate) topology: Recorded<()>,
    pub(crate) now: Instant,
    /// The least time between two steps.
    pub(crate) pace: Duration,
    pub(crate) pending: Vec<Handle>,
    pub(crate) in_use: Vec<(CheckOutId, Handle)>,
    pub(crate) waiting: Vec<CheckOut>,
    /// Most that wait at a time.
    pub(crate) most_waiting: usize,
    /// Whether outputs stay queued now and then while the next call is made.
    pub(crate) leaves_outputs: bool,
}

impl Driver {
    /// One whose calls are all recorded, in so many bytes.
    pub(crate) fn recorded_in(bytes: usize) -> Self {
        let mut recorder = RecorderOptions::default();
        recorder.bytes = bytes;
        Self::recorded_by(recorder)
    }

    pub(crate) fn recorded_by(recorder: RecorderOptions) -> Self {
        let options = TopologyOptions::of_seeds((0..3).map(address).collect());
        let mut pool_options = PoolOptions::default();
        pool_options.max_pool_size = Some(3);
        pool_options.maintenance = Some(Maintenance::Every(Duration::from_millis(50)));
        let mut topology = Recorded::from(Topology::new(options, pool_options).unwrap());
        topology.start_recording(recorder);
        let now = Instant::from_millis(1);
        topology.call(now, Input::Open, None);
        let pace = Duration::ZERO;
        let mut driver = Self {
            topology,
            now,
            pace,
            pending: Vec::new(),
            in_use: Vec::new(),
            waiting: Vec::new(),
            most_waiting: 20,
            leaves_outputs: true,
        };
        driver.drain(usize::MAX);
        driver
    }

    fn call(&mut self, input: Input) -> Answer<()> {
        self.topology.call(self.now, input, Some(()))
    }

    fn id(&self, server: usize) -> ServerId {
        self.topology.servers().find(|(_, it)| *it.description().address == address(server)).unwrap().0
    }

    /// Does one of the things that happen in a client, as two numbers say.
    pub(crate) fn step(&mut self, what: u8, which: u16) {
        let nth = usize::from(which);
        self.now = self.now + self.pace + Duration::from_micros(u64::from(which));
        match what % 20 {
            0..=4 if self.waiting.len() < self.most_waiting => self.check_out(which),
            0..=4 => self.cancel(0),
            5..=8 => self.check_in(nth, Condition::Usable),
            9 => self.check_in(nth, Condition::Errored),
            10 | 11 => self.establish(nth),
            12 => self.fail_to_establish(nth),
            13 => self.find(nth % 3),
            14 => self.lose(nth % 3),
            15 => self.cancel(nth),
            16 => self.pass_time(which),
            17 => self.manage(which),
            18 => self.fail_operation(nth),
            // An older time, as callers have who read their clocks before they have the lock.
            _ => drop(self.topology.call(Instant::from_nanos(self.now.as_nanos() - 500), Input::Timeout, None)),
        }
        self.drain(if self.leaves_outputs && which.is_multiple_of(7) { 1 } else { usize::MAX });
    }

    fn check_out(&mut self, which: u16) {
        let mut request = CheckOutRequest::default();
        request.deadline = which.is_multiple_of(3).then(|| self.now + Duration::from_millis(u64::from(which % 40)));
        let (check_out, delivery) = if which.is_multiple_of(2) {
            self.topology.check_out(self.now, Criteria::WRITABLE, request)
        } else {
            let selector = ServerSelector::AnyOf([address(usize::from(which) % 3)].into());
            self.topology.check_out(self.now, &Criteria { selector, ..Criteria::default() }, request)
        };
        self.topology.note_holder(check_out, u32::from(which % 4));
        match delivery {
            Some(delivery) => self.in_use.push(held(&delivery)),
            None => self.waiting.push(check_out),
        }
    }

    fn check_in(&mut self, nth: usize, condition: Condition) {
        if let Some((check_out, connection)) = take(&mut self.in_use, nth) {
            let checked_in = self.topology.check_in(self.now, check_out, connection, (), condition).unwrap();
            self.in_use.extend(checked_in.delivery().as_ref().map(held));
        }
    }

    pub(crate) fn establish(&mut self, nth: usize) {
        if let Some(connection) = take(&mut self.pending, nth) {
            self.call(Input::Established(connection)).done().unwrap();
        }
    }

    fn fail_to_establish(&mut self, nth: usize) {
        if let Some(connection) = take(&mut self.pending, nth) {
            let error = EstablishError::new(Phase::Connect, Fault::Network, "refused".to_string());
            self.call(Input::EstablishFailed(connection, error)).done().unwrap();
        }
    }

    pub(crate) fn find(&mut self, server: usize) {
        let mut description = ServerDescription::new(address(server).into(), ServerType::Mongos);
        description.wire_versions = Some((0, 21));
        description.round_trip_time = Some(Duration::from_micros(300));
        let id = self.id(server);
        self.call(Input::Check(id, Finding::Description(Box::new(description)))).done().unwrap();
    }

    fn lose(&mut self, server: usize) {
        let id = self.id(server);
        let finding = Finding::Failure { fault: Fault::Network, cause: Cause::new("connection refused") };
        self.call(Input::Check(id, finding)).done().unwrap();
    }

    fn cancel(&mut self, nth: usize) {
        if let Some(check_out) = take(&mut self.waiting, nth) {
            self.call(Input::CancelCheckOut(check_out));
        }
    }

    fn pass_time(&mut self, which: u16) {
        self.now = self.now + Duration::from_millis(u64::from(which % 100));
        self.call(Input::Timeout);
    }

    fn manage(&mut self, which: u16) {
        match which % 6 {
            0 => {
                let mut sizes = PoolSizes::default();
                sizes.max_pool_size = Some(u32::from(which % 5));
                self.call(Input::Resize(sizes.into()));
            }
            1 => drop(self.call(Input::ReplaceConnections(Duration::from_millis(5)))),
            2 => drop(self.call(Input::Observe(which.is_multiple_of(4)))),
            3 => drop(self.call(Input::Resume)),
            4 => drop(self.call(Input::WarmUp(Box::default(), Some(1)))),
            _ => self.topology.note_taken(self.now, self.waiting.first().copied().unwrap_or(self.any_check_out())),
        }
    }

    fn any_check_out(&self) -> CheckOut {
        let mut other = self.topology.clone();
        other.check_out(self.now, Criteria::WRITABLE, CheckOutRequest::default()).0
    }

    fn fail_operation(&mut self, nth: usize) {
        if let Some(&(_, connection)) = self.in_use.get(nth % self.in_use.len().max(1)) {
            let error = OperationError::new(Fault::Network, Cause::new("connection reset"));
            self.call(Input::OperationFailed(connection, error)).done().unwrap();
        }
    }

    pub(crate) fn drain(&mut self, most: usize) {
        for _ in 0..most {
            let Some(output) = self.topology.poll_output() else { break };
            match output {
                Output::Pool { output: PoolOutput::Action(action), .. } => self.act(action),
                Output::Selected { selection, check_out } => {
                    let waiter = self.waiting.iter_mut().find(|it| **it == CheckOut::Selecting(selection));
                    waiter.into_iter().for_each(|waiter| *waiter = CheckOut::Started(check_out));
                }
                Output::Reselecting { check_out, selection } => {
                    let waiter = self.waiting.iter_mut().find(|it| **it == CheckOut::Started(check_out));
                    waiter.into_iter().for_each(|waiter| *waiter = CheckOut::Selecting(selection));
                }
                _ => {}
            }
        }
    }

    fn act(&mut self, action: Action<()>) {
        match action {
            Action::Connect { connection } => self.pending.push(connection),
            Action::Check { connection } => {
                self.call(Input::Checked(connection, connection.id().get() % 3 > 0)).done().unwrap();
            }
            Action::Deliver { check_out, connection, .. } => {
                self.waiting.retain(|waiter| *waiter != CheckOut::Started(check_out));
                self.in_use.push((check_out, connection));
            }
            Action::Fail { check_out, .. } => self.waiting.retain(|waiter| *waiter != CheckOut::Started(check_out)),
            Action::Close { connection, .. } => self.pending.retain(|pending| *pending != connection),
            Action::Interrupt { connection } => {
                if let Some(at) = self.pending.iter().position(|pending| *pending == connection) {
                    self.fail_to_establish(at);
                }
            }
            Action::Refresh { .. } | Action::WarmedUp { .. } => {}
        }
    }

    pub(crate) fn file(&self) -> Vec<u8> {
        let texts = (0..4).map(|number| (number, format!("task {number}")));
        self.topology.recording().unwrap().with_texts(texts).encode(&Header::default())
    }
}

pub(crate) fn address(server: usize) -> ServerAddress {
    ServerAddress::tcp(["a", "b", "c"][server], 27017)
}

/// What its holder needs to give it back.
pub(crate) fn held(delivery: &Delivery<()>) -> (CheckOutId, Handle) {
    (delivery.check_out, delivery.connection)
}

fn take<T>(from: &mut Vec<T>, nth: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.remove(nth % from.len()))
}

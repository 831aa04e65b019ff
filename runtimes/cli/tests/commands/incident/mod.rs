//! An incident in virtual time, always the same to the byte: two servers under load; one caller leaks a connection, one keeps a
//! connection for long, and one server breaks down and comes back.

use std::collections::BTreeMap;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, Cause, CheckOutId, CheckOutRequest, Condition, Handle, Output as PoolOutput};
use cmap_core::server::{OperationError, ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Answer, CheckOut, Criteria, Input, Output, ServerSelector, Topology, TopologyOptions};
use cmap_core::trace::{Header, Recorded, RecorderOptions};

/// Who leaks a connection. The label is one that a page must not take for its own.
pub(crate) const LEAK: &str = "</script><img src=x onerror=document.title='taken'> <!--";
const EXPORT: &str = "nightly export";
const LABELS: [&str; 4] = ["shop", "search", EXPORT, LEAK];

/// The file of the trace.
pub(crate) fn file() -> Vec<u8> {
    let mut incident = Incident::new();
    incident.plan();
    incident.happen(Instant::from_millis(400));
    let mut header = Header::default();
    header.producer = "an incident in virtual time".to_owned();
    header.trigger = "a check-out failed".to_owned();
    header.written_at = Instant::from_millis(400);
    header.unix_millis = Some(1_800_000_000_000);
    let texts = (0..).zip(LABELS).map(|(number, label)| (number, label.to_owned()));
    incident.topology.recording().unwrap().with_texts(texts).encode(&header)
}

/// What happens at a time.
#[derive(Clone, Copy)]
enum Due {
    /// The servers, by a bit each; the number of the label; how long the connection is used.
    CheckOut(usize, u32, u64),
    Establish(Handle),
    CheckIn(CheckOutId, Handle),
    Check(usize),
    Break,
    Mend,
    Take(CheckOut),
}

struct Incident {
    topology: Recorded<()>,
    now: Instant,
    due: BTreeMap<(Instant, u32), Due>,
    planned: u32,
    /// How long the connections of check-outs that wait are used, in microseconds.
    uses: BTreeMap<CheckOut, u64>,
    in_use: Vec<Handle>,
    is_broken: bool,
}

impl Incident {
    fn new() -> Self {
        let options = TopologyOptions::of_seeds(vec![address(0), address(1)]);
        let mut pool_options = PoolOptions::default();
        pool_options.max_pool_size = Some(4);
        pool_options.wait_queue_timeout = Some(Duration::from_millis(40));
        let mut topology = Recorded::from(Topology::new(options, pool_options).unwrap());
        topology.start_recording(RecorderOptions::default());
        let (now, due, uses) = (Instant::ORIGIN, BTreeMap::new(), BTreeMap::new());
        Self { topology, now, due, planned: 0, uses, in_use: Vec::new(), is_broken: false }
    }

    fn plan(&mut self) {
        self.call(Input::Open);
        for check in (3..400).step_by(20) {
            (0..2).for_each(|server| self.at(check * 1000 + 300 * server as u64, Due::Check(server)));
        }
        for number in 0..150_u64 {
            // Between 1 and 2.5 ms apart, and between 3 and 9 ms long; the search asks the first server alone.
            let at = 1500 + number * 2500 - number % 7 * 210;
            let (servers, label) = if number % 3 == 0 { (1, 1) } else { (3, 0) };
            self.at(at, Due::CheckOut(servers, label, 3000 + number * 37 % 11 * 600));
        }
        self.at(60_000, Due::CheckOut(1, 3, u64::MAX));
        for from in [110_000, 110_400, 111_000] {
            self.at(from, Due::CheckOut(1, 2, 45_000));
        }
        self.at(230_000, Due::Break);
        self.at(285_000, Due::Mend);
    }

    fn call(&mut self, input: Input) -> Answer<()> {
        self.topology.call(self.now, input, Some(()))
    }

    fn at(&mut self, micros: u64, due: Due) {
        self.planned += 1;
        self.due.insert((Instant::from_nanos(micros * 1000), self.planned), due);
    }

    fn after(&mut self, micros: u64, due: Due) {
        self.at(self.now.as_nanos() / 1000 + micros, due);
    }

    fn happen(&mut self, until: Instant) {
        loop {
            self.drain();
            let timeout = self.topology.poll_timeout().map(|timeout| timeout.at);
            let next = self.due.first_key_value().map(|(key, _)| *key);
            match (next, timeout) {
                (Some((at, _)), Some(timeout)) if timeout < at && timeout < until => {
                    self.now = self.now.max(timeout);
                    self.call(Input::Timeout);
                }
                (Some(key), _) if key.0 < until => {
                    self.now = key.0;
                    let due = self.due.remove(&key).unwrap();
                    self.act(due);
                }
                _ => return,
            }
        }
    }

    fn act(&mut self, due: Due) {
        match due {
            Due::CheckOut(servers, label, micros) => self.check_out(servers, label, micros),
            Due::Establish(connection) if self.is_broken && self.is_of(connection, 0) => {
                let error = EstablishError::new(Phase::Connect, Fault::Network, "connection refused".to_owned());
                self.call(Input::EstablishFailed(connection, error)).done().unwrap();
            }
            // One that was given up is refused.
            Due::Establish(connection) => drop(self.call(Input::Established(connection))),
            Due::CheckIn(check_out, connection) => self.check_in(check_out, connection),
            Due::Check(0) if self.is_broken => {
                self.find(0, Finding::Failure { fault: Fault::Network, cause: refused() });
            }
            Due::Check(server) => self.find(server, Finding::Description(Box::new(description(server)))),
            Due::Break => {
                self.is_broken = true;
                let broken = self.in_use.iter().copied().find(|connection| self.is_of(*connection, 0)).unwrap();
                let error = OperationError::new(Fault::Network, Cause::new("connection reset by peer"));
                self.call(Input::OperationFailed(broken, error)).done().unwrap();
            }
            Due::Mend => {
                self.is_broken = false;
                self.find(0, Finding::Description(Box::new(description(0))));
            }
            Due::Take(check_out) => self.topology.note_taken(self.now, check_out),
        }
    }

    fn check_out(&mut self, servers: usize, label: u32, micros: u64) {
        let allowed = (0..2).filter(|server| servers >> server & 1 == 1).map(address).collect();
        let criteria = Criteria { selector: ServerSelector::AnyOf(allowed), ..Criteria::default() };
        let (check_out, delivery) = self.topology.check_out(self.now, &criteria, CheckOutRequest::default());
        self.topology.note_holder(check_out, label);
        self.uses.insert(check_out, micros);
        if let Some(delivery) = delivery {
            self.deliver(delivery.check_out, delivery.connection);
        }
    }

    fn deliver(&mut self, check_out: CheckOutId, connection: Handle) {
        self.in_use.push(connection);
        match self.uses.remove(&CheckOut::Started(check_out)).unwrap() {
            u64::MAX => {}
            micros => self.after(micros, Due::CheckIn(check_out, connection)),
        }
    }

    fn check_in(&mut self, check_out: CheckOutId, connection: Handle) {
        self.in_use.retain(|it| *it != connection);
        let condition =
            if self.is_broken && self.is_of(connection, 0) { Condition::Errored } else { Condition::Usable };
        let checked_in = self.topology.check_in(self.now, check_out, connection, (), condition).unwrap();
        if let Some(delivery) = checked_in.delivery() {
            self.deliver(delivery.check_out, delivery.connection);
            // Now and then the executor comes late.
            if delivery.connection.id().get() == 2 {
                self.after(1700, Due::Take(CheckOut::Started(delivery.check_out)));
            }
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.topology.poll_output() {
            match output {
                Output::Pool { output: PoolOutput::Action(Action::Connect { connection }), .. } => {
                    let took = if self.is_broken && self.is_of(connection, 0) { 900 } else { 11_000 };
                    self.after(took, Due::Establish(connection));
                }
                Output::Pool { output: PoolOutput::Action(Action::Deliver { check_out, connection, .. }), .. } => {
                    self.deliver(check_out, connection);
                }
                Output::Selected { selection, check_out } => {
                    let micros = self.uses.remove(&CheckOut::Selecting(selection)).unwrap();
                    self.uses.insert(CheckOut::Started(check_out), micros);
                }
                Output::Reselecting { check_out, selection } => {
                    let micros = self.uses.remove(&CheckOut::Started(check_out)).unwrap();
                    self.uses.insert(CheckOut::Selecting(selection), micros);
                }
                _ => {}
            }
        }
    }

    fn find(&mut self, server: usize, finding: Finding) {
        let id = self.id(server);
        self.call(Input::Check(id, finding)).done().unwrap();
    }

    fn id(&self, server: usize) -> ServerId {
        self.topology.servers().find(|(_, it)| *it.description().address == address(server)).unwrap().0
    }

    fn is_of(&self, connection: Handle, server: usize) -> bool {
        self.topology.server_of(connection) == Some(self.id(server))
    }
}

fn address(server: usize) -> ServerAddress {
    ServerAddress::tcp(["db-a.example", "db-b.example"][server], 27017)
}

fn refused() -> Cause {
    Cause::new("connection refused")
}

fn description(server: usize) -> ServerDescription {
    let mut description = ServerDescription::new(address(server).into(), ServerType::Mongos);
    description.wire_versions = Some((0, 21));
    description.round_trip_time = Some(Duration::from_micros(300));
    description
}

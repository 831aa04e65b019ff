//! A driver of a whole deployment over `std::net`: it pings whichever server takes writes, and prints the events.
//!
//! One thread owns the topology and follows the driving rule. What blocks (`deployment/sockets.rs`) is done by others, which send that
//! thread their calls of the topology: one for each monitor, one for each connection that is being established, and the callers.
//!
//! ```sh
//! cargo run --release -p cmap-cli -- serve --port 27017 --replica-set rs0
//! cargo run -p cmap-core --example deployment -- 'mongodb://localhost:27017/?replicaSet=rs0' 10
//! ```

#[path = "deployment/sockets.rs"]
mod sockets;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant as Clock};

use cmap_core::connection::ClientMetadata;
use cmap_core::monitor::{self, Monitor, MonitorOptions};
use cmap_core::options::ClientOptions;
use cmap_core::pool::{self, Action, CheckOutRequest, Condition, Delivery, Handle, Stats};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, MonitorCall, Output, Topology, TopologyOptions};

use self::sockets::{Wire, tell};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;
/// What a thread has the loop do.
type Call = Box<dyn FnOnce(&mut Driver) -> Result<()> + Send>;
type Answer = Result<Delivery<Wire>, Arc<dyn Error + Send + Sync>>;

struct Driver {
    topology: Topology<Wire>,
    waiting: BTreeMap<CheckOut, Sender<Answer>>,
    /// By which the sockets are interrupted that callers have.
    in_use: BTreeMap<Handle, TcpStream>,
    /// What the topology wants of the monitors. A monitor ends when its sender is dropped.
    monitors: BTreeMap<ServerId, Sender<monitor::Call>>,
    options: Arc<ClientOptions>,
    calls: Sender<Call>,
    start: Clock,
}

fn main() -> Result<()> {
    let uri = std::env::args().nth(1).ok_or("usage: deployment MONGODB-URI [PINGS]")?;
    let stats = run(&uri, std::env::args().nth(2).map_or(Ok(1), |pings| pings.parse())?)?;
    println!("{} uses of {} connections", stats.checked_out, stats.created);
    Ok(())
}

/// Pings so often with success. Returns the counts of all pools.
pub(crate) fn run(uri: &str, pings: usize) -> Result<Stats> {
    let options = Arc::new(ClientOptions::parse(uri)?.0);
    if options.tls.is_enabled() || options.hosts.is_empty() {
        return Err("this example speaks no TLS, and looks for no servers in DNS".into());
    }
    let topology = Topology::new(TopologyOptions::of_client(&options), options.pool.clone())?;
    let (waiting, in_use, monitors) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let ((calls, receiver), start) = (channel(), sockets::clock());
    let driver = Driver { topology, waiting, in_use, monitors, options, calls: calls.clone(), start };
    let driver = thread::spawn(move || driver.run(&receiver));
    for _ in 0..pings {
        while !ping(&calls)? {}
    }
    tell(&calls, |driver| {
        // The monitors first: TopologyClosed is the last event (MON-14).
        driver.monitors.clear();
        driver.topology.close(driver.now());
        Ok(())
    })?;
    driver.join().map_err(|_| "the loop panicked")?
}

/// A caller: checks a connection out, pings, and checks it in. Returns whether the ping succeeded.
fn ping(calls: &Sender<Call>) -> Result<bool> {
    let (caller, answer) = channel();
    tell(calls, |driver| {
        let (check_out, delivery) =
            driver.topology.check_out(driver.now(), Criteria::WRITABLE, CheckOutRequest::default());
        driver.waiting.insert(check_out, caller);
        delivery.map_or(Ok(()), |delivery| driver.deliver(delivery))
    })?;
    let Delivery { check_out, connection, socket: mut wire } = answer.recv()??;
    let pinged = wire.ping();
    let succeeded = matches!(pinged, Ok(None));
    tell(calls, move |driver| {
        // One without a whole reply is in the middle of a message, and of no more use.
        let condition = if pinged.is_ok() { Condition::Usable } else { Condition::Errored };
        // The error first: what it says of the server clears the pool before the connection is back (CMAP-49).
        if let Ok(Some(error)) | Err(error) = pinged {
            driver.topology.handle_operation_failed(driver.now(), connection, error)?;
        }
        driver.in_use.remove(&connection);
        let next = driver.topology.check_in(driver.now(), check_out, connection, wire, condition)?.delivery();
        next.map_or(Ok(()), |delivery| driver.deliver(delivery))
    })?;
    Ok(succeeded)
}

impl Driver {
    /// The driving rule: sleep until the next call or timeout, call, drain.
    fn run(mut self, calls: &Receiver<Call>) -> Result<Stats> {
        self.topology.open(self.now());
        while !self.topology.is_closed() || self.topology.connections() > 0 {
            let next = self.topology.poll_timeout().map(|timeout| timeout.at.saturating_since(self.now()));
            calls.recv_timeout(next.unwrap_or(Duration::MAX)).map_or(Ok(()), |call| call(&mut self))?;
            // Early is harmless, and so many calls delay nothing.
            self.topology.handle_timeout(self.now());
            while let Some(output) = self.topology.poll_output() {
                self.act(output)?;
            }
        }
        Ok(self.topology.stats())
    }

    fn now(&self) -> Instant {
        Instant::ORIGIN + self.start.elapsed()
    }

    fn act(&mut self, output: Output<Wire>) -> Result<()> {
        match output {
            Output::Topology(event) => println!("{}", event.name()),
            Output::Server { server, event } => println!("{server}: {}", event.name()),
            Output::Pool { server, output: pool::Output::Event(event) } => println!("{server}: {}", event.name()),
            Output::Pool { server, output: pool::Output::Action(action) } => return self.act_for_pool(server, action),
            Output::Monitor { server, call } => self.act_for_monitor(server, call),
            // A check-out that waited for a server waits in that server's pool from now on.
            Output::Selected { selection, check_out } => {
                let caller = self.waiting.remove(&CheckOut::Selecting(selection));
                self.waiting.extend(caller.map(|caller| (CheckOut::Started(check_out), caller)));
            }
            Output::Reselecting { check_out, selection } => {
                let caller = self.waiting.remove(&CheckOut::Started(check_out));
                self.waiting.extend(caller.map(|caller| (CheckOut::Selecting(selection), caller)));
            }
            Output::SelectionFailed { selection, error } => self.answer(CheckOut::Selecting(selection), Err(error)),
            // Nobody asks for these.
            Output::ResolveSrv { .. } | Output::WarmedUp { .. } | Output::Selection(_) => {}
        }
        Ok(())
    }

    fn act_for_pool(&mut self, server: ServerId, action: Action<Wire>) -> Result<()> {
        match action {
            Action::Connect { connection } => {
                let server = self.topology.server(server).ok_or("a connection without a server")?;
                let address = Arc::clone(&server.description().address);
                let (options, calls) = (Arc::clone(&self.options), self.calls.clone());
                thread::spawn(move || sockets::establish(connection, &address, &options, &calls));
            }
            Action::Check { connection } => {
                let alive = self.topology.socket(connection).is_some_and(|wire| wire.is_silent());
                self.topology.handle_checked(self.now(), connection, alive)?;
            }
            Action::Deliver { check_out, connection, socket } => {
                self.deliver(Delivery { check_out, connection, socket })?;
            }
            Action::Fail { check_out, error } => self.answer(CheckOut::Started(check_out), Err(error)),
            Action::Close { socket, .. } => drop(socket),
            // The caller's read ends.
            Action::Interrupt { connection } => _ = self.in_use.get(&connection).map(|it| it.shutdown(Shutdown::Both)),
            // No connection string asks for these.
            Action::Refresh { .. } | Action::WarmedUp { .. } => {}
        }
        Ok(())
    }

    fn act_for_monitor(&mut self, server: ServerId, call: MonitorCall) {
        match call {
            MonitorCall::Begin { address, is_checked: true } => {
                let mut options = MonitorOptions::of_client(&self.options, ClientMetadata::new(std::env::consts::OS));
                // A server that streams is measured on a second socket meanwhile, which would need another thread.
                options.streams = false;
                let monitor = Monitor::new(self.now(), Arc::clone(&address), options);
                let ((sender, wanted), calls, start) = (channel(), self.calls.clone(), self.start);
                self.monitors.insert(server, sender);
                thread::spawn(move || sockets::check(server, monitor, &address, &wanted, &calls, start));
            }
            MonitorCall::Call(call) => _ = self.monitors.get(&server).map(|monitor| monitor.send(call)),
            MonitorCall::End => _ = self.monitors.remove(&server),
            MonitorCall::Begin { .. } | MonitorCall::Forget => {}
        }
    }

    fn deliver(&mut self, delivery: Delivery<Wire>) -> Result<()> {
        self.in_use.insert(delivery.connection, delivery.socket.socket.try_clone()?);
        self.answer(CheckOut::Started(delivery.check_out), Ok(delivery));
        Ok(())
    }

    /// Tells a caller. Those of this example stay; one that gives up has to cancel its check-out.
    fn answer(&mut self, check_out: CheckOut, answer: Answer) {
        self.waiting.remove(&check_out).map(|caller| caller.send(answer));
    }
}

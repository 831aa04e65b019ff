//! A topology with its monitors beside it, as a suite drives them in virtual time.
//!
//! The requests that they make of each other are carried out on the way; all other outputs come out in one order.

use std::collections::BTreeMap;

use cmap_core::monitor::{self, Monitor, MonitorOptions};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::{self, MonitorCall, Topology};

/// A topology and the monitors of its servers.
#[derive(Debug)]
pub(crate) struct Monitored<C> {
    pub(crate) topology: Topology<C>,
    pub(crate) monitors: BTreeMap<ServerId, Monitor>,
    options: MonitorOptions,
}

/// An output for the suite to carry out, or to note.
pub(crate) enum Output<C> {
    /// For the topology.
    Topology(topology::Output<C>),
    /// For one of the sockets of a server's monitor.
    Monitor(ServerId, monitor::Action),
}

impl<C> Monitored<C> {
    /// Opens the topology, and begins to check its servers.
    pub(crate) fn new(now: Instant, mut topology: Topology<C>, options: MonitorOptions) -> Self {
        topology.open(now);
        Self { topology, monitors: BTreeMap::new(), options }
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.topology.handle_timeout(now);
        self.monitors.values_mut().for_each(|monitor| monitor.handle_timeout(now));
    }

    /// The next output. The consequences of a check come before the next check.
    pub(crate) fn poll_output(&mut self, now: Instant) -> Option<Output<C>> {
        loop {
            match self.topology.poll_output() {
                Some(topology::Output::Monitor { server, call }) => self.call(now, server, call),
                Some(output) => return Some(Output::Topology(output)),
                None => {
                    let outputs =
                        self.monitors.iter_mut().find_map(|(id, monitor)| Some((*id, monitor.poll_output()?)));
                    let (server, output) = outputs?;
                    if let Some(action) = self.pass_on(now, server, output) {
                        return Some(Output::Monitor(server, action));
                    }
                }
            }
        }
    }

    /// When to come back.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let topology = self.topology.poll_timeout().map(|timeout| timeout.at);
        let monitors = self.monitors.values().filter_map(|monitor| monitor.poll_timeout().map(|timeout| timeout.at));
        topology.into_iter().chain(monitors).min()
    }

    fn call(&mut self, now: Instant, server: ServerId, call: MonitorCall) {
        match call {
            MonitorCall::Begin { address, is_checked: true } => {
                self.monitors.insert(server, Monitor::new(now, address, self.options.clone()));
            }
            MonitorCall::Call(call) => {
                if let Some(monitor) = self.monitors.get_mut(&server) {
                    monitor.handle_call(now, call);
                }
            }
            MonitorCall::End => {
                self.monitors.remove(&server);
            }
            MonitorCall::Begin { is_checked: false, .. } | MonitorCall::Forget => {}
        }
    }

    /// Passes a monitor's events and findings to the topology; the suite carries out its actions.
    fn pass_on(&mut self, now: Instant, server: ServerId, output: monitor::Output) -> Option<monitor::Action> {
        match output {
            monitor::Output::Action(action) => return Some(action),
            monitor::Output::Event(event) => self.topology.handle_heartbeat(now, server, event),
            monitor::Output::Found(finding) => {
                // Refused only behind a load balancer, where there is no monitor.
                let _ = self.topology.handle_check(now, server, finding);
            }
        }
        None
    }
}

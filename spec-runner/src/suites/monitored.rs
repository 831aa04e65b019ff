//! A server with its monitor beside it, as a suite drives the two in virtual time.
//!
//! The requests that the two make of each other are carried out on the way; all other outputs come out in one order.

use std::sync::Arc;

use cmap_core::monitor::{self, Monitor, MonitorOptions};
use cmap_core::pool::Pool;
use cmap_core::server::{self, Server, ServerOptions};
use cmap_core::time::Instant;

/// A server and, unless it is a load balancer (LB-3), its monitor.
#[derive(Debug)]
pub(crate) struct Monitored<C> {
    pub(crate) server: Server<C>,
    pub(crate) monitor: Option<Monitor>,
}

/// An output for the suite to carry out, or to note.
pub(crate) enum Output<C> {
    /// For the server.
    Server(server::Output<C>),
    /// For one of the monitor's sockets.
    Monitor(monitor::Action),
}

impl<C> Monitored<C> {
    /// Opens the server of `pool`, and begins to check it.
    pub(crate) fn new(now: Instant, pool: Pool<C>, options: ServerOptions, monitor: MonitorOptions) -> Self {
        let load_balanced = pool.options().load_balanced;
        let mut server = Server::new(pool, options);
        server.open(now);
        let address = Arc::clone(&server.description().address);
        let monitor = (!load_balanced).then(|| Monitor::new(now, address, monitor));
        Self { server, monitor }
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.server.handle_timeout(now);
        if let Some(monitor) = &mut self.monitor {
            monitor.handle_timeout(now);
        }
    }

    /// The next output. The consequences of a check come before the next check.
    pub(crate) fn poll_output(&mut self, now: Instant) -> Option<Output<C>> {
        loop {
            match self.server.poll_output() {
                Some(server::Output::Monitor(call)) => {
                    if let Some(monitor) = &mut self.monitor {
                        monitor.handle_call(now, call);
                    }
                }
                Some(output) => return Some(Output::Server(output)),
                None => {
                    let output = self.monitor.as_mut()?.poll_output()?;
                    if let Some(action) = self.pass_on(now, output) {
                        return Some(Output::Monitor(action));
                    }
                }
            }
        }
    }

    /// When to come back.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let server = self.server.poll_timeout().map(|timeout| timeout.at);
        let monitor = self.monitor.as_ref().and_then(Monitor::poll_timeout).map(|timeout| timeout.at);
        server.into_iter().chain(monitor).min()
    }

    /// Passes the monitor's events and findings to the server; the suite carries out its actions.
    fn pass_on(&mut self, now: Instant, output: monitor::Output) -> Option<monitor::Action> {
        match output {
            monitor::Output::Action(action) => return Some(action),
            monitor::Output::Event(event) => self.server.handle_heartbeat(now, event),
            monitor::Output::Found(finding) => {
                // Refused only behind a load balancer, where there is no monitor.
                let _ = self.server.handle_check(now, finding);
            }
        }
        None
    }
}

//! Everything one address needs: a server and its monitor, each told what the other finds.
//!
//! This is what an adapter drives. Callers and connections are the [`Server`]'s ([`Endpoint::server_mut`]), the monitor's
//! sockets the [`Monitor`]'s ([`Endpoint::monitor_mut`]); the outputs of both come out here, in one order, and what one
//! wants of the other is done on the way.
//!
//! ```
//! use cmap_core::address::ServerAddress;
//! use cmap_core::connection::ClientMetadata;
//! use cmap_core::monitor::{Action, MonitorOptions};
//! use cmap_core::options::PoolOptions;
//! use cmap_core::pool::{CheckOutRequest, Pool};
//! use cmap_core::server::{CheckOut, Endpoint, Output, ServerOptions};
//! use cmap_core::time::Instant;
//!
//! let now = Instant::ORIGIN;
//! let pool = Pool::<std::net::TcpStream>::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), now)?;
//! let monitor = MonitorOptions::new(ClientMetadata::new("Linux"));
//! let mut endpoint = Endpoint::new(now, pool, ServerOptions::default(), monitor);
//!
//! // The server is not known yet: this check-out waits until a check succeeds.
//! assert!(matches!(endpoint.server_mut().check_out(now, CheckOutRequest::default()), CheckOut::Selecting(_)));
//!
//! while let Some(output) = endpoint.poll_output() {
//!     match output {
//!         Output::Pool(output) => { /* as in the pool's own run loop */ }
//!         Output::Selected { .. } => { /* whoever waited by this selection waits by this check-out now */ }
//!         Output::SelectionFailed { .. } => { /* tell whoever waited */ }
//!         Output::Event(event) => println!("{}", event.name()),
//!         Output::Monitor(Action::Connect(socket)) => { /* open it; then monitor_mut().handle_connected(now, socket) */ }
//!         Output::Monitor(Action::Send(socket)) => { /* monitor_mut().write_to(socket, &mut buffer), and send that */ }
//!         Output::Monitor(Action::Close(socket)) => { /* close it */ }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::sync::Arc;

use super::{MonitorCall, Output, Server, ServerOptions, Timeout};
use crate::monitor::{self, Finding, Monitor, MonitorOptions};
use crate::pool::Pool;
use crate::time::Instant;

/// A server and its monitor. Behind a load balancer there is no monitor (LB-3), nor where its owner has another.
#[derive(Debug)]
pub struct Endpoint<C> {
    server: Server<C>,
    monitor: Option<Monitor>,
    now: Instant,
}

impl<C> Endpoint<C> {
    /// Opens the server of `pool`, and begins to check it.
    pub fn new(now: Instant, pool: Pool<C>, options: ServerOptions, monitor: MonitorOptions) -> Self {
        let load_balanced = pool.options().load_balanced;
        let mut server = Server::new(pool, options);
        server.open(now);
        let address = Arc::clone(&server.description().address);
        let monitor = (!load_balanced).then(|| Monitor::new(now, address, monitor));
        Self { server, monitor, now }
    }

    /// A pool without a monitor: its owner makes it ready, clears and closes it. See [`Server::unchecked`].
    pub fn unmonitored(now: Instant, pool: Pool<C>) -> Self {
        Self { server: Server::unchecked(pool), monitor: None, now }
    }

    /// The server.
    pub fn server(&self) -> &Server<C> {
        &self.server
    }

    /// The server, to call. Drain the endpoint afterwards.
    pub fn server_mut(&mut self) -> &mut Server<C> {
        &mut self.server
    }

    /// The monitor, where there is one.
    pub fn monitor(&self) -> Option<&Monitor> {
        self.monitor.as_ref()
    }

    /// The monitor, to report on its sockets. Drain the endpoint afterwards.
    pub fn monitor_mut(&mut self) -> Option<&mut Monitor> {
        self.monitor.as_mut()
    }

    /// Ends the monitor, then the server (MON-14).
    pub fn close(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if let Some(monitor) = &mut self.monitor {
            monitor.close(now);
        }
        self.server.close(now);
    }

    /// To be called in a process that was forked (FORK-2): forgets the parent's connections, the monitor's too, and checks the
    /// server anew. Close the sockets without a word to the server.
    pub fn reset_after_fork(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.server.reset_after_fork(now);
        if let Some(monitor) = &mut self.monitor {
            monitor.reset_after_fork(now);
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.server.handle_timeout(now);
        if let Some(monitor) = &mut self.monitor {
            monitor.handle_timeout(now);
        }
    }

    /// The next output; `None` when there is nothing more to do.
    #[must_use = "an action that is not carried out is lost"]
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output<C, monitor::Action>> {
        loop {
            // TopologyClosed is the last (MON-14); otherwise what a check has led to comes before the next one.
            if let Some(monitor) = &mut self.monitor
                && monitor.is_closed()
                && let Some(output) = monitor.poll_output()
            {
                if let Some(output) = self.pass_on(output) {
                    return Some(output);
                }
                continue;
            }
            let call = match self.server.poll_output() {
                Some(Output::Monitor(call)) => call,
                Some(Output::Pool(output)) => return Some(Output::Pool(output)),
                Some(Output::Event(event)) => return Some(Output::Event(event)),
                Some(Output::Selected { selection, check_out }) => {
                    return Some(Output::Selected { selection, check_out });
                }
                Some(Output::SelectionFailed { selection, error }) => {
                    return Some(Output::SelectionFailed { selection, error });
                }
                None => {
                    let output = self.monitor.as_mut()?.poll_output()?;
                    match self.pass_on(output) {
                        None => continue,
                        output => return output,
                    }
                }
            };
            self.call_monitor(call);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why; `None` if nothing depends on time.
    #[must_use = "without it nobody knows when to come back"]
    pub fn poll_timeout(&self) -> Option<Timeout> {
        Timeout::earlier(self.server.poll_timeout(), self.monitor.as_ref().and_then(Monitor::poll_timeout))
    }

    #[cold]
    fn call_monitor(&mut self, call: MonitorCall) {
        let now = self.now.max(self.server.now());
        if let Some(monitor) = &mut self.monitor {
            match call {
                MonitorCall::MarkUnknown => monitor.mark_unknown(),
                MonitorCall::RequestCheck => monitor.request_check(now),
                MonitorCall::CancelCheck => monitor.cancel_check(now),
            }
        }
    }

    /// Tells the server what a check found; whatever else comes of the monitor goes out.
    #[cold]
    fn pass_on(&mut self, output: monitor::Output) -> Option<Output<C, monitor::Action>> {
        let finding = match output {
            monitor::Output::Action(action) => return Some(Output::Monitor(action)),
            monitor::Output::Event(event) => return self.server.is_observed().then_some(Output::Event(event)),
            monitor::Output::Found(finding) => finding,
        };
        let now = self.monitor.as_ref().map_or(self.now, Monitor::now);
        match finding {
            Finding::Description(description) => self.server.handle_check_succeeded(now, *description),
            Finding::Failure { fault, cause } => {
                let misuse = self.server.handle_check_failed(now, fault, cause);
                debug_assert_eq!(misuse, Ok(()), "what is load-balanced has no monitor");
            }
        }
        None
    }
}

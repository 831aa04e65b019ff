//! A server of this program's own, for `soak` and `demo`: a process on one port, killed without a warning and started again.

use std::net::{Ipv4Addr, TcpListener};

use cmap_core::wire::bson::rawdoc;

use crate::ask::ask;
use crate::process::{Process, ProcessError, this_program};

/// The only user, and the password.
const LOGIN: &str = "user:secret";

/// Ports that systems, by default, do not give to outgoing connections. From other ports, a client that tries one without a
/// listener could get that very port for its own end, and be connected to itself.
const PORTS: core::ops::Range<u16> = 20_000..30_000;

/// The server. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    port: u16,
    process: Option<Process>,
}

impl ServerProcess {
    /// Starts a server on a free port.
    pub(crate) fn start() -> Result<Self, ProcessError> {
        let mut server = Self { port: free_port(), process: None };
        server.start_again()?;
        Ok(server)
    }

    /// Kills it: its sockets are reset or closed by the system.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it on the port that it had; returns when it accepts connections.
    pub(crate) fn start_again(&mut self) -> Result<(), ProcessError> {
        let mut command = this_program()?;
        command.args(["serve", "--until-stdin-ends", "--auth", LOGIN, "--port"]).arg(self.port.to_string());
        let (process, _) = Process::start("own", command)?;
        self.process = Some(process);
        Ok(())
    }

    /// Its connection string, with these options.
    pub(crate) fn uri(&self, options: &str) -> String {
        format!("mongodb://{LOGIN}@127.0.0.1:{}/?{options}", self.port)
    }

    /// How many clients are connected, without the one that asks.
    pub(crate) fn connections(&self) -> Option<u64> {
        let status = ask(&self.uri(""), &rawdoc! { "serverStatus": 1 })?;
        let current = status.get_document("connections").ok()?.get_i32("current").ok()?;
        u64::try_from(current).ok()?.checked_sub(1)
    }
}

/// A port without a listener. Processes that start at the same moment begin their search at different ports.
fn free_port() -> u16 {
    let count = PORTS.len();
    let first = usize::try_from(std::process::id()).unwrap_or_default().wrapping_mul(7) % count;
    let ports = PORTS.cycle().skip(first).take(count);
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    // If none is free, the server says so.
    ports.into_iter().find(free).unwrap_or(PORTS.start)
}

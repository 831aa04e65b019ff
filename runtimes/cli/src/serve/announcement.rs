//! What the server prints when it accepts connections: lines for people, or a line of JSON for programs.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;

/// Where the server can be reached.
#[derive(Serialize)]
pub(super) struct Announcement<'a> {
    /// The folder of the certificates that clients need.
    pub(super) certificates: Option<&'a Path>,
    /// The DNS server that names the servers.
    pub(super) dns: Option<SocketAddr>,
    /// Each server's address.
    pub(super) listening: &'a [SocketAddr],
}

impl Announcement<'_> {
    /// Prints a line for each part.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(folder) = self.certificates {
            writeln!(out, "certificates in {}", folder.display())?;
        }
        if let Some(dns) = self.dns {
            writeln!(out, "DNS on {dns}")?;
        }
        self.listening.iter().try_for_each(|address| writeln!(out, "listening on {address}"))?;
        out.flush()
    }

    /// Prints a line of JSON.
    pub(super) fn print_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)?;
        out.flush()
    }
}

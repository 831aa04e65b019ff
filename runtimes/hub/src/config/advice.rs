//! What a hub can be run with, though its operator may not want that: which setting, why, and what to do.

use std::net::SocketAddr;
use std::path::Path;

use super::{Config, Listener};
use crate::protocol::QueueLimits;

impl Config {
    /// All of it, for `--check` and the log of the start.
    pub fn advice(&self) -> Vec<String> {
        let listeners = self.listeners.iter().filter_map(|listener| match listener {
            Listener::Tcp { address, tls: None, .. } => in_the_clear(*address),
            Listener::Tcp { tls: Some(_), .. } | Listener::Unix { .. } => None,
        });
        let files = self.secret_files.iter().filter(|file| is_read_by_all(file)).map(|file| readable(file));
        let status = self.status.and_then(open_status);
        self.full_pool().into_iter().chain(listeners).chain(status).chain(files).collect()
    }

    fn full_pool(&self) -> Option<String> {
        let QueueLimits { running, reserved, .. } = self.limits.queue;
        let (ordinary, connections) = (running.saturating_sub(reserved), self.connections());
        (reserved > 0 && connections > 0 && ordinary >= connections).then(|| {
            format!(
                "limits.running ({running}) without limits.reserved ({reserved}) leaves {ordinary} commands for a maxPoolSize of \
                 {connections}: they may have all connections to a server, and then the end of a transaction for which they wait has \
                 none; raise maxPoolSize in upstream.uri, or lower limits.running"
            )
        })
    }
}

fn in_the_clear(address: SocketAddr) -> Option<String> {
    (!address.ip().is_loopback()).then(|| {
        format!(
            "listen.address {address} has no certificate: anybody on the network between can read and change what clients send; name a \
             `certificate`, or listen on 127.0.0.1 or a Unix socket"
        )
    })
}

fn open_status(address: SocketAddr) -> Option<String> {
    (!address.ip().is_loopback()).then(|| {
        format!(
            "status.address {address} can be reached from other machines, without a login: users, addresses and commands are seen there; \
             listen on 127.0.0.1, or let only those reach it who may see them"
        )
    })
}

fn readable(file: &Path) -> String {
    format!("{} holds a secret, and every user of this machine can read it; run `chmod o-r` on it", file.display())
}

#[cfg(unix)]
fn is_read_by_all(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

/// Other systems have no such bit.
#[cfg(not(unix))]
fn is_read_by_all(_: &Path) -> bool {
    false
}

//! The configuration: a TOML file, whose mistakes are named with file, key, value and rule.
//!
//! ```toml
//! users = "users.toml"                 # without it nobody logs in, and the hub listens on this machine only
//!
//! [upstream]
//! uri = "mongodb://hub:secret@db.example/?replicaSet=rs0&maxPoolSize=20"
//!
//! [upstream.identity.writer]           # further users there, which users of the hub are mapped to
//! username = "writer"
//! password-file = "writer.password"
//!
//! [upstream.reverse]                   # the servers' agents dial the hub, and the hub dials nobody
//! address = "0.0.0.0:27443"
//! certificate = "listener.pem"
//! [[upstream.reverse.token]]
//! name = "db"
//! secret-file = "db.token"
//! members = ["db.example:27017"]
//!
//! [[listen]]
//! address = "0.0.0.0:27027"
//! certificate = "hub.pem"              # chain and key
//!
//! [[listen]]
//! unix = "/run/cmap-hub/hub.sock"
//! mode = "0660"
//! group = "app"
//!
//! [status]
//! address = "127.0.0.1:9217"
//!
//! [control]
//! path = "/run/cmap-hub/control.sock"  # cmap-hub ctl
//!
//! [log]
//! format = "json"
//! level = "info,cmap::hub=debug"
//!
//! [limits]
//! waiting = 500
//! ```

mod advice;
mod error;
mod keys;
mod listen;
mod log;
mod memory;
mod read;
mod reverse;
mod socket_access;

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use cmap_core::options::{ClientOptions, Credential, Warning};
use cmap_core::wire::CompressorId;
use ipnet::IpNet;

pub use error::ConfigError;
pub(crate) use keys::Keys;
pub use log::{Log, LogFormat};
pub use read::{control_path, read};
pub use reverse::Reverse;
pub use socket_access::SocketAccess;

use crate::protocol::{DoorLimits, MemoryLimits, QueueLimits, but_a_quarter};
use crate::users::User;

/// A configuration that makes sense.
#[derive(Debug)]
pub struct Config {
    /// Its file.
    pub path: PathBuf,
    /// What it says, key by key.
    pub(crate) keys: Keys,
    /// The deployment, and the hub's own user there.
    pub upstream: ClientOptions,
    /// What its connection string says that is ignored, or weakens its security.
    pub warnings: Vec<Warning>,
    /// The files that hold passwords and keys.
    pub(crate) secret_files: Vec<PathBuf>,
    /// Further users there, by name.
    pub identities: BTreeMap<String, Credential>,
    /// Where the servers' agents come in, if the hub is not to dial.
    pub reverse: Option<Reverse>,
    /// How long a command may wait for a server, retries included.
    pub patience: Duration,
    /// Whether the hub repeats what a server has failed to do, and not the driver alone (X-134).
    pub retries: bool,
    /// Whether servers learn what clients say about themselves.
    pub client_metadata: bool,
    /// Where clients come in.
    pub listeners: Vec<Listener>,
    /// The compressors that clients may use.
    pub compressors: Vec<CompressorId>,
    /// Where people and Prometheus look.
    pub status: Option<SocketAddr>,
    /// The socket where an operator gives orders.
    pub control: Option<PathBuf>,
    /// Whether Prometheus sees how long commands take, by user and command.
    pub histograms: bool,
    /// The users; `None` if nobody logs in.
    pub users: Option<Vec<User>>,
    /// The limits.
    pub limits: Limits,
    /// How many commands run at once, where the file has it.
    pub(crate) places: PlacesAsked,
    /// How many bytes one user may have, where the file has it.
    pub(crate) memory_per_user: Option<usize>,
    /// How long clients have to finish when the hub ends.
    pub drain: Duration,
    /// The program's log.
    pub log: Log,
}

/// How many commands run at once, by the file. Numbers that it does not have follow from the pool upstream, which is that of the hub's start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlacesAsked {
    pub(crate) running: Option<u32>,
    pub(crate) reserved: Option<u32>,
    pub(crate) running_per_user: Option<u32>,
    pub(crate) awaiting: Option<u32>,
}

/// How many commands run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) running: u32,
    /// How many of these places are kept for the ends of something.
    pub(crate) reserved: u32,
    pub(crate) running_per_user: u32,
    pub(crate) awaiting: u32,
}

impl PlacesAsked {
    /// The places before a pool of this size (zero for any), for so many users; none where nobody logs in.
    pub(crate) fn before(self, connections: u32, users: usize) -> Places {
        let running = self.running.unwrap_or(if connections == 0 { u32::MAX } else { connections });
        let reserved = self.reserved.unwrap_or((running / 10).clamp(1, 10)).min(running.saturating_sub(1));
        let ordinary = running - reserved;
        let some = but_a_quarter(ordinary);
        // Without others there is nobody to leave places to.
        let running_per_user = self.running_per_user.unwrap_or(if users > 1 { some } else { running });
        Places { running, reserved, running_per_user, awaiting: self.awaiting.unwrap_or(some) }
    }
}

impl Places {
    pub(crate) fn set(self, limits: &mut QueueLimits) {
        let Self { running, reserved, running_per_user, awaiting } = self;
        *limits = QueueLimits { running, reserved, running_per_user, awaiting, ..*limits };
    }
}

impl Config {
    /// How many connections to each server there are at most; zero for any number.
    pub(crate) fn connections(&self) -> u32 {
        self.upstream.pool.max_pool_size.unwrap_or_default()
    }

    /// How many bytes of clients the hub may have, for so many users.
    pub(crate) fn memory(&self, users: usize) -> MemoryLimits {
        let budget = self.limits.memory.budget;
        MemoryLimits { budget, per_user: memory::per_user(self.memory_per_user, budget, users) }
    }
}

/// Where clients come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listener {
    /// A TCP socket.
    Tcp {
        /// The address; port 0 is any that is free.
        address: SocketAddr,
        /// Where clients come in under TLS.
        tls: Option<TlsFiles>,
        /// Whose connections alone are served, and begin with a header of the PROXY protocol; empty if clients connect themselves.
        proxies: Vec<IpNet>,
    },
    /// A Unix socket.
    Unix {
        /// The path.
        path: PathBuf,
        /// Which users of this machine may connect.
        access: SocketAccess,
    },
}

/// The PEM files of a listener under TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, and its key.
    pub certificate: PathBuf,
    /// The authorities of clients' certificates, by which users may prove themselves.
    pub client_authorities: Option<PathBuf>,
}

/// The limits of what clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commands that run and wait.
    pub queue: QueueLimits,
    /// Connections of clients.
    pub doors: DoorLimits,
    /// Bytes of clients that the hub holds.
    pub memory: MemoryLimits,
    /// Sessions of one user.
    pub sessions_per_user: usize,
    /// How long a command may wait for its turn.
    pub wait: Duration,
    /// What drivers are told to wait when the queue is full.
    pub base_backoff: Duration,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use toml_edit::{DocumentMut, Item};

    use super::*;

    const EVERY_KEY: &str = include_str!("../../tests/every_key/hub.toml");
    const USERS: &str = include_str!("../../tests/every_key/users.toml");

    /// A way from a document to one of its values: keys, and numbers of tables.
    type Way = Vec<Step>;

    #[derive(Clone, Debug)]
    enum Step {
        Key(String),
        Table(usize),
    }

    /// The ways to all values and tables.
    fn ways(item: &Item, here: &Way, all: &mut Vec<Way>) {
        if let Some(table) = item.as_table_like() {
            for (key, value) in table.iter() {
                let way: Way = here.iter().cloned().chain([Step::Key(key.into())]).collect();
                all.push(way.clone());
                ways(value, &way, all);
            }
        }
        for (number, table) in item.as_array_of_tables().into_iter().flatten().enumerate() {
            let way: Way = here.iter().cloned().chain([Step::Table(number)]).collect();
            ways(&Item::Table(table.clone()), &way, all);
        }
    }

    /// The document without that.
    fn without(text: &str, way: &Way) -> String {
        let mut document: DocumentMut = text.parse().unwrap();
        let mut table = document.as_table_mut();
        let (last, before) = way.split_last().unwrap();
        let mut steps = before.iter().peekable();
        while let Some(Step::Key(key)) = steps.next() {
            let item = table.get_mut(key).unwrap();
            table = match steps.next_if(|step| matches!(step, Step::Table(_))) {
                Some(Step::Table(number)) => item.as_array_of_tables_mut().unwrap().get_mut(*number).unwrap(),
                _ => item.as_table_mut().unwrap(),
            };
        }
        let Step::Key(key) = last else { panic!("{way:?}") };
        table.remove(key).unwrap();
        document.to_string()
    }

    /// What a hub would have of these files.
    fn shown(folder: &Path, hub: &str, users: &str) -> Result<String, ConfigError> {
        let path = folder.join("hub.toml");
        fs::write(&path, hub).unwrap();
        fs::write(folder.join("users.toml"), users).unwrap();
        let mut config = read(&path)?;
        config.keys = Keys::default();
        config.secret_files.clear();
        Ok(format!("{config:?}"))
    }

    #[test]
    fn every_key_of_both_files_has_an_effect() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("uri"), "mongodb://hub:secret@db.example:27017/").unwrap();
        for file in ["writer.password", "token", "listener.pem", "hub.pem", "ca.pem"] {
            fs::write(folder.path().join(file), "0123456789abcdef").unwrap();
        }
        let whole = shown(folder.path(), EVERY_KEY, USERS).unwrap();
        let mut count = 0;
        for (text, other, is_users) in [(EVERY_KEY, USERS, false), (USERS, EVERY_KEY, true)] {
            let mut all = Vec::new();
            ways(text.parse::<DocumentMut>().unwrap().as_item(), &Vec::new(), &mut all);
            for way in all {
                count += 1;
                let less = without(text, &way);
                let (hub, users) = if is_users { (other, &*less) } else { (&*less, other) };
                let differs = shown(folder.path(), hub, users).map_or(true, |shown| shown != whole);
                assert!(differs, "{way:?} has none");
            }
        }
        assert!(count > 80, "{count}");
    }
}

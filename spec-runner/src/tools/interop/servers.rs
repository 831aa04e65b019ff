//! The servers of the checks, each a process of its own that ends when this one does.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;

use cmap_cli::process::{Process, this_program};
use serde::Serialize;

use super::column::{self, URI_VARIABLE};
use super::{InteropError, hub};

/// The embedded servers: the name that the programs know, and the options of `serve`. The checks know users and passwords.
const EMBEDDED: [(&str, &[&str]); 7] = [
    ("open", &[]),
    ("auth", &["--auth", "user:secret", "--auth", "sasl:I\u{ad}X"]),
    ("tls", &["--tls", "--auth", "user:secret"]),
    ("wrong-host", &["--tls", "--wrong-host"]),
    ("replica-set", &["--replica-set", "rs0"]),
    ("load-balanced", &["--load-balanced"]),
    (
        "members",
        &[
            "--replica-set",
            "rs0",
            "--members",
            "3",
            "--tags",
            "0=number:0",
            "--tags",
            "1=number:1",
            "--tags",
            "2=number:2",
            "--srv",
            SRV_NAME,
        ],
    ),
];

/// The name by which a DNS server of its own leads to the server "members".
pub const SRV_NAME: &str = "members.cmap.test";

/// The first words of the line that names a server's DNS server, before it accepts connections.
const DNS: &str = "DNS on ";

/// The servers of a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSet {
    /// The embedded servers, all of them.
    Embedded,
    /// The hub, before embedded servers.
    Hub,
    /// mongo-java-server.
    Java,
    /// The MongoDB that `$MONGODB_URI` names.
    Named,
}

/// A server's address, as the programs are told.
#[derive(Clone, Debug, Serialize, serde::Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Place {
    /// A server that was started for the checks.
    Started {
        /// `host:port`.
        address: String,
        /// The folder of its certificates; empty for a server without TLS.
        certificates: String,
        /// The `host:port` of the DNS server that knows it; empty if there is none.
        #[serde(default)]
        dns: String,
        /// The options that every connection string for it has.
        #[serde(default)]
        options: BTreeMap<String, String>,
    },
    /// A server that the user has named.
    Named {
        /// Its connection string.
        uri: String,
    },
}

/// Running servers. Dropping them stops them.
#[derive(Debug)]
pub struct Servers(Vec<Server>);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) process: Option<Process>,
}

impl Place {
    /// A server at an address, without more.
    pub(super) fn at(address: String) -> Self {
        Self::Started { address, certificates: String::new(), dns: String::new(), options: BTreeMap::new() }
    }
}

impl ServerSet {
    /// Starts the servers; certificates go into folders in `folder`.
    pub fn start(self, folder: &Path) -> Result<Servers, InteropError> {
        match self {
            Self::Embedded => {
                let servers = EMBEDDED.iter().map(|(name, options)| start_embedded(name, options, folder));
                servers.collect::<Result<_, _>>().map(Servers)
            }
            Self::Hub => hub::start(folder).map(Servers),
            Self::Java => {
                let mut command = column::java("server-java/target/server.jar")?;
                command.arg("0");
                let (process, address) = Process::start("open", command)?;
                let place = Place::at(address);
                Ok(Servers(vec![Server { name: "open", place, process: Some(process) }]))
            }
            Self::Named => {
                let uri = env::var(URI_VARIABLE).ok().filter(|uri| !uri.is_empty()).ok_or(InteropError::NoUri)?;
                Ok(Servers(vec![Server { name: "open", place: Place::Named { uri }, process: None }]))
            }
        }
    }
}

pub(super) fn start_embedded(name: &'static str, options: &[&str], folder: &Path) -> Result<Server, InteropError> {
    let mut command = this_program()?;
    command.args(["serve", "--port", "0", "--until-stdin-ends"]).args(options);
    let mut certificates = String::new();
    if options.contains(&"--tls") {
        let path = folder.join(name);
        if let Err(source) = fs::create_dir_all(&path) {
            return Err(InteropError::Write { path, source });
        }
        command.arg("--certificates").arg(&path);
        certificates = path.display().to_string();
    }
    let (process, address) = Process::start(name, command)?;
    let printed = process.output().text();
    let dns = printed.lines().find_map(|line| line.strip_prefix(DNS)).unwrap_or_default().to_owned();
    let place = Place::Started { address, certificates, dns, options: BTreeMap::new() };
    Ok(Server { name, place, process: Some(process) })
}

impl Servers {
    /// Their addresses, by name.
    pub fn places(&self) -> serde_json::Value {
        self.0.iter().map(|server| (server.name, serde_json::json!(server.place))).collect()
    }

    /// Their output so far, by name.
    pub fn outputs(&self) -> Vec<(&'static str, String)> {
        let running = self.0.iter().filter_map(|server| Some((server.name, server.process.as_ref()?)));
        running.map(|(name, process)| (name, process.output().text())).collect()
    }
}

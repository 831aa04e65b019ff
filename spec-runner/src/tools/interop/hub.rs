//! The hub before embedded servers: one where nobody logs in, and one with users of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cmap_cli::process::{Process, ProcessError, this_program};

use super::InteropError;
use super::servers::{Place, Server, start_embedded};

/// The users that the checks know.
const USERS: [(&str, &str); 2] = [("user", "secret"), ("sasl", "I\u{ad}X")];

/// What is behind the hubs.
const SET: [&str; 4] = ["--replica-set", "rs0", "--members", "3"];

/// Starts a replica set and two hubs before it; their files go into `folder`. The server "replica-set" is one without a hub.
pub(super) fn start(folder: &Path) -> Result<Vec<Server>, InteropError> {
    let behind = start_embedded("behind", &SET, folder)?;
    let Place::Started { address, .. } = &behind.place else { return Ok(Vec::new()) };
    let users = folder.join("users.toml");
    USERS.iter().try_for_each(|(user, password)| add_user(&users, user, password))?;
    let open = start_hub("open", folder, address, "")?;
    let balanced = Server { name: "load-balanced", place: open.place.clone(), process: None };
    let auth = start_hub("auth", folder, address, "users = \"users.toml\"\n")?;
    Ok(vec![start_embedded("replica-set", &["--replica-set", "rs0"], folder)?, auth, balanced, open, behind])
}

fn start_hub(name: &'static str, folder: &Path, upstream: &str, users: &str) -> Result<Server, InteropError> {
    let path = folder.join(format!("{name}.toml"));
    let text = format!(
        "{users}[upstream]\nuri = \"mongodb://{upstream}/?replicaSet=rs0&maxPoolSize=5\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n"
    );
    fs::write(&path, text).map_err(|source| InteropError::Write { path: path.clone(), source })?;
    let mut command = program()?;
    command.arg("--config").arg(&path).arg("--until-stdin-ends");
    let (process, address) = Process::start(name, command)?;
    let options = BTreeMap::from([("loadBalanced".to_owned(), "true".to_owned())]);
    let place = Place::Started { address, certificates: String::new(), dns: String::new(), options };
    Ok(Server { name, place, process: Some(process) })
}

fn add_user(users: &Path, user: &'static str, password: &str) -> Result<(), InteropError> {
    let mut command = program()?;
    command.args(["user", "add", user, "--users"]).arg(users).stdin(Stdio::piped());
    let child = command.spawn();
    let mut child = child.map_err(|source| ProcessError::Start { program: "cmap-hub".into(), source })?;
    let is_written = child.stdin.take().is_some_and(|mut stdin| writeln!(stdin, "{password}").is_ok());
    match child.wait() {
        Ok(status) if status.success() && is_written => Ok(()),
        Ok(_) | Err(_) => Err(InteropError::NoUser { user }),
    }
}

/// The hub's program, which is built beside this one.
fn program() -> Result<Command, InteropError> {
    let own: PathBuf = this_program()?.get_program().into();
    let path = own.with_file_name(format!("cmap-hub{}", std::env::consts::EXE_SUFFIX));
    if path.exists() { Ok(Command::new(path)) } else { Err(InteropError::NotInstalled { path }) }
}

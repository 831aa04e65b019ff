//! What a relay does, from a file in TOML.
//!
//! ```toml
//! [[members]]
//! name = "db1.example:27017"        # as the replica set knows it
//! connect = "127.0.0.1:27017"       # where the relay reaches it; or a Unix socket. Without it: its name
//!
//! [[applications]]
//! address = "app.example:27443"
//! members = ["db1.example:27017"]   # without it: all
//! tlsCAFile = "ca.pem"              # without it: the system's authorities
//! token = { name = "db1", secret = { file = "token" } }   # or { env = "RELAY_TOKEN" }
//!
//! [limits]
//! maxSockets = 500                  # these are the defaults
//! connectTimeoutMS = 5000
//! maxParkedTimeMS = 1800000
//! maxReconnectDelayMS = 10000
//! drainTimeoutMS = 30000
//! ```
//!
//! Paths are relative to the file's folder. In place of a token, or next to it, `tlsCertificateKeyFile` names the relay's certificate and key, and
//! `tlsCertificateKeyFilePassword`, a secret like the token's, opens the key.

mod error;
mod plan;
mod secret;
mod shape;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cmap_core::ErrorChain;
use cmap_core::address::ServerAddress;
use cmap_core::options::TlsOptions;
use cmap_core::reverse::{Token, check_member_name};
use cmap_runtime::tls::{TlsConfig, TlsSession};

pub use self::error::{FileError, FileProblem};
pub use self::plan::Plan;
use self::shape::{ApplicationShape, FileShape, LimitsShape, MemberShape};
use crate::settings::{Application, Limits, Member, Settings};

/// A file that was read.
#[derive(Debug)]
pub struct Loaded {
    /// What the relay does.
    pub settings: Settings,
    /// What the relay does, for people to read.
    pub plan: Plan,
}

/// Reads a file, and those that it names.
///
/// # Errors
/// It cannot be used.
pub fn read(path: &Path) -> Result<Loaded, FileError> {
    let error = |problem| FileError { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|source| error(FileProblem::Unreadable(source)))?;
    load(path, &text).map_err(error)
}

fn load(path: &Path, text: &str) -> Result<Loaded, FileProblem> {
    let shape = parse(text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let settings = settings(&shape, folder)?;
    let plan = Plan::new(path, &shape, &settings);
    Ok(Loaded { settings, plan })
}

fn parse(text: &str) -> Result<FileShape, FileProblem> {
    let line_of = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let deserializer = toml::Deserializer::parse(text).map_err(|error| FileProblem::Syntax {
        line: error.span().map_or(1, |span| line_of(span.start)),
        message: error.message().trim().replace('\n', ", "),
    })?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let key = error.path().to_string();
        // The parser's words may show the value.
        let is_secret = key.contains("token") || key.contains("Password");
        if is_secret && !error.inner().message().starts_with("missing field") {
            let rule = "it has another shape: token = { name = \"..\", secret = { file = \"..\" } }, and a secret names a `file` or \
                        a variable by `env`; the secret itself does not belong here";
            return FileProblem::key(key, rule);
        }
        let line = error.inner().span().map_or(1, |span| line_of(span.start));
        FileProblem::key(key, format!("{} (line {line}); see the keys in the README", error.inner().message().trim()))
    })
}

fn settings(shape: &FileShape, folder: &Path) -> Result<Settings, FileProblem> {
    let members = members(&shape.members)?;
    if shape.applications.is_empty() {
        return Err(FileProblem::key("applications", "there is none to dial; add [[applications]] with an address"));
    }
    let mut applications: Vec<Application> = Vec::new();
    for (index, shape) in shape.applications.iter().enumerate() {
        let application = application(&format!("applications[{index}]"), shape, &members, folder)?;
        if applications.iter().any(|other| other.address == application.address) {
            let rule = "the address is there twice; keep one, and list its members there";
            return Err(FileProblem::value(format!("applications[{index}].address"), &shape.address, rule));
        }
        applications.push(application);
    }
    Ok(Settings { members, applications, limits: limits(&shape.limits)? })
}

fn members(shapes: &[MemberShape]) -> Result<Vec<Member>, FileProblem> {
    if shapes.is_empty() {
        return Err(FileProblem::key("members", "there is none to speak for; add [[members]] with a name"));
    }
    let mut members: Vec<Member> = Vec::new();
    for (index, shape) in shapes.iter().enumerate() {
        let key = format!("members[{index}].name");
        let name = address(&key, &shape.name)?;
        if matches!(name, ServerAddress::Unix { .. }) {
            let rule = "a replica set knows its members by host and port; a Unix socket goes to `connect`";
            return Err(FileProblem::value(key, &shape.name, rule));
        }
        check_member_name(&name).map_err(|error| FileProblem::value(&key, &shape.name, error.to_string()))?;
        if members.iter().any(|other| other.name == name) {
            return Err(FileProblem::value(key, &shape.name, "the member is there twice; keep one of them"));
        }
        let connect = shape.connect.as_ref().map(|text| address(&format!("members[{index}].connect"), text));
        members.push(Member { connect: connect.transpose()?.unwrap_or_else(|| name.clone()), name });
    }
    Ok(members)
}

fn application(
    key: &str,
    shape: &ApplicationShape,
    members: &[Member],
    folder: &Path,
) -> Result<Application, FileProblem> {
    let host_and_port = || {
        let rule = "an application has no usual port; write host:port, as in app.example:27443";
        FileProblem::value(format!("{key}.address"), &shape.address, rule)
    };
    let address = address(&format!("{key}.address"), &shape.address)?;
    let host = match &address {
        ServerAddress::Tcp { host, port } if shape.address.ends_with(&format!(":{port}")) => host,
        ServerAddress::Tcp { .. } | ServerAddress::Unix { .. } => return Err(host_and_port()),
    };
    let tls = tls(key, shape, folder)?;
    if TlsSession::new(&tls, host).is_err() {
        let rule = "no certificate can be for this host; write its name as the application's certificate has it";
        return Err(FileProblem::value(format!("{key}.address"), &shape.address, rule));
    }
    let token = shape.token.as_ref().map(|token| {
        let secret = token.secret.read(&format!("{key}.token.secret"), folder)?;
        Token::new(&token.name, &secret).map_err(|error| FileProblem::of(format!("{key}.token"), &error))
    });
    if shape.token.is_none() && shape.certificate_key_file.is_none() {
        let rule = "it has neither a token nor a tlsCertificateKeyFile, so the relay could not prove for whom it speaks; add one";
        return Err(FileProblem::key(key, rule));
    }
    Ok(Application { members: served(key, shape, members)?, tls, token: token.transpose()?, address })
}

/// The members that an application gets.
fn served(key: &str, shape: &ApplicationShape, members: &[Member]) -> Result<Vec<ServerAddress>, FileProblem> {
    let Some(names) = &shape.members else { return Ok(members.iter().map(|member| member.name.clone()).collect()) };
    let mut served: Vec<ServerAddress> = Vec::new();
    for (index, text) in names.iter().enumerate() {
        let key = format!("{key}.members[{index}]");
        let name = address(&key, text)?;
        if !members.iter().any(|member| member.name == name) {
            let known: Vec<_> = members.iter().map(|member| member.name.to_string()).collect();
            let rule = format!("there is no such member; add it to [[members]], or take one of {}", known.join(", "));
            return Err(FileProblem::value(key, text, rule));
        }
        if served.contains(&name) {
            return Err(FileProblem::value(key, text, "the member is there twice; keep one of them"));
        }
        served.push(name);
    }
    if served.is_empty() {
        return Err(FileProblem::key(format!("{key}.members"), "there is none; name some, or leave it out for all"));
    }
    Ok(served)
}

fn tls(key: &str, shape: &ApplicationShape, folder: &Path) -> Result<TlsConfig, FileProblem> {
    let path = |path: &PathBuf| folder.join(path).to_string_lossy().into_owned();
    let mut options = TlsOptions::default();
    options.ca_file = shape.ca_file.as_ref().map(path);
    options.certificate_key_file = shape.certificate_key_file.as_ref().map(path);
    if let Some(password) = &shape.certificate_key_file_password {
        let key = format!("{key}.tlsCertificateKeyFilePassword");
        if options.certificate_key_file.is_none() {
            return Err(FileProblem::key(
                key,
                "there is no tlsCertificateKeyFile that it would open; add that, or leave it out",
            ));
        }
        let password = password.read(&key, folder)?;
        let text =
            str::from_utf8(&password).map_err(|_| FileProblem::key(key, "the password is not UTF-8; write it anew"))?;
        options.certificate_key_file_password = Some(text.into());
    }
    TlsConfig::new(&options).map_err(|error| FileProblem::of(key, &error))
}

fn limits(shape: &LimitsShape) -> Result<Limits, FileProblem> {
    let usual = Limits::default();
    let hour = 60 * 60 * 1000;
    let millis = |key, value: Option<u64>, least, most, usual: Duration| {
        Ok(within(key, value, least, most)?.map_or(usual, Duration::from_millis))
    };
    let max_sockets = within("limits.maxSockets", shape.max_sockets, 1, 65_535)?;
    let parked = within("limits.maxParkedTimeMS", shape.max_parked_time, 0, 24 * 7 * hour)?.map(Duration::from_millis);
    Ok(Limits {
        max_sockets: max_sockets.and_then(|most| u32::try_from(most).ok()).unwrap_or(usual.max_sockets),
        connect_timeout: millis("limits.connectTimeoutMS", shape.connect_timeout, 1, hour, usual.connect_timeout)?,
        max_parked_time: parked.map_or(usual.max_parked_time, |time| (!time.is_zero()).then_some(time)),
        max_reconnect_delay: millis(
            "limits.maxReconnectDelayMS",
            shape.max_reconnect_delay,
            200,
            hour,
            usual.max_reconnect_delay,
        )?,
        drain_timeout: millis("limits.drainTimeoutMS", shape.drain_timeout, 0, 24 * hour, usual.drain_timeout)?,
    })
}

fn within(key: &str, value: Option<u64>, least: u64, most: u64) -> Result<Option<u64>, FileProblem> {
    match value {
        Some(value) if !(least..=most).contains(&value) => Err(FileProblem::value(
            key,
            value.to_string(),
            format!("it has to be {least} to {most}; choose one of these"),
        )),
        value => Ok(value),
    }
}

fn address(key: &str, text: &str) -> Result<ServerAddress, FileProblem> {
    text.parse().map_err(|error| FileProblem::key(key, ErrorChain(&error).to_string()))
}

#[cfg(test)]
mod tests;

//! The section `upstream.reverse`: where agents next to the servers connect, and who may speak for which server.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::{Token, TokenError};
use cmap_tokio::reverse::{PemSource, ReverseOptions};
use serde::Deserialize;

use super::ConfigError;
use super::read::Check;

/// Where agents come in: the hub dials no server.
#[derive(Clone, Debug)]
pub struct Reverse {
    /// The address.
    pub address: SocketAddr,
    /// The listener's certificate, tokens and limits.
    pub options: ReverseOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ReverseTable {
    address: SocketAddr,
    certificate: PathBuf,
    authorities: Option<PathBuf>,
    #[serde(default)]
    token: Vec<TokenTable>,
    keep_alive_seconds: Option<u64>,
    wanted: Option<u16>,
    max_failures: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TokenTable {
    name: String,
    secret_file: PathBuf,
    members: Vec<String>,
}

/// Reads the files of the section, and checks it.
pub(super) fn check(check: &Check<'_>, table: ReverseTable) -> Result<Reverse, ConfigError> {
    let ReverseTable { address, certificate, authorities, token, keep_alive_seconds, wanted, max_failures } = table;
    if token.is_empty() && authorities.is_none() {
        let rule = "nobody would be let in; write a table [[upstream.reverse.token]], or `authorities` of agents' certificates";
        return Err(check.value("upstream.reverse.token", "(missing)", rule));
    }
    check.note_secret(&certificate);
    let pem = |file: PathBuf| Ok::<_, ConfigError>(PemSource::Text(check.text(&file)?.as_bytes().to_vec()));
    let mut options = ReverseOptions::new(pem(certificate)?);
    options.authorities = authorities.map(pem).transpose()?;
    let mut names = BTreeSet::new();
    for TokenTable { name, secret_file, members } in token {
        if !names.insert(name.clone()) {
            let rule = "two tokens have this name; name each after its agent, and give one token all of its members";
            return Err(check.value("upstream.reverse.token.name", &name, rule));
        }
        let (token, members) = (self::token(check, &name, secret_file)?, self::members(check, &members)?);
        options.tokens.add(token, members);
    }
    if let Some(seconds) = keep_alive_seconds {
        options.keep_alive = Duration::from_secs(check.positive("upstream.reverse.keep-alive-seconds", seconds)?);
    }
    if let Some(failures) = max_failures {
        check.positive("upstream.reverse.max-failures", failures.into())?;
        options.limits.max_failures = failures;
    }
    if let Some(wanted) = wanted {
        check.positive("upstream.reverse.wanted", wanted.into())?;
        if wanted > options.limits.max_parked {
            let rule = "an agent may have at most 256 sockets parked; write no more";
            return Err(check.value("upstream.reverse.wanted", &wanted.to_string(), rule));
        }
        options.wanted = wanted;
    }
    Ok(Reverse { address, options })
}

fn token(check: &Check<'_>, name: &str, file: PathBuf) -> Result<Token, ConfigError> {
    Token::new(name, check.secret(&file)?.as_bytes()).map_err(|error| match error {
        TokenError::Name(_) => {
            check.value("upstream.reverse.token.name", name, "write 1 to 64 bytes; name it after its agent")
        }
        TokenError::Secret(_) => {
            let rule = "the secret has at least 16 bytes; make one by `openssl rand -hex 32`";
            check.value("upstream.reverse.token.secret-file", &file.display().to_string(), rule)
        }
    })
}

fn members(check: &Check<'_>, names: &[String]) -> Result<Vec<ServerAddress>, ConfigError> {
    let rule = "write the members that the token is good for, host:port, as their replica set names them";
    if names.is_empty() {
        return Err(check.value("upstream.reverse.token.members", "[]", rule));
    }
    let member = |name: &String| name.parse().map_err(|_| check.value("upstream.reverse.token.members", name, rule));
    names.iter().map(member).collect()
}

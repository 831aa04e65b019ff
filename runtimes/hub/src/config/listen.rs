//! The section `listen`: where clients come in.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde::Deserialize;

use super::read::Check;
use super::socket_access::{SocketAccess, group_of, mode_of};
use super::{ConfigError, Listener, TlsFiles};

/// The groups of the machine.
const GROUPS: &str = "/etc/group";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ListenTable {
    address: Option<SocketAddr>,
    unix: Option<PathBuf>,
    certificate: Option<PathBuf>,
    client_authorities: Option<PathBuf>,
    proxy_from: Option<Vec<String>>,
    mode: Option<String>,
    group: Option<String>,
}

/// Checks the section.
pub(super) fn check(
    check: &Check<'_>,
    tables: Vec<ListenTable>,
    has_users: bool,
) -> Result<Vec<Listener>, ConfigError> {
    if tables.is_empty() {
        return Err(check.value("listen", "(missing)", "write a table [[listen]] with `address` or `unix`"));
    }
    tables.into_iter().map(|table| listener(check, table, has_users)).collect()
}

fn listener(check: &Check<'_>, table: ListenTable, has_users: bool) -> Result<Listener, ConfigError> {
    let access = socket_access(check, &table)?;
    match (table.address, table.unix) {
        (Some(address), None) => {
            if access != SocketAccess::default() {
                let rule = "`mode` and `group` are of Unix sockets; remove them";
                return Err(check.value("listen.address", &address.to_string(), rule));
            }
            let is_local = address.ip().is_loopback();
            if !has_users && !is_local {
                let rule = "without `users` anybody who reaches the hub may use it; name a users file, or listen on \
                            127.0.0.1 or a Unix socket";
                return Err(check.value("listen.address", &address.to_string(), rule));
            }
            table.certificate.iter().for_each(|path| check.note_secret(path));
            let client_authorities = table.client_authorities.map(|path| check.folder.join(path));
            let tls = table.certificate.map(|path| check.folder.join(path));
            if let (None, Some(path)) = (&tls, &client_authorities) {
                let rule = "clients show certificates under TLS alone; name a `certificate` of the hub, too";
                return Err(check.value("listen.client-authorities", &path.display().to_string(), rule));
            }
            let tls = tls.map(|certificate| TlsFiles { certificate, client_authorities });
            let proxies = table.proxy_from.map(|texts| networks(check, &texts)).transpose()?.unwrap_or_default();
            Ok(Listener::Tcp { address, tls, proxies })
        }
        (None, Some(_)) if table.client_authorities.is_some() || table.proxy_from.is_some() => {
            Err(check.value("listen.unix", "..", "`client-authorities` and `proxy-from` are of addresses; remove them"))
        }
        (None, Some(path)) if table.certificate.is_none() => {
            Ok(Listener::Unix { path: check.folder.join(path), access })
        }
        (None, Some(path)) => {
            Err(check.value("listen.certificate", &path.display().to_string(), "a Unix socket has no TLS; remove it"))
        }
        _ => Err(check.value("listen", "..", "write either `address` or `unix`")),
    }
}

fn socket_access(check: &Check<'_>, table: &ListenTable) -> Result<SocketAccess, ConfigError> {
    let mode = table.mode.as_deref().map(|text| {
        mode_of(text).ok_or_else(|| check.value("listen.mode", text, "write octal digits as for chmod: \"0660\""))
    });
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    let group = table.group.as_deref().map(|text| {
        let rule = "write the name of a group in /etc/group, or the number of one";
        group_of(text, &groups).ok_or_else(|| check.value("listen.group", text, rule))
    });
    Ok(SocketAccess { mode: mode.transpose()?, group: group.transpose()? })
}

/// Networks, or single addresses.
fn networks(check: &Check<'_>, texts: &[String]) -> Result<Vec<IpNet>, ConfigError> {
    let wrong = |text: &str| {
        check.value(
            "listen.proxy-from",
            text,
            "write the proxies' addresses or networks, such as 10.0.0.5 or 10.0.0.0/8",
        )
    };
    if texts.is_empty() {
        return Err(wrong("[]"));
    }
    let network =
        |text: &String| text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| wrong(text));
    texts.iter().map(network).collect()
}

//! The section `listen`: where clients come in.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::read::Check;
use super::socket_access::{SocketAccess, group_of, mode_of};
use super::{ConfigError, Listener};

/// The groups of the machine.
const GROUPS: &str = "/etc/group";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ListenTable {
    address: Option<SocketAddr>,
    unix: Option<PathBuf>,
    certificate: Option<PathBuf>,
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
            let certificate = table.certificate.map(|path| check.folder.join(path));
            Ok(Listener::Tcp { address, certificate })
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

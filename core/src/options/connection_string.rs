//! The grammar of a connection string: which part is which, before any option has a meaning (URI-1 to URI-4).
//!
//! ```text
//! mongodb://user:password@host:port,host:port/database?name=value&name=value
//!           \___________/ \_______________/ \______/ \___________________/
//!            user info         hosts        database        options
//! ```
//!
//! The hosts end at the first `/` or `?`, the user info at the last `@` before that. A user name or password with a
//! slash or a question mark that is not encoded therefore ends too early, and the rest of the password would turn up as
//! a database or an option. An `@` out there is the sign of it: in a database or an option's name it is an error, and
//! elsewhere the text around it is not shown.

use alloc::string::String;
use alloc::vec::Vec;

use super::credential::UserInfo;
use super::error::{ConnectionStringError, MAX_LENGTH, UserInfoProblem};
use super::hosts;
use super::keys;
use super::percent;
use super::secret::{Secret, Shown};
use crate::address::ServerAddress;

/// A connection string, taken apart. It has no `Debug` form, because its options are not yet told from secrets.
pub(super) struct Parts<'a> {
    /// Whether the host stands for SRV records.
    pub(super) srv: bool,
    pub(super) user: Option<UserInfo>,
    /// At least one; exactly one where it stands for SRV records.
    pub(super) hosts: Vec<ServerAddress>,
    pub(super) database: Option<String>,
    /// Names and values, neither decoded.
    pub(super) options: Vec<(&'a str, &'a str)>,
    /// Whether the options may hold a part of a password.
    pub(super) doubtful: bool,
}

impl<'a> Parts<'a> {
    /// Takes `text` apart.
    pub(super) fn read(text: &'a str) -> Result<Self, ConnectionStringError> {
        if text.len() > MAX_LENGTH {
            return Err(ConnectionStringError::TooLong { length: text.len() });
        }
        let (srv, rest) = if let Some(rest) = text.strip_prefix("mongodb://") {
            (false, rest)
        } else if let Some(rest) = text.strip_prefix("mongodb+srv://") {
            (true, rest)
        } else {
            return Err(ConnectionStringError::Scheme);
        };
        let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (user, host_list) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user_info(user)?), hosts),
            None => (None, authority),
        };
        let hosts = host_list_of(host_list, srv, tail.contains('@'))?;
        let (database, options) = match tail.strip_prefix('/') {
            Some(tail) => {
                let (database, options) = tail.split_once('?').unwrap_or((tail, ""));
                (database_of(database)?, options)
            }
            // Without the slash an @ would end the user info (URI-1).
            None if tail.contains('@') => return Err(ConnectionStringError::StrayAt { after: "a ? without a /" }),
            None => (None, tail.strip_prefix('?').unwrap_or_default()),
        };
        Ok(Self { srv, user, hosts, database, options: pairs(options)?, doubtful: options.contains('@') })
    }
}

/// URI-2.
fn user_info(text: &str) -> Result<UserInfo, ConnectionStringError> {
    let problem = ConnectionStringError::UserInfo;
    let (username, password) = text.split_once(':').map_or((text, None), |(name, word)| (name, Some(word)));
    if text.contains('@') {
        return Err(problem(UserInfoProblem::At));
    }
    if password.is_some_and(|password| password.contains(':')) {
        return Err(problem(UserInfoProblem::Colon));
    }
    let decode = |text| percent::decode(text).map_err(|error| problem(error.into()));
    Ok(UserInfo {
        username: decode(username)?.as_str().into(),
        password: password.map(decode).transpose()?.map(Secret::from),
    })
}

/// URI-3. `doubtful` text may be a part of a password, and is not shown.
fn host_list_of(text: &str, srv: bool, doubtful: bool) -> Result<Vec<ServerAddress>, ConnectionStringError> {
    if text.is_empty() {
        return Err(ConnectionStringError::NoHost);
    }
    let mut hosts = Vec::new();
    for (index, entry) in text.split(',').enumerate() {
        let host = hosts::read(entry).map_err(|problem| ConnectionStringError::Host {
            position: index + 1,
            host: Shown::new(hosts::without_port(entry), doubtful),
            problem,
        })?;
        if srv && host.has_port {
            return Err(ConnectionStringError::SrvHost("has a port, which its SRV records give"));
        }
        hosts.push(host.address);
    }
    match hosts.as_slice() {
        _ if !srv => Ok(hosts),
        [ServerAddress::Tcp { host, .. }] if !hosts::is_ip_address(host) => Ok(hosts),
        [_] => Err(ConnectionStringError::SrvHost("names an address instead of a host with SRV records")),
        _ => Err(ConnectionStringError::SrvHost("names more than one host")),
    }
}

/// URI-4.
fn database_of(text: &str) -> Result<Option<String>, ConnectionStringError> {
    if text.contains('@') {
        return Err(ConnectionStringError::StrayAt { after: "the first /" });
    }
    let name = percent::decode(text).map_err(ConnectionStringError::DatabaseEncoding)?;
    match name.chars().find(|c| "/\\ \"$\0".contains(*c)) {
        Some(character) => Err(ConnectionStringError::DatabaseCharacter { character }),
        None => Ok(Some(String::from(name.as_str())).filter(|name| !name.is_empty())),
    }
}

/// URI-5. An empty part between two `&` is ignored. No option has an `@` in its name, so there it is from a password.
pub(super) fn pairs(text: &str) -> Result<Vec<(&str, &str)>, ConnectionStringError> {
    let entries = text.split('&').enumerate().filter(|(_, entry)| !entry.is_empty());
    let read = entries.map(|(index, entry)| match entry.split_once('=') {
        Some((name, _)) if name.contains('@') => Err(ConnectionStringError::StrayAt { after: "the first ?" }),
        Some(pair) => Ok(pair),
        None => {
            let name = keys::find(entry).map(|key| key.name);
            Err(ConnectionStringError::IncompleteOption { position: index + 1, name })
        }
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn error(text: &str) -> String {
        Parts::read(text).err().unwrap().to_string()
    }

    #[test]
    fn every_part_is_found() {
        let parts = Parts::read("mongodb://al%3Aice:s%40crt@a:1,%2Ftmp%2Fb.sock/d%3Db?w=1&x=a=b&").unwrap();

        let user = parts.user.unwrap();
        assert_eq!((user.username.as_str(), user.password.as_ref().map(Secret::expose)), ("al:ice", Some("s@crt")));
        assert_eq!(parts.hosts, ["a:1", "/tmp/b.sock"].map(|host| host.parse().unwrap()));
        assert_eq!(parts.database.as_deref(), Some("d=b"));
        assert_eq!(parts.options, [("w", "1"), ("x", "a=b")]);
        assert!(!parts.srv && !parts.doubtful);
    }

    #[test]
    fn the_slash_before_the_options_may_be_left_out() {
        let parts = Parts::read("mongodb://a?w=1&x=mongodb://b").unwrap();

        assert_eq!((parts.database, parts.options), (None, alloc::vec![("w", "1"), ("x", "mongodb://b")]));
    }

    #[test]
    fn an_empty_password_is_one() {
        let password = |text| Parts::read(text).unwrap().user.unwrap().password.map(|word| word.expose().len());

        assert_eq!((password("mongodb://a@b"), password("mongodb://a:@b")), (None, Some(0)));
    }

    #[test]
    fn a_password_that_is_not_encoded_is_not_shown() {
        for password in
            ["1/hunter2", "hunter2/1", "hunter2/x?y", "1?hunter2", "1?hunter2=3", "hunter@2", "hunter2%", "a:hunter2"]
        {
            let text = error(&alloc::format!("mongodb://user:{password}@host/db"));
            assert!(!text.contains("hunter") && !text.contains("user:"), "{password}: {text}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        for (text, expected) in [
            ("mongo://a", "begin with mongodb:// or mongodb+srv://"),
            ("mongodb:///db", "there is no host"),
            ("mongodb://a,,b", "host 2, \"\", is empty"),
            ("mongodb://a,b:x", "host 2, \"b\", has a port that is not a number from 1 to 65535"),
            ("mongodb://a@b@c", "has an @ that is not encoded; write it as %40"),
            ("mongodb://a:b:c@d", "has a : that is not encoded; write it as %3A"),
            ("mongodb://a%zz@b", "write a % itself as %25"),
            ("mongodb://a/b$", "the database has the character '$'"),
            ("mongodb://a/b%00c", "the database has the character '\\0'"),
            ("mongodb://a/b%", "the database cannot be decoded"),
            ("mongodb://a/?w", "option 1, w, has no = and no value"),
            ("mongodb://a/?w=1&zz", "option 2 has no = and no value"),
            ("mongodb://a/?b@c/?w=1", "an @ stands after the first ?"),
            ("mongodb://a?w=b@c", "an @ stands after a ? without a /; write it as %40"),
            ("mongodb+srv://a,b", "names more than one host"),
            ("mongodb+srv://a:1", "has a port"),
            ("mongodb+srv://1.2.3.4", "names an address"),
        ] {
            assert!(error(text).contains(expected), "{text}: {}", error(text));
        }
    }

    #[test]
    fn length_is_bounded() {
        let long = alloc::format!("mongodb://{}", "a,".repeat(MAX_LENGTH));

        assert!(matches!(Parts::read(&long), Err(ConnectionStringError::TooLong { length: 131_082 })));
    }
}

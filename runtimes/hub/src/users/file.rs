//! The users file: TOML, written by `cmap-hub user add` and by hand.
//!
//! ```toml
//! [[user]]
//! name = "app"
//! upstream = "writer"                  # an identity of the configuration; without it, that of the connection string
//! scram-sha-256 = "SCRAM-SHA-256$15000:...$...:..."
//! [[user.allow]]
//! databases = ["shop"]
//! collections = ["*"]                  # default
//! commands = ["find", "getMore", "insert"]
//!
//! [[user]]
//! name = "nightly"
//! x509 = "CN=nightly,O=shop"           # the subject of its certificate, by which it logs in; also besides keys
//!
//! [[user]]
//! name = "reports"
//! group = "batch"
//! weight = 2                           # twice the part of another user of the group
//! running = 4                          # also waiting, connections
//! # ..
//! [[group]]
//! name = "batch"                       # and weight, running, waiting, connections of all its users
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cmap_core::connection::auth::{ScramHash, StoredKeys, StoredKeysError};
use serde::Deserialize;
use thiserror::Error;

use super::{Group, Pattern, Rule, Rules, Share, User, canonical};

/// The users file cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UsersFileError {
    /// It cannot be read.
    #[error("{}: the users file cannot be read; does it exist, and may the hub read it?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not TOML, or has a key or a value that it cannot have.
    #[error("{}: {problem}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What, and where.
        problem: String,
    },
    /// Two users have one name.
    #[error("{}: two users are called {name:?}; remove one", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Two groups have one name.
    #[error("{}: two groups are called {name:?}; remove one", path.display())]
    GroupTwice {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// A user has a group that is not there.
    #[error("{}: user {name:?} has the group {group:?}, which is not there; write a table [[group]] of this name", path.display())]
    NoGroup {
        /// The file.
        path: PathBuf,
        /// The user's name.
        name: String,
        /// The group's.
        group: String,
    },
    /// What a user or a group may have at once is nothing, or too much.
    #[error("{}: {whose}: {key} = {value}: {rule}", path.display())]
    Share {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        whose: String,
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
        /// What it has to be.
        rule: &'static str,
    },
    /// Two users have one certificate.
    #[error("{}: two users have x509 = {subject:?}; remove one", path.display())]
    CertificateTwice {
        /// The file.
        path: PathBuf,
        /// The certificate's subject.
        subject: String,
    },
    /// A user could never log in.
    #[error("{}: user {name:?} has neither scram-sha-256 nor scram-sha-1 nor x509; make keys by `cmap-hub user add`", path.display())]
    NoKeys {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Keys are malformed, or for the other mechanism.
    #[error("{}: user {name:?}: {key} cannot be used: {problem}; make it anew by `cmap-hub user add`", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The key in the file.
        key: &'static str,
        /// Why.
        problem: StoredKeysError,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    user: Vec<UserEntry>,
    #[serde(default)]
    group: Vec<GroupEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct UserEntry {
    name: String,
    upstream: Option<String>,
    #[serde(rename = "scram-sha-256")]
    scram_sha_256: Option<String>,
    #[serde(rename = "scram-sha-1")]
    scram_sha_1: Option<String>,
    x509: Option<String>,
    group: Option<String>,
    weight: Option<u32>,
    running: Option<u32>,
    waiting: Option<usize>,
    connections: Option<usize>,
    allow: Option<Vec<RuleEntry>>,
    #[serde(default)]
    deny: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupEntry {
    name: String,
    weight: Option<u32>,
    running: Option<u32>,
    waiting: Option<usize>,
    connections: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    #[serde(default = "all")]
    databases: Vec<String>,
    #[serde(default = "all")]
    collections: Vec<String>,
    #[serde(default = "all")]
    commands: Vec<String>,
}

fn all() -> Vec<String> {
    vec!["*".into()]
}

/// Reads a users file.
///
/// # Errors
/// It cannot be read or used: which file, which user, which key, and why.
pub fn read(path: &Path) -> Result<Vec<User>, UsersFileError> {
    let text = std::fs::read_to_string(path).map_err(|source| UsersFileError::Read { path: path.into(), source })?;
    parse(path, &text)
}

pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<User>, UsersFileError> {
    let form = |error: toml::de::Error| {
        // The excerpt could be a key.
        let line = error.span().map(|span| 1 + text.get(..span.start).unwrap_or_default().matches('\n').count());
        let place = line.map_or(String::new(), |line| format!("line {line}: "));
        UsersFileError::Form { path: path.into(), problem: format!("{place}{}", error.message()) }
    };
    let file: File = toml::from_str(text).map_err(form)?;
    let mut names = BTreeSet::new();
    if let Some(twice) = file.user.iter().find(|user| !names.insert(user.name.as_str())) {
        return Err(UsersFileError::Twice { path: path.into(), name: twice.name.clone() });
    }
    let mut subjects = BTreeSet::new();
    let named = file.user.iter().filter_map(|user| user.x509.as_deref());
    if let Some(twice) = named.map(canonical).find(|name| !subjects.insert(name.clone())) {
        return Err(UsersFileError::CertificateTwice { path: path.into(), subject: twice });
    }
    let mut groups = BTreeMap::new();
    for entry in file.group {
        let group = group(path, entry)?;
        if let Some(twice) = groups.insert(Arc::clone(&group.name), group) {
            return Err(UsersFileError::GroupTwice { path: path.into(), name: twice.name.as_ref().into() });
        }
    }
    file.user.into_iter().map(|entry| user(path, entry, &groups)).collect()
}

fn group(path: &Path, entry: GroupEntry) -> Result<Arc<Group>, UsersFileError> {
    let GroupEntry { name, weight, running, waiting, connections } = entry;
    let weight = checked(path, &format!("group {name:?}"), weight, running, connections)?;
    Ok(Arc::new(Group { name: name.into(), weight, running, waiting, connections }))
}

/// The weight, if it and the other limits are valid.
fn checked(
    path: &Path,
    whose: &str,
    weight: Option<u32>,
    running: Option<u32>,
    connections: Option<usize>,
) -> Result<u32, UsersFileError> {
    let weight = weight.unwrap_or(1);
    let wrong = |key, value, rule| UsersFileError::Share { path: path.into(), whose: whose.into(), key, value, rule };
    if !(1..=Share::MOST_WEIGHT).contains(&weight) {
        return Err(wrong("weight", weight.into(), "write 1 to 1000"));
    }
    if running == Some(0) {
        return Err(wrong("running", 0, "write at least 1"));
    }
    if connections == Some(0) {
        return Err(wrong("connections", 0, "write at least 1"));
    }
    Ok(weight)
}

fn user(path: &Path, entry: UserEntry, groups: &BTreeMap<Arc<str>, Arc<Group>>) -> Result<User, UsersFileError> {
    let name: Arc<str> = entry.name.as_str().into();
    let UserEntry { running, waiting, connections, .. } = entry;
    let weight = checked(path, &format!("user {name:?}"), entry.weight, running, connections)?;
    let group = entry.group.map(|group| match groups.get(group.as_str()) {
        Some(group) => Ok(Arc::clone(group)),
        None => Err(UsersFileError::NoGroup { path: path.into(), name: entry.name.clone(), group }),
    });
    let share = Share { weight, running, waiting, connections, group: group.transpose()? };
    let read = |key: &'static str, hash: ScramHash, text: Option<String>| {
        let parsed = text.map(|text| text.parse::<StoredKeys>()).transpose();
        let of_hash = parsed.and_then(|keys| match keys {
            Some(keys) if keys.hash() != hash => Err(StoredKeysError::Mechanism),
            keys => Ok(keys),
        });
        let name = entry.name.clone();
        of_hash.map_err(|problem| UsersFileError::Keys { path: path.into(), name, key, problem })
    };
    let sha_256 = read("scram-sha-256", ScramHash::Sha256, entry.scram_sha_256)?;
    let sha_1 = read("scram-sha-1", ScramHash::Sha1, entry.scram_sha_1)?;
    let keys: Vec<_> = [sha_256, sha_1].into_iter().flatten().collect();
    if keys.is_empty() && entry.x509.is_none() {
        return Err(UsersFileError::NoKeys { path: path.into(), name: entry.name });
    }
    let allow = entry.allow.map(|rules| rules.into_iter().map(rule).collect());
    let rules = Rules { allow, deny: entry.deny.into_iter().map(rule).collect() };
    let certificate = entry.x509.map(|subject| canonical(&subject).into());
    Ok(User { name, upstream: entry.upstream.map(Into::into), rules, share, keys, certificate })
}

fn rule(entry: RuleEntry) -> Rule {
    let patterns = |texts: Vec<String>| texts.into_iter().map(Pattern::new).collect();
    Rule {
        databases: patterns(entry.databases),
        collections: patterns(entry.collections),
        commands: patterns(entry.commands),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "SCRAM-SHA-1$4096:c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn told(text: &str) -> String {
        parse(Path::new("users.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_user_has_keys_an_identity_and_rules() {
        let text = format!(
            "[[user]]\nname = 'app'\nupstream = 'writer'\nscram-sha-1 = '{KEYS}'\n[[user.allow]]\ncommands = ['find']\n"
        );

        let users = parse(Path::new("users.toml"), &text).unwrap();

        let [user] = users.as_slice() else { panic!("{users:?}") };
        assert_eq!((&*user.name, user.upstream.as_deref(), user.keys.len()), ("app", Some("writer"), 1));
        let allowed = user.rules.allow.as_ref().unwrap();
        assert_eq!(
            (allowed[0].databases[0].to_string(), allowed[0].commands[0].to_string()),
            ("*".into(), "find".into())
        );
    }

    #[test]
    fn a_user_has_a_part_of_its_groups_part_x_135() {
        let text = format!(
            "[[group]]\nname = 'batch'\nrunning = 9\n[[user]]\nname = 'a'\nscram-sha-1 = '{KEYS}'\ngroup = 'batch'\nweight = 2\n"
        );

        let users = parse(Path::new("users.toml"), &text).unwrap();

        let share = &users[0].share;
        assert_eq!((share.weight, share.running, share.group.as_ref().unwrap().running), (2, None, Some(9)));
        let without = text.replace("[[group]]\nname = 'batch'\nrunning = 9\n", "");
        assert!(told(&without).contains("user \"a\" has the group \"batch\", which is not there"));
        assert_eq!(told(&text.replace("9", "0")), "users.toml: group \"batch\": running = 0: write at least 1");
        assert_eq!(told(&text.replace("t = 2", "t = 0")), "users.toml: user \"a\": weight = 0: write 1 to 1000");
    }

    #[test]
    fn a_mistake_is_named_with_file_user_and_key() {
        assert_eq!(
            told("[[user]]\nname = 'a'\npassword = 'x'\n").lines().next().unwrap(),
            "users.toml: line 3: unknown field `password`, expected one of `name`, `upstream`, `scram-sha-256`, \
             `scram-sha-1`, `x509`, `group`, `weight`, `running`, `waiting`, `connections`, `allow`, `deny`"
        );
        assert!(told("[[user]]\nname = 'a'\n").contains("user \"a\" has neither scram-sha-256 nor scram-sha-1"));
        assert_eq!(
            told(&format!("[[user]]\nname = 'a'\nscram-sha-256 = '{KEYS}'\n")),
            "users.toml: user \"a\": scram-sha-256 cannot be used: its mechanism is neither SCRAM-SHA-1 nor SCRAM-SHA-256; \
             make it anew by `cmap-hub user add`"
        );
        let twice = format!("[[user]]\nname = 'a'\nscram-sha-1 = '{KEYS}'\n").repeat(2);
        assert_eq!(told(&twice), "users.toml: two users are called \"a\"; remove one");
        let shared = "[[user]]\nname = 'a'\nx509 = 'CN=a'\n[[user]]\nname = 'b'\nx509 = 'CN=a'\n";
        assert_eq!(told(shared), "users.toml: two users have x509 = \"CN=a\"; remove one");
    }
}

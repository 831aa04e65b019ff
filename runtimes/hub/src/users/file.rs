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
//! ```

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cmap_core::connection::auth::{ScramHash, StoredKeys, StoredKeysError};
use serde::Deserialize;
use thiserror::Error;

use super::{Pattern, Rule, Rules, User};

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
    /// A user could never log in.
    #[error("{}: user {name:?} has neither scram-sha-256 nor scram-sha-1; make keys by `cmap-hub user add`", path.display())]
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
    allow: Option<Vec<RuleEntry>>,
    #[serde(default)]
    deny: Vec<RuleEntry>,
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
    file.user.into_iter().map(|entry| user(path, entry)).collect()
}

fn user(path: &Path, entry: UserEntry) -> Result<User, UsersFileError> {
    let name: Arc<str> = entry.name.as_str().into();
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
    if keys.is_empty() {
        return Err(UsersFileError::NoKeys { path: path.into(), name: entry.name });
    }
    let allow = entry.allow.map(|rules| rules.into_iter().map(rule).collect());
    let rules = Rules { allow, deny: entry.deny.into_iter().map(rule).collect() };
    Ok(User { name, upstream: entry.upstream.map(Into::into), rules, keys })
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
    fn a_mistake_is_named_with_file_user_and_key() {
        assert_eq!(
            told("[[user]]\nname = 'a'\npassword = 'x'\n").lines().next().unwrap(),
            "users.toml: line 3: unknown field `password`, expected one of `name`, `upstream`, `scram-sha-256`, \
             `scram-sha-1`, `allow`, `deny`"
        );
        assert!(told("[[user]]\nname = 'a'\n").contains("user \"a\" has neither scram-sha-256 nor scram-sha-1"));
        assert_eq!(
            told(&format!("[[user]]\nname = 'a'\nscram-sha-256 = '{KEYS}'\n")),
            "users.toml: user \"a\": scram-sha-256 cannot be used: its mechanism is neither SCRAM-SHA-1 nor SCRAM-SHA-256; \
             make it anew by `cmap-hub user add`"
        );
        let twice = format!("[[user]]\nname = 'a'\nscram-sha-1 = '{KEYS}'\n").repeat(2);
        assert_eq!(told(&twice), "users.toml: two users are called \"a\"; remove one");
    }
}

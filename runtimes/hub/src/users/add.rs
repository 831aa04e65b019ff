//! `cmap-hub user add`: makes keys of a password, and writes a user to the end of the users file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cmap_core::connection::auth::{LoginError, ScramHash, StoredKeys};
use cmap_core::options::Secret;
use thiserror::Error;

use super::file::{UsersFileError, parse};

/// A user to be written.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// The name.
    pub name: String,
    /// The password, which is not kept.
    pub password: Secret,
    /// The identity upstream.
    pub upstream: Option<String>,
}

/// No user was written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AddUserError {
    /// There is no password.
    #[error("the password is empty; write it to standard input")]
    Empty,
    /// The name is one that no driver can send.
    #[error("a user name is not empty and has no control characters; choose another one")]
    Name,
    /// SASLprep does not allow the password.
    #[error("{0}; choose another password")]
    Password(LoginError),
    /// The system has no random bits.
    #[error("the system gives no random bits, of which the salt is made; see why its source of them fails")]
    NoRandomBits,
    /// The file, as it is or would be, cannot be used.
    #[error("{0}")]
    File(#[from] UsersFileError),
    /// It cannot be written.
    #[error("{}: the users file cannot be written; may you write it?", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes a user to the end of the users file, which is made if it does not exist, for its owner's eyes only.
///
/// # Errors
/// The user exists, or cannot be made, or the file cannot be written. Then the file is as before.
pub fn add(path: &Path, user: &NewUser) -> Result<(), AddUserError> {
    if user.password.expose().is_empty() {
        return Err(AddUserError::Empty);
    }
    if user.name.is_empty() || user.name.chars().any(char::is_control) {
        return Err(AddUserError::Name);
    }
    let before = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(UsersFileError::Read { path: path.into(), source }.into()),
    };
    let entry = entry(user)?;
    let separator = if before.is_empty() || before.ends_with("\n\n") { "" } else { "\n" };
    let entry = format!("{separator}{entry}");
    // As it will be read: that refuses a name that is there already.
    parse(path, &format!("{before}{entry}"))?;
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(entry.as_bytes()));
    written.map_err(|source| AddUserError::Write { path: path.into(), source })
}

fn entry(user: &NewUser) -> Result<String, AddUserError> {
    let mut text = format!("[[user]]\nname = {}\n", toml_string(&user.name));
    if let Some(upstream) = &user.upstream {
        text.push_str(&format!("upstream = {}\n", toml_string(upstream)));
    }
    for (hash, key) in [(ScramHash::Sha256, "scram-sha-256"), (ScramHash::Sha1, "scram-sha-1")] {
        let mut salt = vec![0; StoredKeys::salt_length(hash)];
        getrandom::fill(&mut salt).map_err(|_| AddUserError::NoRandomBits)?;
        let iterations = StoredKeys::default_iterations(hash);
        let keys = StoredKeys::new(hash, &user.name, &user.password, &salt, iterations);
        let keys = keys.map_err(AddUserError::Password)?;
        text.push_str(&format!("{key} = \"{}\"\n", keys.to_text()));
    }
    Ok(text)
}

/// A text without control characters, as TOML writes it.
fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::super::{Users, read};
    use super::*;

    fn new(name: &str, password: &str) -> NewUser {
        NewUser { name: name.into(), password: password.into(), upstream: None }
    }

    #[test]
    fn a_user_that_was_added_is_read_and_the_password_is_not_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");

        add(&path, &new("app", "tiger-lily")).unwrap();
        add(&path, &NewUser { upstream: Some("w".into()), ..new("a \"b\" \\", "x") }).unwrap();

        assert!(!fs::read_to_string(&path).unwrap().contains("tiger-lily"));
        let users = Users::new(read(&path).unwrap(), [0; 32]);
        assert_eq!(users.all().map(|user| &*user.name).collect::<Vec<_>>(), ["a \"b\" \\", "app"]);
        assert_eq!(users.get("app").unwrap().keys.len(), 2);
    }

    #[test]
    fn a_user_is_not_added_twice_nor_without_a_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        add(&path, &new("app", "x")).unwrap();
        let before = fs::read_to_string(&path).unwrap();

        assert!(matches!(add(&path, &new("app", "y")), Err(AddUserError::File(UsersFileError::Twice { .. }))));
        assert!(matches!(add(&path, &new("b", "")), Err(AddUserError::Empty)));
        assert!(matches!(add(&path, &new("a\nb", "x")), Err(AddUserError::Name)));

        assert_eq!(fs::read_to_string(&path).unwrap(), before);
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_may_read_the_file() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        add(&path, &new("app", "x")).unwrap();

        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

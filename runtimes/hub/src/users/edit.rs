//! `cmap-hub user`: writes a user to the users file, gives one another password, or removes one. Whatever else is written there stays, with its
//! comments.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cmap_core::connection::auth::{LoginError, ScramHash, StoredKeys};
use cmap_core::options::Secret;
use thiserror::Error;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::User;
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

/// The users file was not changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EditUsersError {
    /// There is no password.
    #[error("the password is empty; write it to standard input")]
    Empty,
    /// The name is one that no driver can send.
    #[error("a user name is not empty and has no control characters; choose another one")]
    Name,
    /// SASLprep does not allow the password.
    #[error("{0}; choose another password")]
    Password(LoginError),
    /// The file has no such user.
    #[error("{}: there is no user {name:?}; see `cmap-hub user list`", path.display())]
    NoUser {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
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
pub fn add(path: &Path, user: &NewUser) -> Result<(), EditUsersError> {
    if user.name.is_empty() || user.name.chars().any(char::is_control) {
        return Err(EditUsersError::Name);
    }
    edit(path, &user.name, |users| {
        let mut table = Table::new();
        table.insert("name", value(&user.name));
        if let Some(upstream) = &user.upstream {
            table.insert("upstream", value(upstream));
        }
        set_keys(&mut table, &user.name, &user.password)?;
        // After all others: tables without a position would come between a user and its rules.
        table.set_position(Some(isize::MAX));
        users.push(table);
        Ok(())
    })
}

/// Gives a user another password. Its rules and limits stay.
///
/// # Errors
/// There is no such user, or no keys can be made of the password, or the file cannot be written. Then the file is as before.
pub fn set_password(path: &Path, name: &str, password: &Secret) -> Result<(), EditUsersError> {
    edit(path, name, |users| match users.iter_mut().find(|user| is_of(user, name)) {
        Some(user) => set_keys(user, name, password),
        None => Err(EditUsersError::NoUser { path: path.into(), name: name.into() }),
    })
}

/// Removes a user, with its rules.
///
/// # Errors
/// There is no such user, or the file cannot be written. Then the file is as before.
pub fn remove(path: &Path, name: &str) -> Result<(), EditUsersError> {
    edit(path, name, |users| {
        let index = users.iter().position(|user| is_of(user, name));
        users.remove(index.ok_or_else(|| EditUsersError::NoUser { path: path.into(), name: name.into() })?);
        Ok(())
    })
}

fn is_of(user: &Table, name: &str) -> bool {
    user.get("name").and_then(Item::as_str) == Some(name)
}

fn set_keys(user: &mut Table, name: &str, password: &Secret) -> Result<(), EditUsersError> {
    if password.expose().is_empty() {
        return Err(EditUsersError::Empty);
    }
    for (hash, key) in [(ScramHash::Sha256, "scram-sha-256"), (ScramHash::Sha1, "scram-sha-1")] {
        let mut salt = vec![0; StoredKeys::salt_length(hash)];
        getrandom::fill(&mut salt).map_err(|_| EditUsersError::NoRandomBits)?;
        let keys = StoredKeys::new(hash, name, password, &salt, StoredKeys::default_iterations(hash));
        user.insert(key, value(keys.map_err(EditUsersError::Password)?.to_text().as_str()));
    }
    Ok(())
}

/// Changes the user of this name in a file. What it says afterwards can be used, and the same of all others, or else it is as before.
fn edit(
    path: &Path,
    name: &str,
    change: impl FnOnce(&mut ArrayOfTables) -> Result<(), EditUsersError>,
) -> Result<(), EditUsersError> {
    let write = |source| EditUsersError::Write { path: path.into(), source };
    let _lock = lock(path).map_err(write)?;
    let before = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(UsersFileError::Read { path: path.into(), source }.into()),
    };
    // It says where a mistake is, without an excerpt, which could be a key.
    let users_before = parse(path, &before)?;
    let form = |problem: String| UsersFileError::Form { path: path.into(), problem };
    let mut document: DocumentMut = before.parse().map_err(|_| form("it is not TOML".into()))?;
    let users = document.entry("user").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let users = users.as_array_of_tables_mut();
    change(users.ok_or_else(|| form("write each user as a table [[user]]".into()))?)?;
    let after = document.to_string();
    let users_after = parse(path, &after)?;
    let others = |users: &[User]| {
        let others = users.iter().filter(|user| &*user.name != name);
        others.map(|user| format!("{user:?}")).collect::<Vec<_>>()
    };
    if others(&users_before) != others(&users_after) {
        return Err(form("its tables are in an order that cannot be kept; edit it by hand".into()).into());
    }
    replace(path, &after).map_err(write)
}

/// Keeps others from editing a file of this folder until the result is dropped.
#[cfg(unix)]
fn lock(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder)?;
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(folder)
}

#[cfg(not(unix))]
fn lock(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Puts a file in the place of another one, whose owner and mode it has: who reads it meanwhile has the old one or the new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link stays one.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new)?;
    let replaced = file
        .write_all(text.as_bytes())
        .and_then(|()| take_access(&file, path))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        // What is left of it is nobody's.
        let _ = fs::remove_file(&new);
    }
    replaced
}

#[cfg(unix)]
fn take_access(file: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};

    let Ok(before) = fs::metadata(path) else { return Ok(()) };
    let now = file.metadata()?;
    if (before.uid(), before.gid()) != (now.uid(), now.gid()) {
        fchown(file, Some(before.uid()), Some(before.gid()))?;
    }
    file.set_permissions(before.permissions())
}

#[cfg(not(unix))]
fn take_access(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
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

        assert!(matches!(add(&path, &new("app", "y")), Err(EditUsersError::File(UsersFileError::Twice { .. }))));
        assert!(matches!(add(&path, &new("b", "")), Err(EditUsersError::Empty)));
        assert!(matches!(add(&path, &new("a\nb", "x")), Err(EditUsersError::Name)));

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

    const WRITTEN_BY_HAND: &str = "# ours\n[[group]]\nname = \"batch\"\n\n";

    #[test]
    fn another_password_leaves_all_else_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        fs::write(&path, WRITTEN_BY_HAND).unwrap();
        add(&path, &new("app", "x")).unwrap();
        let rule = "group = \"batch\" # nightly\n[[user.allow]]\ncommands = [\"find\"]  # reads\n";
        fs::write(&path, fs::read_to_string(&path).unwrap() + rule).unwrap();
        let before = fs::read_to_string(&path).unwrap();

        set_password(&path, "app", &"y".into()).unwrap();

        let after = fs::read_to_string(&path).unwrap();
        let changed: Vec<_> = before.lines().zip(after.lines()).filter(|(one, other)| one != other).collect();
        assert_eq!(before.lines().count(), after.lines().count());
        assert!(changed.len() == 2 && changed.iter().all(|(_, line)| line.starts_with("scram-sha-")), "{after}");
        assert!(matches!(set_password(&path, "b", &"y".into()), Err(EditUsersError::NoUser { .. })));
    }

    #[test]
    fn rules_in_any_order_stay_with_their_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        for kinds in [["deny", "allow", "deny"], ["allow", "deny", "allow"], ["deny", "deny", "allow"]] {
            let _ = fs::remove_file(&path);
            add(&path, &new("app", "x")).unwrap();
            let rules = kinds.map(|kind| format!("[[user.{kind}]]\ncommands = [\"find\"]\n")).concat();
            fs::write(&path, fs::read_to_string(&path).unwrap() + &rules).unwrap();
            let before = format!("{:?}", read(&path).unwrap()[0]);

            add(&path, &new("ben", "x")).unwrap();
            set_password(&path, "ben", &"y".into()).unwrap();

            assert_eq!(format!("{:?}", read(&path).unwrap()[0]), before);
            remove(&path, "ben").unwrap();
            assert_eq!(format!("{:?}", read(&path).unwrap()), format!("[{before}]"));
        }
    }

    #[test]
    fn a_user_is_removed_with_its_rules() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        fs::write(&path, WRITTEN_BY_HAND).unwrap();
        add(&path, &new("app", "x")).unwrap();
        fs::write(&path, fs::read_to_string(&path).unwrap() + "[[user.deny]]\ncommands = [\"drop\"]\n").unwrap();
        add(&path, &new("ben", "x")).unwrap();

        remove(&path, "app").unwrap();

        let after = fs::read_to_string(&path).unwrap();
        assert!(after.starts_with(WRITTEN_BY_HAND) && !after.contains("deny"), "{after}");
        assert_eq!(read(&path).unwrap().len(), 1);
        assert!(matches!(remove(&path, "app"), Err(EditUsersError::NoUser { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_and_a_mode_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("users.toml"), folder.path().join("link.toml"));
        add(&path, &new("app", "x")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();

        add(&link, &new("ben", "x")).unwrap();

        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!((read(&path).unwrap().len(), fs::read_dir(folder.path()).unwrap().count()), (2, 2));
    }
}

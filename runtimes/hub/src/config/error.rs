//! Mistakes in a configuration.

use std::io;
use std::path::PathBuf;

use cmap_core::options::ConnectionStringError;
use thiserror::Error;

use crate::users::UsersFileError;

/// The configuration cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{}: the file cannot be read; does it exist, and may the hub read it?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not TOML, or has a key that does not exist, or a value of the wrong type.
    #[error("{}: {problem}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Where, and what.
        problem: String,
    },
    /// A value breaks a rule.
    #[error("{}: {key} = {value}: {rule}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, with its tables.
        key: String,
        /// The value; not shown where it may be secret.
        value: String,
        /// What it has to be.
        rule: &'static str,
    },
    /// The connection string cannot be used.
    #[error("{}: upstream.uri: {source}", path.display())]
    Uri {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ConnectionStringError,
    },
    /// The users file cannot be used.
    #[error(transparent)]
    Users(#[from] UsersFileError),
}

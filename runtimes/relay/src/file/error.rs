//! Why a file cannot be used: it names the file, the key, the value and the rule, and never a secret.

use std::io;
use std::path::PathBuf;

use cmap_core::ErrorChain;
use thiserror::Error;

/// A file cannot be used.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is the matter.
    pub problem: FileProblem,
}

/// What is the matter with a file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// It cannot be read.
    #[error("it cannot be read ({0}); check the path, and that this user may read it")]
    Unreadable(io::Error),
    /// It is no TOML.
    #[error("line {line} is not TOML: {message}; correct the line")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong, in the parser's words.
        message: String,
    },
    /// The value of a key is against its rule.
    #[error("{key}{}: {rule}", value.as_ref().map(|value| format!(" = {value:?}")).unwrap_or_default())]
    Key {
        /// The key, from the top of the file.
        key: String,
        /// Its value, unless it may be a secret, or is none.
        value: Option<String>,
        /// The rule, and what to do.
        rule: String,
    },
}

impl FileProblem {
    pub(super) fn key(key: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Key { key: key.into(), value: None, rule: rule.into() }
    }

    pub(super) fn value(key: impl Into<String>, value: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Key { key: key.into(), value: Some(value.into()), rule: rule.into() }
    }

    /// The error of `key`, whose text says the rule.
    pub(super) fn of(key: impl Into<String>, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::key(key, ErrorChain(error).to_string())
    }
}

//! The expectations of a check, and its failure if one is not met.

use core::fmt::Debug;

use super::client::ClientError;

/// A check failed: an error, or a result that was not as expected.
#[derive(Debug, thiserror::Error)]
pub(super) enum Mismatch {
    /// The client failed where it should not have.
    #[error("{}", with_sources(.0))]
    Client(#[from] ClientError),
    /// An adapter's client failed where it should not have.
    #[error("{}", with_sources(.0))]
    Adapter(Box<cmap_runtime::Error>),
    /// Another result than expected, in words.
    #[error("{0}")]
    Other(String),
}

impl From<cmap_runtime::Error> for Mismatch {
    fn from(error: cmap_runtime::Error) -> Self {
        Self::Adapter(Box::new(error))
    }
}

/// Fails unless the two are equal.
pub(super) fn equal<T: PartialEq + Debug>(actual: T, expected: T, what: &str) -> Result<(), Mismatch> {
    if actual == expected {
        Ok(())
    } else {
        Err(Mismatch::Other(format!("{what}: {actual:?} instead of {expected:?}")))
    }
}

/// Fails unless the condition holds.
pub(super) fn holds(claim: bool, what: &str) -> Result<(), Mismatch> {
    if claim { Ok(()) } else { Err(Mismatch::Other(format!("not so: {what}"))) }
}

/// The value; fails if there is none.
pub(super) fn some<T>(value: Option<T>, what: &str) -> Result<T, Mismatch> {
    value.ok_or_else(|| Mismatch::Other(format!("missing: {what}")))
}

/// The error; fails if there is none.
pub(super) fn error<T>(result: Result<T, ClientError>, what: &str) -> Result<ClientError, Mismatch> {
    match result {
        Ok(_) => Err(Mismatch::Other(format!("no error came: {what}"))),
        Err(error) => Ok(error),
    }
}

/// Fails unless the server answered with the error of this code.
pub(super) fn code<T>(result: Result<T, ClientError>, code: i32, what: &str) -> Result<(), Mismatch> {
    let error = error(result, what)?;
    if error.code() == Some(code) {
        return Ok(());
    }
    Err(Mismatch::Other(format!("{what}: an error of code {code} was expected, not {}", with_sources(&error))))
}

pub(super) fn with_sources(error: &dyn std::error::Error) -> String {
    let causes = core::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

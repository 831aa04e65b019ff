//! The error that a check-out is expected to end with.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::suites::matching::is_anything;

/// The expected error. Missing fields are not compared.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ExpectedError {
    /// `type`.
    #[serde(rename = "type")]
    pub error_type: Option<ErrorType>,
    /// `message`: a string, or "anything".
    #[serde(default, deserialize_with = "text")]
    pub message: Option<Value>,
    /// `address` of the pool: a string, or "anything".
    #[serde(default, deserialize_with = "text")]
    pub address: Option<Value>,
}

/// The kinds of error that end a check-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum ErrorType {
    /// The pool is closed.
    PoolClosedError,
    /// The pool is paused, or was cleared.
    PoolClearedError,
    /// Its time was up.
    WaitQueueTimeoutError,
    /// The connection could not be established. Style "scenario".
    EstablishError,
    /// The caller gave up. Style "scenario".
    CancelledError,
    /// Too many wait already. Style "scenario".
    WaitQueueFullError,
}

impl ExpectedError {
    /// The type, or that any is allowed.
    pub fn name(&self) -> &'static str {
        self.error_type.map_or("of any type", ErrorType::name)
    }
}

impl ErrorType {
    /// As files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PoolClosedError => "PoolClosedError",
            Self::PoolClearedError => "PoolClearedError",
            Self::WaitQueueTimeoutError => "WaitQueueTimeoutError",
            Self::EstablishError => "EstablishError",
            Self::CancelledError => "CancelledError",
            Self::WaitQueueFullError => "WaitQueueFullError",
        }
    }

    /// Whether only style "scenario" has it: the specification has no type for these.
    pub(super) fn is_extension(self) -> bool {
        matches!(self, Self::EstablishError | Self::CancelledError | Self::WaitQueueFullError)
    }
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_string() || is_anything(&value) {
        Ok(Some(value))
    } else {
        Err(de::Error::custom(format!("expected a string or 42, not {value}")))
    }
}

//! The option of a pool that lets a key keep its connection.

use alloc::format;
use alloc::string::ToString;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::PoolOptionsError;

/// What a check-out with a key (`CheckOutRequest::affinity`) may rely on: the connection that its key had last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Affinity {
    /// It gets that connection if it is available, otherwise any other one, which is its key's from then on.
    Prefer,
    /// It gets that connection. If it is in use, it waits for it, and is served before all who wait for any connection
    ///
    Require,
    /// A key gets its connection or waits for it, and nobody else gets that connection for a time.
    Hold {
        /// Counted from each check-in; greater than zero. With it ends what the key may rely on.
        time: Duration,
        /// Whether a held connection that is idle serves a check-out that nothing else can serve.
        lend: bool,
    },
}

impl Affinity {
    /// The time of a hold in nanoseconds.
    pub(crate) fn hold_time(self) -> Option<u64> {
        match self {
            Self::Prefer | Self::Require => None,
            Self::Hold { time, .. } => Some(crate::time::nanos(time)),
        }
    }

    /// # Errors
    /// Connections are to be held for no time at all.
    pub(super) fn validate(self) -> Result<Self, PoolOptionsError> {
        match self {
            Self::Hold { time: time @ Duration::ZERO, .. } => Err(PoolOptionsError {
                option: "affinity",
                value: format!("a hold of {time:?}"),
                rule: "the time must be greater than 0".to_string(),
            }),
            Self::Prefer | Self::Require | Self::Hold { .. } => Ok(self),
        }
    }
}

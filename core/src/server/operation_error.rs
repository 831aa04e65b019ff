//! What an operation's error says about its server, and the state changes that servers announce in errors (SDAM-11 to
//! SDAM-13).

use serde::{Deserialize, Serialize};

#[cfg(feature = "wire")]
use crate::connection::SYSTEM_OVERLOADED_ERROR;
use crate::connection::{EstablishError, Fault, Phase};
use crate::pool::Cause;
use crate::topology_version::TopologyVersion;
#[cfg(feature = "wire")]
use crate::wire::{CommandReply, ServerError};

/// An operation on a connection in use failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OperationError {
    /// The side at fault.
    pub fault: Fault,
    /// The error, as the cause of the check-outs that are evicted because of it.
    pub cause: Cause,
    /// The state that the error announces.
    pub state_change: Option<StateChange>,
    /// The server's version of its topology at that moment: an older version changes nothing (SDAM-6).
    pub topology_version: Option<TopologyVersion>,
    /// Whether it is labelled SystemOverloadedError: unless it announces a change of state, it speaks of load alone.
    pub is_overload: bool,
}

/// The state change that a server announces in an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateChange {
    /// It is not a writable primary.
    NotWritablePrimary,
    /// It is recovering, or interrupted by an election.
    Recovering,
    /// It is shutting down; its connections are about to end (SDAM-15).
    ShuttingDown,
}

impl OperationError {
    /// An error that announces no change of the server.
    pub fn new(fault: Fault, cause: Cause) -> Self {
        Self { fault, cause, state_change: None, topology_version: None, is_overload: false }
    }

    /// The error that a reply reports: the failure of the command, or of its write concern (SDAM-13). `None` if it has
    /// neither. Errors of single writes do not concern the server.
    #[cfg(feature = "wire")]
    pub fn of_reply(reply: &CommandReply<'_>) -> Option<Self> {
        reply.failure().or_else(|| reply.write_concern_failure()).map(|error| Self::of_server(&error))
    }

    /// The operation error for an error that the server replied.
    #[cfg(feature = "wire")]
    pub fn of_server(error: &ServerError) -> Self {
        Self {
            state_change: StateChange::of(error.code, &error.message),
            topology_version: error.topology_version,
            is_overload: error.labels.iter().any(|label| label == SYSTEM_OVERLOADED_ERROR),
            ..Self::new(Fault::Server { code: error.code }, Cause::of(error))
        }
    }
}

impl StateChange {
    /// The change that an error announces: by its code alone, or by its message if it has no code (SDAM-12).
    pub fn of(code: Option<i32>, message: &str) -> Option<Self> {
        match code {
            Some(11600 | 91) => Some(Self::ShuttingDown),
            Some(11602 | 13436 | 189) => Some(Self::Recovering),
            Some(10107 | 13435 | 10058) => Some(Self::NotWritablePrimary),
            Some(_) => None,
            None if message.contains("node is recovering") || message.contains("not master or secondary") => {
                Some(Self::Recovering)
            }
            None if message.contains("not master") => Some(Self::NotWritablePrimary),
            None => None,
        }
    }

    /// The change that a server announces by refusing a connection.
    pub(crate) fn of_establish_error(error: &EstablishError) -> Option<Self> {
        let Fault::Server { code } = error.fault else { return None };
        Self::of(code, &error.message)
    }
}

// Here, because it asks for the state change.
impl EstablishError {
    /// Whether the server refused the credential. An error of the network says nothing of it, and neither does one that announces a
    /// change of the server: a server that shuts down or recovers refuses everybody.
    pub fn is_about_the_credential(&self) -> bool {
        self.phase == Phase::Authenticate
            && !matches!(self.fault, Fault::Network | Fault::Timeout)
            && StateChange::of_establish_error(self).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_counts_alone_and_the_message_only_without_one_sdam_12() {
        for (code, message, change) in [
            (Some(91), "", Some(StateChange::ShuttingDown)),
            (Some(11600), "", Some(StateChange::ShuttingDown)),
            (Some(189), "", Some(StateChange::Recovering)),
            (Some(10107), "node is recovering", Some(StateChange::NotWritablePrimary)),
            (Some(1), "not master", None),
            (None, "node is recovering", Some(StateChange::Recovering)),
            (None, "not master or secondary", Some(StateChange::Recovering)),
            (None, "not master", Some(StateChange::NotWritablePrimary)),
            (None, "out of memory", None),
        ] {
            assert_eq!(StateChange::of(code, message), change, "{code:?} {message}");
        }
    }

    #[test]
    fn codes_of_other_transient_errors_change_nothing_sdam_16() {
        for code in [6, 7, 89, 9001] {
            assert_eq!(StateChange::of(Some(code), "not master"), None);
        }
    }

    #[cfg(feature = "wire")]
    #[test]
    fn a_write_concern_error_counts_and_write_errors_do_not_sdam_13() {
        use alloc::vec;

        use bson::rawdoc;

        let shutdown = rawdoc! { "ok": 1, "writeConcernError": { "code": 91, "errmsg": "shutting down" } };
        let write_error = rawdoc! { "ok": 1, "writeErrors": [{ "index": 0, "code": 91 }] };

        let error = OperationError::of_reply(&CommandReply::read(&shutdown)).unwrap();
        assert_eq!(error.state_change, Some(StateChange::ShuttingDown));
        assert_eq!(OperationError::of_reply(&CommandReply::read(&write_error)), None);
    }
}

//! Why a command of a change stream fails, and which failures pass (CS-10).

use crate::retry::failure::LABELS_ITS_ERRORS;

/// The server has no such cursor: the stream goes on with another one.
const CURSOR_NOT_FOUND: i32 = 43;

/// The codes that can be resumed of a server older than MongoDB 4.4. Newer ones label their errors.
const CODES: [i32; 17] = [6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13388, 13435, 13436];

/// The label of an error that can be resumed.
const RESUMABLE: &str = "ResumableChangeStreamError";

/// Why a command of a change stream has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFailure {
    /// The connection was lost, a message broke the protocol, no reply came in time, there was no connection, or the server of the
    /// cursor has left.
    Unreached,
    /// The server replied with an error.
    Server {
        /// Its code.
        code: Option<i32>,
        /// Whether it has the label `ResumableChangeStreamError`.
        is_labelled: bool,
    },
    /// In the client: it was closed, or the reply has no readable batch.
    Client,
}

impl StreamFailure {
    /// A server's error.
    pub fn of_server(code: Option<i32>, has_label: impl FnOnce(&str) -> bool) -> Self {
        Self::Server { code, is_labelled: has_label(RESUMABLE) }
    }

    /// Whether a stream goes on after a getMore that failed so, at a server that speaks this version of the protocol.
    pub(super) fn can_be_resumed(self, max_wire_version: i32) -> bool {
        match self {
            Self::Unreached => true,
            Self::Client => false,
            Self::Server { code: Some(CURSOR_NOT_FOUND), .. } => true,
            Self::Server { is_labelled, .. } if max_wire_version >= LABELS_ITS_ERRORS => is_labelled,
            Self::Server { code, .. } => code.is_some_and(|code| CODES.contains(&code)),
        }
    }
}

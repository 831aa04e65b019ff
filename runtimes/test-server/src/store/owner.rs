//! Whose a cursor is: that of the session of the command that opened it or, without one, of its connection.

use bson::RawDocument;

use super::failure::{CommandFailure, code};

/// The bytes of a session's id.
const UUID: usize = 16;

/// The owner of a cursor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Session(Vec<u8>),
    Connection(u64),
    /// A caller without a connection.
    Nobody,
}

impl Owner {
    /// The owner of the cursors that a command opens.
    pub(super) fn of(body: &RawDocument, connection: Option<u64>) -> Self {
        let session = body.get_document("lsid").ok().and_then(|lsid| lsid.get_binary("id").ok());
        // A session is a UUID; whatever else is there has no end.
        let session = session.filter(|id| id.bytes.len() == UUID);
        match (session, connection) {
            (Some(id), _) => Self::Session(id.bytes.to_vec()),
            (None, Some(connection)) => Self::Connection(connection),
            (None, None) => Self::Nobody,
        }
    }

    /// Fails if this caller may not read the cursor: it belongs to the session that opened it, or to none.
    pub(super) fn lets(&self, cursor: i64, caller: &Self) -> Result<(), CommandFailure> {
        let (code, why) = match (self, caller) {
            (Self::Session(own), Self::Session(other)) if own == other => return Ok(()),
            (Self::Session(own), Self::Session(other)) => {
                (code::CURSOR_OF_OTHER_SESSION, format!("created in session {}, in session {}", hex(own), hex(other)))
            }
            (Self::Session(own), Self::Connection(_) | Self::Nobody) => {
                (code::CURSOR_OF_SESSION, format!("created in session {}, without an lsid", hex(own)))
            }
            (Self::Connection(_) | Self::Nobody, Self::Session(other)) => {
                (code::CURSOR_OF_NO_SESSION, format!("not created in a session, in session {}", hex(other)))
            }
            (Self::Connection(_) | Self::Nobody, Self::Connection(_) | Self::Nobody) => return Ok(()),
        };
        Err(CommandFailure::new(code, format!("Cannot run getMore on cursor {cursor}, which was {why}")))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

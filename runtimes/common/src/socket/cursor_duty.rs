//! What is to be done for the command under way if its caller gives it up.

use std::sync::Arc;

use cmap_core::session::SessionId;

use crate::runtime::chores::Chores;

/// The duty to end the cursor that the command under way makes, if the command is given up.
pub(crate) struct CursorDuty {
    pub(crate) chores: Arc<Chores>,
    /// The session of the command.
    pub(crate) session: Option<SessionId>,
}
